//! Sockets of `NETLINK_RDMA`, through which programs ask the kernel for its RDMA devices. Here the
//! program gets a datagram socket that is connected to itself. Requests go to `adverb_nldev`, and
//! its answers are sent to the socket's own queue. So polling, waiting, duplicating, inheriting and
//! closing work as for any socket. The only state here is whether such a socket was ever created.
//!
//! The name of the socket identifies it, because the kernel reports this name for this socket only.
//! No other socket can send to a socket that is connected to itself. The name is `PREFIX`, then the
//! port, then random digits.

use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, Ordering};

use adverb_nldev::{Objects, Table, answer, needs_objects};
use libc::{iovec, msghdr, sockaddr, sockaddr_nl, sockaddr_un, socklen_t};

use crate::real::{call, errno, real, reals, replaced, result, set_errno};
use crate::{links, objects, table};

reals! {
    SOCKET = c"socket";
    BIND = c"bind";
    GETSOCKNAME = c"getsockname";
    SETSOCKOPT = c"setsockopt";
    SEND = c"send";
    SENDTO = c"sendto";
    SENDMSG = c"sendmsg";
    RECVFROM = c"recvfrom";
    RECVFROM_CHK = c"__recvfrom_chk";
    RECVMSG = c"recvmsg";
    CONNECT = c"connect";
    RECV = c"recv";
    CLOSE = c"close";
}

const NETLINK_RDMA: c_int = 20;
const PREFIX: &[u8; 14] = b"\0adverb-nldev/";
/// The prefix, eight digits of the port, and sixteen random digits.
const NAME: usize = PREFIX.len() + 8 + 16;
/// Largest request in bytes; requests of `rdma` have about a hundred.
const REQUEST: usize = 8192;

/// Whether this process, or a process it was forked from, ever made such a socket. Until then all
/// calls pass straight through.
static USED: AtomicBool = AtomicBool::new(false);

const UNIX_HEAD: usize = core::mem::offset_of!(sockaddr_un, sun_path);

