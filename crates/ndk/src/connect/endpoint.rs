//! Local endpoints: addresses with a port that one listener, one connector or one shared endpoint has for itself.
//!
//! An endpoint is released when everything that refers to it is closed: a listener and all connectors it brought, a
//! shared endpoint and all connectors that connected over it. Until then no other can have its address and port. TCP alone
//! does not say so: a closed listener's port is free for the next one while its connections live, and sockets of a shared
//! endpoint must share a port. Hence a claim beside the sockets: an abstract name of the network namespace, exclusive
//! while somebody holds it, gone with its process.
use crate::status::NtStatus;
use adverb_device::interfaces::is_link_local;
use adverb_device::{Context, Errno};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, bind, setsockopt, socket, sockopt,
};
use std::net::{SocketAddr, SocketAddrV6};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::UnixDatagram;

/// Ports that a provider chooses from when the consumer names none (RFC 6335, as the pages of NDKPI say).
const EPHEMERAL: std::ops::RangeInclusive<u16> = 49152..=65535;

/// A local address with its port, held exclusively.
#[derive(Debug)]
pub(crate) struct Endpoint {
    address: SocketAddr,
    /// Entry of the GID table with that address.
    gid_index: u8,
    _claim: UnixDatagram,
}

impl Endpoint {
    /// Takes an address of the adapter, with port 0 a free port of it other than that of `avoid`. Answers a socket bound to
    /// it, too.
    ///
    /// # Errors
    /// `INVALID_ADDRESS` if it is none of the adapter's, `SHARING_VIOLATION` if it is taken, `TOO_MANY_ADDRESSES` if all
    /// ephemeral ports are, `ACCESS_DENIED` for a privileged port, `INSUFFICIENT_RESOURCES`.
    pub(crate) fn open(
        context: &Context,
        address: SocketAddr,
        avoid: Option<SocketAddr>,
    ) -> Result<(Endpoint, OwnedFd), NtStatus> {
        let interface = context.device().interface();
        let gid_index = interface.addresses.iter().position(|ip| *ip == address.ip());
        let gid_index = gid_index.and_then(|i| u8::try_from(i).ok()).ok_or(NtStatus::INVALID_ADDRESS)?;
        let address = with_scope(address, interface.index);
        if address.port() != 0 {
            return Endpoint::claim(address, gid_index);
        }
        let count = EPHEMERAL.len() as u32;
        let start = getrandom::u32().unwrap_or(std::process::id());
        for i in 0..count {
            let port = EPHEMERAL.start() + (start.wrapping_add(i) % count) as u16;
            if avoid.is_some_and(|a| a.ip() == address.ip() && a.port() == port) {
                continue;
            }
            let mut address = address;
            address.set_port(port);
            match Endpoint::claim(address, gid_index) {
                Err(NtStatus::SHARING_VIOLATION) => {}
                other => return other,
            }
        }
        Err(NtStatus::TOO_MANY_ADDRESSES)
    }

    fn claim(address: SocketAddr, gid_index: u8) -> Result<(Endpoint, OwnedFd), NtStatus> {
        let name = std::os::unix::net::SocketAddr::from_abstract_name(format!("adverb-nd-{address}"));
        let claim = name
            .and_then(|name| UnixDatagram::bind_addr(&name))
            .map_err(|e| local_failure(e.raw_os_error().map_or(Errno::EINVAL, Errno::from_raw)))?;
        let endpoint = Endpoint { address, gid_index, _claim: claim };
        let socket = endpoint.socket()?;
        Ok((endpoint, socket))
    }

    /// One more socket bound to the endpoint.
    ///
    /// # Errors
    /// `SHARING_VIOLATION` if a program without this crate has the port, `ACCESS_DENIED`, `INSUFFICIENT_RESOURCES`.
    pub(crate) fn socket(&self) -> Result<OwnedFd, NtStatus> {
        bound(&self.address).map_err(local_failure)
    }

    /// Its address.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
    /// The entry of its address in the port's GID table.
    pub(crate) fn gid_index(&self) -> u8 {
        self.gid_index
    }
}

/// A TCP socket bound to `address`. `SO_REUSEADDR` lets it have a port that old connections still leave in TIME_WAIT, and
/// that the sockets of a shared endpoint have in common; exclusiveness is the claim's business.
fn bound(address: &SocketAddr) -> nix::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let fd = socket(family, SockType::Stream, SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC, None)?;
    setsockopt(&fd, sockopt::ReuseAddr, &true)?;
    bind(fd.as_raw_fd(), &SockaddrStorage::from(*address))?;
    Ok(fd)
}

/// A link-local address means nothing without its interface.
pub(crate) fn with_scope(address: SocketAddr, interface: u32) -> SocketAddr {
    match address {
        SocketAddr::V6(v6) if is_link_local(v6.ip()) => {
            SocketAddrV6::new(*v6.ip(), v6.port(), v6.flowinfo(), interface).into()
        }
        SocketAddr::V6(v6) => SocketAddrV6::new(*v6.ip(), v6.port(), 0, 0).into(),
        v4 => v4,
    }
}

/// What taking a local address brought, as the pages of `NdkListen` and `NdkConnect` call it.
pub(crate) fn local_failure(errno: Errno) -> NtStatus {
    match errno {
        Errno::EADDRINUSE => NtStatus::SHARING_VIOLATION,
        Errno::EADDRNOTAVAIL => NtStatus::INVALID_ADDRESS,
        Errno::EACCES => NtStatus::ACCESS_DENIED,
        other => resources(other),
    }
}

/// What calling a peer brought, as the page of `NdkConnect` calls it.
pub(crate) fn remote_failure(errno: Errno) -> NtStatus {
    match errno {
        // The closed port of a host, and a listener that went while the call stood in its queue.
        Errno::ECONNREFUSED | Errno::ECONNRESET | Errno::EPIPE => NtStatus::CONNECTION_REFUSED,
        // Both ends are given, so what is not available is the combination.
        Errno::EADDRNOTAVAIL | Errno::EADDRINUSE | Errno::EISCONN => NtStatus::ADDRESS_ALREADY_EXISTS,
        Errno::ETIMEDOUT => NtStatus::IO_TIMEOUT,
        // EINVAL: the source is of the loopback interface, the destination is not.
        Errno::ENETUNREACH | Errno::ENETDOWN | Errno::EINVAL => NtStatus::NETWORK_UNREACHABLE,
        Errno::EHOSTUNREACH | Errno::EHOSTDOWN => NtStatus::HOST_UNREACHABLE,
        Errno::EACCES | Errno::EPERM => NtStatus::ACCESS_DENIED,
        other => resources(other),
    }
}

fn resources(errno: Errno) -> NtStatus {
    match errno {
        Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM | Errno::ENOBUFS | Errno::EAGAIN | Errno::ENOSPC => {
            NtStatus::INSUFFICIENT_RESOURCES
        }
        other => {
            log::error!("a socket of a connection fails: {other}");
            NtStatus::INTERNAL_ERROR
        }
    }
}
