//! A process of its own for the survivor.
use crate::VARIABLE;
use crate::serve;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork, getpid, setsid};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

/// The name of a survivor's process, by which the reaper spares it.
pub(crate) const SURVIVOR: &std::ffi::CStr = c"adverb-survivor";

/// Starts the survivor of this process and of what it starts. Answers the environment variable by
/// which they find it. The survivor is no child of this process, has no terminal, and keeps no file
/// of this process open.
///
/// # Errors
/// What the kernel refused. `Unsupported` when the process has more than one thread, so that it
/// cannot be copied safely.
pub fn leave_behind() -> io::Result<(&'static str, String)> {
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
        Ok(None) => stay(listener, program),
        _ => std::process::exit(0),
    }
}

/// Runs this in a copy of the process, which ends with it. Answers whether it succeeded; a copy
/// that was killed has not.
///
/// # Errors
/// As [`leave_behind`].
pub fn in_a_copy(work: impl FnOnce() -> bool) -> io::Result<bool> {
    one_thread()?;
    let Some(child) = copy()? else {
        // Where memory runs out, it is this process that ends.
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

/// Copies this process, which has one thread. `None` in the copy.
pub(crate) fn copy() -> io::Result<Option<nix::unistd::Pid>> {
    // SAFETY: the process has one thread, so no lock of another is left behind in the copy.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => Ok(Some(child)),
        ForkResult::Child => Ok(None),
    }
}

fn stay(listener: UnixListener, program: OwnedFd) -> ! {
    close_all_but([listener.as_raw_fd(), program.as_raw_fd()]);
    let _ = nix::sys::prctl::set_name(SURVIVOR);
    let _ = std::env::set_current_dir("/");
    if let Ok(null) = std::fs::File::options().read(true).write(true).open("/dev/null") {
        let _ = nix::unistd::dup2_stdin(&null);
        let _ = nix::unistd::dup2_stdout(&null);
        let _ = nix::unistd::dup2_stderr(&null);
    }
    // Whoever waits for one of these files to be closed waits for no survivor.
    serve::serve(&listener, &program);
    std::process::exit(0)
}

/// Closes every descriptor but the standard ones and these.
fn close_all_but(mut kept: [RawFd; 2]) {
    kept.sort_unstable();
    let mut from = 3;
    for fd in kept.into_iter().chain([RawFd::MAX]) {
        if fd > from {
            // SAFETY: descriptors of the process that this copy inherited; nothing in the copy uses
            // them.
            unsafe { libc::syscall(libc::SYS_close_range, from, fd - 1, 0) };
        }
        from = fd.saturating_add(1);
    }
}
