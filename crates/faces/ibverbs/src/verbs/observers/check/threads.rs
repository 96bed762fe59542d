//! What the threads of the process do, and the places of their code.
//!
//! The kernel shows the system call of a sleeping thread with its stack pointer. The stack then
//! shows the calls ([`Stacks`]). A thread that runs is interrupted by a signal, whose handler notes
//! the registers.
use super::fatal;
use super::stacks::{Stacks, registers};
use adverb_check::ThreadScene;
use adverb_device::asleep::call::{Limit, Line, On, parse};
use adverb_device::asleep::is_ours as is_our_thread;
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
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return Vec::new() };
    let ids = tasks.flatten().filter_map(|task| task.file_name().to_str()?.parse::<i32>().ok());
    let (stacks, own) = (Stacks::new(), nix::unistd::gettid().as_raw());
    let leader = std::process::id().cast_signed();
    let mut all: Vec<_> = ids
        .filter(|id| *id != own)
        .filter_map(|id| {
            let name = std::fs::read_to_string(format!("/proc/self/task/{id}/comm")).ok()?;
            let name = name.trim_end().to_owned();
            (id == leader || !is_our_thread(&name)).then_some((id, name))
        })
        .take(MOST)
        .collect();
    all.sort_unstable();
    all.into_iter().filter_map(|(id, name)| thread(&stacks, id, name)).collect()
}

fn thread(stacks: &Stacks, id: i32, name: String) -> Option<ThreadScene> {
    let line = std::fs::read_to_string(format!("/proc/self/task/{id}/syscall")).ok()?;
    let mut thread = ThreadScene { id, name, ..ThreadScene::default() };
    if let Some((code, stack)) = fatal::registers_of(id) {
        let place = stacks.place(code, stack);
        return Some(ThreadScene { signalled: true, place, ..thread });
    }
    if let Some(Line::Blocked(call)) = parse(&line) {
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
        let registers: Vec<_> = line
            .split_whitespace()
            .rev()
            .take(2)
            .filter_map(|word| usize::from_str_radix(word.strip_prefix("0x")?, 16).ok())
            .collect();
        if let [code, stack] = registers[..] {
            thread.place = stacks.place(code, stack);
        }
    } else if let Some((code, stack)) = sample(id) {
        thread.place = stacks.place(code, stack);
    }
    Some(thread)
}

/// The thread to be interrupted; the program counter and the stack pointer that its handler found.
static TARGET: AtomicI32 = AtomicI32::new(0);
static CODE: AtomicU64 = AtomicU64::new(0);
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
