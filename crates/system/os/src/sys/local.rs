//! Sockets between processes of one host: `AF_UNIX`, connected, message by message.
use super::datagram::{Control, ControlWriter, first_int, for_each_control, receive_message, send_message};
use super::{Fd, FdTable, RawAddr, Transit, check, check_len, close_received};
use libc::{c_int, socklen_t};
use std::io;
use std::mem::{self, MaybeUninit, size_of};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::Arc;

/// Most events that [`wait_any`] tells of at a time.
pub const EVENTS: usize = 16;

/// An unbound socket that keeps messages apart.
pub fn message_socket(table: &Arc<FdTable>) -> io::Result<Fd> {
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: plain integers.
    table.register_connection(check(unsafe { libc::socket(libc::AF_UNIX, kind, 0) })?)
}

/// Takes connections at the name it is bound to from now on. The kernel notes whose process this
/// is.
pub fn listen(fd: &Fd, backlog: c_int) -> io::Result<()> {
    // SAFETY: plain integers.
    check(unsafe { libc::listen(fd.raw(), backlog) }).map(drop)
}

/// Connects without waiting; no cancellation point.
pub fn connect(fd: &Fd, to: &RawAddr) -> io::Result<()> {
    let (name, len) = (&raw const to.storage, to.len);
    // SAFETY: `to` holds `len` bytes of an address.
    check(unsafe { libc::syscall(libc::SYS_connect, fd.raw(), name, len) } as c_int).map(drop)
}

/// Takes one connection without waiting; no cancellation point.
pub fn accept(table: &Arc<FdTable>, listener: &Fd) -> io::Result<Fd> {
    let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    let nothing = ptr::null_mut::<libc::sockaddr>();
    // SAFETY: no address is asked for.
    let fd = check(unsafe {
        libc::syscall(libc::SYS_accept4, listener.own(), nothing, ptr::null_mut::<socklen_t>(), flags)
    } as c_int)?;
    table.register_connection(fd)
}

/// The user and the process at the other end of a connection: who called `listen`, or `connect`.
/// The kernel noted both when the connection was made, and they stay.
pub fn peer(fd: &Fd) -> io::Result<(u32, i32)> {
    let mut ids = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut len = size_of::<libc::ucred>() as socklen_t;
    // SAFETY: `ids` has `len` bytes.
    check(unsafe {
        libc::getsockopt(fd.raw(), libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut ids).cast(), &mut len)
    })?;
    Ok((ids.uid, ids.pid))
}

/// Takes nothing more in. What has arrived can still be read; whoever goes on writing is told that
/// nobody is there.
pub fn take_no_more(fd: &Fd) {
    // SAFETY: plain integers. It fails only where the connection has ended.
    unsafe { libc::shutdown(fd.own(), libc::SHUT_RD) };
}

/// Ends a connection for whoever has its ends.
pub fn break_off(fd: &Fd) {
    // SAFETY: plain integers. It fails only where the connection has ended.
    unsafe { libc::shutdown(fd.own(), libc::SHUT_RDWR) };
}

/// Sends a message over a connection, with no or four descriptors.
pub fn send_local(fd: &Fd, parts: &[&[u8]], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
    let mut vector = [libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 }; 2];
    if parts.len() > vector.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, part) in vector.iter_mut().zip(parts) {
        *to = libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() };
    }
    let mut control = Control([0; 128]);
    // SAFETY: all zeros is an empty message header.
    let mut header: libc::msghdr = unsafe { mem::zeroed() };
    header.msg_iov = vector.as_mut_ptr();
    header.msg_iovlen = parts.len() as _;
    match fds {
        [] => {}
        [a, b, c, d] => {
            header.msg_control = (&raw mut control).cast();
            let mut items = ControlWriter { header: &mut header, used: 0 };
            items.put(libc::SOL_SOCKET, libc::SCM_RIGHTS, [a, b, c, d].map(AsRawFd::as_raw_fd));
        }
        _ => return Err(io::ErrorKind::InvalidInput.into()),
    }
    // SAFETY: parts and ancillary data live through the call; the kernel only reads them.
    check_len(unsafe { send_message(fd.own(), &header) })
}

/// What came over a connection.
pub struct Local {
    /// Bytes; 0 at the end of the connection.
    pub len: usize,
    /// The message or its descriptors did not fit.
    pub cut: bool,
    /// Descriptors; those that nobody takes are closed with it.
    pub fds: Vec<OwnedFd>,
    /// What they may be of.
    pub transit: Transit,
}

/// Receives one message without waiting.
pub fn recv_local(fd: &Fd, buffer: &mut [u8]) -> io::Result<Local> {
    let transit = Transit::begin();
    let mut control = Control([0; 128]);
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: all zeros is an empty message header.
    let mut header: libc::msghdr = unsafe { mem::zeroed() };
    header.msg_iov = &mut part;
    header.msg_iovlen = 1;
    header.msg_control = (&raw mut control).cast();
    header.msg_controllen = size_of::<Control>() as _;
    // MSG_CMSG_CLOEXEC: nobody may smuggle descriptors in that survive an exec.
    // SAFETY: the part and the ancillary buffer are writable and live through the call.
    let len = check_len(unsafe { receive_message(fd.own_lately(), &mut header, libc::MSG_CMSG_CLOEXEC) })?;
    let mut fds = Vec::new();
    for_each_control(&header, |level, kind, data| {
        if (level, kind) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
            for fd in data.chunks_exact(4).map(first_int) {
                // SAFETY: the kernel has just made the descriptor for this process, and nobody else
                // knows it.
                fds.push(unsafe { OwnedFd::from_raw_fd(fd) });
            }
        }
    });
    let cut = header.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0;
    let (fds, unwanted) = fds.into_iter().partition(|fd| is_harmless(fd.as_fd()));
    close_received(unwanted);
    Ok(Local { len, cut, fds, transit })
}

