//! Counters of a queue pair: dropped packets by reason, and events of the reliable protocol.

macro_rules! reasons {
    ($($(#[$doc:meta])* $reason:ident: $name:literal,)*) => {
        /// Why a packet was dropped without an answer.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(usize)]
        pub enum DropReason { $($(#[$doc])* $reason,)* }

        impl DropReason {
            /// All reasons.
            pub const ALL: &[DropReason] = &[$(DropReason::$reason,)*];
            /// Number of reasons.
            pub const COUNT: usize = Self::ALL.len();

            /// The name in a table of counters.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(DropReason::$reason => $name,)* }
            }
        }
    };
}

reasons! {
    /// The queue pair's state does not receive (RESET, INIT, ERR), or a response arrived before
    /// RTS.
    State: "qp_drop_state",
    /// The opcode belongs to another transport.
    Transport: "qp_drop_transport",
    /// The opcode is reserved or belongs to no operation of this transport.
    Opcode: "qp_drop_opcode",
    /// Partition key does not match.
    PKey: "qp_drop_pkey",
    /// Queue key does not match (UD).
    QKey: "qp_drop_qkey",
    /// The packet names another queue pair.
    DestQpn: "qp_drop_dest_qpn",
    /// The packet did not come from the connected peer.
    Source: "qp_drop_source",
    /// A request outside the window, or a gap on UC.
    Sequence: "qp_drop_sequence",
    /// A response without an outstanding request.
    GhostResponse: "qp_drop_ghost_response",
    /// A response without news, about a loss under repair or a failed request.
    Stale: "qp_drop_stale_response",
    /// The packet is longer than the path MTU, or a FIRST or MIDDLE packet has not exactly the
    /// length of the MTU.
    Length: "qp_drop_length",
    /// The message is longer than the posted receive (UC, UD, raw packets).
    RecvTooShort: "qp_drop_recv_too_short",
    /// Key, bounds or rights forbid it (UC).
    Access: "qp_drop_access",
    /// No receive was posted (UC, UD).
    NoReceive: "qp_drop_no_receive",
    /// A receive was posted, but its buffers could not be written (UC, UD).
    Buffers: "qp_drop_buffers",
    /// Malformed otherwise.
    Malformed: "qp_drop_malformed",
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of a queue pair. They wrap, and are never reset in the lifetime of the queue
        /// pair.
        ///
        /// Each packet given to [`Qp::handle_packet`](super::Qp::handle_packet) is counted once: as
        /// executed, as an answer, as a duplicate, with the NAK that refuses the packet, or with
        /// the reason of its drop. A packet in the reorder buffer counts as buffered.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counters {
            drops: [u64; DropReason::COUNT],
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counters {
            /// Adds the counters of another queue pair.
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
    /// Response packets with news.
    answers,
    /// Request packets handed out, retransmissions included.
    sent,
    /// Request packets handed out again.
    retransmitted,
    /// Response packets handed out.
    responses,
    /// Local ACK timeouts.
    timeouts,
    /// Restarts without an answer, before the local ACK timeout.
    probes,
    /// RNR NAKs received.
    rnr_naks,
    /// Sequence-error NAKs received.
    seq_naks,
    /// Restarts because an ACK skipped a READ or atomic and its response is missing.
    implied_naks,
    /// Duplicate requests that the responder answered again.
    duplicates,
    /// Requests performed by the host in the peer's memory.
    one_sided,
    /// NAKs of all kinds sent by the responder, including `gap_naks`. Each NAK that is no gap NAK
    /// refuses a packet.
    naks_sent,
    /// Sequence-error NAKs sent because packets are missing.
    gap_naks,
    /// RNR NAKs sent: messages that came and found no receive.
    rnr_naks_sent,
    /// Packets buffered because they arrived before earlier packets.
    buffered,
    /// Packets taken out of the buffer, in their turn or dropped.
    released,
    /// Congestion notifications sent.
    cnps_sent,
    /// Congestion notifications received.
    cnps,
}

impl Counters {
    /// Counts a dropped packet.
    pub(crate) fn drop(&mut self, why: DropReason) {
        self.drops[why as usize] = self.drops[why as usize].wrapping_add(1);
    }
    /// Counts a buffered packet that is dropped.
    pub(crate) fn discarded(&mut self) {
        self.released = self.released.wrapping_add(1);
        self.drop(DropReason::Sequence);
    }
    /// Packets dropped for this reason.
    #[must_use]
    pub fn dropped(&self, why: DropReason) -> u64 {
        self.drops[why as usize]
    }
    /// All dropped packets.
    #[must_use]
    pub fn dropped_total(&self) -> u64 {
        self.drops.iter().fold(0, |sum, n| sum.wrapping_add(*n))
    }
    /// All packets taken, with any outcome.
    #[must_use]
    pub fn handled(&self) -> u64 {
        let refused = self.naks_sent.wrapping_sub(self.gap_naks);
        let kept = self.buffered.wrapping_sub(self.released);
        let taken = [self.executed, self.answers, self.duplicates, refused, kept, self.cnps];
        taken.into_iter().fold(self.dropped_total(), u64::wrapping_add)
    }
}
