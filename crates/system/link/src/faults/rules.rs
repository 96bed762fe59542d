//! The rules.

use std::time::Duration;

/// A share of packets in parts per billion, so that hundredths of a percent and less are exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(u32);

impl Rate {
    /// No packet.
    pub const NEVER: Rate = Rate(0);
    /// Every packet.
    pub const ALWAYS: Rate = Rate(1_000_000_000);

    /// This many parts per billion; `None` above a billion.
    pub const fn per_billion(parts: u32) -> Option<Rate> {
        if parts <= Rate::ALWAYS.0 { Some(Rate(parts)) } else { None }
    }

    /// Parts per billion.
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// A range of delays: from `mean - spread` to `mean + spread`, equally distributed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delay {
    /// The middle of the range.
    pub mean: Duration,
    /// Half the width of the range, at most `mean`.
    pub spread: Duration,
}

/// A queue pair of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultTarget {
    /// By its number.
    Qpn(u32),
    /// By its order of creation in the process, from 1.
    Nth(u32),
}

impl FaultTarget {
    pub(super) fn is(self, qpn: u32, nth: u32) -> bool {
        self == FaultTarget::Qpn(qpn) || self == FaultTarget::Nth(nth)
    }
}

/// Drops the first packet with this PSN, request or response, to a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DropPsn {
    /// The packet sequence number, 24 bits.
    pub psn: u32,
    /// The queue pair; `None`: each queue pair, once.
    pub at: Option<FaultTarget>,
}

/// Delays every packet to a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelayQp {
    /// The queue pair, by its order of creation in the process, from 1.
    pub nth: u32,
    /// The delay.
    pub time: Duration,
}
