//! Signals that end the process: the examiner's thread gets the time for its reports.
//!
//! A handler is set only for signals with the default action. The handler notes the signal and the
//! registers, waits until the examiner is done or cannot go on, and restores the default action. A
//! fault then happens again; any other signal is raised again. So the process ends as it would
//! without the handler.
//!
//! The examiner cannot go on if the interrupted thread holds a lock. A thread in the ledger or in
//! the device gets the signal later ([`crate::verbs::observers::uninterrupted`]). A fault cannot
//! come later, and a thread of the program may hold a lock of the C library. So the handler counts
//! how often it finds the examiner asleep. A runnable examiner without a processor does not count.
use super::stacks::{Stacks, registers};
use crate::verbs::observers::uninterrupted::postpone;
use adverb_check::CodeAddress;
use core::ffi::{c_int, c_void};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};

/// Faults: the instruction is executed again after the handler.
const FAULTS: [Signal; 4] = [Signal::SIGSEGV, Signal::SIGBUS, Signal::SIGFPE, Signal::SIGILL];
/// Other signals that end a process by default.
const OTHERS: [Signal; 8] = [
    Signal::SIGABRT,
    Signal::SIGALRM,
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGHUP,
    Signal::SIGXCPU,
    Signal::SIGVTALRM,
    Signal::SIGPROF,
];
/// Looks, a millisecond apart, that find the examiner asleep. Its own sleeps are fewer.
const ASLEEP: u32 = 400;

/// The process with these handlers.
static PROCESS: AtomicI32 = AtomicI32::new(0);
/// The raised signal.
static RAISED: AtomicI32 = AtomicI32::new(0);
/// The program counter at the signal.
static CODE: AtomicUsize = AtomicUsize::new(0);
/// The stack pointer at the signal.
static STACK: AtomicUsize = AtomicUsize::new(0);
/// The thread of the signal.
static THREAD: AtomicI32 = AtomicI32::new(0);
static EXAMINED: AtomicBool = AtomicBool::new(false);
/// The examiner's thread.
static EXAMINER: AtomicI32 = AtomicI32::new(0);

/// Asks for an examination, and does not end the process.
pub(super) const QUIT: c_int = Signal::SIGQUIT as c_int;

/// Sets the handlers, where the action is the default one. `quit`: SIGQUIT asks for an examination.
pub(super) fn watch(quit: bool) {
    PROCESS.store(std::process::id().cast_signed(), Ordering::SeqCst);
    RAISED.store(0, Ordering::SeqCst);
    EXAMINED.store(false, Ordering::SeqCst);
    let action = SigAction::new(
        SigHandler::SigAction(raise),
        SaFlags::SA_ONSTACK | SaFlags::SA_RESTART,
        SigSet::empty(),
    );
    let quit = quit.then_some(Signal::SIGQUIT);
    for signal in FAULTS.into_iter().chain(OTHERS).chain(quit) {
        // SAFETY: the handler makes only system calls and writes atomics.
        unsafe {
            let old = sigaction(signal, &action);
            // Another handler, or ignored: the program decides.
            if let Ok(old) = old
                && !matches!(old.handler(), SigHandler::SigDfl)
                && !is_our_handler(&old)
            {
                let _ = sigaction(signal, &old);
            }
        }
    }
}

fn is_our_handler(action: &SigAction) -> bool {
    matches!(action.handler(), SigHandler::SigAction(f) if f as usize == raise as *const () as usize)
}

/// The signal that is about to end this process.
pub(super) fn raised() -> Option<c_int> {
    let here = PROCESS.load(Ordering::SeqCst) == std::process::id().cast_signed();
    Some(RAISED.load(Ordering::SeqCst)).filter(|signal| here && *signal != 0)
}

/// The calling thread is the examiner.
pub(super) fn examines() {
    EXAMINER.store(own_thread(), Ordering::SeqCst);
}

fn own_thread() -> c_int {
    // SAFETY: only reads a number.
    unsafe { libc::syscall(libc::SYS_gettid) as c_int }
}

/// Does the examiner sleep? Called by the handler, so only system calls are made, and the preloaded
/// object does not see them.
fn is_examiner_asleep() -> bool {
    let mut path = [0_u8; 64];
    let thread = EXAMINER.load(Ordering::SeqCst);
    let _ = write!(&mut path[..], "/proc/self/task/{thread}/stat\0");
    let mut stat = [0_u8; 128];
    // SAFETY: a string, and our own buffer.
    let len = unsafe {
        let fd = libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), libc::O_RDONLY);
        let len = libc::syscall(libc::SYS_read, fd, stat.as_mut_ptr(), stat.len());
        libc::syscall(libc::SYS_close, fd);
        len
    };
    let stat = &stat[..usize::try_from(len).unwrap_or(0)];
    !stat.windows(3).any(|state| state == b") R")
}

/// Can the signal come later, because the thread goes on when the handler returns?
fn can_wait(signal: c_int) -> bool {
    !FAULTS.into_iter().chain([Signal::SIGABRT]).any(|own| own as c_int == signal)
}

/// The examiner has answered SIGQUIT. The process goes on.
pub(super) fn answered() {
    examined();
    RAISED.store(0, Ordering::SeqCst);
}

/// Is the interrupted thread in no call of the library? After a fault that is not known.
pub(super) fn is_outside() -> bool {
    raised().is_none_or(can_wait)
}

/// The examiner is done.
pub(super) fn examined() {
    EXAMINED.store(true, Ordering::SeqCst);
}

/// The registers of the thread that the signal came to.
pub(super) fn registers_of(thread: c_int) -> Option<(usize, usize)> {
    raised().filter(|_| THREAD.load(Ordering::SeqCst) == thread)?;
    Some((CODE.load(Ordering::SeqCst), STACK.load(Ordering::SeqCst)))
}

/// The place in the program at which a fault or an `abort` happened; 0 for none or unknown.
pub(super) fn place() -> CodeAddress {
    if raised().is_none_or(can_wait) {
        return 0;
    }
    Stacks::new().place(CODE.load(Ordering::SeqCst), STACK.load(Ordering::SeqCst))
}

extern "C" fn raise(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    if can_wait(signal) && postpone(signal) {
        return;
    }
    // SAFETY: only reads a number.
    let here = unsafe { libc::getpid() };
    // Another thread may fail in the same moment. A child made by vfork has no examiner.
    let first = RAISED.load(Ordering::SeqCst) == 0 && PROCESS.load(Ordering::SeqCst) == here;
    if first {
        // SAFETY: the kernel's context of this handler.
        let (code, stack) = unsafe { registers(context) };
        CODE.store(code, Ordering::SeqCst);
        STACK.store(stack, Ordering::SeqCst);
        EXAMINED.store(false, Ordering::SeqCst);
        THREAD.store(own_thread(), Ordering::SeqCst);
        RAISED.store(signal, Ordering::SeqCst);
        let millisecond = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000 };
        let mut asleep = 0;
        while !EXAMINED.load(Ordering::SeqCst) && asleep < ASLEEP {
            // SAFETY: a value on this stack.
            unsafe { libc::nanosleep(&raw const millisecond, core::ptr::null_mut()) };
            asleep += u32::from(is_examiner_asleep());
        }
    }
    if signal == QUIT {
        return;
    }
    // SAFETY: the default action, for this signal. A fault without a sender happens again by
    // itself; the signal is blocked until the handler returns.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        if (*info).si_code <= 0 || !FAULTS.into_iter().any(|fault| fault as c_int == signal) {
            libc::syscall(libc::SYS_tgkill, here, libc::syscall(libc::SYS_gettid), signal);
        }
    }
}
