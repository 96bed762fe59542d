//! The clock of all records.
use nix::time::{ClockId, clock_gettime};

/// Nanoseconds of the monotonic clock, which all processes share.
#[must_use]
pub fn now() -> u64 {
    clock_gettime(ClockId::CLOCK_MONOTONIC)
        .map_or(0, |at| at.tv_sec().unsigned_abs() * 1_000_000_000 + at.tv_nsec().unsigned_abs())
}
