//! What the threads of the process do, and the places of their code.
//!
//! The kernel shows the system call of a sleeping thread with its stack pointer. The stack then
//! holds the return addresses of the calls. A thread that runs is interrupted by a signal, whose
//! handler notes the registers. In both cases the place is the innermost call in the program's own
//! code: the first word of the stack that points behind a call instruction there.
use super::fatal;
use super::report::is_ours;
use crate::verbs::caller::is_inline_function;
use adverb_check::{CodeAddress, ThreadScene};
use adverb_device::asleep::call::{Limit, Line, On, parse};
use adverb_device::asleep::is_ours as is_our_thread;
use core::ffi::{c_int, c_void};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Most threads that are looked at.
const MOST: usize = 64;
/// Bytes of a stack that are searched for a call of the program.
const STACK: usize = 32 << 10;
/// The signal that interrupts running threads. By default it is ignored, and few programs use it.
const SAMPLE: Signal = Signal::SIGURG;
/// How long a running thread has to handle the signal.
const SAMPLE_WAIT: Duration = Duration::from_millis(20);

/// The threads of the process, without the device's own.
pub(super) fn all() -> Vec<ThreadScene> {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return Vec::new() };
    let ids = tasks.flatten().filter_map(|task| task.file_name().to_str()?.parse::<i32>().ok());
    let mut stacks = Stacks::new();
    let leader = std::process::id().cast_signed();
    let mut all: Vec<_> = ids
        .filter(|id| *id != stacks.own)
        .filter_map(|id| {
            let name = std::fs::read_to_string(format!("/proc/self/task/{id}/comm")).ok()?;
            let name = name.trim_end().to_owned();
            (id == leader || !is_our_thread(&name)).then_some((id, name))
        })
        .take(MOST)
        .collect();
    all.sort_unstable();
    all.into_iter().filter_map(|(id, name)| stacks.thread(id, name)).collect()
}

/// The calls of the calling thread, and of the code in a signal's context.
pub(super) struct Stacks {
    memory: Option<File>,
    /// Executable mappings of the program: not the device's, and not the C library's.
    code: Vec<(usize, usize)>,
    own: i32,
}

impl Stacks {
    pub fn new() -> Stacks {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        Stacks {
            memory: File::open("/proc/self/mem").ok(),
            code: maps.lines().filter_map(code_in).collect(),
            own: nix::unistd::gettid().as_raw(),
        }
    }

    fn thread(&mut self, id: i32, name: String) -> Option<ThreadScene> {
        let line = std::fs::read_to_string(format!("/proc/self/task/{id}/syscall")).ok()?;
        let mut thread = ThreadScene { id, name, ..ThreadScene::default() };
        if let Some((code, stack)) = fatal::registers_of(id) {
            let place = self.place(code, stack);
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
                    self.read(at as usize, &mut bytes);
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
                thread.place = self.place(code, stack);
            }
        } else if let Some((code, stack)) = sample(id) {
            thread.place = self.place(code, stack);
        }
        Some(thread)
    }

    /// The innermost place in the program's code, for a thread with these registers; 0 if unknown.
    pub fn place(&self, code: usize, stack: usize) -> CodeAddress {
        if self.is_code(code) && !is_inline_function(code) {
            return code;
        }
        let mut bytes = vec![0; STACK];
        let read = self.read(stack, &mut bytes);
        let words = bytes[..read].chunks_exact(size_of::<usize>());
        let mut words = words.filter_map(|word| Some(usize::from_ne_bytes(word.try_into().ok()?)));
        let is_call = |word: &usize| self.is_code(*word) && self.follows_call(*word);
        words.find(|word| is_call(word) && !is_inline_function(word - 1)).map_or(0, |at| at - 1)
    }

    fn is_code(&self, address: usize) -> bool {
        self.code.iter().any(|(start, end)| (*start..*end).contains(&address))
    }

    /// Does a call instruction end at this address?
    #[cfg(target_arch = "x86_64")]
    fn follows_call(&self, address: usize) -> bool {
        let mut before = [0; 7];
        if self.read(address - 7, &mut before) < 7 {
            return false;
        }
        // A call of an address in a register or in memory: FF with 2 in the middle of the next
        // byte.
        let indirect = |len: usize| {
            let at = 7 - len;
            before[at] == 0xff && before[at + 1] >> 3 & 7 == 2
        };
        before[2] == 0xe8 || [2, 3, 4, 6, 7].into_iter().any(indirect)
    }

    #[cfg(target_arch = "aarch64")]
    fn follows_call(&self, address: usize) -> bool {
        let mut before = [0; 4];
        if self.read(address - 4, &mut before) < 4 {
            return false;
        }
        let instruction = u32::from_le_bytes(before);
        // BL, and BLR with any register.
        instruction >> 26 == 0b10_0101 || instruction & 0xffff_fc1f == 0xd63f_0000
    }

    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    fn follows_call(&self, _: usize) -> bool {
        false
    }

    /// Reads memory of the process through the kernel, because the memory may go at any moment.
    /// Answers the number of bytes read.
    fn read(&self, address: usize, into: &mut [u8]) -> usize {
        let Some(memory) = &self.memory else { return 0 };
        memory.read_at(into, address as u64).unwrap_or(0)
    }
}

/// The range of an executable mapping of the program, from a line of `/proc/self/maps`.
fn code_in(line: &str) -> Option<(usize, usize)> {
    let mut words = line.split_whitespace();
    let (range, rights) = (words.next()?, words.next()?);
    let path = words.nth(3)?;
    let (start, end) = range.split_once('-')?;
    let start = usize::from_str_radix(start, 16).ok()?;
    let end = usize::from_str_radix(end, 16).ok()?;
    let of_program = rights.as_bytes().get(2) == Some(&b'x') && path.starts_with('/');
    (of_program && !is_ours(start)).then_some((start, end))
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

/// The program counter and the stack pointer in the context of a signal handler.
///
/// # Safety
/// `context` is the third argument of a handler with `SA_SIGINFO`.
#[allow(clippy::unnecessary_cast, reason = "the types differ between processors")]
pub(super) unsafe fn registers(context: *mut c_void) -> (usize, usize) {
    // SAFETY: the caller's promise.
    let context = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext };
    #[cfg(target_arch = "x86_64")]
    return (
        context.gregs[libc::REG_RIP as usize] as usize,
        context.gregs[libc::REG_RSP as usize] as usize,
    );
    #[cfg(target_arch = "aarch64")]
    return (context.pc as usize, context.sp as usize);
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        let _ = context;
        (0, 0)
    }
}
