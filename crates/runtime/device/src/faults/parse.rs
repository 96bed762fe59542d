//! Parses requested faults: strictly, and with a helpful error.
use super::spec::{
    Call, DropMad, ERRNOS, EVENTS, FailCall, KillQp, Outage, OutageKind, RaiseEvent, Refuse,
    STATUSES, Spec, UNITS,
};
use adverb_cm::{MadKind, RejectReason};
use adverb_link::faults::{Delay, DelayQp, DropPsn, FaultTarget, Rate};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The longest time.
const LONGEST: Duration = Duration::from_secs(60);
/// Largest 24-bit number.
const MAX_24: u64 = 0x00ff_ffff;

const KNOWN: &str = "drop, dup, reorder, corrupt, delay, delay-qp, ecn, first, drop-psn, rnr, kill-qp, fail, event, cm-drop, cm-reject, link-down, device-fatal and seed are known";

/// Why a text is no valid specification of faults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecError {
    item: String,
    why: String,
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "fault {:?}: {}", self.item, self.why)
    }
}

impl std::error::Error for SpecError {}

impl FromStr for Spec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let mut spec = Spec::default();
        let mut given = Vec::new();
        if text.trim().is_empty() {
            return Ok(spec);
        }
        for item in text.split(',').map(str::trim) {
            let result = match item.split_once('=') {
                None => Err(format!("needs a value, NAME=VALUE; {KNOWN}")),
                Some((name, value)) => spec.take(name.trim(), value.trim(), &mut given),
            };
            result.map_err(|why| SpecError { item: item.to_owned(), why })?;
        }
        Ok(spec)
    }
}

type Result<T, E = String> = std::result::Result<T, E>;

impl Spec {
    fn take<'a>(&mut self, name: &'a str, value: &str, given: &mut Vec<&'a str>) -> Result<()> {
        let packets = &mut self.packets;
        match name {
            "drop-psn" => packets.drop_psn.push(drop_psn(value)?),
            "kill-qp" => self.kill_qp.push(kill_qp(value)?),
            "fail" => self.fail.push(fail(value)?),
            "delay-qp" => packets.delay_qp.push(delay_qp(value)?),
            "event" => self.events.push(event(value)?),
            "cm-drop" => self.drop_mad.push(drop_mad(value)?),
            "cm-reject" => self.refuse.push(refuse(value)?),
            "link-down" => self.outages.push(outage(OutageKind::LinkDown, value)?),
            "device-fatal" => self.outages.push(outage(OutageKind::DeviceFatal, value)?),
            _ if given.contains(&name) => return Err(format!("{name} is given twice")),
            "drop" => packets.drop = rate(name, value)?,
            "dup" => packets.dup = rate(name, value)?,
            "reorder" => packets.reorder = rate(name, value)?,
            "corrupt" => packets.corrupt = rate(name, value)?,
            "ecn" => packets.ecn = rate(name, value)?,
            "delay" => packets.delay = Some(delay(value)?),
            "first" => packets.first = Some(number("the count of packets", value, 0, u64::MAX)?),
            "rnr" => self.rnr = Some(time("rnr=50ms", value)?),
            "seed" => packets.seed = number("the seed", value, 0, u64::MAX)?,
            _ => return Err(format!("there is no such fault; {KNOWN}")),
        }
        given.push(name);
        Ok(())
    }
}

/// `PERCENT%`.
fn rate(name: &str, value: &str) -> Result<Rate> {
    let rule = || {
        format!(
            "the share is written as {name}=1% or {name}=0.5%, 0% to 100%, seven digits after the point"
        )
    };
    let percent = value.strip_suffix('%').ok_or_else(rule)?;
    let parts = fixed_point(percent, 7).and_then(|parts| u32::try_from(parts).ok());
    parts.and_then(Rate::per_billion).ok_or_else(rule)
}

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

