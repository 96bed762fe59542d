//! SIGCHLD, which whoever started this process may have it ignore: then nothing can be learnt of
//! the ends of children.
use nix::errno::Errno;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{SigHandler, Signal, signal};
use nix::unistd::{getpid, getppid};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

/// This process was started with SIGCHLD ignored, and so are its programs to be.
static IGNORED: AtomicBool = AtomicBool::new(false);

/// From now on the ends of children are told.
pub fn see_children() {
    // SAFETY: no function of this process is set, and none was: it has just begun.
    if let Ok(SigHandler::SigIgn) = unsafe { signal(Signal::SIGCHLD, SigHandler::SigDfl) } {
        IGNORED.store(true, Ordering::Relaxed);
    }
}

/// A program begins with SIGCHLD as this process did.
pub fn give_back(command: &mut Command) {
    let ignored = IGNORED.load(Ordering::Relaxed);
    let ignore = move || {
        if ignored {
            // SAFETY: no function is set.
            unsafe { signal(Signal::SIGCHLD, SigHandler::SigIgn) }.map_err(io::Error::from)?;
        }
        Ok(())
    };
    // SAFETY: the function makes one system call.
    unsafe { command.pre_exec(ignore) };
}

/// The same for a program that becomes a child of this process. In addition the kernel kills the
/// program when the thread that starts it ends first, so that thread has to wait for the program.
pub fn prepare(command: &mut Command) {
    give_back(command);
    let parent = getpid();
    let follow = move || {
        set_pdeathsig(Signal::SIGKILL)?;
        // The signal is for ends from now on: the parent may have ended before.
        if getppid() == parent { Ok(()) } else { Err(Errno::ESRCH.into()) }
    };
    // SAFETY: the function makes two system calls, and allocates nothing.
    unsafe { command.pre_exec(follow) };
}
