//! The types of commands and events, between a program and the connection manager.
use crate::bits::MAD_LEN;
use crate::data::Data;
use crate::mad::{Ece, MadKind, Rep, Req, SidrRep, SidrReq, SidrStatus};
use crate::reason::RejectReason;
use alloc::boxed::Box;
use core::net::IpAddr;
use core::time::Duration;

/// A connection, a connection attempt or a datagram exchange (SIDR): the local communication id in
/// its MADs. Never 0. An id is not given out again before its time-wait is over.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Id(pub u32);

/// A service id with a listener.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Listener(pub u32);

/// The two addresses between which MADs travel. Both are of the same family.
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
    /// Source and destination address.
    pub path: Path,
    /// The bytes of the MAD.
    pub mad: [u8; MAD_LEN],
    /// The connection, attempt or exchange of the MAD. The host passes this id to
    /// [`Endpoint::not_sent`](crate::Endpoint::not_sent) if the MAD cannot leave.
    pub of: Option<Id>,
}

/// Configuration of an endpoint.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Upper [`Config::prefix_bits`] bits of each local communication id. A transport that serves
    /// several processes gives each process its own prefix. [`crate::route()`] finds the process of
    /// a MAD by the prefix of the receiver's communication id.
    pub prefix: u32,
    /// Number of bits of the prefix, 0 to 20.
    pub prefix_bits: u8,
    /// The lower bits of the first id. Use a random number: peers may still remember ids of an
    /// earlier process with the same prefix, and the new ids must differ from them.
    pub first: u32,
    /// Upper half of the transaction ids.
    pub transaction: u32,
    /// Limit of connections and attempts at one time, including connections in time-wait.
    pub max_connections: usize,
    /// Limit of requests that the program has not answered yet, over all listeners. Further
    /// requests are ignored, and their senders repeat them. The backlog of each listener should be
    /// smaller than this limit.
    pub max_requests: usize,
    /// Limit of answers kept for peers that ask again: rejects and datagram replies. The oldest
    /// answer is dropped first.
    pub max_answers: usize,
    /// Service timeout (code) of the MRA that answers a repeated message while the program has not
    /// decided. Linux uses 24 (68.7 s).
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

/// Transport of a queue pair, from the fields Transport Service Type and Extended Transport Type of
/// a REQ.
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
    /// How long this end may take to answer a MAD; sent to the other end (Local CM Response
    /// Timeout).
    pub local_response: u8,
    /// How long the other end may take to answer (Remote CM Response Timeout).
    pub remote_response: u8,
    /// How often a MAD is sent again before the sender gives up, 0 to 15.
    pub max_retries: u8,
    /// Time that a packet is in flight (Packet Lifetime).
    pub packet_lifetime: u8,
}

impl Timing {
    /// The values that Linux peers use on RoCE: response 20 (4.29 s), 15 retries, packet lifetime
    /// 16 (268 ms).
    pub const LINUX: Timing =
        Timing { local_response: 20, remote_response: 20, max_retries: 15, packet_lifetime: 16 };
}

/// A request for a connection: the contents of the REQ.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectRequest {
    /// Addresses; they become the GIDs of the primary path.
    pub path: Path,
    /// Service id of the request. [`crate::ip::service_id`] computes the service id of a port.
    pub service_id: u64,
    /// GUID of the local device.
    pub ca_guid: u64,
    /// Queue pair of this end.
    pub qpn: u32,
    /// First PSN that the peer sends and this end expects.
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
    /// Retries after RNR asked of the other end, 0 to 7; 7 means without limit.
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
    /// Local ACK timeout of this end's queue pair (code). `None`: packet lifetime + 1, as in Linux.
    pub ack_timeout: Option<u8>,
    /// Timeouts and retries of the MADs.
    pub timing: Timing,
    /// Private data. For services of ports it begins with [`crate::ip::IpHeader`], which leaves 56
    /// bytes.
    pub private_data: Data<92>,
    /// Enhanced connection establishment, as passed to `rdma_set_local_ece`.
    pub ece: Ece,
}

/// Acceptance of a request: the contents of the REP.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Accept {
    /// Queue pair of this end.
    pub qpn: u32,
    /// First PSN that the peer sends and this end expects.
    pub psn: u32,
    /// GUID of the local device.
    pub ca_guid: u64,
    /// Does the queue pair receive from a shared receive queue?
    pub srq: bool,
    /// RDMA reads and atomics that this end answers at one time.
    pub responder_resources: u8,
    /// RDMA reads and atomics that this end sends at one time.
    pub initiator_depth: u8,
    /// Retries after RNR asked of the other end, 0 to 7; 7 means without limit.
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