/// An address with a name of [`NAME`] bytes.
fn address(name: &[u8; NAME]) -> (sockaddr_un, socklen_t) {
    // SAFETY: zeros are a valid address.
    let mut address: sockaddr_un = unsafe { core::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as _;
    for (to, from) in address.sun_path.iter_mut().zip(name) {
        *to = *from as _;
    }
    (address, (UNIX_HEAD + NAME) as socklen_t)
}

/// Writes the low hexadecimal digits of a number, as many as fit.
fn digits(number: u64, to: &mut [u8]) {
    let mut left = number;
    for to in to.iter_mut().rev() {
        let digit = (left & 15) as u8;
        *to = if digit < 10 { b'0' + digit } else { b'a' + digit - 10 };
        left >>= 4;
    }
}

/// The port of a descriptor; `None` for other sockets. Keeps `errno`.
fn port(fd: c_int) -> Option<u32> {
    if !USED.load(Ordering::Relaxed) {
        return None;
    }
    let get = real!(GETSOCKNAME: fn(c_int, *mut sockaddr_un, *mut socklen_t) -> c_int)?;
    let before = errno();
    // SAFETY: zeros are a valid address.
    let mut address: sockaddr_un = unsafe { core::mem::zeroed() };
    let mut len = size_of::<sockaddr_un>() as socklen_t;
    // SAFETY: our own address and its length.
    let got = unsafe { get(fd, &raw mut address, &raw mut len) };
    set_errno(before);
    if got != 0
        || len as usize != UNIX_HEAD + NAME
        || c_int::from(address.sun_family) != libc::AF_UNIX
    {
        return None;
    }
    let mut name = address.sun_path.iter().map(|c| *c as u8);
    if !PREFIX.iter().all(|b| name.next() == Some(*b)) {
        return None;
    }
    name.take(8).try_fold(0_u32, |sum, digit| Some(sum << 4 | char::from(digit).to_digit(16)?))
}

replaced! {
    "C" adverb_preload_socket = SOCKET(domain: c_int, kind: c_int, protocol: c_int) -> c_int,
    (domain == libc::AF_NETLINK && protocol == NETLINK_RDMA && table::is_there())
        .then(|| open(kind));
    /// Replaces the C library's function of this name. The socket already has its name, and keeps
    /// its port.
    "C" adverb_preload_bind = BIND(fd: c_int, to: *const sockaddr, len: socklen_t) -> c_int,
    port(fd).map(|_| {
        if len as usize >= size_of::<sockaddr_nl>() { 0 } else { result(libc::EINVAL) }
    });
    "C" adverb_preload_getsockname = GETSOCKNAME(
        fd: c_int, to: *mut sockaddr, len: *mut socklen_t) -> c_int,
    port(fd).map(|port| {
        if to.is_null() || len.is_null() {
            return result(libc::EFAULT);
        }
        // SAFETY: the caller's address has `*len` bytes.
        unsafe {
            write_address(to.cast(), *len as usize, port);
            *len = ADDRESS;
        }
        0
    });
    /// Replaces the C library's function of this name. Netlink options about acknowledgements and
    /// groups do not affect these answers, so they are ignored.
    "C" adverb_preload_setsockopt = SETSOCKOPT(
        fd: c_int, level: c_int, option: c_int, value: *const c_void, len: socklen_t) -> c_int,
    (level == libc::SOL_NETLINK && port(fd).is_some()).then_some(0);
    "C-unwind" adverb_preload_send = SEND(
        fd: c_int, bytes: *const c_void, len: usize, flags: c_int) -> isize,
    // SAFETY: the caller's bytes.
    unsafe { ask_whole(fd, bytes, len) };
    "C-unwind" adverb_preload_sendto = SENDTO(
        fd: c_int, bytes: *const c_void, len: usize, flags: c_int, to: *const sockaddr,
        to_len: socklen_t) -> isize,
    // SAFETY: the caller's bytes.
    unsafe { ask_whole(fd, bytes, len) };
    "C-unwind" adverb_preload_sendmsg = SENDMSG(
        fd: c_int, message: *const msghdr, flags: c_int) -> isize,
    // SAFETY: the caller's message; `msg_iov` is an array of `msg_iovlen` pieces.
    port(fd).filter(|_| !message.is_null()).map(|port| unsafe {
        let (pieces, count) = ((*message).msg_iov, (*message).msg_iovlen);
        let pieces = if count == 0 { &[] } else { core::slice::from_raw_parts(pieces, count) };
        ask(fd, port, pieces)
    });
}

/// Creates a socket.
fn open(kind: c_int) -> c_int {
    let (Some(socket), Some(bind), Some(connect), Some(close)) = (
        real!(SOCKET: fn(c_int, c_int, c_int) -> c_int),
        real!(BIND: fn(c_int, *const sockaddr_un, socklen_t) -> c_int),
        real!(CONNECT: fn(c_int, *const sockaddr_un, socklen_t) -> c_int),
        real!(CLOSE: fn(c_int) -> c_int),
    ) else {
        return result(libc::ENOSYS);
    };
    let flags = kind & (libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK);
    let mut name = [0_u8; NAME];
    for (to, from) in name.iter_mut().zip(PREFIX) {
        *to = *from;
    }
    let mut random = [0_u8; 8];
    // SAFETY: the buffer has eight bytes; the second call has no arguments.
    let pid = unsafe {
        libc::syscall(libc::SYS_getrandom, random.as_mut_ptr(), random.len(), 0);
        libc::syscall(libc::SYS_getpid)
    };
    if let Some((_, numbers)) = name.split_at_mut_checked(PREFIX.len())
        && let Some((port, rest)) = numbers.split_at_mut_checked(8)
    {
        digits(pid as u64, port);
        digits(u64::from_ne_bytes(random), rest);
    }
    let (address, len) = address(&name);
    // SAFETY: our own socket; an address and its length.
    unsafe {
        let fd = socket(libc::AF_UNIX, libc::SOCK_DGRAM | flags, 0);
        if fd < 0 {
            return fd;
        }
        if bind(fd, &raw const address, len) != 0 || connect(fd, &raw const address, len) != 0 {
            let error = errno();
            close(fd);
            return result(error);
        }
        drain(fd);
        USED.store(true, Ordering::Relaxed);
        fd
    }
}

/// Drops datagrams that another process sent between the bind and the connect of the socket.
fn drain(fd: c_int) {
    let Some(recv) = real!(RECV: fn(c_int, *mut c_void, usize, c_int) -> isize) else { return };
    let before = errno();
    let mut byte = 0_u8;
    // SAFETY: the buffer has one byte; the rest of a datagram is cut off. The socket is connected,
    // so no other process can send and the loop ends.
    while unsafe { recv(fd, (&raw mut byte).cast(), 1, libc::MSG_DONTWAIT) } >= 0 {}
    set_errno(before);
}

/// Writes a netlink address, or the part of it that fits.
///
/// # Safety
/// `to` has `room` bytes, or is null.
unsafe fn write_address(to: *mut c_void, room: usize, port: u32) {
    // SAFETY: zeros are a valid address.
    let mut address: sockaddr_nl = unsafe { core::mem::zeroed() };
    address.nl_family = libc::AF_NETLINK as _;
    address.nl_pid = port;
    if !to.is_null() {
        let from = (&raw const address).cast::<u8>();
        // SAFETY: the caller's promise.
        unsafe { to.cast::<u8>().copy_from(from, room.min(size_of::<sockaddr_nl>())) };
    }
}

const ADDRESS: socklen_t = size_of::<sockaddr_nl>() as socklen_t;

/// Answers a request given in pieces.
///
/// Callers of this function are `C-unwind`. Nothing unwinds, but a call into another crate makes
/// the compiler add a guard to `C` functions, and the guard needs the unwinding routines.
///
/// # Safety
/// The pieces point to the caller's memory.
unsafe fn ask(fd: c_int, port: u32, pieces: &[iovec]) -> isize {
    let mut request = MaybeUninit::<[u8; REQUEST]>::uninit();
    let start = request.as_mut_ptr().cast::<u8>();
    let mut len = 0;
    for piece in pieces {
        if piece.iov_len > REQUEST - len {
            return result(libc::EMSGSIZE) as isize;
        }
        if piece.iov_len > 0 {
            // SAFETY: the caller's bytes; the check above ensures the room.
            unsafe { start.add(len).copy_from(piece.iov_base.cast(), piece.iov_len) };
        }
        len += piece.iov_len;
    }
    // SAFETY: `len` bytes have been written.
    let request = unsafe { core::slice::from_raw_parts(start, len) };
    let Some(send) = real!(SEND: fn(c_int, *const c_void, usize, c_int) -> isize) else {
        return result(libc::ENOSYS) as isize;
    };
    let mut failed = 0;
    let answered = table::with(|text| {
        let Ok(table) = Table::parse(text) else { return false };
        let mut tell = |objects: Option<&Objects<'_>>| {
            answer(&table, objects, port, request, &mut links::change, &mut |datagram| {
                let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
                // SAFETY: our own bytes. The socket is connected to itself.
                let sent = unsafe { send(fd, datagram.as_ptr().cast(), datagram.len(), flags) };
                if sent < 0 && failed == 0 {
                    failed = errno();
                }
            });
        };
        if needs_objects(request) {
            objects::with(tell);
        } else {
            tell(None);
        }
        true
    });
    match (answered, failed) {
        (true, 0) => len as isize,
        // Netlink returns the same error to a reader that is too slow.
        (true, libc::EAGAIN) => result(libc::ENOBUFS) as isize,
        (true, error) => result(error) as isize,
        (false, _) => result(libc::ENODEV) as isize,
    }
}

