//! Time as an argument: the state machines of this project never read a clock. And encoded times
//! (IBTA 9.7.5.2.8, 9.7.6.1.3).
use core::ops::{Add, Sub};
use core::time::Duration;

/// A point in time: nanoseconds since an epoch that the host chooses (monotonic).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    /// The epoch.
    pub const ZERO: Time = Time(0);

    /// Time since `earlier`, zero if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// The earlier of two optional points in time.
    #[inline]
    #[must_use]
    pub fn earliest(a: Option<Time>, b: Option<Time>) -> Option<Time> {
        match (a, b) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (one, None) | (None, one) => one,
        }
    }
}

impl Add<Duration> for Time {
    type Output = Time;
    fn add(self, d: Duration) -> Time {
        Time(self.0.saturating_add(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Duration> for Time {
    type Output = Time;
    fn sub(self, d: Duration) -> Time {
        Time(self.0.saturating_sub(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// Units of 10 microseconds (IBTA table 45); code 0 is the longest.
const RNR_TIMER: [u32; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

/// Microseconds of an RNR NAK timer code (its five low bits): 10 to 655,360.
#[must_use]
pub const fn rnr_timer_us(code: u8) -> u32 {
    RNR_TIMER[(code & 0x1f) as usize] * 10
}

/// Nanoseconds of a local ACK timeout code (its five low bits): 4.096 us * 2^code. `None` for code
/// 0, which means no timeout.
#[must_use]
pub const fn ack_timeout_ns(code: u8) -> Option<u64> {
    match code & 0x1f {
        0 => None,
        c => Some(4096 << c),
    }
}
