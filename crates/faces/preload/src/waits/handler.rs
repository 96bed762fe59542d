//! Does the calling thread run a signal handler?
//!
//! A handler may call `poll` and `select` in the middle of any call of its thread, also of one of
//! the device or of `malloc`, which holds a lock. Such a wait must not drive. The kernel's frame of
//! the handler is on the thread's stack, and begins with the address to which the handler returns.
//! So a look at the thread's own stack tells. A frame left behind by an earlier signal may count
//! too: then a wait does not drive, which costs time alone.

use super::program;
use core::ffi::c_int;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicUsize, Ordering};

const WORD: usize = size_of::<usize>();
/// The most bytes of a stack that are looked at. A thread with more in use does not drive.
const MOST: usize = 64 << 10;
const PAGE: usize = 4096;

/// The address to which handlers return. 0: not known.
static RETURN: AtomicUsize = AtomicUsize::new(0);
/// Bytes behind [`RETURN`] that count.
static RETURN_LEN: AtomicUsize = AtomicUsize::new(0);
/// The end of the first thread's stack.
static MAIN_END: AtomicUsize = AtomicUsize::new(0);
/// Thread pointers whose pages before them can be read. The lowest bits are the number of pages.
static STACKS: [AtomicUsize; 64] = [const { AtomicUsize::new(0) }; 64];
/// A thread pointer is aligned to more.
const PAGES: usize = 0x3f;

/// The kernel's structure of `rt_sigaction`.
#[repr(C)]
struct Action {
    handler: usize,
    flags: usize,
    restorer: usize,
    mask: u64,
}

extern "C" fn nothing(_: c_int) {}

/// Learns the addresses. The calling thread is not in a handler.
pub fn learn() {
    // SAFETY: only reads a value. The program's name lies at the end of the first thread's stack.
    let name = unsafe { libc::getauxval(libc::AT_EXECFN) };
    MAIN_END.store(name as usize & !(WORD - 1), Ordering::Relaxed);
    let (address, len) = return_address();
    RETURN_LEN.store(len, Ordering::Relaxed);
    RETURN.store(address, Ordering::Release);
}

/// Handlers return to the C library, which the kernel is told with each handler.
#[cfg(target_arch = "x86_64")]
fn return_address() -> (usize, usize) {
    // The last of the real-time signals, which hardly any program uses.
    let unused = 64;
    let ask = |new: *const Action, old: *mut Action| {
        // SAFETY: structures of the kernel, or null.
        unsafe { libc::syscall(libc::SYS_rt_sigaction, unused, new, old, size_of::<u64>()) }
    };
    let none = Action { handler: 0, flags: 0, restorer: 0, mask: 0 };
    let (mut before, mut set) = (MaybeUninit::new(none), MaybeUninit::<Action>::zeroed());
    if ask(core::ptr::null(), before.as_mut_ptr()) != 0 {
        return (0, 0);
    }
    // SAFETY: filled above, or a value from the beginning.
    let before = unsafe { before.assume_init() };
    if before.handler == libc::SIG_DFL {
        let mut own = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: all zeroes is a value; the handler does nothing.
        unsafe {
            (*own.as_mut_ptr()).sa_sigaction = nothing as extern "C" fn(c_int) as usize;
            libc::sigaction(unused, own.as_ptr(), core::ptr::null_mut());
        }
        ask(core::ptr::null(), set.as_mut_ptr());
        ask(&raw const before, core::ptr::null_mut());
        // SAFETY: all zeroes, or filled by the kernel.
        return (unsafe { set.assume_init() }.restorer, 1);
    }
    (before.restorer, 1)
}

/// Handlers return to the kernel's own page.
#[cfg(not(target_arch = "x86_64"))]
fn return_address() -> (usize, usize) {
    // SAFETY: only reads a value.
    (unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) } as usize, 2 * 4096)
}

/// The thread pointer, which lies behind the stack of a thread made by the C library.
fn thread_pointer() -> usize {
    let pointer: usize;
    // SAFETY: reads a register. On x86-64 the C library keeps a copy at its address.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        core::arch::asm!("mov {}, fs:0", out(reg) pointer, options(nostack, preserves_flags, readonly));
        #[cfg(target_arch = "aarch64")]
        core::arch::asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nostack, nomem));
    }
    pointer
}

/// Can the memory from here to the thread pointer be read? The stack of the thread can.
fn is_mapped(here: usize, own: usize) -> bool {
    let pages = own.wrapping_sub(here).div_ceil(PAGE);
    let Some(known) = STACKS.get(own / PAGE % STACKS.len()) else { return false };
    let seen = known.load(Ordering::Relaxed);
    if seen & !PAGES == own & !PAGES && seen & PAGES >= pages {
        return true;
    }
    let is_readable = (0..=pages).all(|n| program::is_page_readable(here / PAGE + n) == Some(true));
    if is_readable {
        known.store(own & !PAGES | pages & PAGES, Ordering::Relaxed);
    }
    is_readable
}

/// # Safety
/// A word of this thread's stack.
unsafe fn word_at(at: usize) -> usize {
    // SAFETY: the caller's promise.
    unsafe { core::ptr::with_exposed_provenance::<usize>(at).read_volatile() }
}

/// Is this the kernel's frame of a handler? A call of `sigaction` leaves the same address behind.
/// The frame goes on with flags, a null link, the alternate stack, and the registers, among them
/// the code segment of programs.
#[cfg(target_arch = "x86_64")]
fn is_frame(at: usize, end: usize) -> bool {
    const FLAGS: usize = WORD;
    const LINK: usize = 2 * WORD;
    const SEGMENTS: usize = (6 + libc::REG_CSGSFS as usize) * WORD;
    /// `UC_SIGCONTEXT_SS` and `UC_STRICT_RESTORE_SS`, which the kernel sets. `UC_FP_XSTATE` may be
    /// set, too.
    const SET: usize = 6;
    const CODE: usize = 0x33;
    if at + SEGMENTS >= end {
        return false;
    }
    // SAFETY: words of this thread's stack, before its end.
    let [flags, link, segments] =
        unsafe { [word_at(at + FLAGS), word_at(at + LINK), word_at(at + SEGMENTS)] };
    flags & !1 == SET && link == 0 && segments & 0xffff == CODE
}

#[cfg(not(target_arch = "x86_64"))]
fn is_frame(_: usize, _: usize) -> bool {
    true
}

/// May the calling thread drive? It is in no handler, as far as its stack shows, and has room on
/// its stack.
pub fn may_drive() -> bool {
    let address = RETURN.load(Ordering::Acquire);
    if address == 0 {
        return false;
    }
    let here = (&raw const address).addr() & !(WORD - 1);
    let (own, main) = (thread_pointer(), MAIN_END.load(Ordering::Relaxed));
    let is_near = |end: usize| here < end && end.wrapping_sub(here) <= MOST;
    // A stack of another kind, as of a handler with `SA_ONSTACK` or of a coroutine, has no known
    // end.
    let end = if is_near(main) {
        main
    } else if is_near(own) && is_mapped(here, own) {
        own
    } else {
        return false;
    };
    let last = address.wrapping_add(RETURN_LEN.load(Ordering::Relaxed));
    let mut at = here;
    while at < end {
        // SAFETY: a word of this thread's stack, between this frame and the end.
        let word = unsafe { word_at(at) };
        if (address..last).contains(&word) && is_frame(at, end) {
            return false;
        }
        at += WORD;
    }
    true
}
