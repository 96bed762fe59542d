//! Processes and threads: privileges, time slices, signals, and the end of another process.
use super::{check, check_len};
use libc::c_int;
use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::time::{Duration, Instant};

/// Whether a file has capabilities, so that the loader ignores the environment of the starting
/// user.
#[must_use]
pub fn has_capabilities(path: &std::path::Path) -> bool {
    use std::os::unix::ffi::OsStrExt;
    let Ok(path) = std::ffi::CString::new(path.as_os_str().as_bytes()) else { return false };
    let name = c"security.capability";
    // SAFETY: two strings; without room for a value the kernel returns its length.
    unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), ptr::null_mut(), 0) > 0 }
}

/// A descriptor that is readable once the process has ended.
///
/// # Errors
/// No such process, no descriptors, or a kernel older than 5.3.
pub fn process_end(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: all arguments are integers.
    let fd = check_len(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) } as isize)?;
    // SAFETY: the kernel has just made the descriptor for this process, close-on-exec.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// Asks the scheduler to run this thread in time slices of `slice` nanoseconds. The thread's share
/// of the processor stays the same. But when the thread wakes, it runs before threads spinning in
/// longer slices. Linux 6.12; older kernels ignore the request.
///
/// # Errors
/// The kernel does not know the call, or a filter forbids it.
pub fn short_slices(slice: u64) -> io::Result<()> {
    let mut attr = MaybeUninit::<libc::sched_attr>::zeroed();
    let size = size_of::<libc::sched_attr>();
    // SAFETY: the kernel writes at most `size` bytes, and all zeroes is a valid value of the
    // structure.
    let mut attr = unsafe {
        check(libc::syscall(libc::SYS_sched_getattr, 0, attr.as_mut_ptr(), size, 0) as c_int)?;
        attr.assume_init()
    };
    if attr.sched_policy != libc::SCHED_OTHER as u32 {
        return Ok(());
    }
    attr.sched_runtime = slice;
    // SAFETY: the kernel reads a structure that contains its size.
    check(unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) } as c_int)
        .map(drop)
}

/// An environment variable with a choice for this process. `None` in a program with more privileges
/// than the starting user (set-user-ID, file capabilities), because the environment's author must
/// not get these privileges.
#[must_use]
pub fn chosen(name: &str) -> Option<std::ffi::OsString> {
    // SAFETY: no preconditions.
    let privileged = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    if privileged { None } else { std::env::var_os(name) }
}

/// The only user of this thread, if real, effective and saved user are the same.
pub fn only_uid() -> Option<u32> {
    let (mut real, mut effective, mut saved) = (0, 0, 0);
    // SAFETY: room for three numbers.
    let failed = unsafe { libc::getresuid(&raw mut real, &raw mut effective, &raw mut saved) };
    (failed == 0 && real == effective && effective == saved).then_some(effective)
}

pub fn effective_uid() -> u32 {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::geteuid() }
}

/// Signals with a handler of the program, and whether the handler asks for interrupted calls to be
/// restarted (SA_RESTART). Handlers of faults are left out: faults interrupt no call, and runtimes
/// install such handlers for themselves.
fn handlers() -> impl Iterator<Item = (c_int, bool)> {
    const FAULTS: [c_int; 6] =
        [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP, libc::SIGSYS];
    (1..=64).filter(|signal| !FAULTS.contains(signal)).filter_map(|signal| {
        let mut now = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: only reads the action, and all zeros is a valid action; the C library refuses its
        // own signals.
        let now = unsafe {
            check(libc::sigaction(signal, ptr::null(), now.as_mut_ptr())).ok()?;
            now.assume_init()
        };
        let is_handler = now.sa_sigaction != libc::SIG_DFL && now.sa_sigaction != libc::SIG_IGN;
        is_handler.then_some((signal, now.sa_flags & libc::SA_RESTART != 0))
    })
}

