//! SIGCHLD and SIGINT. A process can start with SIGCHLD ignored. Such a process cannot learn of the
//! end of a child.
use nix::errno::Errno;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction, signal};
use nix::unistd::{getpid, getppid};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

/// This process was started with SIGCHLD ignored, and must start programs in the same way.
static IGNORED: AtomicBool = AtomicBool::new(false);

/// SIGINT has come.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn note_signal(_: libc::c_int) {
    INTERRUPTED.store(true, Ordering::Relaxed);
}

/// Notes the first SIGINT, for [`is_interrupted`]. A second SIGINT ends the process. A process that
/// was started with SIGINT ignored goes on ignoring SIGINT.
pub fn note_interrupt() {
    let handler = SigHandler::Handler(note_signal);
    let note = SigAction::new(handler, SaFlags::SA_RESETHAND, SigSet::empty());
    // SAFETY: the handler makes one store to an atomic.
    if let Ok(old) = unsafe { sigaction(Signal::SIGINT, &note) }
        && matches!(old.handler(), SigHandler::SigIgn)
    {
        // SAFETY: no handler is set.
        let _ = unsafe { sigaction(Signal::SIGINT, &old) };
    }
}

/// Has SIGINT come since [`note_interrupt`]?
#[must_use]
pub fn is_interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

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
