//! Messages with ancillary data: sending datagrams and GSO runs, receiving batches of datagrams.
use super::raw::{message_header, part, part_mut};
use super::{Fd, RawAddr, check_len};
use libc::{c_int, socklen_t};
use std::io;
use std::mem::{self, MaybeUninit, size_of};
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::ptr;

pub const SOL_UDP: c_int = 17;
pub const UDP_SEGMENT: c_int = 103;
pub const UDP_GRO: c_int = 104;
pub const UDP_NO_CHECK6_RX: c_int = 102;
/// The largest UDP datagram, rounded up: the size of a receive buffer.
pub const DATAGRAM: usize = 65536;
/// The most datagrams of one `recvmmsg`.
pub const MAX_DATAGRAMS: usize = 16;

/// Room for ancillary data, aligned as `cmsghdr` requires.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(super) struct Control(pub(super) [u8; 128]);

/// The options for sending a datagram, passed as ancillary data.
#[derive(Clone, Copy, Default)]
pub struct SendOptions {
    /// The segment size of a GSO run; 0 for a single datagram.
    pub segment: u16,
    /// The traffic class; 0 leaves the socket's.
    pub traffic_class: u8,
    /// The TTL or hop limit; 0 leaves the socket's.
    pub hop_limit: u8,
}

pub(super) struct ControlWriter<'a> {
    pub(super) header: &'a mut libc::msghdr,
    pub(super) used: usize,
}

impl ControlWriter<'_> {
    /// Appends one item. `T` is plain data.
    pub(super) fn put<T: Copy>(&mut self, level: c_int, kind: c_int, value: T) {
        // SAFETY: only arithmetic on a length.
        let space = unsafe { libc::CMSG_SPACE(size_of::<T>() as u32) } as usize;
        assert!(self.used + space <= size_of::<Control>());
        // SAFETY: `msg_control` points to a `Control`, and the item ends within it (asserted). The
        // item is aligned, because the buffer is aligned and CMSG_SPACE keeps the alignment.
        unsafe {
            let item = self.header.msg_control.cast::<u8>().add(self.used).cast::<libc::cmsghdr>();
            (*item).cmsg_level = level;
            (*item).cmsg_type = kind;
            (*item).cmsg_len = libc::CMSG_LEN(size_of::<T>() as u32) as _;
            libc::CMSG_DATA(item).cast::<T>().write_unaligned(value);
        }
        self.used += space;
        self.header.msg_controllen = self.used as _;
    }
}

/// `sendmsg` without waiting.
///
/// # Safety
/// The header's name, parts and ancillary data are readable.
pub(super) unsafe fn send_message(fd: RawFd, header: &libc::msghdr) -> isize {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the contract of this function; the kernel's header has the same layout as the C
    // library's.
    unsafe { libc::syscall(libc::SYS_sendmsg, fd, &raw const *header, flags) as isize }
}

/// `recvmsg` without waiting.
///
/// # Safety
/// The header's name, parts and ancillary data are writable and have the lengths given in the
/// header.
pub(super) unsafe fn receive_message(fd: RawFd, header: &mut libc::msghdr, flags: c_int) -> isize {
    // SAFETY: as above.
    unsafe {
        libc::syscall(libc::SYS_recvmsg, fd, &raw mut *header, flags | libc::MSG_DONTWAIT) as isize
    }
}

/// Sends one datagram or one GSO run to `to`.
pub fn send(
    fd: &Fd,
    v6: bool,
    to: &RawAddr,
    bytes: &[u8],
    options: SendOptions,
) -> io::Result<usize> {
    let mut control = Control([0; 128]);
    let mut parts = [part(bytes)];
    let mut header = message_header(&mut parts);
    header.msg_name = (&raw const to.storage).cast_mut().cast();
    header.msg_namelen = to.len;
    header.msg_control = (&raw mut control).cast();
    let mut items = ControlWriter { header: &mut header, used: 0 };
    if options.segment != 0 {
        items.put(SOL_UDP, UDP_SEGMENT, options.segment);
    }
    let (level, class, hops) = if v6 {
        (libc::IPPROTO_IPV6, libc::IPV6_TCLASS, libc::IPV6_HOPLIMIT)
    } else {
        (libc::IPPROTO_IP, libc::IP_TOS, libc::IP_TTL)
    };
    if options.traffic_class != 0 {
        items.put(level, class, c_int::from(options.traffic_class));
    }
    if options.hop_limit != 0 {
        items.put(level, hops, c_int::from(options.hop_limit));
    }
    if items.used == 0 {
        header.msg_control = ptr::null_mut();
    }
    // SAFETY: name, part and ancillary data live through the call; the kernel only reads them.
    check_len(unsafe { send_message(fd.own_lately(), &header) })
}

