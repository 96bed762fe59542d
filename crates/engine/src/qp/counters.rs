//! What a queue pair counts: packets dropped, by reason, and the life of the reliable protocol.

macro_rules! reasons {
    ($($(#[$doc:meta])* $reason:ident: $name:literal,)*) => {
        /// Why a packet was dropped without an answer.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(usize)]
        pub enum DropReason { $($(#[$doc])* $reason,)* }

        impl DropReason {
            /// All of them.
            pub const ALL: &[DropReason] = &[$(DropReason::$reason,)*];
            /// Number of reasons.
            pub const COUNT: usize = Self::ALL.len();

            /// As in a table of counters.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(DropReason::$reason => $name,)* }
            }
        }
    };
}

reasons! {
    /// The queue pair's state does not receive (RESET, INIT, ERR), or a response came before RTS.
    State: "drop_state",
    /// The opcode belongs to another transport.
    Transport: "drop_transport",
    /// The opcode is reserved or not one of this transport's.
    Opcode: "drop_opcode",
    /// Partition key does not match.
    PKey: "drop_pkey",
    /// Queue key does not match (UD).
    QKey: "drop_qkey",
    /// The packet names another queue pair.
    DestQpn: "drop_dest_qpn",
    /// It did not come from the connected peer.
    Source: "drop_source",
    /// A request outside the window, or a gap on UC.
    Sequence: "drop_sequence",
    /// A response to nothing that is outstanding.
    GhostResponse: "drop_ghost_response",
    /// A response that says nothing new, about a loss that is being made good or a request that has failed.
    Stale: "drop_stale_response",
    /// Longer than the path MTU or the receive, or a FIRST or MIDDLE packet that is not exactly as long as the MTU.
    Length: "drop_length",
    /// Key, bounds or rights forbid it (UC).
    Access: "drop_access",
    /// No receive was posted (UC, UD).
    NoReceive: "drop_no_receive",
    /// A receive was, but its own buffers could not be written (UC, UD).
    Buffers: "drop_buffers",
    /// Malformed otherwise.
    Malformed: "drop_malformed",
}

/// Counters of a queue pair; they wrap and are never reset while it lives.
///
/// A packet given to [`Qp::handle_packet`](super::Qp::handle_packet) is counted once: as executed, as an answer, as a
/// duplicate, with the NAK that refuses it, or with the reason why it was dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    drops: [u64; DropReason::COUNT],
    /// Request packets executed.
    pub executed: u64,
    /// Response packets that told something.
    pub answers: u64,
    /// Request packets handed out, retransmissions included.
    pub sent: u64,
    /// Request packets handed out again.
    pub retransmitted: u64,
    /// Local ACK timeouts.
    pub timeouts: u64,
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
    /// NAKs of any kind that the responder sent, each for a packet that it refused.
    pub naks_sent: u64,
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
    /// Packets taken in all, whatever became of them.
    #[must_use]
    pub fn handled(&self) -> u64 {
        let sums = [self.executed, self.answers, self.duplicates, self.naks_sent, self.dropped_total()];
        sums.into_iter().fold(0, u64::wrapping_add)
    }
    /// Packets dropped in all.
    #[must_use]
    pub fn dropped_total(&self) -> u64 {
        self.drops.iter().sum()
    }
}
