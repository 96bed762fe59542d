//! Making sockets.

use core::ffi::{c_int, c_ulong, c_void};

use libc::{sockaddr, socklen_t};

use crate::next::{next, replaced};
use crate::theirs::{is_theirs, note};

const FLAGS: c_int = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;

/// Sets the flags of a socket type on a descriptor of librspreload.
fn with_flags(fd: c_int, flags: c_int) -> c_int {
    if fd < 0 {
        return fd;
    }
    if flags & libc::SOCK_NONBLOCK != 0 {
        set_blocking(fd, false);
    }
    if flags & libc::SOCK_CLOEXEC != 0 {
        // SAFETY: the call sets a flag of a descriptor.
        unsafe { libc::syscall(libc::SYS_fcntl, fd, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
    fd
}

fn set_blocking(fd: c_int, blocks: bool) -> c_int {
    let old = next!(new c"fcntl": fn(fd => c_int, libc::F_GETFL => c_int, 0 => usize) -> c_int);
    if old < 0 {
        return old;
    }
    let new = if blocks { old & !libc::O_NONBLOCK } else { old | libc::O_NONBLOCK };
    next!(new c"fcntl": fn(fd => c_int, libc::F_SETFL => c_int, new as usize => usize) -> c_int)
}

/// Replaces the function of this name. Stream sockets come from librspreload, also with flags.
/// Datagram sockets come from the kernel.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn adverb_sockets_socket(
    domain: c_int,
    kind: c_int,
    protocol: c_int,
) -> c_int {
    let (base, flags) = (kind & !FLAGS, kind & FLAGS);
    let internet = domain == libc::AF_INET || domain == libc::AF_INET6;
    if internet && base == libc::SOCK_DGRAM {
        // SAFETY: plain numbers.
        return unsafe { libc::syscall(libc::SYS_socket, domain, kind, protocol) as c_int };
    }
    let stream =
        internet && base == libc::SOCK_STREAM && (protocol == 0 || protocol == libc::IPPROTO_TCP);
    let (kind, flags) = if stream { (base, flags) } else { (kind, 0) };
    let fd = next!(new c"socket": fn(domain => c_int, kind => c_int, protocol => c_int) -> c_int);
    note(fd);
    with_flags(fd, flags)
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn adverb_sockets_accept(
    fd: c_int,
    from: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    let new = next!(new c"accept": fn(fd => c_int, from => *mut sockaddr, len => *mut socklen_t) -> c_int);
    note(new);
    new
}

replaced! {
    c"accept4" adverb_sockets_accept4(
        fd: c_int, from: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int,
    // SAFETY: the caller's arguments are valid.
    if is_theirs(fd) => with_flags(unsafe { adverb_sockets_accept(fd, from, len) }, flags);
    c"ioctl" adverb_sockets_ioctl(fd: c_int, what: c_ulong, with: *mut c_void) -> c_int,
    if what == libc::FIONBIO && !with.is_null() && is_theirs(fd) =>
        // SAFETY: the caller's pointer leads to a number.
        set_blocking(fd, unsafe { *with.cast::<c_int>() } == 0);
    /// The variant of `read` for `_FORTIFY_SOURCE`.
    c"__read_chk" adverb_sockets___read_chk(
        fd: c_int, to: *mut c_void, len: usize, room: usize) -> isize,
    if is_theirs(fd) && len <= room =>
        next!(new c"read": fn(fd => c_int, to => *mut c_void, len => usize) -> isize);
    /// The variant of `recv` for `_FORTIFY_SOURCE`.
    c"__recv_chk" adverb_sockets___recv_chk(
        fd: c_int, to: *mut c_void, len: usize, room: usize, flags: c_int) -> isize,
    if is_theirs(fd) && len <= room => next!(new c"recv": fn(
        fd => c_int, to => *mut c_void, len => usize, flags => c_int) -> isize);
    /// The variant of `recvfrom` for `_FORTIFY_SOURCE`.
    c"__recvfrom_chk" adverb_sockets___recvfrom_chk(
        fd: c_int, to: *mut c_void, len: usize, room: usize, flags: c_int, from: *mut sockaddr,
        from_len: *mut socklen_t) -> isize,
    if is_theirs(fd) && len <= room => next!(new c"recvfrom": fn(
        fd => c_int, to => *mut c_void, len => usize, flags => c_int, from => *mut sockaddr,
        from_len => *mut socklen_t) -> isize);
}
