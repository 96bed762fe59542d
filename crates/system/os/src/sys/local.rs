//! Sockets between processes of one host: `AF_UNIX`, connected, with message boundaries.
use super::datagram::{
    Control, ControlWriter, first_int, for_each_control, receive_message, send_message,
};
use super::raw::{accept_raw, get_value, message_header, part, part_mut, socket};
use super::{Fd, FdTable, RawAddr, Transit, check, check_len, close_received};
use libc::{c_int, socklen_t};
use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::Arc;

/// The most events returned by one [`wait_any`].
pub const EVENTS: usize = 16;

/// An unbound socket with message boundaries.
pub fn message_socket(table: &Arc<FdTable>) -> io::Result<Fd> {
    table.register_connection(socket(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0)?)
}

/// Accepts connections at the bound name from now on. The kernel records this process and its user
/// at the socket.
pub fn listen(fd: &Fd, backlog: c_int) -> io::Result<()> {
    // SAFETY: all arguments are integers.
    check(unsafe { libc::listen(fd.raw(), backlog) }).map(drop)
}

/// Connects without waiting. Not a cancellation point.
pub fn connect(fd: &Fd, to: &RawAddr) -> io::Result<()> {
    let (name, len) = (&raw const to.storage, to.len);
    // SAFETY: `to` holds `len` bytes of an address.
    check(unsafe { libc::syscall(libc::SYS_connect, fd.raw(), name, len) } as c_int).map(drop)
}

/// Accepts a connection without waiting. Not a cancellation point.
pub fn accept(table: &Arc<FdTable>, listener: &Fd) -> io::Result<Fd> {
    table.register_connection(accept_raw(listener.own())?)
}

/// The user and the process at the other end of a connection: the process that called `listen` or
/// `connect`. The kernel recorded both at that time, and never changes the record.
pub fn peer(fd: &Fd) -> io::Result<(u32, i32)> {
    let ids = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let ids = get_value(fd.raw(), libc::SOL_SOCKET, libc::SO_PEERCRED, ids)?;
    Ok((ids.uid, ids.pid))
}

/// Shuts down receiving. Bytes already received can still be read. A peer continuing to write gets
/// an error.
pub fn take_no_more(fd: &Fd) {
    // SAFETY: all arguments are integers. Fails only if the connection has ended.
    unsafe { libc::shutdown(fd.own(), libc::SHUT_RD) };
}

/// Ends a connection for all holders of its two ends.
pub fn break_off(fd: &Fd) {
    // SAFETY: all arguments are integers. Fails only if the connection has ended.
    unsafe { libc::shutdown(fd.own(), libc::SHUT_RDWR) };
}

/// Sends a message over a connection, with no descriptor or with four.
pub fn send_local(fd: &Fd, parts: &[&[u8]], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
    let mut vector = [libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 }; 2];
    if parts.len() > vector.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    vector.iter_mut().zip(parts).for_each(|(to, bytes)| *to = part(bytes));
    let mut control = Control([0; 128]);
    let mut header = message_header(&mut vector[..parts.len()]);
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

/// A message received over a connection.
pub struct Local {
    /// The length in bytes; 0 at the end of the connection.
    pub len: usize,
    /// The message or its descriptors did not fit.
    pub cut: bool,
    /// The descriptors; any left are closed on drop.
    pub fds: Vec<OwnedFd>,
    /// Marks shared memory in transit: the descriptors may be of such memory.
    pub transit: Transit,
}

/// Receives a message without waiting.
pub fn recv_local(fd: &Fd, buffer: &mut [u8]) -> io::Result<Local> {
    let transit = Transit::begin();
    let mut control = Control([0; 128]);
    let mut parts = [part_mut(buffer)];
    let mut header = message_header(&mut parts);
    header.msg_control = (&raw mut control).cast();
    header.msg_controllen = size_of::<Control>() as _;
    // SAFETY: the part and the ancillary buffer are writable and live through the call.
    // MSG_CMSG_CLOEXEC: no peer may pass in descriptors that survive an exec.
    let len = check_len(unsafe {
        receive_message(fd.own_lately(), &mut header, libc::MSG_CMSG_CLOEXEC)
    })?;
    let mut fds = Vec::new();
    for_each_control(&header, |level, kind, data| {
        if (level, kind) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
            for fd in data.chunks_exact(4).map(first_int) {
                // SAFETY: the kernel has just made the descriptor for this process, and no other
                // code knows it.
                fds.push(unsafe { OwnedFd::from_raw_fd(fd) });
            }
        }
    });
    let cut = header.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0;
    let (fds, unwanted) = fds.into_iter().partition(|fd| is_harmless(fd.as_fd()));
    close_received(unwanted);
    Ok(Local { len, cut, fds, transit })
}

