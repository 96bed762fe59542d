//! Multicast groups: a socket bound to the group's address, joined on one interface.
//!
//! The kernel gives a copy of each datagram to every joined socket of every process, including
//! sockets of the sending host. So packets of groups are never forwarded and never steered.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use adverb_os::sys::{self, RawAddr};

use crate::LinkError;
use crate::address::{self, AddressSocket, bare_socket};
use crate::looped;
use crate::types::{AddrIndex, Config};
use crate::udp::UdpLink;

impl AddressSocket {
    pub(crate) fn join(
        table: &Arc<sys::FdTable>,
        index: AddrIndex,
        group: IpAddr,
        interface: u32,
        config: &Config,
    ) -> Result<Self, LinkError> {
        let fail = |error| LinkError::from_io("join a multicast group", error);
        let fd = bare_socket(table, group)?;
        let set = |level, name, value| sys::set_option(&fd, level, name, value).map_err(fail);
        // Each socket gets its own copy, in every process.
        set(libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
        // Allows this socket beside the socket that holds the port at all addresses.
        set(libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)?;
        address::receive_options(&fd, group.is_ipv6(), config)?;
        looped::only_from_port(&fd, group, config)?;
        let local = address::socket_addr(group, scope_of(group, interface), config.port);
        sys::bind(&fd, &RawAddr::inet(&local)).map_err(fail)?;
        sys::join_group(&fd, group, interface).map_err(fail)?;
        Ok(AddressSocket::of(index, local, fd))
    }

    /// Whether the address is a group's, and not an address of this machine.
    pub(crate) fn is_group(&self) -> bool {
        self.local.ip().is_multicast()
    }
}

/// The address of a group with interface-local or link-local scope includes the interface.
fn scope_of(group: IpAddr, interface: u32) -> u32 {
    match group {
        IpAddr::V6(v6) if matches!(v6.octets()[1] & 15, 1 | 2) => interface,
        _ => 0,
    }
}

impl UdpLink {
    /// Sends multicast packets from a local address through this interface.
    pub fn multicast_from(&self, local: AddrIndex, interface: u32) {
        let Some(socket) = self.socket(local) else { return };
        if let Err(error) = sys::multicast_interface(&socket.fd, socket.v6, interface) {
            log::debug!(
                "{}: multicast does not leave through interface {interface}: {error}",
                socket.local
            );
        }
    }

    /// The socket address of a group for packets through an interface.
    pub fn group_address(&self, group: IpAddr, interface: u32) -> SocketAddr {
        address::socket_addr(group, scope_of(group, interface), self.config.port)
    }
}