/// Calls `f` with each item of ancillary data of a received message.
pub(super) fn for_each_control(header: &libc::msghdr, mut f: impl FnMut(c_int, c_int, &[u8])) {
    // SAFETY: a successful receive call filled the header. So the control buffer has well-formed
    // items, and CMSG_NXTHDR stays within msg_controllen.
    unsafe {
        let mut item = libc::CMSG_FIRSTHDR(header);
        while !item.is_null() {
            let head = (libc::CMSG_DATA(item) as usize) - item as usize;
            let len = ((*item).cmsg_len as usize).saturating_sub(head);
            f(
                (*item).cmsg_level,
                (*item).cmsg_type,
                std::slice::from_raw_parts(libc::CMSG_DATA(item), len),
            );
            item = libc::CMSG_NXTHDR(header, item);
        }
    }
}

pub(super) fn first_int(data: &[u8]) -> c_int {
    match *data {
        [a, b, c, d, ..] => c_int::from_ne_bytes([a, b, c, d]),
        [a, ..] => c_int::from(a),
        [] => 0,
    }
}

/// A received datagram without its bytes.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    pub src: SocketAddr,
    pub len: usize,
    /// The segment size if the kernel joined packets, `len` otherwise; never 0.
    pub stride: usize,
    pub truncated: bool,
    pub traffic_class: u8,
    pub hop_limit: u8,
}

/// Buffers for `recvmmsg`.
pub struct RecvVec {
    bytes: Vec<u8>,
    names: Vec<RawAddr>,
    controls: Vec<Control>,
}

impl RecvVec {
    pub fn new(datagrams: usize) -> Self {
        let n = datagrams.clamp(1, MAX_DATAGRAMS);
        RecvVec {
            bytes: vec![0; n * DATAGRAM],
            names: vec![RawAddr::empty(); n],
            controls: vec![Control([0; 128]); n],
        }
    }

    /// The bytes of datagram `i`.
    pub fn datagram(&self, i: usize, len: usize) -> &[u8] {
        &self.bytes[i * DATAGRAM..][..len.min(DATAGRAM)]
    }

    /// The first datagram's buffer, for a plain receive.
    pub fn scratch(&mut self) -> &mut [u8] {
        &mut self.bytes[..DATAGRAM]
    }

    /// Receives up to `most` datagrams without waiting, and fills in `metas`. Returns the number of
    /// datagrams received, and the number with room.
    pub fn recv(
        &mut self,
        fd: &Fd,
        most: usize,
        metas: &mut [Option<Received>],
    ) -> io::Result<(usize, usize)> {
        let mut headers = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; MAX_DATAGRAMS];
        let mut parts = [const { MaybeUninit::<libc::iovec>::uninit() }; MAX_DATAGRAMS];
        let n = most.clamp(1, self.names.len()).min(metas.len());
        for (i, chunk) in self.bytes.chunks_exact_mut(DATAGRAM).take(n).enumerate() {
            // SAFETY: all zeros is an empty message header.
            let header = &mut headers[i].write(unsafe { mem::zeroed() }).msg_hdr;
            header.msg_name = self.names[i].as_mut_ptr();
            header.msg_namelen = size_of::<libc::sockaddr_storage>() as socklen_t;
            header.msg_iov = parts[i].write(part_mut(chunk));
            header.msg_iovlen = 1;
            header.msg_control = (&raw mut self.controls[i]).cast();
            header.msg_controllen = size_of::<Control>() as _;
        }
        // SAFETY: the loop above wrote the first `n` headers.
        let headers = unsafe {
            std::slice::from_raw_parts_mut(headers.as_mut_ptr().cast::<libc::mmsghdr>(), n)
        };
        let got = if let [only] = headers {
            // Half the cost of recvmmsg, which matters to a spinning thread. SAFETY: the header
            // points to buffers of the given lengths, which live through the call.
            let len = check_len(unsafe { receive_message(fd.own_lately(), &mut only.msg_hdr, 0) })?;
            only.msg_len = len as _;
            1
        } else {
            // SAFETY: the headers point to buffers of the given lengths, which live through the
            // call.
            check_len(unsafe {
                libc::syscall(
                    libc::SYS_recvmmsg,
                    fd.own_lately(),
                    headers.as_mut_ptr(),
                    n,
                    libc::MSG_DONTWAIT,
                    ptr::null_mut::<libc::timespec>(),
                )
            } as isize)?
        };
        for i in 0..got {
            metas[i] = self.meta(i, &headers[i]);
        }
        Ok((got, n))
    }

    fn meta(&self, i: usize, message: &libc::mmsghdr) -> Option<Received> {
        let len = message.msg_len as usize;
        let mut meta = Received {
            src: self.names[i].to_inet()?,
            len,
            stride: len.max(1),
            truncated: message.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
            traffic_class: 0,
            hop_limit: 0,
        };
        for_each_control(&message.msg_hdr, |level, kind, data| match (level, kind) {
            (SOL_UDP, UDP_GRO) => {
                meta.stride = usize::try_from(first_int(data)).unwrap_or(len).max(1)
            }
            (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                meta.traffic_class = first_int(data) as u8;
            }
            (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
                meta.hop_limit = first_int(data) as u8;
            }
            _ => {}
        });
        Some(meta)
    }
}
