//! Passes advice on memory to the device.
//!
//! This library never calls its own functions by their exported names. Programs such as UCX replace
//! the functions that libraries find under these names, or overwrite the first bytes of a function
//! with a jump. If this library called the name, the program's function would call itself. So the
//! bodies are separate functions and are not inlined.

use core::ffi::{c_int, c_void};

use super::functions::{C_SYSCALL, MADVISE};
use super::hooks::hooks;
use crate::real::{call, errno, result, set_errno};
use crate::text::{decimal, join};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn adverb_preload_madvise(
    addr: *mut c_void,
    len: usize,
    advice: c_int,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { advise(addr, len, advice) }
}

/// The body of `madvise`.
#[inline(never)]
pub(super) unsafe fn advise(addr: *mut c_void, len: usize, advice: c_int) -> c_int {
    if let Some(hooks) = hooks() {
        let before = errno();
        let error = (hooks.advise)(addr as u64, len, advice);
        set_errno(before);
        return result(error);
    }
    call!(MADVISE: fn(addr => *mut c_void, len => usize, advice => c_int) -> c_int)
}

/// `PIDFD_SELF_THREAD` and `PIDFD_SELF_THREAD_GROUP` (Linux 6.14).
const SELF: [c_int; 2] = [-10000, -10001];

/// Does a pidfd refer to this process?
fn is_self(pidfd: c_int) -> bool {
    if SELF.contains(&pidfd) {
        return true;
    }
    let (mut number, mut path) = ([0; 20], [0; 48]);
    let digits = decimal(pidfd.unsigned_abs().into(), &mut number);
    let Some(path) = join(&mut path, [b"/proc/self/fdinfo/", digits, b""]) else { return false };
    let mut info = [0_u8; 512];
    // SAFETY: a terminated string, our own buffer, and our own descriptor.
    let len = unsafe {
        let fd = raw(
            libc::SYS_openat,
            [libc::AT_FDCWD as u64, path.as_ptr() as u64, libc::O_CLOEXEC as u64],
        );
        let len =
            raw(libc::SYS_read, [fd.cast_unsigned(), info.as_mut_ptr() as u64, info.len() as u64]);
        raw(libc::SYS_close, [fd.cast_unsigned(), 0, 0]);
        len
    };
    // SAFETY: the call has no arguments.
    let pid = unsafe { raw(libc::SYS_getpid, [0; 3]) };
    let Some(info) = usize::try_from(len).ok().and_then(|len| info.get(..len)) else {
        return false;
    };
    let mut number = [0; 20];
    let own = decimal(pid.cast_unsigned(), &mut number);
    info.split(|b| *b == b'\n').any(|line| line.strip_prefix(b"Pid:\t") == Some(own))
}

/// A system call with three arguments, without the interposed functions.
///
/// # Safety
/// As for the system call.
unsafe fn raw(number: i64, [a, b, c]: [u64; 3]) -> i64 {
    call!(C_SYSCALL: fn(number => i64, a => u64, b => u64, c => u64) -> i64)
}

/// Replaces the C library's function of this name (glibc 2.36).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn adverb_preload_process_madvise(
    pidfd: c_int,
    vectors: *const libc::iovec,
    count: usize,
    advice: c_int,
    flags: u32,
) -> isize {
    // SAFETY: the caller's arguments.
    unsafe { advise_many(pidfd, vectors, count, advice, flags) }
}

/// The body of `process_madvise`.
#[inline(never)]
pub(super) unsafe fn advise_many(
    pidfd: c_int,
    vectors: *const libc::iovec,
    count: usize,
    advice: c_int,
    flags: u32,
) -> isize {
    if flags == 0
        && count <= 1024
        && let Some(hooks) = hooks()
        && is_self(pidfd)
    {
        let done = (hooks.advise_many)(vectors, count, advice);
        if done < 0 {
            set_errno(-done as c_int);
            return -1;
        }
        return done;
    }
    call!(C_SYSCALL: fn(
        libc::SYS_process_madvise => i64, pidfd => c_int, vectors => *const libc::iovec, count => usize,
        advice => c_int, flags => u32) -> i64) as isize
}
