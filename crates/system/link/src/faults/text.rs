//! The text form of the values of faults.
use std::time::Duration;

use super::items::{Form, Item};
use super::rules::{Delay, DelayQp, DropPsn, FaultTarget, Rate};

type Result<T, E = String> = std::result::Result<T, E>;

/// The longest time.
const LONGEST: Duration = Duration::from_secs(60);
/// Largest 24-bit number.
const MAX_24: u64 = 0x00ff_ffff;
/// Nanoseconds of the units of time, smallest first.
const UNITS: [(u64, &str); 4] = [(1, "ns"), (1_000, "us"), (1_000_000, "ms"), (1_000_000_000, "s")];

/// A decimal number times ten to the power of `digits`. The text may have up to `digits` digits
/// after the point.
fn fixed_point(text: &str, digits: usize) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let plain = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    if !plain(whole) || !plain(fraction) || fraction.len() > digits {
        return None;
    }
    format!("{whole}{fraction:0<digits$}").parse().ok()
}

/// Reads a number from `min` to `max`, decimal, or hexadecimal behind 0x.
pub fn number(what: &str, text: &str, min: u64, max: u64) -> Result<u64> {
    let text = text.trim();
    let (digits, radix) = text.strip_prefix("0x").map_or((text, 10), |hex| (hex, 16));
    let plain = digits.bytes().all(|b| b.is_ascii_hexdigit());
    u64::from_str_radix(digits, radix)
        .ok()
        .filter(|n| plain && (min..=max).contains(n))
        .ok_or_else(|| format!("{what} is a number from {min} to {max}, not {text:?}"))
}

/// Reads the number of a queue pair in the order of creation, from 1.
pub fn nth_qp(text: &str) -> Result<u32> {
    number("the queue pair", text, 1, u32::MAX.into()).map(|nth| nth as u32)
}

/// `PERCENT%`.
impl Form for Rate {
    fn read(text: &str, _: &Item) -> Result<Self> {
        let parts = text.strip_suffix('%').and_then(|percent| fixed_point(percent, 7));
        let rate = parts.and_then(|parts| Rate::per_billion(u32::try_from(parts).ok()?));
        Ok(rate.ok_or("a share is 0% to 100%, with up to seven digits after the point")?)
    }

    fn write(&self) -> String {
        const PERCENT: u32 = 10_000_000;
        let (whole, rest) = (self.get() / PERCENT, self.get() % PERCENT);
        let digits = format!("{rest:07}");
        match digits.trim_end_matches('0') {
            "" => format!("{whole}%"),
            digits => format!("{whole}.{digits}%"),
        }
    }
}

/// A number with a unit; written in the largest unit that needs no fraction.
impl Form for Duration {
    fn read(text: &str, _: &Item) -> Result<Self> {
        let value = text.trim();
        let rule = || format!("a time is in ns, us, ms or s, and {LONGEST:?} at most");
        let (unit, digits) = UNITS
            .into_iter()
            .rev()
            // "ms" ends in "s", too.
            .filter_map(|(unit, name)| Some((unit, value.strip_suffix(name)?.trim_end())))
            .find(|(_, digits)| digits.ends_with(|c: char| c.is_ascii_digit()))
            .or_else(|| value.strip_suffix("µs").map(|digits| (1_000, digits.trim_end())))
            .ok_or_else(rule)?;
        let places = unit.ilog10() as usize;
        fixed_point(digits, places.max(1))
            .map(|scaled| if places == 0 { scaled / 10 } else { scaled })
            .filter(|_| places > 0 || !digits.contains('.'))
            .map(Duration::from_nanos)
            .filter(|time| *time <= LONGEST)
            .ok_or_else(rule)
    }

    fn write(&self) -> String {
        let nanos = self.as_nanos();
        let (unit, name) = UNITS
            .into_iter()
            .rev()
            .find(|(unit, _)| nanos.is_multiple_of(u128::from(*unit)))
            .unwrap_or(UNITS[0]);
        format!("{}{name}", nanos / u128::from(unit))
    }
}

/// Any number.
impl Form for u64 {
    fn read(text: &str, item: &Item) -> Result<Self> {
        number(item.name(), text, 0, u64::MAX)
    }

    fn write(&self) -> String {
        self.to_string()
    }
}

/// `TIME` or `TIME±TIME`.
impl Form for Delay {
    fn read(text: &str, item: &Item) -> Result<Self> {
        let (mean, spread) = match text.split_once('±').or_else(|| text.split_once("+-")) {
            Some((mean, spread)) => (Duration::read(mean, item)?, Duration::read(spread, item)?),
            None => (Duration::read(text, item)?, Duration::ZERO),
        };
        if spread > mean {
            return Err("the delay would be less than nothing".into());
        }
        Ok(Delay { mean, spread })
    }

    fn write(&self) -> String {
        match self.spread {
            Duration::ZERO => self.mean.write(),
            spread => format!("{}±{}", self.mean.write(), spread.write()),
        }
    }
}

/// `NTH@TIME`.
impl Form for DelayQp {
    fn read(text: &str, item: &Item) -> Result<Self> {
        let (nth, held) = text.split_once('@').ok_or("the time is missing")?;
        Ok(DelayQp { nth: nth_qp(nth)?, time: Duration::read(held, item)? })
    }

    fn write(&self) -> String {
        format!("{}@{}", self.nth, self.time.write())
    }
}

/// `PSN`, `PSN@QPN` or `PSN@#NTH`.
impl Form for DropPsn {
    fn read(text: &str, _: &Item) -> Result<Self> {
        let (psn, at) =
            text.split_once('@').map_or((text, None), |(psn, at)| (psn, Some(at.trim())));
        let target = |at: &str| match at.strip_prefix('#') {
            Some(nth) => nth_qp(nth).map(FaultTarget::Nth),
            None => number("the queue pair number after @", at, 0, MAX_24)
                .map(|qpn| FaultTarget::Qpn(qpn as u32)),
        };
        let at = at.map(target).transpose()?;
        Ok(DropPsn { psn: number("the PSN", psn, 0, MAX_24)? as u32, at })
    }

    fn write(&self) -> String {
        match self.at {
            None => self.psn.to_string(),
            Some(FaultTarget::Qpn(number)) => format!("{}@{number:#x}", self.psn),
            Some(FaultTarget::Nth(nth)) => format!("{}@#{nth}", self.psn),
        }
    }
}
