//! Netlink: requests to the kernel with one item or a list as the answer, changes, and
//! notifications from the kernel.
use super::raw::socket;
use super::{OwnFd, check, check_len};
use std::io;
use std::mem::size_of;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

/// Bytes of the fixed parts of messages of routing, as in the kernel's headers.
pub const RTMSG: usize = 12;
pub const IFINFOMSG: usize = 16;
const HEADER: usize = size_of::<libc::nlmsghdr>();
/// More than the kernel puts into one answer.
const ROOM: usize = 64 << 10;
/// The most answers read for one request: no list requested here is longer.
const MOST: usize = 4096;

/// A non-blocking netlink socket.
struct Socket(OwnFd);

impl Socket {
    fn new(protocol: i32) -> io::Result<Self> {
        let fd = socket(libc::AF_NETLINK, libc::SOCK_RAW, protocol)?;
        // SAFETY: a new descriptor.
        Ok(Socket(unsafe { OwnedFd::from_raw_fd(fd) }.into()))
    }

    /// Receives one answer, cut off at the end of the buffer.
    fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.receive_with(buffer, 0)
    }

    fn receive_with(&self, buffer: &mut [u8], flags: i32) -> io::Result<usize> {
        // SAFETY: the buffer has room for the given length; no address is requested.
        check_len(unsafe {
            libc::syscall(
                libc::SYS_recvfrom,
                self.0.need()?.as_raw_fd(),
                buffer.as_mut_ptr(),
                buffer.len(),
                libc::MSG_DONTWAIT | flags,
                ptr::null_mut::<libc::sockaddr>(),
                ptr::null_mut::<libc::socklen_t>(),
            )
        } as isize)
    }
}

/// Readable after a change of the machine's interfaces or their addresses.
pub struct InterfaceNews(Socket);

impl InterfaceNews {
    /// Starts listening for changes.
    ///
    /// # Errors
    /// The kernel has no such sockets, or refuses one.
    pub fn new() -> io::Result<Self> {
        let socket = Socket::new(libc::NETLINK_ROUTE)?;
        // SAFETY: a structure of integers, for which zeros are valid values.
        let mut name: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
        name.nl_family = libc::AF_NETLINK as libc::sa_family_t;
        name.nl_groups =
            (libc::RTMGRP_LINK | libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV6_IFADDR) as u32;
        let size = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
        // SAFETY: a name of this length, which lives through the call.
        check(unsafe { libc::bind(socket.0.number(), (&raw const name).cast(), size) })?;
        Ok(InterfaceNews(socket))
    }

    /// Discards the notifications; returns `false` if there were none. The caller must ask the
    /// kernel for the new state, because notifications may be lost, and another user may have sent
    /// one.
    pub fn take(&self) -> bool {
        let mut some = false;
        for _ in 0..MOST {
            match self.0.receive(&mut [0; 1]) {
                Ok(_) => some = true,
                // ENOBUFS: some notifications were lost for lack of room.
                Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) => some = true,
                Err(_) => break,
            }
        }
        some
    }

    /// Whether notifications wait for [`InterfaceNews::take`]. The kernel puts a change into the
    /// socket before the call making the change returns. Returns `true` if the question fails.
    pub fn wait(&self) -> bool {
        let looked = self.0.receive_with(&mut [0; 1], libc::MSG_PEEK);
        !looked.is_err_and(|e| e.raw_os_error() == Some(libc::EAGAIN))
    }

    /// The descriptor to wait on; `None` if the program has closed it.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.0.0.get()
    }
}

/// Asks `protocol` for a dump, and calls `each` with every item: the bytes behind the message's
/// header.
pub fn dump(protocol: i32, kind: u16, body: &[u8], each: &mut dyn FnMut(&[u8])) -> io::Result<()> {
    let socket = ask(protocol, kind, libc::NLM_F_REQUEST | libc::NLM_F_DUMP, body)?;
    let mut buffer = vec![0u8; ROOM];
    for _ in 0..MOST {
        let len = socket.receive(&mut buffer)?;
        if split(&buffer[..len], each)? {
            return Ok(());
        }
    }
    Err(io::ErrorKind::InvalidData.into())
}

