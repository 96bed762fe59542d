//! One connection, attempt or datagram exchange.
use crate::bits::MAD_LEN;
use crate::mad::SidrRep;
use crate::types::{Event, Path, QpKind, SidrAnswer, State, Timing};
use adverb_wire::Time;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::net::IpAddr;
use core::time::Duration;

/// The largest response time (code) that this end accepts from a peer: 4.096 us * 2^22, 17 s. A REQ
/// can ask for 2.4 hours. A connection without an owner would stay for this time, multiplied by the
/// retries.
const MAX_PEER_CODE: u8 = 22;
/// The same limit for the service timeout of an MRA (275 s). Linux uses 24.
const MAX_SERVICE_CODE: u8 = 26;

/// 4.096 us * 2^code.
pub(crate) const fn duration(code: u8) -> Duration {
    let code = if code > 31 { 31 } else { code };
    Duration::from_nanos(4096 << code)
}

/// Identity of an incoming REQ or SIDR_REQ.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum RemoteKey {
    /// Address, GUID, communication id.
    Connection(IpAddr, u64, u32),
    /// Address, transaction id, request id.
    Datagram(IpAddr, u64, u32),
}

/// A queue pair of a peer: address, GUID, QPN.
pub(crate) type QpKey = (IpAddr, u64, u32);

/// Waiting times of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Time between two transmissions.
    pub timeout: Duration,
    /// How often a MAD is sent again.
    pub retries: u32,
    /// Round-trip time, added to the time that a peer says it needs.
    pub round_trip: Duration,
    /// Duration of time-wait, after which no packet is in flight.
    pub timewait: Duration,
}

impl Pace {
    /// For a connection that this end requests.
    pub fn of_request(timing: &Timing, ack_timeout: u8) -> Pace {
        let round_trip = duration(timing.packet_lifetime) * 2;
        Pace {
            timeout: duration(timing.remote_response) + round_trip,
            retries: u32::from(timing.max_retries),
            round_trip,
            timewait: duration(ack_timeout.min(MAX_PEER_CODE)),
        }
    }

    /// For a connection that a peer requests. `ack_timeout` is twice the packet lifetime of the
    /// peer.
    pub fn of_peer(response: u8, ack_timeout: u8, retries: u8) -> Pace {
        let round_trip = duration(ack_timeout.min(MAX_PEER_CODE));
        Pace {
            timeout: duration(response.min(MAX_PEER_CODE)) + round_trip,
            retries: u32::from(retries),
            round_trip,
            timewait: round_trip,
        }
    }

    /// The wait after an MRA.
    pub fn after_mra(&self, service_timeout: u8) -> Duration {
        duration(service_timeout.min(MAX_SERVICE_CODE)) + self.round_trip
    }
}

/// A MAD that is sent until it is answered, and the number of transmissions.
#[derive(Clone, Debug)]
pub(crate) struct Sending {
    pub mad: Box<[u8; MAD_LEN]>,
    pub sent: u32,
    pub since: Time,
    /// Time between two transmissions; an MRA makes it longer.
    pub timeout: Duration,
}

/// A connection, attempt or datagram exchange.
#[derive(Debug)]
pub(crate) struct Conn {
    pub state: State,
    /// Did the peer request the connection?
    pub passive: bool,
    /// Is it a datagram exchange?
    pub datagram: bool,
    /// The program has released the id. No further event comes, and the connection is removed when
    /// the peer has been told.
    pub released: bool,
    pub path: Path,
    pub kind: QpKind,
    /// Transaction id of the REQ or SIDR_REQ.
    pub transaction: u64,
    /// Transaction id of the peer's DREQ.
    pub dreq_transaction: u64,
    pub ca_guid: u64,
    pub local_qpn: u32,
    pub remote_guid: u64,
    /// `None` until the peer sends its id.
    pub remote_id: Option<u32>,
    pub remote_qpn: u32,
    /// Service id, which a SIDR_REP repeats.
    pub service_id: u64,
    /// The REQ has an alternate path, which the REP rejects.
    pub alternate: bool,
    pub pace: Pace,
    /// The REQ, REP, DREQ or SIDR_REQ until it is answered; the RTU while established; the REJ
    /// after a reject; the DREP after the answer to a DREQ.
    pub sending: Option<Sending>,
    /// When the message arrived on which the program decides: the REQ, later the REP.
    pub arrived: Time,
    /// When the timer of the state expires. Only the table sets this field.
    pub deadline: Option<Time>,
    pub events: VecDeque<Event>,
}

impl Conn {
    pub fn new(state: State, passive: bool, path: Path, transaction: u64, pace: Pace) -> Conn {
        Conn {
            state,
            passive,
            datagram: false,
            released: false,
            path,
            kind: QpKind::Rc,
            transaction,
            dreq_transaction: 0,
            ca_guid: 0,
            local_qpn: 0,
            remote_guid: 0,
            remote_id: None,
            remote_qpn: 0,
            service_id: 0,
            alternate: false,
            pace,
            sending: None,
            arrived: Time::ZERO,
            deadline: None,
            events: VecDeque::new(),
        }
    }

    /// Did the message on which the program decides arrive again so soon that the peer, which waits
    /// longer, cannot have sent it again? Then the network made the copy, and the peer asks
    /// nothing.
    pub fn is_echo(&self, now: Time) -> bool {
        now.since(self.arrived) < self.pace.timeout / 2
    }

    /// The key under which a repeated REQ finds this connection.
    pub fn remote_key(&self) -> Option<RemoteKey> {
        let (address, remote_id) = (self.path.remote, self.remote_id?);
        match (self.passive, self.datagram) {
            (false, _) => None,
            (true, false) => Some(RemoteKey::Connection(address, self.remote_guid, remote_id)),
            (true, true) => Some(RemoteKey::Datagram(address, self.transaction, remote_id)),
        }
    }

    /// The key under which a new REQ finds this connection if it is stale.
    pub fn qp_key(&self) -> QpKey {
        (self.path.remote, self.remote_guid, self.remote_qpn)
    }

    /// May the other end hold a connection that needs DREQ and DREP to be released?
    pub fn stands(&self) -> bool {
        use State::{DreqReceived, DreqSent, Established, MraRepReceived, RepReceived, RepSent};
        matches!(
            self.state,
            RepReceived | RepSent | MraRepReceived | Established | DreqSent | DreqReceived
        )
    }
}

impl Conn {
    /// The SIDR_REP for an answer.
    pub(crate) fn sidr_rep(&self, answer: &SidrAnswer) -> SidrRep {
        SidrRep {
            ece_attr_mod: answer.ece.attr_mod,
            request_id: self.remote_id.unwrap_or(0),
            status: answer.status.0,
            info_len: answer.info_len,
            ece_vendor_high: (answer.ece.vendor_id >> 8) as u16,
            qpn: answer.qpn,
            ece_vendor_low: answer.ece.vendor_id as u8,
            service_id: self.service_id,
            qkey: answer.qkey,
            info: answer.info,
            private_data: answer.private_data,
        }
    }
}
