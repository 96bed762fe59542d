//! The messages between two ends, as values: REQ, REP, RTU, REJ, DREQ and DREP of the connection
//! manager (IBTA 12.6), as far as NDKPI uses them.
pub(crate) use adverb_ucma::ids::RejectReason as Reason;

/// How many reads may be in progress on a queue pair (`InboundReadLimit`, `OutboundReadLimit`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ReadLimits {
    /// Reads by the peer.
    pub inbound: u32,
    /// Reads by this side.
    pub outbound: u32,
}

/// The data that an end offers to the other end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    /// Read limits, from the point of view of the offering side.
    pub(crate) limits: ReadLimits,
    /// The consumer's private data.
    pub(crate) private_data: Vec<u8>,
}

/// Why the peer has left (`ProviderDisconnectReason`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum DisconnectReason {
    /// The peer disconnected.
    PeerDisconnected = 1,
    /// The peer is lost: its connector was closed without a disconnect, its queue pair failed, its
    /// process ended, or the peer broke the protocol.
    PeerLost = 2,
    /// The queue pair of this end failed, or was flushed. The
    /// [`NdkResultEx::provider_error_code`](crate::NdkResultEx::provider_error_code) of the first
    /// failed request says why.
    QpFailed = 3,
}

/// A message of the connection manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// The initiator asks for a connection (REQ).
    Request(Offer),
    /// The listener's side accepts (REP).
    Reply(Offer),
    /// The initiator's queue pair is ready to receive (RTU).
    Ready,
    /// Either side refuses (REJ).
    Reject(Reason, Vec<u8>),
    /// One side ends an established connection (DREQ).
    Disconnect,
    /// The other side confirms the end (DREP).
    Disconnected,
}