/// Asks for one item. A missing item is the kernel's error.
pub fn get(protocol: i32, kind: u16, body: &[u8]) -> io::Result<Vec<u8>> {
    let mut found = None;
    answer(protocol, kind, libc::NLM_F_REQUEST, body, &mut |item| found = Some(item.to_vec()))?;
    found.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Asks for a change, and waits for the kernel's answer. `flags`: of `NLM_F_CREATE` and others.
pub fn change(protocol: i32, kind: u16, flags: i32, body: &[u8]) -> io::Result<()> {
    answer(protocol, kind, libc::NLM_F_REQUEST | libc::NLM_F_ACK | flags, body, &mut |_| ())
}

/// Asks, and calls `each` with the items of one answer.
fn answer(
    protocol: i32,
    kind: u16,
    wants: i32,
    body: &[u8],
    each: &mut dyn FnMut(&[u8]),
) -> io::Result<()> {
    let socket = ask(protocol, kind, wants, body)?;
    let mut buffer = vec![0u8; ROOM];
    let len = socket.receive(&mut buffer)?;
    split(&buffer[..len], each).map(drop)
}

fn ask(protocol: i32, kind: u16, wants: i32, body: &[u8]) -> io::Result<Socket> {
    let socket = Socket::new(protocol)?;
    let mut message = Vec::with_capacity(HEADER + body.len());
    message.extend_from_slice(&((HEADER + body.len()) as u32).to_ne_bytes());
    message.extend_from_slice(&kind.to_ne_bytes());
    message.extend_from_slice(&(wants as u16).to_ne_bytes());
    message.extend_from_slice(&[0; 8]);
    message.extend_from_slice(body);
    // SAFETY: the message lives through the call; without an address it goes to the kernel.
    check_len(unsafe {
        libc::syscall(
            libc::SYS_sendto,
            socket.0.number(),
            message.as_ptr(),
            message.len(),
            libc::MSG_NOSIGNAL,
            ptr::null::<libc::sockaddr>(),
            0,
        )
    } as isize)?;
    Ok(socket)
}

/// Splits the messages of one answer; returns `true` after the last answer.
fn split(mut rest: &[u8], each: &mut dyn FnMut(&[u8])) -> io::Result<bool> {
    while let Some((header, _)) = rest.split_first_chunk::<HEADER>() {
        let len = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let item = rest.get(HEADER..len).ok_or(io::ErrorKind::InvalidData)?;
        match i32::from(u16::from_ne_bytes([header[4], header[5]])) {
            libc::NLMSG_DONE => return Ok(true),
            libc::NLMSG_ERROR => {
                let code = word(item).unwrap_or_default().cast_signed();
                // 0: the answer to a change that was made.
                return if code == 0 { Ok(true) } else { Err(io::Error::from_raw_os_error(-code)) };
            }
            _ => each(item),
        }
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

/// The number at the beginning of an item or an attribute.
pub fn word(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk::<4>().map(|word| u32::from_ne_bytes(*word))
}

/// The family of an address, and its bytes.
pub fn parts_of(ip: IpAddr) -> (u8, Vec<u8>) {
    match ip {
        IpAddr::V4(ip) => (libc::AF_INET as u8, ip.octets().to_vec()),
        IpAddr::V6(ip) => (libc::AF_INET6 as u8, ip.octets().to_vec()),
    }
}

/// Appends an attribute to a request. The length of the value is a multiple of four.
pub fn put_attribute(request: &mut Vec<u8>, kind: u16, value: &[u8]) {
    request.extend_from_slice(&(4 + value.len() as u16).to_ne_bytes());
    request.extend_from_slice(&kind.to_ne_bytes());
    request.extend_from_slice(value);
}

/// The kinds and values of the attributes behind the fixed part of an item.
pub fn attributes(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let head = rest.first_chunk::<4>()?;
        let len = usize::from(u16::from_ne_bytes([head[0], head[1]]));
        let kind = u16::from_ne_bytes([head[2], head[3]]);
        let value = rest.get(4..len)?;
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}
