//! What a program says to the connection manager and hears from it.
use crate::bits::MAD_LEN;
use crate::data::Data;
use crate::mad::{Ece, MadKind, Rep, Req, SidrRep, SidrReq, SidrStatus};
use crate::reason::RejectReason;
use alloc::boxed::Box;
use core::net::IpAddr;
use core::time::Duration;

/// A connection, a connection attempt or a datagram exchange (SIDR): the local communication id
/// that stands in its MADs. Never 0. An id is not given out again before its time-wait is over.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Id(pub u32);

/// A service id that is listened on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Listener(pub u32);

/// The two addresses between which MADs travel. For an IPv4 address both are IPv4.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Path {
    /// Address of this end.
    pub local: IpAddr,
    /// Address of the other end.
    pub remote: IpAddr,
}

impl Path {
    /// The same path seen from the other end.
    #[must_use]
    pub const fn reversed(self) -> Path {
        Path { local: self.remote, remote: self.local }
    }
}

/// A MAD to send.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transmit {
    /// From where to where.
    pub path: Path,
    /// Its bytes.
    pub mad: [u8; MAD_LEN],
    /// The connection, attempt or exchange that it belongs to: what
    /// [`Endpoint::not_sent`](crate::Endpoint::not_sent) is told if it cannot leave.
    pub of: Option<Id>,
}

/// What an endpoint is made with.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Upper [`Config::prefix_bits`] bits of each local communication id. A transport that serves
    /// several processes gives each its own, and finds the process of a MAD by the id that the MAD
    /// brings back ([`crate::route()`]).
    pub prefix: u32,
    /// How many bits the prefix has, 0 to 20.
    pub prefix_bits: u8,
    /// The lower bits of the first id. A random number here keeps the ids of a process apart from
    /// those that an earlier process with the same prefix had, which peers may still remember.
    pub first: u32,
    /// Upper half of the transaction ids.
    pub transaction: u32,
    /// Connections and attempts at one time, those in time-wait included.
    pub max_connections: usize,
    /// Requests of peers that the program has not answered yet, over all listeners. One more is not
    /// taken (its sender sends it again): the listeners' own backlogs are meant to be smaller.
    pub max_requests: usize,
    /// Answers kept for peers that may ask again: refusals and datagram replies. The oldest goes
    /// first.
    pub max_answers: usize,
    /// Service timeout (code) of the MRA that answers a repeated message while the program has not
    /// decided yet. 24 (68.7 s) is what Linux says.
    pub service_timeout: u8,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            prefix: 0,
            prefix_bits: 0,
            first: 1,
            transaction: 0,
            max_connections: 1 << 16,
            max_requests: 1 << 12,
            max_answers: 1 << 10,
            service_timeout: 24,
        }
    }
}

/// Transport of a queue pair, as a REQ says it (Transport Service Type and Extended Transport
/// Type).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum QpKind {
    /// Reliable connection.
    #[default]
    Rc,
    /// Unreliable connection.
    Uc,
    /// Extended reliable connection.
    Xrc,
}

/// Timing of an exchange, in the codes of IBTA: 4.096 us * 2^code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timing {
    /// How long this end may take to answer a MAD: what it tells the other (Local CM Response
    /// Timeout).
    pub local_response: u8,
    /// How long the other end may take to answer (Remote CM Response Timeout).
    pub remote_response: u8,
    /// How often a MAD is sent again before its sender gives up, 0 to 15.
    pub max_retries: u8,
    /// Time of a packet on the way (Packet Lifetime).
    pub packet_lifetime: u8,
}

impl Timing {
    /// What Linux peers show on RoCE: response 20 (4.29 s), 15 retries, packet lifetime 16 (268
    /// ms).
    pub const LINUX: Timing =
        Timing { local_response: 20, remote_response: 20, max_retries: 15, packet_lifetime: 16 };
}

impl Default for Timing {
    fn default() -> Self {
        Timing::LINUX
    }
}

/// A connection to ask for: what the REQ says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectRequest {
    /// Addresses; they become the GIDs of the primary path.
    pub path: Path,
    /// Who is asked for. [`crate::ip::service_id`] makes the one of a port.
    pub service_id: u64,
    /// GUID of the local device.
    pub ca_guid: u64,
    /// Queue pair of this end.
    pub qpn: u32,
    /// First PSN that the peer sends, as this end expects it.
    pub psn: u32,
    /// Transport.
    pub kind: QpKind,
    /// Does the queue pair receive from a shared receive queue?
    pub srq: bool,
    /// RDMA reads and atomics that this end answers at one time.
    pub responder_resources: u8,
    /// RDMA reads and atomics that this end sends at one time.
    pub initiator_depth: u8,
    /// Transport retries asked of the other end, 0 to 7.
    pub retry_count: u8,
    /// Retries after RNR asked of the other end, 0 to 7; 7 is for ever.
    pub rnr_retry_count: u8,
    /// End-to-end flow control.
    pub flow_control: bool,
    /// Path MTU as a code, 1 (256) to 5 (4096).
    pub mtu: u8,
    /// Partition.
    pub pkey: u16,
    /// Service level of the path.
    pub service_level: u8,
    /// Traffic class of the path.
    pub traffic_class: u8,
    /// Flow label of the path, 20 bits.
    pub flow_label: u32,
    /// Hop limit of the path.
    pub hop_limit: u8,
    /// Local ACK timeout of this end's queue pair (code). `None`: packet lifetime + 1, as Linux has
    /// it.
    pub ack_timeout: Option<u8>,
    /// Timeouts and retries of the MADs.
    pub timing: Timing,
    /// The services of ports begin it with [`crate::ip::IpHeader`], which leaves 56 bytes.
    pub private_data: Data<92>,
    /// Enhanced connection establishment, as `rdma_set_local_ece` takes it.
    pub ece: Ece,
}

