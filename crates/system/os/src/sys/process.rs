//! Processes and threads: rights, slices, signals, the end of another.
use super::{check, check_len};
use libc::c_int;
use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::ptr;

/// Has a file capabilities, so that the loader ignores the environment of whoever runs it?
#[must_use]
pub fn has_capabilities(path: &std::path::Path) -> bool {
    use std::os::unix::ffi::OsStrExt;
    let Ok(path) = std::ffi::CString::new(path.as_os_str().as_bytes()) else { return false };
    let name = c"security.capability";
    // SAFETY: two strings; without room for a value the kernel answers how long it is.
    unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), std::ptr::null_mut(), 0) > 0 }
}

/// A descriptor that is readable once the process has ended.
///
/// # Errors
/// No such process, no descriptors, or a kernel older than 5.3.
pub fn process_end(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: plain integers.
    let fd = check_len(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) } as isize)?;
    // SAFETY: the kernel has just made it for this process, close-on-exec.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// Asks the scheduler to run this thread in slices so short, in nanoseconds: it gets no more of a
/// processor, but when it wakes it goes ahead of threads that spin through longer ones. Linux 6.12;
/// an older kernel takes no notice.
///
/// # Errors
/// The kernel's, if it knows nothing of this or a filter forbids it.
pub fn short_slices(slice: u64) -> io::Result<()> {
    let mut attr = std::mem::MaybeUninit::<libc::sched_attr>::zeroed();
    let size = size_of::<libc::sched_attr>();
    // SAFETY: the kernel writes at most `size` bytes, and all zeroes is a value of the structure
    // too.
    let mut attr = unsafe {
        check(libc::syscall(libc::SYS_sched_getattr, 0, attr.as_mut_ptr(), size, 0) as c_int)?;
        attr.assume_init()
    };
    if attr.sched_policy != libc::SCHED_OTHER as u32 {
        return Ok(());
    }
    attr.sched_runtime = slice;
    // SAFETY: the kernel reads a structure that says its size.
    check(unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) } as c_int).map(drop)
}

/// A variable of the environment by which somebody chooses what this process does; none in a
/// program with more rights than whoever started it (set-user-ID, file capabilities): those rights
/// are not for who has the environment.
#[must_use]
pub fn chosen(name: &str) -> Option<std::ffi::OsString> {
    // SAFETY: asks.
    let privileged = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    if privileged { None } else { std::env::var_os(name) }
}

/// The user that this thread is and can only be: its real, effective and saved user are one.
pub fn only_uid() -> Option<u32> {
    let (mut real, mut effective, mut saved) = (0, 0, 0);
    // SAFETY: three places for numbers.
    let failed = unsafe { libc::getresuid(&raw mut real, &raw mut effective, &raw mut saved) };
    (failed == 0 && real == effective && effective == saved).then_some(effective)
}

pub fn effective_uid() -> u32 {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::geteuid() }
}

/// Does the program ask for calls that a signal interrupts to be started again, of every handler it
/// has? Not those of faults, which interrupt no call and which runtimes install for themselves.
#[must_use]
pub fn signals_restart() -> bool {
    const FAULTS: [c_int; 6] =
        [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP, libc::SIGSYS];
    let mut handlers = (1..=64).filter(|signal| !FAULTS.contains(signal)).filter_map(|signal| {
        let mut now = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: the action is only asked for, and all zeros is one too; the C library refuses its
        // own signals.
        let now = unsafe {
            check(libc::sigaction(signal, ptr::null(), now.as_mut_ptr())).ok()?;
            now.assume_init()
        };
        let is_handler = now.sa_sigaction != libc::SIG_DFL && now.sa_sigaction != libc::SIG_IGN;
        is_handler.then_some(now.sa_flags & libc::SA_RESTART != 0)
    });
    // Without any, the one that interrupted is gone already.
    handlers.next().is_some_and(|first| first && handlers.all(|restarts| restarts))
}
