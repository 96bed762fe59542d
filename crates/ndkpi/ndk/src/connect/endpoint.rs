//! Local endpoints: addresses with a port that one listener, one connector or one shared endpoint
//! has for itself.
//!
//! An endpoint is released when everything that refers to it is closed: a listener and all
//! connectors it brought, a shared endpoint and all connectors that connected over it. Until then
//! no other can have its address and port. The connection manager alone does not say so: a closed
//! listener's port is free for the next one while its connections live, and ids of a shared
//! endpoint must share a port. Hence a claim beside the ids: an abstract name of the network
//! namespace, exclusive while somebody holds it, gone with its process.
use crate::status::NtStatus;
use adverb_device::interfaces::{gid_of, is_link_local};
use adverb_device::{Context, Errno};
use adverb_sync::Mutex;
use adverb_ucma::Signal;
use adverb_ucma::ids::{Id, QpKind};
use std::collections::HashSet;
use std::net::{SocketAddr, SocketAddrV6};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::UnixDatagram;

/// Ports that a provider chooses from when the consumer names none (RFC 6335, as the pages of NDKPI
/// say).
const EPHEMERAL: std::ops::RangeInclusive<u16> = 49152..=65535;

/// A local address with its port, held exclusively.
#[derive(Debug)]
pub(crate) struct Endpoint {
    address: SocketAddr,
    /// Connected to from here.
    peers: Mutex<HashSet<SocketAddr>>,
    _claim: UnixDatagram,
}

impl Endpoint {
    /// Takes an address of the adapter, with port 0 a free port of it other than that of `avoid`.
    /// Answers an id bound to it, too, whose events `signal` is told of; others of the endpoint may
    /// have the port if it is `shared`.
    ///
    /// # Errors
    /// `INVALID_ADDRESS` if it is none of the adapter's, `SHARING_VIOLATION` if it is taken,
    /// `TOO_MANY_ADDRESSES` if all ephemeral ports are, `INSUFFICIENT_RESOURCES`.
    pub(crate) fn open(
        context: &Context,
        address: SocketAddr,
        avoid: Option<SocketAddr>,
        shared: bool,
        signal: &Signal,
    ) -> Result<(Endpoint, Id), NtStatus> {
        if !context.gids().contains(&gid_of(&address.ip())) {
            return Err(NtStatus::INVALID_ADDRESS);
        }
        let address = with_scope(address, context.device().interface().index);
        if address.port() != 0 {
            return Endpoint::claim(address, shared, signal);
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
            match Endpoint::claim(address, shared, signal) {
                Err(NtStatus::SHARING_VIOLATION) => {}
                other => return other,
            }
        }
        Err(NtStatus::TOO_MANY_ADDRESSES)
    }

    fn claim(address: SocketAddr, shared: bool, signal: &Signal) -> Result<(Endpoint, Id), NtStatus> {
        let name = std::os::unix::net::SocketAddr::from_abstract_name(format!("adverb-nd-{address}"));
        let claim = name
            .and_then(|name| UnixDatagram::bind_addr(&name))
            .map_err(|e| local_failure(e.raw_os_error().map_or(Errno::EINVAL, Errno::from_raw)))?;
        let id = new_id(signal)?;
        if shared {
            id.share_port().map_err(local_failure)?;
        }
        id.bind(address).map_err(local_failure)?;
        Ok((Endpoint { address, peers: Mutex::default(), _claim: claim }, id))
    }

    /// One more id of a shared endpoint, for a connection.
    ///
    /// # Errors
    /// `INSUFFICIENT_RESOURCES`.
    pub(crate) fn id(signal: &Signal) -> Result<Id, NtStatus> {
        let id = new_id(signal)?;
        id.share_port().map_err(local_failure)?;
        Ok(id)
    }

    /// Its address.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
    /// The addresses that are connected to from it.
    pub(super) fn peers(&self) -> &Mutex<HashSet<SocketAddr>> {
        &self.peers
    }
}

fn new_id(signal: &Signal) -> Result<Id, NtStatus> {
    Id::new(QpKind::Rc, signal.clone()).map_err(|e| local_failure(Errno::from_raw(e.errno())))
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
        // EINVAL, ENODEV: the source is of the loopback interface, the destination is not.
        Errno::ENETUNREACH | Errno::ENETDOWN | Errno::EINVAL | Errno::ENODEV => NtStatus::NETWORK_UNREACHABLE,
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
            log::error!("an id of a connection fails: {other}");
            NtStatus::INTERNAL_ERROR
        }
    }
}
