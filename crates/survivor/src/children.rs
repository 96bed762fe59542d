//! SIGCHLD, which whoever started this process may have it ignore: then nothing can be learnt of
//! the ends of children.
use nix::sys::signal::{SigHandler, Signal, signal};
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