/// Is it no socket but one between processes of this host? The close of others may wait.
fn is_harmless(fd: BorrowedFd<'_>) -> bool {
    let mut domain: c_int = libc::AF_UNIX;
    let mut len = size_of::<c_int>() as socklen_t;
    let to = (&raw mut domain).cast();
    // SAFETY: `domain` has `len` bytes; what is no socket leaves it as it is.
    unsafe { libc::getsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_DOMAIN, to, &mut len) };
    domain == libc::AF_UNIX
}

/// A descriptor that is readable while one of those is that were added to it.
pub fn any_of(table: &Arc<FdTable>) -> io::Result<Fd> {
    // SAFETY: plain integers.
    table.register_epoll(check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?)
}

/// Adds a descriptor, to be told of by `token`. It leaves when it is closed.
pub fn watch(any: &Fd, fd: &Fd, token: u64) -> io::Result<()> {
    watch_for(any.own(), fd.own(), libc::EPOLLIN, token)
}

/// Adds a descriptor to be told of by `token` when it has one of the events, or its other end is
/// gone.
pub fn watch_for(any: RawFd, fd: RawFd, events: c_int, token: u64) -> io::Result<()> {
    let mut event = libc::epoll_event { events: events as u32, u64: token };
    // SAFETY: the event is read during the call.
    check(unsafe { libc::epoll_ctl(any, libc::EPOLL_CTL_ADD, fd, &mut event) }).map(drop)
}

/// Takes a descriptor out again. One that is not there is no loss.
pub fn unwatch(any: RawFd, fd: RawFd) {
    // SAFETY: plain integers; the kernel looks at no event here.
    unsafe { libc::epoll_ctl(any, libc::EPOLL_CTL_DEL, fd, ptr::null_mut()) };
}

/// Two ends of a stream.
pub fn stream_pair(table: &Arc<FdTable>) -> io::Result<(Fd, Fd)> {
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    let mut fds = [-1; 2];
    // SAFETY: room for two descriptors.
    check(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, fds.as_mut_ptr()) })?;
    let ours = table.register(fds[0]);
    let theirs = table.register(fds[1]);
    Ok((ours?, theirs?))
}

/// Is it one end of an `AF_UNIX` stream? Calls on sockets of other kinds may wait for a lock that
/// whoever else has the socket holds for as long as it likes.
pub fn is_local_stream(fd: BorrowedFd<'_>) -> bool {
    let is = |name, wanted| {
        let mut value: c_int = 0;
        let mut len = size_of::<c_int>() as socklen_t;
        let to = (&raw mut value).cast();
        // SAFETY: `value` has `len` bytes.
        let rc = unsafe { libc::getsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, name, to, &mut len) };
        rc == 0 && value == wanted
    };
    is(libc::SO_DOMAIN, libc::AF_UNIX) && is(libc::SO_TYPE, libc::SOCK_STREAM)
}

/// Sends one byte and waits for nothing, whatever flags the socket has; no cancellation point. A
/// full socket is no loss.
pub fn send_byte(fd: BorrowedFd<'_>) {
    let byte = 1_u8;
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    let nowhere = ptr::null::<libc::sockaddr>();
    // SAFETY: one byte to read, no address.
    unsafe { libc::syscall(libc::SYS_sendto, fd.as_raw_fd(), &raw const byte, 1_usize, flags, nowhere, 0) };
}

/// Takes what bytes there are, up to a bound, and waits for none; no cancellation point. `Some(0)`:
/// the other end is gone.
pub fn take_bytes(fd: &Fd) -> Option<usize> {
    let mut bytes = [MaybeUninit::<u8>::uninit(); 256];
    let (at, nothing) = (bytes.as_mut_ptr(), ptr::null_mut::<libc::sockaddr>());
    let len = bytes.len();
    // SAFETY: room for `len` bytes; no address is asked for.
    let n = unsafe {
        libc::syscall(
            libc::SYS_recvfrom,
            fd.own_lately(),
            at,
            len,
            libc::MSG_DONTWAIT,
            nothing,
            ptr::null_mut::<socklen_t>(),
        )
    };
    usize::try_from(n).ok()
}

/// The tokens of descriptors that are readable now; no cancellation point.
pub fn wait_any(any: &Fd, tokens: &mut [u64; EVENTS]) -> io::Result<usize> {
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; EVENTS];
    // SAFETY: room for `EVENTS` events, no time to wait, no signal mask.
    let n = check(unsafe {
        libc::syscall(
            libc::SYS_epoll_pwait,
            any.own_lately(),
            events.as_mut_ptr(),
            EVENTS as c_int,
            0,
            ptr::null::<libc::sigset_t>(),
            0usize,
        )
    } as c_int)? as usize;
    for (token, event) in tokens.iter_mut().zip(&events[..n]) {
        *token = event.u64;
    }
    Ok(n)
}
