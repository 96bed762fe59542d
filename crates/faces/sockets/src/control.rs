//! Flags and kinds of descriptors, and what librspreload's cannot do.

use core::ffi::{c_int, c_uint, c_void};

use libc::{off64_t, stat};

use crate::next::{failed, next};
use crate::theirs::is_theirs;

/// `fcntl` of one of librspreload's: flags of the descriptor are the kernel's.
fn of_theirs(fd: c_int, what: c_int, with: *mut c_void) -> c_int {
    if what == libc::F_GETFD || what == libc::F_SETFD {
        // SAFETY: a flag of a descriptor.
        return unsafe { libc::syscall(libc::SYS_fcntl, fd, what, with) as c_int };
    }
    next!(new c"fcntl": fn(fd => c_int, what => c_int, with => *mut c_void) -> c_int)
}

/// The function of this name. Its third argument is variable in C and is passed as a fixed one is
/// on the supported machines.
///
/// # Safety
/// That of the C library's function, as for all below.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn adverb_sockets_fcntl(fd: c_int, what: c_int, with: *mut c_void) -> c_int {
    match is_theirs(fd) {
        true => of_theirs(fd, what, with),
        false => next!(new c"fcntl": fn(fd => c_int, what => c_int, with => *mut c_void) -> c_int),
    }
}

/// The name by which programs with large files call `fcntl`.
///
/// # Safety
/// That of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn adverb_sockets_fcntl64(fd: c_int, what: c_int, with: *mut c_void) -> c_int {
    match is_theirs(fd) {
        true => of_theirs(fd, what, with),
        false => next!(new c"fcntl64": fn(fd => c_int, what => c_int, with => *mut c_void) -> c_int),
    }
}

/// Says of one of librspreload's that it is a socket.
///
/// # Safety
/// `to` is null or has what the call found.
unsafe fn as_socket(fd: c_int, to: *mut stat, said: c_int) -> c_int {
    if said == 0 && !to.is_null() && is_theirs(fd) {
        // SAFETY: the caller's promise.
        unsafe { (*to).st_mode = (*to).st_mode & !libc::S_IFMT | libc::S_IFSOCK };
    }
    said
}

/// The function of this name.
///
/// # Safety
/// That of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn adverb_sockets_fstat(fd: c_int, to: *mut stat) -> c_int {
    let said = next!(new c"fstat": fn(fd => c_int, to => *mut stat) -> c_int);
    // SAFETY: the caller's place.
    unsafe { as_socket(fd, to, said) }
}

/// The function of this name; the structure is the same.
///
/// # Safety
/// That of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn adverb_sockets_fstat64(fd: c_int, to: *mut stat) -> c_int {
    let said = next!(new c"fstat64": fn(fd => c_int, to => *mut stat) -> c_int);
    // SAFETY: the caller's place.
    unsafe { as_socket(fd, to, said) }
}

/// The function of this name: a program that is refused reads and writes instead.
///
/// # Safety
/// That of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn adverb_sockets_sendfile(
    to: c_int,
    from: c_int,
    at: *mut off64_t,
    len: usize,
) -> isize {
    if is_theirs(to) {
        return failed(libc::EINVAL) as isize;
    }
    next!(new c"sendfile": fn(to => c_int, from => c_int, at => *mut off64_t, len => usize) -> isize)
}

/// The function of this name.
///
/// # Safety
/// That of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn adverb_sockets_sendfile64(
    to: c_int,
    from: c_int,
    at: *mut off64_t,
    len: usize,
) -> isize {
    if is_theirs(to) {
        return failed(libc::EINVAL) as isize;
    }
    next!(new c"sendfile64": fn(to => c_int, from => c_int, at => *mut off64_t, len => usize) -> isize)
}

/// The function of this name.
///
/// # Safety
/// That of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn adverb_sockets_splice(
    from: c_int,
    from_at: *mut off64_t,
    to: c_int,
    to_at: *mut off64_t,
    len: usize,
    flags: c_uint,
) -> isize {
    if is_theirs(from) || is_theirs(to) {
        return failed(libc::EINVAL) as isize;
    }
    next!(new c"splice": fn(
        from => c_int, from_at => *mut off64_t, to => c_int, to_at => *mut off64_t, len => usize,
        flags => c_uint) -> isize)
}

/// The function of this name: nobody would see what is written to a duplicate.
///
/// # Safety
/// That of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn adverb_sockets_dup(fd: c_int) -> c_int {
    if is_theirs(fd) {
        return failed(libc::EOPNOTSUPP);
    }
    next!(new c"dup": fn(fd => c_int) -> c_int)
}
