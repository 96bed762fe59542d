//! Cancellation of threads by `pthread_cancel`.
use super::{check, wait::timespec};
use libc::c_int;
use std::cell::Cell;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
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
        }
    };
}

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

/// While the value lives, the thread can be cancelled only in [`wait_readable`], or nowhere.
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

/// Restores a cancellation state on drop.
struct Again(c_int);

impl Drop for Again {
    fn drop(&mut self) {
        set_state(self.0);
    }
}

/// Waits until one of two descriptors is readable or the time is over. The thread can be cancelled
/// here if it could be cancelled outside of [`Uncancelled`].
///
/// # Errors
/// EINTR after a signal, ENOMEM.
pub fn wait_readable(fds: [BorrowedFd<'_>; 2], timeout: Option<Duration>) -> io::Result<()> {
    let mut polls =
        fds.map(|fd| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 });
    let timeout = timeout.map(timespec);
    let timeout = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
    let again = OUTSIDE.get().map(|state| Again(set_state(state)));
    // SAFETY: the two entries and the time, if any, live through the call; no signal mask.
    let result = check(unsafe { ppoll(polls.as_mut_ptr(), 2, timeout, ptr::null()) }).map(drop);
    drop(again);
    result
}
