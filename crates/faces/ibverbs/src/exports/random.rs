//! `getrandom` of this library alone. The standard library aborts the process if the C library's
//! function fails in an unexpected way, for example with ENOMEM by a seccomp filter. After ENOSYS
//! it reads `/dev/urandom`.
//!
//! The symbol is hidden: the program and other libraries have the C library's function.
use crate::errno;
use core::ffi::{c_uint, c_void};

#[cfg(not(test))]
core::arch::global_asm!(
    ".pushsection .text.adverb_random,\"ax\",@progbits",
    ".globl getrandom",
    ".hidden getrandom",
    ".type getrandom,@function",
    "getrandom:",
    crate::abi::by_processor!("jmp {target}", "b {target}"),
    ".size getrandom, . - getrandom",
    ".popsection",
    target = sym getrandom,
);

#[cfg_attr(test, expect(dead_code, reason = "only the shared object has the symbol"))]
unsafe extern "C" fn getrandom(to: *mut c_void, len: usize, flags: c_uint) -> isize {
    // SAFETY: the caller's arguments.
    let got = unsafe { libc::syscall(libc::SYS_getrandom, to, len, flags) } as isize;
    if got < 0 && !matches!(errno::last(), libc::EINTR | libc::EAGAIN) {
        errno::set(libc::ENOSYS);
    }
    got
}
