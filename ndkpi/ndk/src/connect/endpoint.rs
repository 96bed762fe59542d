//! Local endpoints: an address with a port that belongs to a single listener, connector or shared
//! endpoint.
//!
//! An endpoint is released when all its users are closed: a listener and all connectors of its
//! connections, or a shared endpoint and all its connectors. Until then no other endpoint can have
//! the address and port.
//!
//! The connection manager alone cannot ensure this, for two reasons. The port of a closed listener
//! is free for the next listener while its connections still exist. And ids of a shared endpoint
//! must share a port. Therefore an endpoint also holds a claim: an abstract socket name in the
//! network namespace. The name is exclusive, and the kernel releases the name when the process
//! ends.
use crate::status::NtStatus;
use adverb_device::interfaces::gid_of;
use adverb_device::{Context, Errno};
use adverb_sync::Mutex;
use adverb_ucma::Signal;
use adverb_ucma::ids::{Id, QpKind};
use std::collections::HashSet;
use std::net::{SocketAddr, SocketAddrV6};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::UnixDatagram;

/// The ports from which a provider chooses if the consumer gives no port (RFC 6335, as NDKPI's
/// documentation says).
const EPHEMERAL: std::ops::RangeInclusive<u16> = 49152..=65535;

/// A local address with its port, held exclusively.
#[derive(Debug)]
pub(crate) struct Endpoint {
    address: SocketAddr,
    /// The peers of connections from this endpoint.
    peers: Mutex<HashSet<SocketAddr>>,
    _claim: UnixDatagram,
}

impl Endpoint {
    /// Claims an address of the adapter. With port 0, claims a free port other than the port of
    /// `avoid`. Also returns an id bound to the address. Its events are reported to `signal`.
    /// With `shared`, other ids of the endpoint may use the port.
    ///
    /// # Errors
    /// `INVALID_ADDRESS` if the address is no address of the adapter, `SHARING_VIOLATION` if it is
    /// taken, `TOO_MANY_ADDRESSES` if all ephemeral ports are taken, `INSUFFICIENT_RESOURCES`.
    pub(crate) fn open(
        context: &Context,
        address: SocketAddr,
        avoid: Option<SocketAddr>,
        shared: bool,
        signal: &Signal,
    ) -> Result<(Endpoint, Id), NtStatus> {
        let wanted = gid_of(&address.ip());
        let table = context.port_state().table;
        let Some(entry) = table.iter().find(|entry| entry.gid == wanted) else {
            return Err(NtStatus::INVALID_ADDRESS);
        };
        let address = with_scope(address, entry.interface);
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

    fn claim(
        address: SocketAddr,
        shared: bool,
        signal: &Signal,
    ) -> Result<(Endpoint, Id), NtStatus> {
        let name =
            std::os::unix::net::SocketAddr::from_abstract_name(format!("adverb-nd-{address}"));
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

    /// Makes another id of a shared endpoint, for a connection.
    ///
    /// # Errors
    /// `INSUFFICIENT_RESOURCES`.
    pub(crate) fn id(signal: &Signal) -> Result<Id, NtStatus> {
        let id = new_id(signal)?;
        id.share_port().map_err(local_failure)?;
        Ok(id)
    }

    /// The endpoint's address.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
    /// The peers of connections from this endpoint.
    pub(super) fn peers(&self) -> &Mutex<HashSet<SocketAddr>> {
        &self.peers
    }
}

fn new_id(signal: &Signal) -> Result<Id, NtStatus> {
    Id::new(QpKind::Rc, signal.clone()).map_err(|e| local_failure(Errno::from_raw(e.errno())))
}

/// Adds the interface to a link-local address, which has no meaning without its interface.
pub(crate) fn with_scope(address: SocketAddr, interface: u32) -> SocketAddr {
    match address {
        SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() => {
            SocketAddrV6::new(*v6.ip(), v6.port(), v6.flowinfo(), interface).into()
        }
        SocketAddr::V6(v6) => SocketAddrV6::new(*v6.ip(), v6.port(), 0, 0).into(),
        v4 => v4,
    }
}

/// The status for a failed claim of a local address, as documented for `NdkListen` and
/// `NdkConnect`.
pub(crate) fn local_failure(errno: Errno) -> NtStatus {
    match errno {
        Errno::EADDRINUSE => NtStatus::SHARING_VIOLATION,
        Errno::EADDRNOTAVAIL => NtStatus::INVALID_ADDRESS,
        Errno::EACCES => NtStatus::ACCESS_DENIED,
        other => resources(other),
    }
}

/// The status for a failed connect to a peer, as documented for `NdkConnect`.
pub(crate) fn remote_failure(errno: Errno) -> NtStatus {
    match errno {
        // The port is closed, or the listener ended while the request was in its queue.
        Errno::ECONNREFUSED | Errno::ECONNRESET | Errno::EPIPE => NtStatus::CONNECTION_REFUSED,
        // Both ends are given, so the combination of both addresses is not available.
        Errno::EADDRNOTAVAIL | Errno::EADDRINUSE | Errno::EISCONN => {
            NtStatus::ADDRESS_ALREADY_EXISTS
        }
        Errno::ETIMEDOUT => NtStatus::IO_TIMEOUT,
        // EINVAL, ENODEV: the source is an address of the loopback interface, and the destination
        // is not.
        Errno::ENETUNREACH | Errno::ENETDOWN | Errno::EINVAL | Errno::ENODEV => {
            NtStatus::NETWORK_UNREACHABLE
        }
        Errno::EHOSTUNREACH | Errno::EHOSTDOWN => NtStatus::HOST_UNREACHABLE,
        Errno::EACCES | Errno::EPERM => NtStatus::ACCESS_DENIED,
        other => resources(other),
    }
}

fn resources(errno: Errno) -> NtStatus {
    match errno {
        Errno::EMFILE
        | Errno::ENFILE
        | Errno::ENOMEM
        | Errno::ENOBUFS
        | Errno::EAGAIN
        | Errno::ENOSPC => NtStatus::INSUFFICIENT_RESOURCES,
        other => {
            log::error!("an id of a connection fails: {other}");
            NtStatus::INTERNAL_ERROR
        }
    }
}
