//! The text form of the values of faults.
use super::values::{
    Call, DropMad, ERRNOS, EVENTS, FailCall, KillQp, Outage, OutageKind, RaiseEvent, Refuse,
    STATUSES,
};
use adverb_cm::{MadKind, RejectReason};
use adverb_link::faults::{Form, Item, nth_qp, number};
use std::time::Duration;

/// A part of the value is missing.
const INCOMPLETE: &str = "a part is missing";

type Result<T, E = String> = std::result::Result<T, E>;

/// The value of a name.
fn known<T: Copy>(what: &str, name: &str, all: &[(T, &str)]) -> Result<T> {
    all.iter().find(|(_, known)| *known == name.trim()).map(|(value, _)| *value).ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|(_, name)| *name).collect();
        format!("there is no {what} {name:?}; {} are possible", names.join(", "))
    })
}

/// The name of a value.
fn name_of<T: PartialEq>(value: &T, all: &[(T, &'static str)]) -> &'static str {
    all.iter().find(|(of, _)| of == value).map_or("", |(_, name)| name)
}

/// The text before a character, and the text behind it, if any.
fn split(text: &str, at: char) -> (&str, Option<&str>) {
    text.split_once(at).map_or((text, None), |(before, behind)| (before, Some(behind)))
}

/// `after=MESSAGES`.
fn after(text: &str) -> Result<u64> {
    let count = text.trim().strip_prefix("after=").ok_or(INCOMPLETE)?;
    number("the count of messages", count, 0, u64::MAX)
}

/// `NTH@after=MESSAGES` or `NTH@after=MESSAGES@status=STATUS`.
impl Form for KillQp {
    fn read(text: &str, _: &Item) -> Result<Self> {
        let (nth, rest) = text.split_once('@').ok_or(INCOMPLETE)?;
        let (messages, status) = split(rest, '@');
        let status = status
            .map(str::trim)
            .map(|text| known("status", text.strip_prefix("status=").unwrap_or(text), &STATUSES));
        Ok(KillQp { nth: nth_qp(nth)?, after: after(messages)?, status: status.transpose()? })
    }

    fn write(&self) -> String {
        let status = self.status.map(|status| format!("@status={}", name_of(&status, &STATUSES)));
        format!("{}@after={}{}", self.nth, self.after, status.unwrap_or_default())
    }
}

/// `CALL@NTH` or `CALL@NTH=ERRNO`.
impl Form for FailCall {
    fn read(text: &str, _: &Item) -> Result<Self> {
        let (name, at) = text.split_once('@').ok_or(INCOMPLETE)?;
        let calls: Vec<_> = Call::ALL.iter().map(|call| (*call, call.name())).collect();
        let (at, errno) = at.split_once('=').unwrap_or((at, "ENOMEM"));
        Ok(FailCall {
            call: known("call", name, &calls)?,
            at: number("the call after @", at, 1, u64::MAX)?,
            errno: known("error", errno, &ERRNOS)?,
        })
    }

    fn write(&self) -> String {
        let errno = match name_of(&self.errno, &ERRNOS) {
            "ENOMEM" => String::new(),
            name => format!("={name}"),
        };
        format!("{}@{}{errno}", self.call.name(), self.at)
    }
}

/// `EVENT@NTH@after=MESSAGES`.
impl Form for RaiseEvent {
    fn read(text: &str, _: &Item) -> Result<Self> {
        let (name, at) = text.split_once('@').ok_or(INCOMPLETE)?;
        let (nth, messages) = at.split_once('@').ok_or(INCOMPLETE)?;
        Ok(RaiseEvent {
            event: known("event", name, &EVENTS)?,
            nth: nth_qp(nth)?,
            after: after(messages)?,
        })
    }

    fn write(&self) -> String {
        format!("{}@{}@after={}", name_of(&self.event, &EVENTS), self.nth, self.after)
    }
}

/// `MESSAGE@NTH`.
impl Form for DropMad {
    fn read(text: &str, _: &Item) -> Result<Self> {
        let (name, at) = text.split_once('@').ok_or(INCOMPLETE)?;
        let names: Vec<_> =
            MadKind::ALL.iter().map(|kind| (*kind, kind.to_string().to_lowercase())).collect();
        let all: Vec<_> = names.iter().map(|(kind, name)| (*kind, name.as_str())).collect();
        Ok(DropMad {
            kind: known("message", name, &all)?,
            at: number("the message after @", at, 1, u64::MAX)?,
        })
    }

    fn write(&self) -> String {
        format!("{}@{}", self.kind.to_string().to_lowercase(), self.at)
    }
}

/// `NTH` or `NTH@reason=REASON`.
impl Form for Refuse {
    fn read(text: &str, _: &Item) -> Result<Self> {
        let (at, reason) = split(text, '@');
        let reason = match reason {
            None => RejectReason::CONSUMER_DEFINED,
            Some(text) => {
                let digits = text.trim().strip_prefix("reason=").ok_or(INCOMPLETE)?;
                RejectReason(number("the reason", digits, 1, u16::MAX.into())? as u16)
            }
        };
        Ok(Refuse { at: number("the request", at, 1, u64::MAX)?, reason })
    }

    fn write(&self) -> String {
        format!("{}@reason={}", self.at, self.reason.0)
    }
}

/// `DEVICE`, with `@TIME` and, for a link, `+TIME`.
impl Form for Outage {
    fn read(text: &str, item: &Item) -> Result<Self> {
        let time = |text| Duration::read(text, item);
        let (rest, lasts) = split(text, '+');
        let (device, after) = split(rest, '@');
        let is_fatal = item.name() == OutageKind::DeviceFatal.name();
        let outage = Outage {
            device: device.trim().to_owned(),
            kind: if is_fatal { OutageKind::DeviceFatal } else { OutageKind::LinkDown },
            lasts: lasts.map(time).transpose()?,
            after: after.map(time).transpose()?.unwrap_or_default(),
        };
        if outage.device.is_empty() {
            return Err("the name of the device is missing".into());
        }
        if is_fatal && outage.lasts.is_some() {
            return Err("a device fails for good".into());
        }
        Ok(outage)
    }

    fn write(&self) -> String {
        let lasts = self.lasts.map_or(String::new(), |lasts| format!("+{}", lasts.write()));
        format!("{}@{}{lasts}", self.device, self.after.write())
    }
}
