//! One rdma_cm id.
use crate::address::Address;
use crate::host::Binding;
use crate::param::qp_type;
use adverb_cm::ip::{PS_IPOIB, PS_UDP};
use adverb_cm::{Ece, Path, Time};
use std::net::IpAddr;
use std::time::Duration;

/// State of an id, with the names of the kernel's `rdma_cm_state`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Standing {
    #[default]
    Idle,
    AddrBound,
    /// Neighbour discovery is under way.
    AddrQuery,
    AddrResolved,
    RouteResolved,
    Connect,
    Disconnect,
    Listen,
    /// The device of the id was removed.
    DeviceRemoval,
}

/// A route to the peer. `mtu` and `packet_lifetime` are codes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names are those of a path record")]
pub struct Route {
    pub mtu: u8,
    pub traffic_class: u8,
    pub flow_label: u32,
    pub hop_limit: u8,
    pub service_level: u8,
    pub packet_lifetime: u8,
}

/// Packet lifetime code on RoCE, as in Linux: 268 ms.
pub const PACKET_LIFETIME: u8 = 16;
/// Hop limit of packets.
pub const HOP_LIMIT: u8 = 64;
/// The default partition key.
pub const PKEY: u16 = 0xffff;
/// The Q_Key of datagram port spaces.
pub const UDP_QKEY: u32 = 0x0123_4567;

/// Key of a claim: service id and address.
pub type ClaimKey = (u64, Option<IpAddr>);

/// The values that both ends have agreed on, for the attributes of the queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Agreed {
    pub remote_qpn: u32,
    /// First PSN sent by this end: the starting PSN in the peer's message.
    pub sq_psn: u32,
    pub responder_resources: u8,
    pub initiator_depth: u8,
    pub retry_count: u8,
    pub rnr_retry_count: u8,
    /// Local ACK timeout (code).
    pub timeout: u8,
}

/// Neighbour discovery of an id in [`Standing::AddrQuery`].
#[derive(Debug)]
pub struct Asking {
    pub binding: Binding,
    pub destination: Address,
    pub until: Time,
    pub look_at: Time,
    pub look_after: Duration,
    pub ask_at: Time,
}

/// An rdma_cm id.
#[derive(Debug, Default)]
pub struct CmId {
    /// The file with the event queue for this id.
    pub file: u64,
    /// The program's own name for the id. 0: the program has not accepted the id of a request yet.
    pub uid: u64,
    pub port_space: u16,
    pub qp_type: u8,
    pub standing: Standing,
    pub source: Option<Address>,
    pub destination: Option<Address>,
    pub binding: Option<Binding>,
    /// State of neighbour discovery.
    pub asking: Option<Asking>,
    /// The program has been told of the loss of the address.
    pub told: bool,
    /// The port held among the ids of this process: port space and port.
    pub held: Option<(u16, u16)>,
    /// The claim of this id among all processes.
    pub claim: Option<ClaimKey>,
    pub reuse: bool,
    pub family_only: Option<bool>,
    pub tos: u8,
    /// Local ACK timeout set by the program.
    pub ack_timeout: Option<u8>,
    pub route: Option<Route>,
    /// The connection or datagram exchange, and its path.
    pub conn: Option<(adverb_cm::Id, Path)>,
    /// For a listener: how many more requests may wait to be read.
    pub backlog: u32,
    /// For the id of an unread request: the id of the listener.
    pub listener: Option<u32>,
    /// First PSN sent by the peer.
    pub psn: u32,
    pub qpn: u32,
    pub qkey: Option<u32>,
    pub srq: bool,
    pub agreed: Agreed,
    pub ece: Ece,
    /// How many events of this id the program has read.
    pub events_reported: u32,
}

impl CmId {
    pub fn new(file: u64, uid: u64, port_space: u16, qp_type: u8, psn: u32) -> CmId {
        CmId { file, uid, port_space, qp_type, psn: psn & 0xff_ffff, ..CmId::default() }
    }

    /// Is this an id of datagrams?
    pub const fn is_datagram(&self) -> bool {
        self.qp_type == qp_type::UD
    }

    /// The Q_Key set by the program, or the default of the port space.
    pub fn qkey(&self) -> u32 {
        self.qkey.unwrap_or(if self.port_space == PS_UDP || self.port_space == PS_IPOIB {
            UDP_QKEY
        } else {
            0
        })
    }

    /// The port space of this id's service ids. An InfiniBand address carries its port space in its
    /// service id.
    pub fn space(&self) -> u16 {
        match self.source {
            Some(Address::Ib { sid, .. }) if sid >> 16 != 0 => (sid >> 16) as u16,
            _ => self.port_space,
        }
    }

    /// The address in a claim of this id's port; `None` for all addresses.
    pub fn claimed_address(&self) -> Option<IpAddr> {
        self.source.filter(|a| !a.is_any()).and_then(|a| a.ip())
    }

    /// The route from the local address `binding`.
    pub fn route_over(&self, binding: &Binding) -> Route {
        Route {
            mtu: binding.mtu,
            traffic_class: self.tos,
            flow_label: 0,
            hop_limit: HOP_LIMIT,
            service_level: 0,
            packet_lifetime: self.ack_timeout.filter(|&t| t > 0).map_or(PACKET_LIFETIME, |t| t - 1),
        }
    }
}