/// Whether the descriptor is no socket, or a socket between processes of this host. Closing other
/// sockets may wait.
fn is_harmless(fd: BorrowedFd<'_>) -> bool {
    // The call fails for other files.
    get_value(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_DOMAIN, 0)
        .map_or(true, |domain| domain == libc::AF_UNIX)
}

/// An `epoll` descriptor: readable while an added descriptor is readable.
pub fn any_of(table: &Arc<FdTable>) -> io::Result<Fd> {
    // SAFETY: all arguments are integers.
    table.register_epoll(check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?)
}

/// Adds a descriptor, reported by `token`. Closing the descriptor removes it.
pub fn watch(any: &Fd, fd: &Fd, token: u64) -> io::Result<()> {
    watch_for(any.own(), fd.own(), libc::EPOLLIN, token)
}

/// Adds a descriptor, reported by `token` when one of the events occurs or the other end has ended.
pub fn watch_for(any: RawFd, fd: RawFd, events: c_int, token: u64) -> io::Result<()> {
    let mut event = libc::epoll_event { events: events as u32, u64: token };
    // SAFETY: the event is read during the call.
    check(unsafe { libc::epoll_ctl(any, libc::EPOLL_CTL_ADD, fd, &mut event) }).map(drop)
}

/// Removes a descriptor. A missing descriptor is no error.
pub fn unwatch(any: RawFd, fd: RawFd) {
    // SAFETY: all arguments are integers; the kernel reads no event here.
    unsafe { libc::epoll_ctl(any, libc::EPOLL_CTL_DEL, fd, ptr::null_mut()) };
}

/// Creates the two ends of a stream.
pub fn stream_pair(table: &Arc<FdTable>) -> io::Result<(Fd, Fd)> {
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    let mut fds = [-1; 2];
    // SAFETY: room for two descriptors.
    check(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, fds.as_mut_ptr()) })?;
    let ours = table.register(fds[0]);
    let theirs = table.register(fds[1]);
    Ok((ours?, theirs?))
}

/// Whether the descriptor is one end of an `AF_UNIX` stream. A call on a socket of another kind may
/// wait for a lock, and another holder of the socket can hold this lock for ever.
pub fn is_local_stream(fd: BorrowedFd<'_>) -> bool {
    let is = |name, wanted| {
        get_value(fd.as_raw_fd(), libc::SOL_SOCKET, name, 0).is_ok_and(|value| value == wanted)
    };
    is(libc::SO_DOMAIN, libc::AF_UNIX) && is(libc::SO_TYPE, libc::SOCK_STREAM)
}

/// Sends one byte without waiting, whatever flags the socket has. Not a cancellation point. A full
/// socket is no error.
pub fn send_byte(fd: BorrowedFd<'_>) {
    let byte = 1_u8;
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    let nowhere = ptr::null::<libc::sockaddr>();
    // SAFETY: reads one byte, and no address.
    unsafe {
        libc::syscall(libc::SYS_sendto, fd.as_raw_fd(), &raw const byte, 1_usize, flags, nowhere, 0)
    };
}

/// Takes the bytes present, up to a bound, without waiting. Not a cancellation point. `Some(0)`:
/// the other end has ended.
pub fn take_bytes(fd: &Fd) -> Option<usize> {
    let mut bytes = [MaybeUninit::<u8>::uninit(); 256];
    let (at, nothing) = (bytes.as_mut_ptr(), ptr::null_mut::<libc::sockaddr>());
    let len = bytes.len();
    // SAFETY: room for `len` bytes; no address is requested.
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

/// The tokens of readable descriptors. Not a cancellation point.
pub fn wait_any(any: &Fd, tokens: &mut [u64; EVENTS]) -> io::Result<usize> {
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; EVENTS];
    // SAFETY: room for `EVENTS` events, timeout 0, no signal mask.
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
