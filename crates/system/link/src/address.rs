//! The UDP socket of one local address.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use adverb_os::detection;
use adverb_os::sys::{self, Fd, FdTable, RawAddr};
use adverb_sync::Mutex;

use crate::LinkError;
use crate::bare::bind_error;
pub(crate) use crate::bare::{bare_socket, socket_addr};
use crate::looped;
use crate::origin::kind::LastOrigin;
use crate::sources::{SEND_BUFFER, Sources};
use crate::steer::table::SteerState;
use crate::types::{AddrIndex, Config, SourcePort};

/// The socket of one local address, bound and never connected.
pub(crate) struct AddressSocket {
    pub(crate) index: AddrIndex,
    /// The bound address; for IPv6 with its scope.
    pub(crate) local: SocketAddr,
    pub(crate) v6: bool,
    pub(crate) fd: Fd,
    /// Held while datagrams are received and given to the sink, to keep the order of packets.
    /// Contains the origin of the most recent source.
    pub(crate) receiving: Mutex<LastOrigin>,
    /// All packets possibly sent by another user from this address, before this user held its port,
    /// have been read.
    pub(crate) vouches: AtomicBool,
    /// The kernel refused a GSO run and then accepted its packets singly.
    pub(crate) no_gso: AtomicBool,
    pub(crate) steer: SteerState,
    /// Further sockets at this address, for packets to other hosts.
    pub(crate) sources: Sources,
}

/// Sets the options of a receiving socket.
pub(crate) fn receive_options(fd: &Fd, v6: bool, config: &Config) -> Result<(), LinkError> {
    let set = |level, name, value| {
        sys::set_option(fd, level, name, value)
            .map_err(|error| LinkError::from_io("set up a UDP socket", error))
    };
    if v6 {
        // Linux rxe and NICs send a zero UDP checksum over IPv6, too.
        set(sys::SOL_UDP, sys::UDP_NO_CHECK6_RX, 1)?;
        set(libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1)?;
        set(libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT, 1)?;
    } else {
        set(libc::IPPROTO_IP, libc::IP_RECVTOS, 1)?;
        set(libc::IPPROTO_IP, libc::IP_RECVTTL, 1)?;
    }
    // Kernels before 5.0 have no GRO for UDP sockets, which only costs speed.
    let _ = sys::set_option(fd, sys::SOL_UDP, sys::UDP_GRO, 1);
    sys::grow_buffer(fd, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, config.receive_buffer);
    sys::grow_buffer(fd, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, SEND_BUFFER);
    Ok(())
}

fn is_tentative(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(v6) if detection::is_tentative(&v6))
}

impl AddressSocket {
    pub(crate) fn open(
        table: &Arc<FdTable>,
        index: AddrIndex,
        ip: IpAddr,
        scope_id: u32,
        config: &Config,
    ) -> Result<Self, LinkError> {
        const DOING: &str = "set up a UDP socket";
        let fd = bare_socket(table, ip)?;
        let v6 = ip.is_ipv6();
        let set = |level, name, value| {
            sys::set_option(&fd, level, name, value)
                .map_err(|error| LinkError::from_io(DOING, error))
        };
        set(libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)?;
        receive_options(&fd, v6, config)?;
        looped::only_from_port(&fd, ip, config)?;
        let local = socket_addr(ip, scope_id, config.port);
        let bind = || sys::bind(&fd, &RawAddr::inet(&local));
        let bound = bind().or_else(|error| match error.raw_os_error() {
            // Detection may have ended since.
            Some(libc::EADDRNOTAVAIL) if ip.is_ipv6() && !is_tentative(ip) => bind(),
            _ => Err(error),
        });
        bound.map_err(|error| match error.raw_os_error() {
            Some(libc::EADDRNOTAVAIL) if is_tentative(ip) => LinkError::Tentative { ip },
            Some(libc::EADDRNOTAVAIL | libc::ENODEV) => LinkError::NoSuchAddress { ip },
            _ => bind_error("bind a UDP port", ip, config.port, error),
        })?;
        Ok(AddressSocket::of(index, local, fd))
    }

    /// With a bound socket.
    pub(crate) fn of(index: AddrIndex, local: SocketAddr, fd: Fd) -> Self {
        AddressSocket {
            index,
            local,
            v6: local.is_ipv6(),
            fd,
            receiving: Mutex::default(),
            vouches: AtomicBool::new(false),
            no_gso: AtomicBool::new(false),
            steer: SteerState::default(),
            sources: Sources::default(),
        }
    }

    /// The socket for packets with this source port, and its bound address.
    #[inline]
    pub(crate) fn sender(&self, port: SourcePort) -> (&Fd, &SocketAddr) {
        self.sources.get(port).unwrap_or((&self.fd, &self.local))
    }
}