/// Whether all signal handlers of the program ask for interrupted calls to be restarted
/// (SA_RESTART).
#[must_use]
pub fn signals_restart() -> bool {
    let mut handlers = handlers();
    // Without any handler: the handler of the interrupting signal no longer exists.
    handlers.next().is_some_and(|(_, first)| first && handlers.all(|(_, restarts)| restarts))
}

/// Whether a signal may interrupt calls of the program while the program goes on: a handler without
/// SA_RESTART, of a signal that does not usually ask for the program's end.
#[must_use]
pub fn signals_interrupt() -> bool {
    const ENDS: [c_int; 7] = [
        libc::SIGHUP,
        libc::SIGINT,
        libc::SIGQUIT,
        libc::SIGTERM,
        libc::SIGABRT,
        libc::SIGPIPE,
        libc::SIGTSTP,
    ];
    handlers().any(|(signal, restarts)| !restarts && !ENDS.contains(&signal))
}

/// Waits for a signal of the program, for `limit` at most. `true` if a handler without SA_RESTART
/// has run in this thread. While the program has a timer of processor time, the wait uses this
/// time.
#[must_use]
pub fn await_signal(limit: Duration) -> bool {
    let until = Instant::now() + limit;
    let counts = [libc::ITIMER_VIRTUAL, libc::ITIMER_PROF].into_iter().any(runs);
    // The signal comes during the wait below, and not between two looks.
    let before = block_all_signals();
    let mut interrupts = false;
    while Instant::now() < until {
        let come = signals(|set| {
            // SAFETY: the set is valid.
            unsafe { libc::sigpending(set) };
        });
        // SAFETY: both sets are valid.
        let has = |signal: c_int| unsafe {
            libc::sigismember(&raw const come, signal) == 1
                && libc::sigismember(&raw const before, signal) == 0
        };
        interrupts = handlers().any(|(signal, restarts)| !restarts && has(signal));
        if (1..=libc::SIGRTMAX()).any(has) {
            break;
        }
        if counts {
            (0..1000).for_each(|_| std::hint::spin_loop());
        } else {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    // The handlers run here.
    set_signal_mask(&before);
    interrupts
}

/// Blocks all signals for this thread, and answers the mask of before.
pub(super) fn block_all_signals() -> libc::sigset_t {
    let all = signals(|set| {
        // SAFETY: the set is valid.
        unsafe { libc::sigfillset(set) };
    });
    set_signal_mask(&all)
}

/// Sets the signal mask of this thread, and answers the mask of before.
pub(super) fn set_signal_mask(mask: &libc::sigset_t) -> libc::sigset_t {
    signals(|before| {
        // SAFETY: both sets are valid.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, before) };
    })
}

/// A set of signals.
fn signals(fill: impl FnOnce(*mut libc::sigset_t)) -> libc::sigset_t {
    // SAFETY: a set is plain data.
    let mut set = unsafe { std::mem::zeroed() };
    fill(&raw mut set);
    set
}

/// Does this timer of the process run?
fn runs(timer: c_int) -> bool {
    // SAFETY: plain data, and a valid place.
    let mut value: libc::itimerval = unsafe { std::mem::zeroed() };
    // SAFETY: the place is valid.
    let known = unsafe { libc::getitimer(timer as _, &raw mut value) } == 0;
    known && (value.it_value.tv_sec, value.it_value.tv_usec) != (0, 0)
}

/// Asks the kernel whether a page of the stack is in memory, as done for shared memory.
///
/// # Errors
/// The kernel refuses the call.
pub fn ask_for_page() -> io::Result<()> {
    let mut there = 0_u8;
    // SAFETY: sysconf has no preconditions. mincore takes any address, and writes one byte.
    check(unsafe {
        let page = libc::sysconf(libc::_SC_PAGESIZE) as usize;
        let at = (&raw const there).addr() & !(page - 1);
        libc::syscall(libc::SYS_mincore, at, 1_usize, &raw mut there)
    } as c_int)
    .map(drop)
}
