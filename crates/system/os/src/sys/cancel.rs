//! Cancellation of threads by `pthread_cancel`.
use super::{check, wait::timespec};
use libc::c_int;
use std::cell::Cell;
use std::ffi::c_void;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::Duration;

const PTHREAD_CANCEL_DISABLE: c_int = 1;

macro_rules! declare {
    ($abi:literal) => {
        unsafe extern $abi {
            fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
            fn pthread_testcancel();
            fn ppoll(
                fds: *mut libc::pollfd,
                count: libc::nfds_t,
                timeout: *const libc::timespec,
                mask: *const libc::sigset_t,
            ) -> c_int;
            fn _pthread_cleanup_push(
                buffer: *mut Cleanup,
                routine: unsafe extern $abi fn(*mut c_void),
                of: *mut c_void,
            );
            fn _pthread_cleanup_pop(buffer: *mut Cleanup, run: c_int);
        }
        type Ppoll = unsafe extern $abi fn(
            *mut libc::pollfd,
            libc::nfds_t,
            *const libc::timespec,
            *const libc::sigset_t,
        ) -> c_int;
        /// Calls the closure at `of`, for a cancelled thread.
        unsafe extern $abi fn leave<F: FnMut()>(of: *mut c_void) {
            // SAFETY: `of` is the closure of `sleep`, which is on the stack of the cancelled
            // thread.
            unsafe { (*of.cast::<F>())() }
        }
    };
}

/// Room for the C library's entry of a cleanup handler: four words in glibc, three in musl.
type Cleanup = MaybeUninit<[usize; 4]>;

// A cancelled thread unwinds through its callers. With aborting panics, a call that may unwind
// would abort the process. A call of ABI "C" would not: the thread then passes through the callers
// without running their destructors.
#[cfg(panic = "unwind")]
declare!("C-unwind");
#[cfg(not(panic = "unwind"))]
declare!("C");

thread_local! {
    /// The cancellation state outside of [`Uncancelled`]; `None` if there is no such value.
    static OUTSIDE: Cell<Option<c_int>> = const { Cell::new(None) };
}

/// While the value lives, the thread can be cancelled only in [`wait_readable`] and [`sleep`], or
/// nowhere.
#[derive(Debug)]
pub struct Uncancelled {
    state: c_int,
    outside: Option<c_int>,
}

impl Uncancelled {
    /// For a call that waits. A cancellation point itself, like the waiting calls of the C library.
    #[must_use]
    pub fn begin() -> Self {
        // SAFETY: no arguments; this function holds nothing.
        unsafe { pthread_testcancel() };
        let state = set_state(PTHREAD_CANCEL_DISABLE);
        Uncancelled { state, outside: OUTSIDE.replace(Some(state)) }
    }
    /// For any other call, like the `ioctl` of rdma-core: neither this function nor
    /// [`wait_readable`] is a cancellation point.
    #[must_use]
    pub fn throughout() -> Self {
        let state = set_state(PTHREAD_CANCEL_DISABLE);
        Uncancelled { state, outside: OUTSIDE.replace(None) }
    }
}

/// Cancellation is disabled until [`Uncancellable::end`], over several calls.
#[derive(Clone, Copy, Debug)]
pub struct Uncancellable(c_int);

impl Uncancellable {
    /// Disables cancellation. Returns the state of before, as a number for a caller in C.
    #[must_use]
    pub fn begin() -> c_int {
        set_state(PTHREAD_CANCEL_DISABLE)
    }

    /// The value of [`Uncancellable::begin`].
    #[must_use]
    pub fn of(state: c_int) -> Self {
        Uncancellable(state)
    }

    /// Calls `with`, in which [`sleep`] is a cancellation point.
    pub fn waits<R>(self, with: impl FnOnce() -> R) -> R {
        let outside = OUTSIDE.replace(Some(self.0));
        let result = with();
        OUTSIDE.set(outside);
        result
    }

    /// Restores the state of before.
    pub fn end(self) {
        set_state(self.0);
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        OUTSIDE.set(self.outside);
        set_state(self.state);
    }
}

fn set_state(state: c_int) -> c_int {
    let mut old = 0;
    // SAFETY: a state of the C library, and room for the old state.
    unsafe { pthread_setcancelstate(state, &raw mut old) };
    old
}

/// The C library's `ppoll`, if the symbol of this name is another function.
static PPOLL: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// From now on this `ppoll` is called in place of the function that the loader finds: the preloaded
/// library has a function of this name.
///
/// # Safety
/// `real` is the C library's `ppoll`.
pub unsafe fn use_ppoll(real: *mut c_void) {
    PPOLL.store(real, Ordering::Release);
}

fn real_ppoll() -> Ppoll {
    let real = PPOLL.load(Ordering::Acquire);
    if real.is_null() {
        return ppoll;
    }
    // SAFETY: the promise of `use_ppoll`.
    unsafe { std::mem::transmute::<*mut c_void, Ppoll>(real) }
}

/// Waits until one of two descriptors is readable or the time is over. The thread can be cancelled
/// here if it could be cancelled outside of [`Uncancelled`]. Then `cancelled` is called.
///
/// # Errors
/// EINTR after a signal, ENOMEM.
pub fn wait_readable(
    fds: [BorrowedFd<'_>; 2],
    timeout: Option<Duration>,
    cancelled: impl FnMut(),
) -> io::Result<()> {
    let mut polls =
        fds.map(|fd| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 });
    sleep(&mut polls, timeout, Mask(ptr::null()), cancelled).map(drop)
}

/// The signals that are blocked during a [`sleep`].
#[derive(Clone, Copy, Debug)]
pub struct Mask(*const libc::sigset_t);

impl Mask {
    /// The set of the program at this address; null: the thread's own.
    ///
    /// # Safety
    /// The set is valid during the sleep, or the address is one that the kernel refuses.
    #[must_use]
    pub unsafe fn at(set: *const libc::sigset_t) -> Self {
        Mask(set)
    }
}

/// `ppoll`. The thread can be cancelled here if it could be cancelled outside of [`Uncancelled`].
/// Then `cancelled` is called.
///
/// # Errors
/// EINTR after a signal, ENOMEM.
pub fn sleep<F: FnMut()>(
    polls: &mut [libc::pollfd],
    timeout: Option<Duration>,
    mask: Mask,
    mut cancelled: F,
) -> io::Result<usize> {
    let timeout = timeout.map(timespec);
    let timeout = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
    let (ppoll, count) = (real_ppoll(), polls.len() as libc::nfds_t);
    let mut cleanup = Cleanup::uninit();
    let outside = OUTSIDE.get();
    let again = outside.map(|state| Uncancelled { state: set_state(state), outside });
    // SAFETY: the entries, the time, the mask and the closure live through the call. The handler is
    // removed before they end.
    let result = unsafe {
        _pthread_cleanup_push(&raw mut cleanup, leave::<F>, (&raw mut cancelled).cast());
        let ready = ppoll(polls.as_mut_ptr(), count, timeout, mask.0);
        let result = check(ready);
        _pthread_cleanup_pop(&raw mut cleanup, 0);
        result
    };
    drop(again);
    result.map(|ready| ready as usize)
}
