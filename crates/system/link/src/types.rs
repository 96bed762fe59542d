//! The values at the boundary of the link.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::capture::Capture;
use crate::faults::PacketFaults;

/// What a [`crate::UdpLink`] is made of.
#[derive(Clone, Debug)]
pub struct Config {
    /// UDP port; 4791 except in tests.
    pub port: u16,
    /// Wanted size of each socket's receive buffer in bytes; the machine may allow less
    /// (see [`crate::UdpLink::receive_buffer`]).
    pub receive_buffer: usize,
    /// Upper bound of packets in one GSO run; 1 sends each packet alone. The kernel's own limit
    /// is 64.
    pub max_segments: usize,
    /// Attach a program that steers packets to their owner. Without it they are handed on.
    pub steer: bool,
    /// From which ports packets of this machine are taken.
    pub local_ports: LocalPorts,
    /// What befalls packets that arrive for queue pairs told of with [`crate::Tap::add_qp`].
    pub faults: PacketFaults,
    /// Where packets are recorded.
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

/// From which ports packets are taken whose source is an address of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalPorts {
    /// From the link's own port, and only at addresses where the link has a socket, so that the
    /// port there is the own user's.
    Own,
    /// From any. For tests, where one machine stands for several.
    Any,
}

/// Names one local address of a [`crate::UdpLink`]; the default is the first one. An index is not
/// reused while the link lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AddrIndex(pub(crate) u16);

impl AddrIndex {
    /// The bare number, small and dense from 0.
    pub fn get(self) -> usize {
        self.0 as usize
    }
}

/// Where a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The local address it is sent from. The UDP source port is always the link's own port.
    pub local: AddrIndex,
    /// Destination address (with scope for link-local IPv6) and UDP port.
    pub dst: SocketAddr,
    /// Traffic class (DSCP and ECN). Not covered by the ICRC.
    pub traffic_class: u8,
    /// TTL or hop limit; 0 leaves the machine's default (64).
    pub hop_limit: u8,
}

impl Route {
    /// A route with traffic class 0 and the machine's hop limit.
    pub fn new(local: AddrIndex, dst: SocketAddr) -> Self {
        Route { local, dst, traffic_class: 0, hop_limit: 0 }
    }
}

/// Which sockets to receive from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RxFrom {
    /// Every socket, the hand-over sockets included. Cheap to call in a spin: the socket that was
    /// busy last is tried first, the others are looked at in one call of four that find nothing
    /// there.
    All,
    /// Every socket, each looked at: after a wake-up that does not say which socket it was.
    Every,
    /// One UDP socket.
    Addr(AddrIndex),
    /// The hand-over sockets.
    HandOver,
}

/// What a descriptor of [`crate::UdpLink::for_each_fd`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FdKind {
    /// The UDP socket of an address.
    Udp(AddrIndex),
    /// A socket on which other processes hand packets on.
    HandOver,
}
