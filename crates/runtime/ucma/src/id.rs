//! One rdma_cm id.
use crate::address::Address;
use crate::door::Place;
use crate::param::qp_type;
use adverb_cm::ip::{PS_IPOIB, PS_UDP};
use adverb_cm::{Ece, Path, Time};
use std::net::IpAddr;
use std::time::Duration;

/// Where an id stands; names as of the kernel's `rdma_cm_state`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    Idle,
    AddrBound,
    /// The neighbour is asked for.
    AddrQuery,
    AddrResolved,
    RouteResolved,
    Connect,
    Disconnect,
    Listen,
    /// Its device has gone.
    DeviceRemoval,
}

/// A route to the peer. Path MTU and packet lifetime are codes.
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

/// Packet lifetime on RoCE, as Linux has it: 268 ms.
pub const PACKET_LIFETIME: u8 = 16;
/// Hops of packets.
pub const HOP_LIMIT: u8 = 64;
/// The partition.
pub const PKEY: u16 = 0xffff;
/// The Q_Key of datagram port spaces.
pub const UDP_QKEY: u32 = 0x0123_4567;

/// A claim: service id and address.
pub type ClaimKey = (u64, Option<IpAddr>);

/// What both ends have agreed on, as the attributes of the queue pair need it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Agreed {
    pub remote_qpn: u32,
    /// First PSN that this end sends: the starting PSN that the peer named.
    pub sq_psn: u32,
    pub responder_resources: u8,
    pub initiator_depth: u8,
    pub retry_count: u8,
    pub rnr_retry_count: u8,
    /// Local ACK timeout (code).
    pub timeout: u8,
}

/// An id that waits for a neighbour.
#[derive(Debug)]
pub struct Asking {
    pub place: Place,
    pub destination: Address,
    pub until: Time,
    pub look_at: Time,
    pub look_after: Duration,
    pub ask_at: Time,
}

/// One of them.
#[derive(Debug)]
pub struct CmId {
    /// Whose event queue it belongs to.
    pub file: u64,
    /// What the program calls it; 0: the program has not taken it over yet.
    pub uid: u64,
    pub port_space: u16,
    pub qp_type: u8,
    pub standing: Standing,
    pub source: Option<Address>,
    pub destination: Option<Address>,
    pub place: Option<Place>,
    /// What waits for the neighbour's answer.
    pub asking: Option<Asking>,
    /// The program has been told that the address is gone.
    pub told: bool,
    /// The port it holds among the ids of this process: port space and port.
    pub held: Option<(u16, u16)>,
    /// What it has claimed among all processes.
    pub claim: Option<ClaimKey>,
    pub reuse: bool,
    pub family_only: Option<bool>,
    pub tos: u8,
    /// Local ACK timeout, where the program set one.
    pub ack_timeout: Option<u8>,
    pub route: Option<Route>,
    /// The connection or datagram exchange; its path.
    pub conn: Option<(adverb_cm::Id, Path)>,
    /// Requests that may still wait to be read.
    pub backlog: u32,
    /// Of a request not read yet: its listener.
    pub listener: Option<u32>,
    /// First PSN that the peer sends.
    pub psn: u32,
    pub qpn: u32,
    pub qkey: Option<u32>,
    pub srq: bool,
    pub agreed: Agreed,
    pub ece: Ece,
    /// Events that the program has read.
    pub events_reported: u32,
}

impl CmId {
    pub const fn new(file: u64, uid: u64, port_space: u16, qp_type: u8, psn: u32) -> CmId {
        CmId {
            file,
            uid,
            port_space,
            qp_type,
            standing: Standing::Idle,
            source: None,
            destination: None,
            place: None,
            asking: None,
            told: false,
            held: None,
            claim: None,
            reuse: false,
            family_only: None,
            tos: 0,
            ack_timeout: None,
            route: None,
            conn: None,
            backlog: 0,
            listener: None,
            psn: psn & 0xff_ffff,
            qpn: 0,
            qkey: None,
            srq: false,
            agreed: Agreed {
                remote_qpn: 0,
                sq_psn: 0,
                responder_resources: 0,
                initiator_depth: 0,
                retry_count: 0,
                rnr_retry_count: 0,
                timeout: 0,
            },
            ece: Ece { vendor_id: 0, attr_mod: 0 },
            events_reported: 0,
        }
    }

    /// Does it speak in datagrams?
    pub const fn is_datagram(&self) -> bool {
        self.qp_type == qp_type::UD
    }

    /// The Q_Key, set or not.
    pub fn qkey(&self) -> u32 {
        self.qkey.unwrap_or(if self.port_space == PS_UDP || self.port_space == PS_IPOIB {
            UDP_QKEY
        } else {
            0
        })
    }

    /// The port space of its service ids: that of an InfiniBand address is in its service id.
    pub fn space(&self) -> u16 {
        match self.source {
            Some(Address::Ib { sid, .. }) if sid >> 16 != 0 => (sid >> 16) as u16,
            _ => self.port_space,
        }
    }

    /// The address that a claim of its port names; `None`: all.
    pub fn claimed_address(&self) -> Option<IpAddr> {
        self.source.filter(|a| !a.is_any()).and_then(|a| a.ip())
    }

    /// A route by a path MTU.
    pub fn route_over(&self, place: &Place) -> Route {
        Route {
            mtu: place.mtu,
            traffic_class: self.tos,
            flow_label: 0,
            hop_limit: HOP_LIMIT,
            service_level: 0,
            packet_lifetime: self.ack_timeout.filter(|&t| t > 0).map_or(PACKET_LIFETIME, |t| t - 1),
        }
    }
}
