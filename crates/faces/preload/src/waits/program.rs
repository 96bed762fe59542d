//! Memory of the program that a call names. The kernel answers EFAULT for an address without
//! memory, so nothing is read here that the kernel would refuse.

use core::sync::atomic::{AtomicUsize, Ordering};

use crate::real::{errno, set_errno};

const PAGE: usize = 4096;
/// Pages above the stack pointer that count as the caller's frames.
const STACK: usize = 16;

/// Pages that have been read. A program passes the same memory again and again.
static SEEN: [AtomicUsize; 64] = [const { AtomicUsize::new(0) }; 64];

/// Can `len` bytes be read at `at`? Keeps `errno`.
pub fn is_readable(at: *const u8, len: usize) -> bool {
    let (first, last) = (at.addr() / PAGE, at.addr().saturating_add(len.max(1) - 1) / PAGE);
    // Most programs pass memory of their own stack frames, which are above this one.
    let here = (&raw const first).addr() / PAGE;
    let is_stack = first >= here && last < here + STACK;
    !at.is_null() && (is_stack || (first..=last).all(is_page_readable))
}

fn is_page_readable(page: usize) -> bool {
    let Some(seen) = SEEN.get(page % SEEN.len()) else { return false };
    if seen.load(Ordering::Relaxed) == page {
        return true;
    }
    let mut byte = 0_u8;
    let piece = |at: *mut u8| libc::iovec { iov_base: at.cast(), iov_len: 1 };
    let own = piece(&raw mut byte);
    let theirs = piece(core::ptr::without_provenance_mut(page * PAGE));
    let before = errno();
    // SAFETY: the kernel checks the program's address, and writes to our byte.
    let read = unsafe {
        let pid = libc::syscall(libc::SYS_getpid);
        let call = libc::SYS_process_vm_readv;
        libc::syscall(call, pid, &raw const own, 1_usize, &raw const theirs, 1_usize, 0_usize)
    };
    // A filter of system calls may forbid the call. Then a bad address ends the program.
    let readable = read == 1 || errno() != libc::EFAULT;
    set_errno(before);
    if readable {
        seen.store(page, Ordering::Relaxed);
    }
    readable
}
