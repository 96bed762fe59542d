//! What the rules are.

use std::time::Duration;

/// How many of a number of packets: parts in a billion, so that hundredths of a percent and less
/// are exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(u32);

impl Rate {
    /// No packet.
    pub const NEVER: Rate = Rate(0);
    /// Every packet.
    pub const ALWAYS: Rate = Rate(1_000_000_000);

    /// That many in a billion; `None` above a billion.
    pub const fn per_billion(parts: u32) -> Option<Rate> {
        if parts <= Rate::ALWAYS.0 { Some(Rate(parts)) } else { None }
    }

    /// Parts in a billion.
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// How long packets are held: at least `mean - spread`, at most `mean + spread`, all values alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delay {
    /// Middle of the range.
    pub mean: Duration,
    /// Half its width, no more than `mean`.
    pub spread: Duration,
}

/// A queue pair of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// By its number.
    Qpn(u32),
    /// By the order of creation in its process, from 1.
    Nth(u32),
}

impl Target {
    pub(super) fn is(self, qpn: u32, nth: u32) -> bool {
        self == Target::Qpn(qpn) || self == Target::Nth(nth)
    }
}

/// Drops the first packet with this PSN, request or response, that reaches a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DropPsn {
    /// The packet sequence number, 24 bits.
    pub psn: u32,
    /// The queue pair; each one, once, when `None`.
    pub at: Option<Target>,
}

/// Holds every packet that reaches a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelayQp {
    /// The how manieth of its process, from 1.
    pub nth: u32,
    /// For so long.
    pub time: Duration,
}

/// What befalls packets that arrive. See [`Config::faults`](crate::Config::faults).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PacketFaults {
    /// What the draws begin with.
    pub seed: u64,
    /// All but the drops by PSN end with that many requests, and that many responses, that reached
    /// a queue pair. The last acknowledgement of a program that goes away is never sent again, so
    /// losing it fails a peer that waits for it.
    pub first: Option<u64>,
    /// Dropped.
    pub drop: Rate,
    /// Delivered twice.
    pub dup: Rate,
    /// Held until one to three later packets of the same queue pair have passed (or, if none
    /// follows, 2 ms).
    pub reorder: Rate,
    /// One bit flipped before the ICRC is checked, so that the check drops them.
    pub corrupt: Rate,
    /// Held for a time, all of them; the order of a queue pair's packets stays.
    pub delay: Option<Delay>,
    /// Marked as by a switch whose queue is long (ECN), if they may be.
    pub ecn: Rate,
    /// Held for a time, those of some queue pairs.
    pub delay_qp: Vec<DelayQp>,
    /// Dropped by their PSN.
    pub drop_psn: Vec<DropPsn>,
}

impl PacketFaults {
    /// Whether no packet is touched.
    pub fn is_none(&self) -> bool {
        *self == PacketFaults { seed: self.seed, first: self.first, ..PacketFaults::default() }
    }
}
