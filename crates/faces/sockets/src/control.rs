//! Flags and types of descriptors, and calls that librspreload's sockets do not support.

use core::ffi::{c_int, c_uint, c_void};

use libc::{off64_t, stat};

use crate::next::{failed, next, replaced};
use crate::theirs::is_theirs;

/// `fcntl` of a socket of librspreload. The kernel keeps the flags of the descriptor.
fn of_theirs(fd: c_int, what: c_int, with: *mut c_void) -> c_int {
    if what == libc::F_GETFD || what == libc::F_SETFD {
        // SAFETY: the call reads or sets a flag of a descriptor.
        return unsafe { libc::syscall(libc::SYS_fcntl, fd, what, with) as c_int };
    }
    next!(new c"fcntl": fn(fd => c_int, what => c_int, with => *mut c_void) -> c_int)
}

replaced! {
    /// Replaces the function of this name. In C the third argument is variadic. On the supported
    /// machines it is passed like a fixed argument.
    c"fcntl" adverb_sockets_fcntl(fd: c_int, what: c_int, with: *mut c_void) -> c_int,
    if is_theirs(fd) => of_theirs(fd, what, with);
    /// The name of `fcntl` in programs with large file support.
    c"fcntl64" adverb_sockets_fcntl64(fd: c_int, what: c_int, with: *mut c_void) -> c_int,
    if is_theirs(fd) => of_theirs(fd, what, with);
    /// Replaces the function of this name. After an error the program uses `read` and `write`
    /// instead.
    c"sendfile" adverb_sockets_sendfile(
        to: c_int, from: c_int, at: *mut off64_t, len: usize) -> isize,
    if is_theirs(to) => failed(libc::EINVAL) as isize;
    c"sendfile64" adverb_sockets_sendfile64(
        to: c_int, from: c_int, at: *mut off64_t, len: usize) -> isize,
    if is_theirs(to) => failed(libc::EINVAL) as isize;
    c"splice" adverb_sockets_splice(
        from: c_int, from_at: *mut off64_t, to: c_int, to_at: *mut off64_t, len: usize,
        flags: c_uint) -> isize,
    if is_theirs(from) || is_theirs(to) => failed(libc::EINVAL) as isize;
    /// Replaces the function of this name. A socket of librspreload is refused: data that a program
    /// writes to a duplicate would be lost.
    c"dup" adverb_sockets_dup(fd: c_int) -> c_int,
    if is_theirs(fd) => failed(libc::EOPNOTSUPP);
}

/// Reports a descriptor of librspreload as a socket.
///
/// # Safety
/// `to` is null or has the result of a successful call.
unsafe fn as_socket(fd: c_int, to: *mut stat, said: c_int) -> c_int {
    if said == 0 && !to.is_null() && is_theirs(fd) {
        // SAFETY: the caller guarantees a valid result.
        unsafe { (*to).st_mode = (*to).st_mode & !libc::S_IFMT | libc::S_IFSOCK };
    }
    said
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn adverb_sockets_fstat(fd: c_int, to: *mut stat) -> c_int {
    let said = next!(new c"fstat": fn(fd => c_int, to => *mut stat) -> c_int);
    // SAFETY: the caller's result.
    unsafe { as_socket(fd, to, said) }
}

/// Replaces the function of this name. `stat64` has the same layout as `stat`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn adverb_sockets_fstat64(fd: c_int, to: *mut stat) -> c_int {
    let said = next!(new c"fstat64": fn(fd => c_int, to => *mut stat) -> c_int);
    // SAFETY: the caller's result.
    unsafe { as_socket(fd, to, said) }
}