/// `TIME` or `TIME±TIME`.
fn delay(value: &str) -> Result<Delay> {
    const EXAMPLE: &str = "delay=2ms±1ms";
    let (mean, spread) = match value.split_once('±').or_else(|| value.split_once("+-")) {
        Some((mean, spread)) => (time(EXAMPLE, mean)?, time(EXAMPLE, spread)?),
        None => (time(EXAMPLE, value)?, Duration::ZERO),
    };
    if spread > mean {
        return Err(
            "the delay would be less than nothing: what follows ± is at most what stands before"
                .into(),
        );
    }
    Ok(Delay { mean, spread })
}

/// A number with a unit.
fn time(example: &str, value: &str) -> Result<Duration> {
    let value = value.trim();
    let rule = || {
        format!(
            "a time is written as in {example}, with ns, us, ms or s, and is {LONGEST:?} at most"
        )
    };
    let (unit, digits) = UNITS
        .into_iter()
        .rev()
        // "ms" ends in "s", too.
        .filter_map(|(unit, name)| value.strip_suffix(name).map(|digits| (unit, digits.trim_end())))
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

/// Decimal, or hexadecimal behind 0x.
fn number(what: &str, text: &str, min: u64, max: u64) -> Result<u64> {
    let text = text.trim();
    let (digits, radix) = text.strip_prefix("0x").map_or((text, 10), |hex| (hex, 16));
    let plain = digits.bytes().all(|b| b.is_ascii_hexdigit());
    u64::from_str_radix(digits, radix)
        .ok()
        .filter(|n| plain && (min..=max).contains(n))
        .ok_or_else(|| format!("{what} is a number from {min} to {max}, not {text:?}"))
}

/// `PSN`, `PSN@QPN` or `PSN@#NTH`.
fn drop_psn(value: &str) -> Result<DropPsn> {
    let (psn, at) = value.split_once('@').map_or((value, None), |(psn, at)| (psn, Some(at.trim())));
    let at = match at.map(|at| at.strip_prefix('#').ok_or(at)) {
        None => None,
        Some(Ok(nth)) => {
            Some(FaultTarget::Nth(
                number("the queue pair after @#", nth, 1, u32::MAX.into())? as u32
            ))
        }
        Some(Err(qpn)) => {
            Some(FaultTarget::Qpn(number("the queue pair number after @", qpn, 0, MAX_24)? as u32))
        }
    };
    Ok(DropPsn { psn: number("the PSN", psn, 0, MAX_24)? as u32, at })
}

/// `NTH@after=MESSAGES` or `NTH@after=MESSAGES@status=STATUS`.
fn kill_qp(value: &str) -> Result<KillQp> {
    let rule = "the form is kill-qp=2@after=100: the second queue pair created, after 100 messages";
    let (nth, after) = value.split_once('@').ok_or(rule)?;
    let (after, status) =
        after.split_once('@').map_or((after, None), |(after, status)| (after, Some(status)));
    let after = after.trim().strip_prefix("after=").ok_or(rule)?;
    let status = status.map(|text| {
        let name = text.trim().strip_prefix("status=").unwrap_or(text).trim();
        known("status", name, &STATUSES)
    });
    Ok(KillQp {
        nth: number("the queue pair", nth, 1, u32::MAX.into())? as u32,
        after: number("the count of messages", after, 0, u64::MAX)?,
        status: status.transpose()?,
    })
}

/// `NTH@TIME`.
fn delay_qp(value: &str) -> Result<DelayQp> {
    const EXAMPLE: &str = "delay-qp=2@5ms";
    let (nth, held) = value.split_once('@').ok_or("the form is delay-qp=2@5ms")?;
    Ok(DelayQp {
        nth: number("the queue pair", nth, 1, u32::MAX.into())? as u32,
        time: time(EXAMPLE, held)?,
    })
}

/// `EVENT@NTH@after=MESSAGES`.
fn event(value: &str) -> Result<RaiseEvent> {
    let rule = "the form is event=port_err@1@after=20: after 20 messages of the first queue pair";
    let (name, at) = value.split_once('@').ok_or(rule)?;
    let (nth, after) = at.split_once('@').ok_or(rule)?;
    let after = after.trim().strip_prefix("after=").ok_or(rule)?;
    Ok(RaiseEvent {
        event: known("event", name.trim(), &EVENTS)?,
        nth: number("the queue pair", nth, 1, u32::MAX.into())? as u32,
        after: number("the count of messages", after, 0, u64::MAX)?,
    })
}

/// `MESSAGE@NTH`.
fn drop_mad(value: &str) -> Result<DropMad> {
    let (name, at) =
        value.split_once('@').ok_or("the form is cm-drop=rep@1: the first REP is lost")?;
    let names: Vec<_> =
        MadKind::ALL.iter().map(|kind| (*kind, kind.to_string().to_lowercase())).collect();
    let all: Vec<_> = names.iter().map(|(kind, name)| (*kind, name.as_str())).collect();
    Ok(DropMad {
        kind: known("message", name.trim(), &all)?,
        at: number("the message after @", at, 1, u64::MAX)?,
    })
}

/// `NTH` or `NTH@reason=REASON`.
fn refuse(value: &str) -> Result<Refuse> {
    let rule = "the form is cm-reject=1@reason=28: the first request is refused with this reason";
    let (at, reason) =
        value.split_once('@').map_or((value, None), |(at, reason)| (at, Some(reason)));
    let reason = match reason {
        None => RejectReason::CONSUMER_DEFINED,
        Some(text) => {
            let digits = text.trim().strip_prefix("reason=").ok_or(rule)?;
            RejectReason(number("the reason", digits, 1, u16::MAX.into())? as u16)
        }
    };
    Ok(Refuse { at: number("the request", at, 1, u64::MAX)?, reason })
}

/// `DEVICE`, with `@TIME` and, for a link, `+TIME`.
fn outage(kind: OutageKind, value: &str) -> Result<Outage> {
    let example = match kind {
        OutageKind::LinkDown => "link-down=adverb0@5s+2s",
        OutageKind::DeviceFatal => "device-fatal=adverb0@5s",
    };
    let (rest, lasts) = match value.split_once('+') {
        Some((rest, lasts)) => (rest, Some(time(example, lasts)?)),
        None => (value, None),
    };
    let (device, after) = match rest.split_once('@') {
        Some((device, after)) => (device, time(example, after)?),
        None => (rest, Duration::ZERO),
    };
    let device = device.trim().to_owned();
    if device.is_empty() {
        return Err(format!("the name of the device is missing, as in {example}"));
    }
    if kind == OutageKind::DeviceFatal && lasts.is_some() {
        return Err(format!("a device fails for good, as in {example}"));
    }
    Ok(Outage { device, kind, after, lasts })
}

/// The value of a name.
fn known<T: Copy>(what: &str, name: &str, all: &[(T, &str)]) -> Result<T> {
    all.iter().find(|(_, known)| *known == name).map(|(value, _)| *value).ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|(_, name)| *name).collect();
        format!("there is no {what} {name:?}; {} are possible", names.join(", "))
    })
}

/// `CALL@NTH` or `CALL@NTH=ERRNO`.
fn fail(value: &str) -> Result<FailCall> {
    let (name, at) = value
        .split_once('@')
        .ok_or("the form is fail=create_cq@3: the third call fails with ENOMEM")?;
    let name = name.trim();
    let call = Call::ALL.into_iter().find(|call| call.name() == name).ok_or_else(|| {
        let names: Vec<&str> = Call::ALL.iter().map(|call| call.name()).collect();
        format!("no call {name:?} can be made to fail; {} can", names.join(", "))
    })?;
    let (at, errno) = at.split_once('=').unwrap_or((at, "ENOMEM"));
    let errno = known("error", errno.trim(), &ERRNOS)?;
    Ok(FailCall { call, at: number("the call after @", at, 1, u64::MAX)?, errno })
}
