//! Starts the survivor in its own process.
use crate::VARIABLE;
use crate::serve::{Objects, serve};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork, getpid, setsid};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

/// The name of a survivor's process. The reaper spares processes of this name.
pub(crate) const SURVIVOR: &std::ffi::CStr = c"adverb-survivor";

/// Starts the survivor of this process and its descendants. Returns the environment variable that
/// names the survivor. The survivor is not a child of this process, has no terminal, and keeps no
/// file of this process open. `objects` runs there, in a thread of its own.
///
/// # Errors
/// The error of the kernel. `Unsupported` if the process has more than one thread, because then a
/// copy is not safe.
pub fn leave_behind(objects: Objects) -> io::Result<(&'static str, String)> {
    one_thread()?;
    let name = format!(
        "adverb.survivor.{}.{:016x}",
        nix::unistd::geteuid(),
        getrandom::u64().map_err(|e| io::Error::other(e.to_string()))?
    );
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
    listener.set_nonblocking(true)?;
    let program = adverb_os::process_end(getpid().as_raw())?;
    if let Some(child) = copy()? {
        waitpid(child, None)?;
        return Ok((VARIABLE, name));
    }
    // Nothing below returns to the caller's code.
    let _ = setsid();
    match copy() {
        Ok(None) => stay(listener, program, objects),
        _ => std::process::exit(0),
    }
}

/// Runs `work` in a copy of the process, which then exits. Returns whether `work` succeeded;
/// `false` if the copy was killed.
///
/// # Errors
/// As [`leave_behind`].
pub fn in_a_copy(work: impl FnOnce() -> bool) -> io::Result<bool> {
    one_thread()?;
    let Some(child) = copy()? else {
        // If memory runs out, the kernel kills this copy first.
        let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
        std::process::exit(i32::from(!work()));
    };
    Ok(matches!(waitpid(child, None)?, WaitStatus::Exited(_, 0)))
}

pub(crate) fn one_thread() -> io::Result<()> {
    match std::fs::read_dir("/proc/self/task")?.count() {
        1 => Ok(()),
        _ => Err(io::Error::new(io::ErrorKind::Unsupported, "this process has several threads")),
    }
}

/// Copies this process, which has one thread. Returns `None` in the copy.
pub(crate) fn copy() -> io::Result<Option<nix::unistd::Pid>> {
    // SAFETY: the process has one thread, so no other thread can hold a lock at the fork.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => Ok(Some(child)),
        ForkResult::Child => Ok(None),
    }
}

fn stay(listener: UnixListener, program: OwnedFd, objects: Objects) -> ! {
    close_all_but([listener.as_raw_fd(), program.as_raw_fd()]);
    let _ = nix::sys::prctl::set_name(SURVIVOR);
    let _ = std::env::set_current_dir("/");
    if let Ok(null) = std::fs::File::options().read(true).write(true).open("/dev/null") {
        let _ = nix::unistd::dup2_stdin(&null);
        let _ = nix::unistd::dup2_stdout(&null);
        let _ = nix::unistd::dup2_stderr(&null);
    }
    // A process that waits for one of the closed files to end does not wait for the survivor.
    serve(&listener, &program, objects);
    std::process::exit(0)
}

/// Closes every descriptor except the standard descriptors and `kept`.
fn close_all_but(mut kept: [RawFd; 2]) {
    kept.sort_unstable();
    let mut from = 3;
    for fd in kept.into_iter().chain([RawFd::MAX]) {
        if fd > from {
            // SAFETY: this copy inherited the descriptors, and no code in the copy uses them.
            unsafe { libc::syscall(libc::SYS_close_range, from, fd - 1, 0) };
        }
        from = fd.saturating_add(1);
    }
}
