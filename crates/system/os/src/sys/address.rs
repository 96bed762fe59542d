//! Socket addresses in the kernel's form.
use super::{Fd, check};
use libc::{c_int, c_void, socklen_t};
use std::io;
use std::mem::{self, offset_of, size_of};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// A socket address in the kernel's form.
#[derive(Clone, Copy)]
pub struct RawAddr {
    pub(super) storage: libc::sockaddr_storage,
    pub(super) len: socklen_t,
}

impl RawAddr {
    pub(super) fn empty() -> Self {
        // SAFETY: all zeros is a valid value of this plain structure (family unspecified).
        let storage = unsafe { mem::zeroed() };
        RawAddr { storage, len: 0 }
    }

    pub fn inet(addr: &SocketAddr) -> Self {
        let mut raw = RawAddr::empty();
        match addr {
            SocketAddr::V4(v4) => {
                let sin = libc::sockaddr_in {
                    sin_family: libc::AF_INET as _,
                    sin_port: v4.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                    sin_zero: [0; 8],
                };
                // SAFETY: sockaddr_storage is larger and at least as aligned as every socket
                // address.
                unsafe { (&raw mut raw.storage).cast::<libc::sockaddr_in>().write(sin) };
                raw.len = size_of::<libc::sockaddr_in>() as socklen_t;
            }
            SocketAddr::V6(v6) => {
                let sin6 = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as _,
                    sin6_port: v6.port().to_be(),
                    sin6_flowinfo: 0,
                    sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                    sin6_scope_id: v6.scope_id(),
                };
                // SAFETY: as above.
                unsafe { (&raw mut raw.storage).cast::<libc::sockaddr_in6>().write(sin6) };
                raw.len = size_of::<libc::sockaddr_in6>() as socklen_t;
            }
        }
        raw
    }

    /// The abstract `AF_UNIX` name, cut to the longest possible name.
    pub fn abstract_name(name: &str) -> Self {
        let mut raw = RawAddr::empty();
        // SAFETY: all zeros is a valid value of this plain structure.
        let mut sun: libc::sockaddr_un = unsafe { mem::zeroed() };
        sun.sun_family = libc::AF_UNIX as _;
        let bytes = &name.as_bytes()[..name.len().min(sun.sun_path.len() - 1)];
        for (to, from) in sun.sun_path[1..].iter_mut().zip(bytes) {
            *to = *from as libc::c_char;
        }
        // SAFETY: sockaddr_storage is larger and at least as aligned as every socket address.
        unsafe { (&raw mut raw.storage).cast::<libc::sockaddr_un>().write(sun) };
        raw.len = (offset_of!(libc::sockaddr_un, sun_path) + 1 + bytes.len()) as socklen_t;
        raw
    }

    pub(super) fn to_inet(self) -> Option<SocketAddr> {
        match c_int::from(self.storage.ss_family) {
            libc::AF_INET => {
                // SAFETY: the family tells the structure, and the storage is large enough.
                let sin = unsafe { (&raw const self.storage).cast::<libc::sockaddr_in>().read() };
                let ip = Ipv4Addr::from(sin.sin_addr.s_addr.to_ne_bytes());
                Some(SocketAddrV4::new(ip, u16::from_be(sin.sin_port)).into())
            }
            libc::AF_INET6 => {
                // SAFETY: as above.
                let sin6 = unsafe { (&raw const self.storage).cast::<libc::sockaddr_in6>().read() };
                let ip = Ipv6Addr::from(sin6.sin6_addr.s6_addr);
                let port = u16::from_be(sin6.sin6_port);
                Some(SocketAddrV6::new(ip, port, 0, sin6.sin6_scope_id).into())
            }
            _ => None,
        }
    }

    pub(super) fn as_mut_ptr(&mut self) -> *mut c_void {
        (&raw mut self.storage).cast()
    }
}

pub fn bind(fd: &Fd, addr: &RawAddr) -> io::Result<()> {
    // SAFETY: `addr` holds `len` bytes of an address.
    check(unsafe { libc::bind(fd.raw(), (&raw const addr.storage).cast(), addr.len) }).map(drop)
}

/// The bound port of an IP socket.
pub fn local_port(fd: &Fd) -> io::Result<u16> {
    let mut addr = RawAddr::empty();
    let mut len = size_of::<libc::sockaddr_storage>() as socklen_t;
    // SAFETY: the storage has `len` bytes.
    check(unsafe { libc::getsockname(fd.raw(), addr.as_mut_ptr().cast(), &mut len) })?;
    addr.to_inet().map(|addr| addr.port()).ok_or_else(|| io::ErrorKind::InvalidData.into())
}