/// A request to look up a datagram service (SIDR, IBTA 12.11).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SidrRequest {
    /// Addresses.
    pub path: Path,
    /// Service id of the request.
    pub service_id: u64,
    /// Partition.
    pub pkey: u16,
    /// Timeouts and retries of the MADs.
    pub timing: Timing,
    /// Private data. For services of ports it begins with [`crate::ip::IpHeader`], which leaves 180
    /// bytes.
    pub private_data: Data<216>,
}

/// The answer to a datagram request.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SidrAnswer {
    /// Outcome. The queue pair number is valid only with [`SidrStatus::SUCCESS`].
    pub status: SidrStatus,
    /// Queue pair of the service.
    pub qpn: u32,
    /// Q_Key of the queue pair.
    pub qkey: u32,
    /// Additional information.
    pub info: Data<72>,
    /// Number of valid bytes in `info`, 0 to 72.
    pub info_len: u8,
    /// Private data.
    pub private_data: Data<136>,
    /// Enhanced connection establishment.
    pub ece: Ece,
}

/// A reject by the other end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rejection {
    /// Reason; its `Display` is a sentence.
    pub reason: RejectReason,
    /// Additional reject information. Its meaning depends on the reason.
    pub info: Data<72>,
    /// Number of valid bytes in `info`, 0 to 72.
    pub info_len: u8,
    /// Private data.
    pub private_data: Data<148>,
}

/// How a connection ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ending {
    /// The other end disconnected (DREQ, with this private data). The other end waits until this
    /// end answers with [`crate::Endpoint::disconnect`] or [`crate::Endpoint::release`].
    Peer(Box<Data<220>>),
    /// The other end confirmed this end's disconnect (DREP, with this private data).
    Confirmed(Box<Data<224>>),
    /// This end disconnected, and the other end never answered: the peer is dead or cannot be
    /// reached.
    Unanswered {
        /// How often the DREQ was sent.
        sent: u32,
    },
    /// The process of the other end has ended ([`crate::Endpoint::peer_ended`]).
    PeerEnded,
    /// The other end requested a new connection with the same queue pair, so it has forgotten this
    /// connection.
    Stale,
    /// The other end rejected the established connection, which it had accepted before (REJ).
    Rejected(Box<Rejection>),
}

/// What happened to an id.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A peer requests a connection; the id is new. Answer with [`crate::Endpoint::accept`] or
    /// [`crate::Endpoint::reject`], or release with [`crate::Endpoint::release`] if the backlog is
    /// full.
    Request {
        /// The listener of the request.
        listener: Listener,
        /// Addresses.
        path: Path,
        /// The message of the peer.
        req: Box<Req>,
    },
    /// A peer looks up a datagram service; the id is new. Answer with
    /// [`crate::Endpoint::sidr_reply`].
    SidrRequest {
        /// The listener of the request.
        listener: Listener,
        /// Addresses.
        path: Path,
        /// The message of the peer.
        req: Box<SidrReq>,
    },
    /// The peer accepted a [`crate::Endpoint::connect`]. Bring the queue pair to RTS, then call
    /// [`crate::Endpoint::established`]; or reject with [`crate::Endpoint::reject`].
    Reply(Box<Rep>),
    /// The peer needs more time (MRA). No action is needed. The duration is the new wait per
    /// transmission.
    Delayed(Duration),
    /// The connection of an accepted request is established (RTU).
    Established,
    /// The peer rejected. The attempt is over.
    Rejected(Box<Rejection>),
    /// The peer did not answer. The attempt is over.
    Unanswered {
        /// The message without answer.
        message: MadKind,
        /// How often the message was sent.
        sent: u32,
        /// How long the sender waited in total.
        waited: Duration,
    },
    /// An established connection has ended, or an accepted connection that was not confirmed yet.
    /// Comes once per connection.
    Disconnected(Ending),
    /// The answer to [`crate::Endpoint::sidr_request`]. The exchange is over.
    SidrReply(Box<SidrRep>),
    /// No packet of the ended connection is in flight any more, so its queue pair number may be
    /// used again.
    TimewaitExit,
}

/// State of an id. The names are those of IBTA 12.9.7 and of Linux.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum State {
    /// REQ sent, not answered.
    ReqSent,
    /// REQ sent, an MRA has arrived.
    MraReqReceived,
    /// REP received, the program has not confirmed yet.
    RepReceived,
    /// REQ received, the program has not answered yet.
    ReqReceived,
    /// REP sent, no RTU yet.
    RepSent,
    /// REP sent, an MRA has arrived.
    MraRepReceived,
    /// The connection is established.
    Established,
    /// DREQ sent, not answered.
    DreqSent,
    /// DREQ received, the program has not answered yet.
    DreqReceived,
    /// Ended. Packets may still be in flight.
    Timewait,
    /// Ended. Only the id is kept until the program releases it.
    Idle,
    /// SIDR_REQ sent, not answered.
    SidrReqSent,
    /// SIDR_REQ received, the program has not answered yet.
    SidrReqReceived,
}
