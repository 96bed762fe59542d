//! Attributes with a field narrower than the byte set by programs.
//!
//! mlx5 keeps the low bits of such a field, and programs rely on this. So this queue pair does the
//! same.
use super::{AttrMask, QpAttr};
use core::fmt;

/// A narrow field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Narrow {
    /// `min_rnr_timer`.
    MinRnrTimer,
    /// `timeout`.
    Timeout,
    /// `alt_timeout`.
    AltTimeout,
    /// `retry_cnt`.
    RetryCnt,
    /// `rnr_retry`.
    RnrRetry,
    /// `sl` of an address.
    Sl,
}

impl Narrow {
    /// The name in verbs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Narrow::MinRnrTimer => "min_rnr_timer",
            Narrow::Timeout => "timeout",
            Narrow::AltTimeout => "alt_timeout",
            Narrow::RetryCnt => "retry_cnt",
            Narrow::RnrRetry => "rnr_retry",
            Narrow::Sl => "sl",
        }
    }

    /// Width of the field in bits.
    #[must_use]
    pub const fn bits(self) -> u32 {
        match self {
            Narrow::MinRnrTimer | Narrow::Timeout | Narrow::AltTimeout => 5,
            Narrow::RetryCnt | Narrow::RnrRetry => 3,
            Narrow::Sl => 4,
        }
    }

    /// The part of a value that the field keeps.
    #[must_use]
    pub const fn keeps(self, value: u8) -> u8 {
        value & ((1 << self.bits()) - 1)
    }
}

/// A value that lost its high bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The field.
    pub field: Narrow,
    /// The value that was set.
    pub given: u8,
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cut { field, given } = *self;
        let (name, bits, kept) = (field.name(), field.bits(), field.keeps(given));
        write!(
            f,
            "{name} is {given}, which does not fit the {bits} bits of the field: the field becomes \
             {kept}"
        )
    }
}

/// Cuts a value to its field; calls `told` if the value changes.
pub fn cut(field: Narrow, value: &mut u8, told: &mut dyn FnMut(Cut)) {
    let given = core::mem::replace(value, field.keeps(*value));
    if *value != given {
        told(Cut { field, given });
    }
}

impl QpAttr {
    /// Cuts the fields in `mask`.
    pub fn narrow(&mut self, mask: AttrMask, told: &mut dyn FnMut(Cut)) {
        let mut on = |bit, field, value: &mut u8| {
            if mask.contains(bit) {
                cut(field, value, told);
            }
        };
        on(AttrMask::MIN_RNR_TIMER, Narrow::MinRnrTimer, &mut self.min_rnr_timer);
        on(AttrMask::TIMEOUT, Narrow::Timeout, &mut self.timeout);
        on(AttrMask::ALT_PATH, Narrow::AltTimeout, &mut self.alt_timeout);
        on(AttrMask::RETRY_CNT, Narrow::RetryCnt, &mut self.retry_cnt);
        on(AttrMask::RNR_RETRY, Narrow::RnrRetry, &mut self.rnr_retry);
        on(AttrMask::AV, Narrow::Sl, &mut self.av.sl);
        on(AttrMask::ALT_PATH, Narrow::Sl, &mut self.alt_av.sl);
    }
}
