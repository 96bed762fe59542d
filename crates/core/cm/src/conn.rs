//! One connection, attempt or datagram exchange.
use crate::bits::MAD_LEN;
use crate::mad::SidrRep;
use crate::types::{Event, Path, QpKind, SidrAnswer, State, Timing};
use adverb_wire::Time;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::net::IpAddr;
use core::time::Duration;

/// The longest code that a peer may set for our waiting: 4.096 us * 2^22, 17 s. A REQ could say 2.4
/// hours, and a connection that nobody owns any more would be kept for so long, times the retries.
const MAX_PEER_CODE: u8 = 22;
/// The same for the service timeout of an MRA (275 s); Linux says 24.
const MAX_SERVICE_CODE: u8 = 26;

/// 4.096 us * 2^code.
pub(crate) const fn duration(code: u8) -> Duration {
    let code = if code > 31 { 31 } else { code };
    Duration::from_nanos(4096 << code)
}

/// What a peer asked for, as its REQ or SIDR_REQ names it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum RemoteKey {
    /// Address, GUID, communication id.
    Connection(IpAddr, u64, u32),
    /// Address, transaction id, request id.
    Datagram(IpAddr, u64, u32),
}

/// A peer's queue pair: address, GUID, QPN.
pub(crate) type QpKey = (IpAddr, u64, u32);

/// Waiting times of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// From one transmission to the next.
    pub timeout: Duration,
    /// How often a MAD is sent again.
    pub retries: u32,
    /// There and back, added to what a peer says it will take.
    pub round_trip: Duration,
    /// From the end until no packet is on the way any more.
    pub timewait: Duration,
}

impl Pace {
    /// Of a connection that this end asks for.
    pub fn of_request(timing: &Timing, ack_timeout: u8) -> Pace {
        let round_trip = duration(timing.packet_lifetime) * 2;
        Pace {
            timeout: duration(timing.remote_response) + round_trip,
            retries: u32::from(timing.max_retries),
            round_trip,
            timewait: duration(ack_timeout.min(MAX_PEER_CODE)),
        }
    }

    /// Of a connection that a peer asks for. `ack_timeout` is twice its packet lifetime.
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

/// A MAD that is sent until it is answered, and how often it has been.
#[derive(Clone, Debug)]
pub(crate) struct Sending {
    pub mad: Box<[u8; MAD_LEN]>,
    pub sent: u32,
    pub since: Time,
    /// From one transmission to the next; an MRA makes it longer.
    pub timeout: Duration,
}

/// One of them.
#[derive(Debug)]
pub(crate) struct Conn {
    pub state: State,
    /// Did the peer ask for it?
    pub passive: bool,
    /// Is it a datagram exchange?
    pub datagram: bool,
    /// The program has let go of it: no more events; it goes when the peer has been told.
    pub released: bool,
    pub path: Path,
    pub kind: QpKind,
    /// Transaction id of the REQ or SIDR_REQ.
    pub transaction: u64,
    pub ca_guid: u64,
    pub local_qpn: u32,
    pub remote_guid: u64,
    /// Unknown until the peer says it.
    pub remote_id: Option<u32>,
    pub remote_qpn: u32,
    /// Service id; a SIDR_REP repeats it.
    pub service_id: u64,
    /// The REQ has an alternate path, which the REP refuses.
    pub alternate: bool,
    pub pace: Pace,
    /// REQ, REP, DREQ or SIDR_REQ until it is answered; the RTU while established, the REJ when
    /// refused.
    pub sending: Option<Sending>,
    /// When what the program decides on came: the REQ, then the REP.
    pub came: Time,
    /// When the timer of the state runs out. Set by the table alone.
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
            ca_guid: 0,
            local_qpn: 0,
            remote_guid: 0,
            remote_id: None,
            remote_qpn: 0,
            service_id: 0,
            alternate: false,
            pace,
            sending: None,
            came: Time::ZERO,
            deadline: None,
            events: VecDeque::new(),
        }
    }

    /// Has what the program decides on come again so soon that its sender, who waits for longer,
    /// cannot have sent it again? Then it is the network that repeats, and nobody asks anything.
    pub fn is_echo(&self, now: Time) -> bool {
        now.since(self.came) < self.pace.timeout / 2
    }

    /// By which a repeated REQ finds it.
    pub fn remote_key(&self) -> Option<RemoteKey> {
        let (address, remote_id) = (self.path.remote, self.remote_id?);
        match (self.passive, self.datagram) {
            (false, _) => None,
            (true, false) => Some(RemoteKey::Connection(address, self.remote_guid, remote_id)),
            (true, true) => Some(RemoteKey::Datagram(address, self.transaction, remote_id)),
        }
    }

    /// By which a stale connection is found.
    pub fn qp_key(&self) -> QpKey {
        (self.path.remote, self.remote_guid, self.remote_qpn)
    }

    /// Does the other end hold, or may it hold, what has to be released with DREQ and DREP?
    pub fn stands(&self) -> bool {
        use State::{DreqSent, Established, MraRepReceived, RepReceived, RepSent};
        matches!(self.state, RepReceived | RepSent | MraRepReceived | Established | DreqSent)
    }
}

impl Conn {
    /// The SIDR_REP that says an answer.
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
