//! Memory of the program that a call names. The kernel answers EFAULT for an address without
//! memory, so nothing is read here that the kernel would refuse.

use crate::real::{errno, set_errno};

const PAGE: usize = 4096;
/// Pages above the stack pointer that count as the caller's frames.
const STACK: usize = 16;

/// Can `len` bytes be read at `at`? Keeps `errno`.
pub fn is_readable(at: *const u8, len: usize) -> bool {
    let (first, last) = (at.addr() / PAGE, at.addr().saturating_add(len.max(1) - 1) / PAGE);
    // Most programs pass memory of their own stack frames, which are above this one.
    let here = (&raw const first).addr() / PAGE;
    let is_stack = first >= here && last < here + STACK;
    // A filter of system calls may forbid the look. Then a bad address ends the program.
    let is_page = |page| is_page_readable(page) != Some(false);
    !at.is_null() && (is_stack || (first..=last).all(is_page))
}

/// Can the page be read? `None`: the kernel does not tell. Keeps `errno`.
pub fn is_page_readable(page: usize) -> Option<bool> {
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
    let readable = match (read, errno()) {
        (1, _) => Some(true),
        (_, libc::EFAULT) => Some(false),
        _ => None,
    };
    set_errno(before);
    readable
}
