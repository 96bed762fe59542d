//! SIGCHLD. A process can start with SIGCHLD ignored. Such a process cannot learn of the end of a
//! child.
use nix::errno::Errno;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{SigHandler, Signal, signal};
use nix::unistd::{getpid, getppid};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

/// This process was started with SIGCHLD ignored, and must start programs in the same way.
static IGNORED: AtomicBool = AtomicBool::new(false);

/// Enables SIGCHLD, so this process learns of the end of a child.
pub fn see_children() {
    // SAFETY: no handler is set, and none was set before: the process has just begun.
    if let Ok(SigHandler::SigIgn) = unsafe { signal(Signal::SIGCHLD, SigHandler::SigDfl) } {
        IGNORED.store(true, Ordering::Relaxed);
    }
}

/// Gives a program the disposition of SIGCHLD with which this process started.
pub fn give_back(command: &mut Command) {
    let ignored = IGNORED.load(Ordering::Relaxed);
    let ignore = move || {
        if ignored {
            // SAFETY: no handler is set.
            unsafe { signal(Signal::SIGCHLD, SigHandler::SigIgn) }.map_err(io::Error::from)?;
        }
        Ok(())
    };
    // SAFETY: the function makes one system call.
    unsafe { command.pre_exec(ignore) };
}

/// The same for a program that becomes a child of this process. In addition, the kernel kills the
/// program if the thread that starts it ends first. So this thread must wait for the program.
pub fn prepare(command: &mut Command) {
    give_back(command);
    let parent = getpid();
    let follow = move || {
        set_pdeathsig(Signal::SIGKILL)?;
        // The signal covers only later ends, and the parent may have ended before the call.
        if getppid() == parent { Ok(()) } else { Err(Errno::ESRCH.into()) }
    };
    // SAFETY: the function makes two system calls, and allocates nothing.
    unsafe { command.pre_exec(follow) };
}
