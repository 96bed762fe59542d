//! The tables of packet faults: the items of their text form, the random draws, and the effects on
//! a packet.
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::effects::{Effect, effects};
use super::rules::{Delay, DelayQp, DropPsn, Rate};

crate::fault_items! {
    counted in FaultStats;
    /// The faults of arriving packets. See [`Config::faults`](crate::Config::faults).
    pub struct PacketFaults {
        /// Drops this share of the arriving packets.
        drop: Rate = "drop=1%" => drop,
        /// Delivers this share of the packets twice.
        dup: Rate = "dup=1%" => dup,
        /// Holds this share of the packets until one to three later packets of the same queue pair
        /// have passed, or for 2 ms if no packet follows.
        reorder: Rate = "reorder=5%" => reorder,
        /// Flips a bit in this share of the packets before the ICRC check, which then drops the
        /// packet; UDP packets only.
        corrupt: Rate = "corrupt=0.1%" => corrupt,
        /// Holds every packet for 1 to 3 ms and keeps the order; `delay=2ms` holds for 2 ms; `+-`
        /// also stands for `±`.
        delay: Option<Delay> = "delay=2ms±1ms" => delay,
        /// Holds every packet that reaches the second queue pair, so acknowledged requests complete
        /// equally late.
        delay_qp: Vec<DelayQp> = "delay-qp=2@5ms",
        /// Marks this share of the packets that allow a mark (ECN), like a switch with a long
        /// queue; UDP packets only.
        ecn: Rate = "ecn=5%" => ecn,
        /// Ends the faults of packets, except `drop-psn`, for each queue pair after the first 200
        /// requests and the first 200 responses that reach it. The reason: a program that ends
        /// never repeats its last acknowledgement, so losing it fails a waiting peer.
        first: Option<u64> = "first=200",
        /// Drops the first packet with PSN 7 that reaches the second queue pair; `@0x12345` selects
        /// a queue pair by number; without `@`, the rule holds for each queue pair.
        drop_psn: Vec<DropPsn> = "drop-psn=7@#2",
        /// Starts the random draws from another seed; the shares stay the same.
        seed: u64 = "seed=7",
    }
}

/// The purpose of a draw, so that the draws for one packet are independent. The number is part of
/// the draw, and never changes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Drop = 1,
    Corrupt = 2,
    Bit = 3,
    Dup = 4,
    Reorder = 5,
    Passes = 6,
    Delay = 7,
    Mark = 8,
}

effects! {
    /// The packet is lost.
    dropped: bool = "dropped" => drop,
    /// By a rule with the packet's PSN.
    by_psn: bool = "by its PSN",
    /// A random number that determines the damaged bit.
    damaged: Option<u64> = "one bit flipped, dropped by the ICRC check" => corrupt,
    /// The packet arrives twice.
    doubled: bool = "duplicated" => dup,
    /// Delayed until this many later packets have passed.
    overtaken: Option<u64> = "held until {} later packet(s) have passed" => reorder,
    /// Delayed for this time.
    delayed: Option<Duration> = "delayed by {}" => delay,
    /// Marked (ECN).
    marked: bool = "marked (ECN)" => ecn,
}
