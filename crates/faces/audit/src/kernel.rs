//! System calls and string functions without a C library.

use core::ffi::{c_char, c_int};

#[cfg(target_arch = "x86_64")]
mod number {
    pub const READ: usize = 0;
    pub const CLOSE: usize = 3;
    pub const OPENAT: usize = 257;
    pub const FACCESSAT: usize = 269;
}

#[cfg(target_arch = "aarch64")]
mod number {
    pub const READ: usize = 63;
    pub const CLOSE: usize = 57;
    pub const OPENAT: usize = 56;
    pub const FACCESSAT: usize = 48;
}

/// `AT_FDCWD`.
const HERE: isize = -100;
/// `O_CLOEXEC`.
const CLOSE_ON_EXEC: usize = 0o2_000_000;

/// Performs a system call. Returns its result or a negative errno.
///
/// # Safety
/// As for the system call.
unsafe fn call(number: usize, [a, b, c, d]: [usize; 4]) -> isize {
    let result: isize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the kernel's calling convention: these registers in, one out, two overwritten.
    unsafe {
        core::arch::asm!("syscall", inlateout("rax") number as isize => result, in("rdi") a, in("rsi") b, in("rdx") c,
            in("r10") d, lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the kernel's calling convention: these registers in, one out.
    unsafe {
        core::arch::asm!("svc 0", in("x8") number, inlateout("x0") a as isize => result, in("x1") b, in("x2") c,
            in("x3") d, options(nostack));
    }
    result
}

/// Whether the path exists.
pub fn exists(path: *const c_char) -> bool {
    // SAFETY: the call only reads the path; the kernel refuses an invalid pointer.
    unsafe { call(number::FACCESSAT, [HERE.cast_unsigned(), path.addr(), 0, 0]) == 0 }
}

/// Opens a file for reading. Returns a negative errno on failure.
pub fn open(path: &'static core::ffi::CStr) -> isize {
    // SAFETY: `path` is a string.
    unsafe { call(number::OPENAT, [HERE.cast_unsigned(), path.as_ptr().addr(), CLOSE_ON_EXEC, 0]) }
}

/// Reads some bytes. Returns a negative errno on failure.
pub fn read(fd: isize, to: &mut [u8]) -> isize {
    // SAFETY: `to` is a buffer of this length.
    unsafe {
        call(number::READ, [fd.cast_unsigned(), to.as_mut_ptr().expose_provenance(), to.len(), 0])
    }
}

/// Closes a descriptor of this object.
pub fn close(fd: isize) {
    // SAFETY: this object owns the descriptor.
    unsafe { call(number::CLOSE, [fd.cast_unsigned(), 0, 0, 0]) };
}

/// A string without the zero byte. The reads are volatile, so that the compiler does not make a
/// call of `strlen`, which does not exist here.
///
/// # Safety
/// `text` points to a string.
pub unsafe fn bytes<'a>(text: *const c_char) -> &'a [u8] {
    let mut len = 0;
    // SAFETY: the loop stops at the zero byte, which the caller guarantees.
    unsafe {
        while text.add(len).read_volatile() as c_int != 0 {
            len += 1;
        }
        core::slice::from_raw_parts(text.cast(), len)
    }
}
