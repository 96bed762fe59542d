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
    State: "qp_drop_state",
    /// The opcode belongs to another transport.
    Transport: "qp_drop_transport",
    /// The opcode is reserved or not one of this transport's.
    Opcode: "qp_drop_opcode",
    /// Partition key does not match.
    PKey: "qp_drop_pkey",
    /// Queue key does not match (UD).
    QKey: "qp_drop_qkey",
    /// The packet names another queue pair.
    DestQpn: "qp_drop_dest_qpn",
    /// It did not come from the connected peer.
    Source: "qp_drop_source",
    /// A request outside the window, or a gap on UC.
    Sequence: "qp_drop_sequence",
    /// A response to nothing that is outstanding.
    GhostResponse: "qp_drop_ghost_response",
    /// A response that says nothing new, about a loss that is being made good or a request that has
    /// failed.
    Stale: "qp_drop_stale_response",
    /// Longer than the path MTU or the receive, or a FIRST or MIDDLE packet that is not exactly as
    /// long as the MTU.
    Length: "qp_drop_length",
    /// Key, bounds or rights forbid it (UC).
    Access: "qp_drop_access",
    /// No receive was posted (UC, UD).
    NoReceive: "qp_drop_no_receive",
    /// A receive was, but its own buffers could not be written (UC, UD).
    Buffers: "qp_drop_buffers",
    /// Malformed otherwise.
    Malformed: "qp_drop_malformed",
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of a queue pair; they wrap and are never reset while it lives.
        ///
        /// A packet given to [`Qp::handle_packet`](super::Qp::handle_packet) is counted once: as
        /// executed, as an answer, as a duplicate, with the NAK that refuses it, or with the reason
        /// why it was dropped; as long as it is kept for its turn, as such.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counters {
            drops: [u64; DropReason::COUNT],
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counters {
            /// Adds what another queue pair counted.
            pub fn add(&mut self, other: &Counters) {
                $(self.$name = self.$name.wrapping_add(other.$name);)*
                for (sum, more) in self.drops.iter_mut().zip(&other.drops) {
                    *sum = sum.wrapping_add(*more);
                }
            }

            /// Names and values.
            pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
                let drops = DropReason::ALL.iter().map(|why| (why.name(), self.dropped(*why)));
                [$((concat!("qp_", stringify!($name)), self.$name),)*].into_iter().chain(drops)
            }
        }
    };
}

counters! {
    /// Request packets executed.
    executed,
    /// Response packets that told something.
    answers,
    /// Request packets handed out, retransmissions included.
    sent,
    /// Request packets handed out again.
    retransmitted,
    /// Local ACK timeouts.
    timeouts,
    /// Restarts for want of an answer, before the local ACK timeout.
    probes,
    /// RNR NAKs taken.
    rnr_naks,
    /// Sequence-error NAKs taken.
    seq_naks,
    /// Restarts because an ACK passed over a read or atomic whose response is missing.
    implied_naks,
    /// Duplicate requests that the responder answered again.
    duplicates,
    /// Requests that the host performed in the peer's memory by itself.
    direct,
    /// SENDs that the host wrote into the peer's ring as a whole, without a packet.
    messages,
    /// NAKs of any kind that the responder sent, each for a packet that it refused, but for those
    /// of the next line.
    naks_sent,
    /// Sequence-error NAKs sent, each for packets that did not come.
    gap_naks,
    /// Packets kept because they came before earlier ones.
    held,
    /// Packets no longer kept: their turn came, or they were dropped.
    released,
    /// Congestion notifications sent.
    cnps_sent,
    /// Congestion notifications taken.
    cnps,
}

impl Counters {
    /// Counts a dropped packet.
    pub(crate) fn drop(&mut self, why: DropReason) {
        self.drops[why as usize] = self.drops[why as usize].wrapping_add(1);
    }
    /// Counts a packet that was kept and is dropped.
    pub(crate) fn discarded(&mut self) {
        self.released = self.released.wrapping_add(1);
        self.drop(DropReason::Sequence);
    }
    /// Packets dropped for this reason.
    #[must_use]
    pub fn dropped(&self, why: DropReason) -> u64 {
        self.drops[why as usize]
    }
    /// Packets dropped in all.
    #[must_use]
    pub fn dropped_total(&self) -> u64 {
        self.drops.iter().fold(0, |sum, n| sum.wrapping_add(*n))
    }
    /// Packets taken in all, whatever became of them.
    #[must_use]
    pub fn handled(&self) -> u64 {
        let refused = self.naks_sent.wrapping_sub(self.gap_naks);
        let kept = self.held.wrapping_sub(self.released);
        let taken = [self.executed, self.answers, self.duplicates, refused, kept, self.cnps];
        taken.into_iter().fold(self.dropped_total(), u64::wrapping_add)
    }
}