/// Answers a request in one piece. `None`: the descriptor is another socket.
///
/// # Safety
/// `bytes` has `len` bytes.
unsafe fn ask_whole(fd: c_int, bytes: *const c_void, len: usize) -> Option<isize> {
    // SAFETY: the caller's promise.
    unsafe { Some(ask(fd, port(fd)?, &[iovec { iov_base: bytes.cast_mut(), iov_len: len }])) }
}

/// Sets the sender's address to the kernel's, port 0.
///
/// # Safety
/// `to` and `len` are the caller's arguments for the sender's address, which has `room` bytes.
unsafe fn from_kernel(to: *mut sockaddr, len: *mut socklen_t, room: usize) {
    if !to.is_null() && !len.is_null() {
        // SAFETY: the caller's promise.
        unsafe {
            write_address(to.cast(), room, 0);
            *len = ADDRESS;
        }
    }
}

/// Receives by `real`. The sender of an answer is the kernel.
///
/// # Safety
/// As for `recvfrom`.
unsafe fn receive(
    fd: c_int,
    from: *mut sockaddr,
    len: *mut socklen_t,
    real: impl FnOnce() -> isize,
) -> isize {
    let ours = port(fd).is_some();
    // SAFETY: the caller's arguments.
    unsafe {
        let room = if ours && !len.is_null() { *len as usize } else { 0 };
        let got = real();
        if ours && got >= 0 {
            from_kernel(from, len, room);
        }
        got
    }
}

/// Defines `recvfrom` and its `_FORTIFY_SOURCE` variant.
macro_rules! receiving {
    ($($symbol:ident = $real:ident($($has:ident: $type:ty)?);)*) => { $(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $symbol(
            fd: c_int, bytes: *mut c_void, size: usize, $($has: $type,)? flags: c_int,
            from: *mut sockaddr, len: *mut socklen_t,
        ) -> isize {
            let real = || call!($real: fn(
                fd => c_int, bytes => *mut c_void, size => usize, $($has => $type,)?
                flags => c_int, from => *mut sockaddr, len => *mut socklen_t) -> isize);
            // SAFETY: the caller's arguments.
            unsafe { receive(fd, from, len, real) }
        }
    )* };
}

receiving! {
    adverb_preload_recvfrom = RECVFROM();
    adverb_preload___recvfrom_chk = RECVFROM_CHK(has: usize);
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn adverb_preload_recvmsg(
    fd: c_int,
    message: *mut msghdr,
    flags: c_int,
) -> isize {
    let Some(real) = real!(RECVMSG: fn(c_int, *mut msghdr, c_int) -> isize) else {
        return result(libc::ENOSYS) as isize;
    };
    let ours = port(fd).is_some() && !message.is_null();
    // SAFETY: the caller's arguments.
    unsafe {
        let room = if ours { (*message).msg_namelen as usize } else { 0 };
        let got = real(fd, message, flags);
        if ours && got >= 0 {
            from_kernel((*message).msg_name.cast(), &raw mut (*message).msg_namelen, room);
        }
        got
    }
}
