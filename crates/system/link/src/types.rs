//! The values at the boundary of the link.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::capture::Capture;
use crate::faults::PacketFaults;

/// The configuration of a [`crate::UdpLink`].
#[derive(Clone, Debug)]
pub struct Config {
    /// The UDP port; 4791 except in tests. Every packet has it as destination port, and packets to
    /// this host as source port.
    pub port: u16,
    /// The requested size of each socket's receive buffer in bytes. The machine may allow less (see
    /// [`crate::UdpLink::receive_buffer`]).
    pub receive_buffer: usize,
    /// The upper bound of packets in one GSO run; 1 sends each packet alone. The kernel's own limit
    /// is 64.
    pub max_segments: usize,
    /// Attach a program that steers packets to their owners. Without the program, the receiving
    /// process forwards the packets.
    pub steer: bool,
    /// The source ports from which packets of this machine are accepted.
    pub local_ports: LocalPorts,
    /// The faults of arriving packets, for queue pairs registered by [`crate::Tap::add_qp`].
    pub faults: PacketFaults,
    /// The capture of packets.
    pub capture: Option<Arc<Capture>>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            port: adverb_wire::ROCE_PORT,
            receive_buffer: 32 << 20,
            max_segments: 64,
            steer: true,
            local_ports: LocalPorts::Own,
            faults: PacketFaults::default(),
            capture: None,
        }
    }
}

/// The accepted source ports of packets with a source address of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalPorts {
    /// The link's own port, and only at addresses where the link has a socket, so that the port
    /// there is the own user's.
    Own,
    /// Any port. For tests, in which one machine plays several.
    Any,
}

/// The index of one local address of a [`crate::UdpLink`]; the default is the first. The index of
/// an address is not reused while the link lives; the index of a group may be reused after the link
/// has left the group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AddrIndex(pub(crate) u16);

impl AddrIndex {
    /// The number, small and dense from 0.
    pub fn get(self) -> usize {
        self.0 as usize
    }
}

/// The source port of a route's packets, from [`crate::UdpLink::source_port`]. The default is the
/// link's own port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourcePort(
    /// 0 for the link's own port, else the sending socket's index plus 1.
    pub(crate) u8,
);

/// The source, the destination and the IP header fields of a packet to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The local source address.
    pub local: AddrIndex,
    /// The UDP source port.
    pub source: SourcePort,
    /// The destination address (with scope for link-local IPv6) and UDP port.
    pub dst: SocketAddr,
    /// The traffic class (DSCP and ECN). Not covered by the ICRC.
    pub traffic_class: u8,
    /// The TTL or hop limit; 0 leaves the machine's default (64).
    pub hop_limit: u8,
}

impl Route {
    /// A route from the link's own port, with traffic class 0 and the machine's hop limit.
    pub fn new(local: AddrIndex, dst: SocketAddr) -> Self {
        Route { local, source: SourcePort::default(), dst, traffic_class: 0, hop_limit: 0 }
    }
}

/// The sockets to receive from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RxFrom {
    /// Every socket, including the sockets of other processes of this host. Cheap to call in a
    /// spin: each call tries the most recently busy socket first. Only one of four calls without a
    /// packet looks at the other sockets.
    All,
    /// Every socket, each looked at: for a wake-up that does not name the socket.
    Every,
    /// One UDP socket.
    Addr(AddrIndex),
    /// The sockets of other processes of this host.
    Processes,
}
