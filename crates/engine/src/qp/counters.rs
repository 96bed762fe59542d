//! What a queue pair counts: packets dropped, by reason, and the life of the reliable protocol.

/// Why a packet was dropped without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum DropReason {
    /// The queue pair's state does not receive (RESET, INIT, ERR), or a response came before RTS.
    State,
    /// The opcode belongs to another transport.
    Transport,
    /// The opcode is reserved or not one of this transport's.
    Opcode,
    /// Partition key does not match.
    PKey,
    /// Queue key does not match (UD).
    QKey,
    /// The packet names another queue pair.
    DestQpn,
    /// It did not come from the connected peer.
    Source,
    /// A request outside the window, or a gap on UC.
    Sequence,
    /// A response to nothing that is outstanding.
    GhostResponse,
    /// Longer than the path MTU, or a FIRST/MIDDLE packet that is not exactly that long.
    Length,
    /// No receive was posted (UC, UD).
    NoReceive,
    /// Malformed otherwise.
    Malformed,
}

impl DropReason {
    /// Number of reasons.
    pub const COUNT: usize = DropReason::Malformed as usize + 1;
}

/// Counters of a queue pair; they wrap and are never reset while it lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    drops: [u64; DropReason::COUNT],
    /// Request packets handed out, retransmissions included.
    pub sent: u64,
    /// Request packets handed out again.
    pub retransmitted: u64,
    /// Local ACK timeouts.
    pub timeouts: u64,
    /// Restarts for want of an answer, before the local ACK timeout.
    pub probes: u64,
    /// RNR NAKs taken.
    pub rnr_naks: u64,
    /// Sequence-error NAKs taken.
    pub seq_naks: u64,
    /// Restarts because an ACK passed over a read or atomic whose response is missing.
    pub implied_naks: u64,
    /// Duplicate requests that the responder answered again.
    pub duplicates: u64,
    /// Requests that the host performed in the peer's memory by itself.
    pub direct: u64,
    /// NAKs of any kind that the responder sent.
    pub naks_sent: u64,
    /// Congestion notifications sent.
    pub cnps_sent: u64,
    /// Congestion notifications taken.
    pub cnps: u64,
}

impl Counters {
    /// Counts a dropped packet.
    pub(crate) fn drop(&mut self, why: DropReason) {
        self.drops[why as usize] = self.drops[why as usize].wrapping_add(1);
    }
    /// Packets dropped for this reason.
    #[must_use]
    pub fn dropped(&self, why: DropReason) -> u64 {
        self.drops[why as usize]
    }
    /// Packets dropped in all.
    #[must_use]
    pub fn dropped_total(&self) -> u64 {
        self.drops.iter().sum()
    }
}