/// Consent to a request: what the REP says.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Accept {
    /// Queue pair of this end.
    pub qpn: u32,
    /// First PSN that the peer sends, as this end expects it.
    pub psn: u32,
    /// GUID of the local device.
    pub ca_guid: u64,
    /// Does the queue pair receive from a shared receive queue?
    pub srq: bool,
    /// RDMA reads and atomics that this end answers at one time.
    pub responder_resources: u8,
    /// RDMA reads and atomics that this end sends at one time.
    pub initiator_depth: u8,
    /// Retries after RNR asked of the other end, 0 to 7; 7 is for ever.
    pub rnr_retry_count: u8,
    /// End-to-end flow control.
    pub flow_control: bool,
    /// Time the local device takes to acknowledge (code).
    pub target_ack_delay: u8,
    /// Private data.
    pub private_data: Data<196>,
    /// Enhanced connection establishment.
    pub ece: Ece,
}

/// A datagram service to look up (SIDR, IBTA 12.11).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SidrRequest {
    /// Addresses.
    pub path: Path,
    /// Who is asked for.
    pub service_id: u64,
    /// Partition.
    pub pkey: u16,
    /// Timeouts and retries of the MADs.
    pub timing: Timing,
    /// The services of ports begin it with [`crate::ip::IpHeader`], which leaves 180 bytes.
    pub private_data: Data<216>,
}

/// The answer to a datagram request.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SidrAnswer {
    /// Outcome; the queue pair counts only with [`SidrStatus::SUCCESS`].
    pub status: SidrStatus,
    /// Queue pair of the service.
    pub qpn: u32,
    /// Its Q_Key.
    pub qkey: u32,
    /// Additional information.
    pub info: Data<72>,
    /// How much of it counts, 0 to 72.
    pub info_len: u8,
    /// Private data.
    pub private_data: Data<136>,
    /// Enhanced connection establishment.
    pub ece: Ece,
}

/// A refusal by the other end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rejection {
    /// Why; its `Display` is a sentence.
    pub reason: RejectReason,
    /// Additional reject information; what it is depends on the reason.
    pub info: Data<72>,
    /// How much of it counts, 0 to 72.
    pub info_len: u8,
    /// Private data.
    pub private_data: Data<148>,
}

/// How a connection ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ending {
    /// The other end disconnected (DREQ), with its private data. It has been answered.
    Peer(Box<Data<220>>),
    /// The other end confirmed this end's disconnect (DREP), with its private data.
    Confirmed(Box<Data<224>>),
    /// This end disconnected, and the other never answered: it is dead or cannot be reached.
    Unanswered {
        /// How often the DREQ was sent.
        sent: u32,
    },
    /// The process of the other end is gone ([`crate::Endpoint::peer_gone`]).
    PeerGone,
    /// The other end asked for a new connection with the same queue pair: it has forgotten this
    /// one.
    Stale,
    /// The other end refused what it had agreed to (a REJ in an established connection).
    Rejected(Box<Rejection>),
}

/// What happened to an id.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A peer asks for a connection; the id is new. Answer with [`crate::Endpoint::accept`] or
    /// [`crate::Endpoint::reject`], or drop it with [`crate::Endpoint::release`] when the backlog
    /// is full.
    Request {
        /// Whom it asked for.
        listener: Listener,
        /// Addresses.
        path: Path,
        /// What it said.
        req: Box<Req>,
    },
    /// A peer looks up a datagram service; the id is new. Answer with
    /// [`crate::Endpoint::sidr_reply`].
    SidrRequest {
        /// Whom it asked for.
        listener: Listener,
        /// Addresses.
        path: Path,
        /// What it said.
        req: Box<SidrReq>,
    },
    /// The peer agreed to [`crate::Endpoint::connect`]. Bring the queue pair to RTS, then call
    /// [`crate::Endpoint::established`]; or refuse with [`crate::Endpoint::reject`].
    Reply(Box<Rep>),
    /// The peer needs longer (MRA); nothing to do. Further waiting per transmission is this long.
    Delayed(Duration),
    /// The connection of an accepted request stands (RTU).
    Established,
    /// The peer refused. The attempt is over.
    Rejected(Box<Rejection>),
    /// The peer did not answer. The attempt is over.
    Unanswered {
        /// What it did not answer.
        message: MadKind,
        /// How often it was sent.
        sent: u32,
        /// For how long.
        waited: Duration,
    },
    /// A connection that stood, or an accepted one that had not been confirmed, has ended. Comes
    /// once.
    Disconnected(Ending),
    /// The answer to [`crate::Endpoint::sidr_request`]. The exchange is over.
    SidrReply(Box<SidrRep>),
    /// No packet of the ended connection is on the way any more: its queue pair number may be used
    /// again.
    TimewaitExit,
}

/// Where an id stands. Names are those of IBTA 12.9.7 and of Linux.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum State {
    /// REQ sent, not answered.
    ReqSent,
    /// REQ sent, an MRA came.
    MraReqReceived,
    /// REP received, the program has not confirmed yet.
    RepReceived,
    /// REQ received, the program has not answered yet.
    ReqReceived,
    /// REP sent, no RTU yet.
    RepSent,
    /// REP sent, an MRA came.
    MraRepReceived,
    /// Both ends agree.
    Established,
    /// DREQ sent, not answered.
    DreqSent,
    /// Ended; packets may still be on the way.
    Timewait,
    /// Ended; nothing is kept but the id, until it is released.
    Idle,
    /// SIDR_REQ sent, not answered.
    SidrReqSent,
    /// SIDR_REQ received, the program has not answered yet.
    SidrReqReceived,
}
