//! Calls on numbers of descriptors, and message headers.
use libc::{c_int, socklen_t};
use std::io;
use std::mem::{self, size_of};
use std::os::fd::RawFd;
use std::ptr;

pub(super) fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// A non-blocking socket.
pub(super) fn socket(domain: c_int, kind: c_int, protocol: c_int) -> io::Result<RawFd> {
    let kind = kind | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: all arguments are integers.
    check(unsafe { libc::socket(domain, kind, protocol) })
}

pub(super) fn check_len(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Accepts a connection without waiting. Not a cancellation point.
pub(super) fn accept_raw(listener: RawFd) -> io::Result<RawFd> {
    let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    let (nothing, no_len) = (ptr::null_mut::<libc::sockaddr>(), ptr::null_mut::<socklen_t>());
    // SAFETY: no address is requested.
    let fd = unsafe { libc::syscall(libc::SYS_accept4, listener, nothing, no_len, flags) };
    check(fd as c_int)
}

/// Sets an option. `T` is plain data.
pub(super) fn set_value<T: Copy>(
    fd: RawFd,
    level: c_int,
    name: c_int,
    value: &T,
) -> io::Result<()> {
    let (at, len) = (ptr::from_ref(value).cast(), size_of::<T>() as socklen_t);
    // SAFETY: `value` lives through the call and has `len` bytes; the kernel only reads it.
    check(unsafe { libc::setsockopt(fd, level, name, at, len) }).map(drop)
}

/// The value of an option. `T` is plain data; `value` is any value of it.
pub(super) fn get_value<T: Copy>(
    fd: RawFd,
    level: c_int,
    name: c_int,
    mut value: T,
) -> io::Result<T> {
    let mut len = size_of::<T>() as socklen_t;
    // SAFETY: `value` has `len` bytes, and any bytes are a valid value.
    check(unsafe { libc::getsockopt(fd, level, name, (&raw mut value).cast(), &mut len) })?;
    Ok(value)
}

/// The header of a message with these parts.
pub(super) fn message_header(parts: &mut [libc::iovec]) -> libc::msghdr {
    // SAFETY: all zeros is an empty message header.
    let mut header: libc::msghdr = unsafe { mem::zeroed() };
    (header.msg_iov, header.msg_iovlen) = (parts.as_mut_ptr(), parts.len() as _);
    header
}

/// A part to send.
pub(super) fn part(bytes: &[u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
}

/// A part to receive into.
pub(super) fn part_mut(bytes: &mut [u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() }
}
