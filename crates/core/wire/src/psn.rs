//! Packet sequence numbers: 24 bits that wrap around (IBTA 9.7.2).
use core::fmt;
use core::ops::{Add, AddAssign, Sub};

/// A packet sequence number. Not `Ord`: PSNs lie on a circle, so neither of two PSNs is smaller.
/// Within half the circle, one precedes the other; see [`Psn::since`] and [`Psn::precedes`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Psn(u32);

impl Psn {
    /// Bits of a PSN.
    pub const BITS: u32 = 24;
    /// The 24 low bits.
    pub const MASK: u32 = (1 << Self::BITS) - 1;
    /// PSN 0.
    pub const ZERO: Psn = Psn(0);

    /// The PSN from the 24 low bits of `value`. Ignores the other bits, as on the wire.
    #[must_use]
    pub const fn new(value: u32) -> Psn {
        Psn(value & Self::MASK)
    }

    /// The number, 0 to `0xff_ffff`.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The next PSN.
    #[must_use]
    pub const fn next(self) -> Psn {
        Psn::new(self.0.wrapping_add(1))
    }

    /// The previous PSN.
    #[must_use]
    pub const fn prev(self) -> Psn {
        Psn::new(self.0.wrapping_sub(1))
    }

    /// Signed distance `self - earlier` on the circle, -2^23 to 2^23 - 1: positive if `self` comes
    /// after.
    #[must_use]
    pub const fn since(self, earlier: Psn) -> i32 {
        (self.0.wrapping_sub(earlier.0) << 8) as i32 >> 8
    }

    /// Does `self` come before `other` (by less than half the circle)?
    #[must_use]
    pub const fn precedes(self, other: Psn) -> bool {
        self.since(other) < 0
    }
}

impl Add<u32> for Psn {
    type Output = Psn;
    fn add(self, n: u32) -> Psn {
        Psn::new(self.0.wrapping_add(n))
    }
}

impl Sub<u32> for Psn {
    type Output = Psn;
    fn sub(self, n: u32) -> Psn {
        Psn::new(self.0.wrapping_sub(n))
    }
}

impl AddAssign<u32> for Psn {
    fn add_assign(&mut self, n: u32) {
        *self = *self + n;
    }
}

impl fmt::Debug for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Psn({:#x})", self.0)
    }
}

impl fmt::Display for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}
