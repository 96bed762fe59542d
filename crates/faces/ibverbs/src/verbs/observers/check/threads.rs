//! What the threads of the process do, and the places of their code.
//!
//! The kernel shows the system call of a sleeping thread with its stack pointer. The stack then
//! shows the calls ([`Stacks`]). A thread that runs is interrupted by a signal, whose handler notes
//! the registers.
use super::fatal;
use super::stacks::{Stacks, registers};
use adverb_check::ThreadScene;
use adverb_threads::call::{Limit, Line, On};
use adverb_threads::{Process, Task};
use core::ffi::{c_int, c_void};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Most threads that are looked at.
const MOST: usize = 64;
/// The signal that interrupts running threads. By default it is ignored, and few programs use it.
const SAMPLE: Signal = Signal::SIGURG;
/// How long a running thread has to handle the signal.
const SAMPLE_WAIT: Duration = Duration::from_millis(20);

/// The threads of the process, without the device's own.
pub(super) fn all() -> Vec<ThreadScene> {
    let (stacks, own) = (Stacks::new(), nix::unistd::gettid().as_raw());
    let mut all = Process::Own.program_tasks().unwrap_or_default();
    all.retain(|(task, _)| task.id != own);
    all.sort_unstable_by_key(|(task, _)| task.id);
    let threads = all.into_iter().take(MOST);
    threads.filter_map(|(task, name)| thread(&stacks, task, name)).collect()
}

fn thread(stacks: &Stacks, task: Task, name: String) -> Option<ThreadScene> {
    let (line, id) = (task.line().ok()?, task.id);
    let mut thread = ThreadScene { id, name, ..ThreadScene::default() };
    if let Some((code, stack)) = fatal::registers_of(id) {
        let place = stacks.place(code, stack);
        return Some(ThreadScene { signalled: true, place, ..thread });
    }
    if let Line::Blocked(call) = line {
        let wait = call.wait();
        let name = wait.map_or("a system call", |wait| wait.name);
        thread.call = match wait.map(|wait| wait.on) {
            Some(On::Read(fd) | On::Epoll(fd)) => format!("{name}({fd})"),
            _ => name.to_owned(),
        };
        thread.limit_ms = match wait.map(|wait| wait.limit) {
            None | Some(Limit::Endless) => None,
            Some(Limit::For(time)) => Some(time.as_millis() as u64),
            Some(limit @ (Limit::Timespec(at) | Limit::Timeval(at))) => {
                let mut bytes = [0; 16];
                stacks.read(at as usize, &mut bytes);
                Some(limit.of_memory(bytes).map_or(0, |time| time.as_millis() as u64))
            }
        };
        let [stack, code] = call.registers;
        thread.place = stacks.place(code as usize, stack as usize);
    } else if let Some((code, stack)) = sample(id) {
        thread.place = stacks.place(code, stack);
    }
    Some(thread)
}

/// The thread to be interrupted.
static TARGET: AtomicI32 = AtomicI32::new(0);
/// The program counter that the thread's handler found.
static CODE: AtomicU64 = AtomicU64::new(0);
/// The stack pointer that the thread's handler found.
static POINTER: AtomicU64 = AtomicU64::new(0);

/// The registers of a running thread. `None` if the program handles the signal itself.
fn sample(id: i32) -> Option<(usize, usize)> {
    let action =
        SigAction::new(SigHandler::SigAction(note_registers), SaFlags::SA_RESTART, SigSet::empty());
    // SAFETY: the handler only reads its arguments and writes atomics.
    let old = unsafe { nix::sys::signal::sigaction(SAMPLE, &action) }.ok()?;
    let free = matches!(old.handler(), SigHandler::SigDfl);
    let mut found = None;
    if free {
        POINTER.store(0, Ordering::SeqCst);
        TARGET.store(id, Ordering::SeqCst);
        // SAFETY: a signal to a thread of this process, or to none if the thread has ended.
        unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), id, SAMPLE as c_int) };
        let end = Instant::now() + SAMPLE_WAIT;
        while found.is_none() && Instant::now() < end {
            std::thread::sleep(Duration::from_micros(200));
            let stack = POINTER.load(Ordering::SeqCst) as usize;
            found = (stack != 0).then(|| (CODE.load(Ordering::SeqCst) as usize, stack));
        }
        TARGET.store(0, Ordering::SeqCst);
    }
    // SAFETY: the action before.
    let _ = unsafe { nix::sys::signal::sigaction(SAMPLE, &old) };
    found
}

extern "C" fn note_registers(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: only reads a number.
    let id = unsafe { libc::syscall(libc::SYS_gettid) } as i32;
    if TARGET.load(Ordering::SeqCst) == id {
        // SAFETY: the kernel's context of this handler.
        let (code, stack) = unsafe { registers(context) };
        CODE.store(code as u64, Ordering::SeqCst);
        POINTER.store(stack as u64, Ordering::SeqCst);
    }
}
