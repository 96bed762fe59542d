//! What two ends say to each other, as values: REQ, REP, RTU, REJ, DREQ and DREP of the connection
//! manager (IBTA 12.6), as far as NDKPI knows of them.
pub(crate) use adverb_ucma::ids::RejectReason as Reason;

/// How many reads may be in progress on a queue pair (`InboundReadLimit`, `OutboundReadLimit`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ReadLimits {
    /// Reads of the peer.
    pub inbound: u32,
    /// Own reads.
    pub outbound: u32,
}

/// What one end tells the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    /// Reads, as its own side counts them.
    pub(crate) limits: ReadLimits,
    /// The consumer's.
    pub(crate) private_data: Vec<u8>,
}

/// Why the peer is not there any more (`ProviderDisconnectReason`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum DisconnectReason {
    /// It disconnected.
    PeerDisconnected = 1,
    /// It is lost: its connector was closed without a disconnect, its queue pair failed, its
    /// process ended, or it broke the protocol.
    PeerLost = 2,
    /// The queue pair of this end failed, or was flushed. The first request that failed says by
    /// [`NdkResultEx::provider_error_code`](crate::NdkResultEx::provider_error_code) why.
    QpFailed = 3,
}

/// A message.
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
    /// The other has seen it (DREP).
    Disconnected,
}
