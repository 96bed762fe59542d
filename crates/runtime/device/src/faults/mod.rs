//! Injected faults: lost packets, late receives, failing queue pairs, missing memory. They show how
//! a program reacts.
//!
//! Faults are requested with [`set`], or with the environment variable `ADVERB_FAULT`, before the
//! process first opens a device. [`Spec`] describes the text form. Injected faults are counted (the
//! line of counters at level `info` when the process ends), and the log marks each with "injected".
use crate::async_event::AsyncEvent;
use crate::error::Error;
use crate::started::choose;
use adverb_cm::{MadKind, RejectReason};
use adverb_engine::{Cause, Qpn, Time, WcStatus};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

mod spec;
#[cfg(test)]
mod tests;
mod text;
mod values;

pub use adverb_link::faults::{Delay, DelayQp, DropPsn, FaultTarget, PacketFaults, Rate};
pub use spec::{Injected, Spec, SpecError};
pub use values::{
    Call, DropMad, ERRNOS, EVENTS, FailCall, KillQp, Outage, OutageKind, RaiseEvent, Refuse,
    STATUSES,
};

/// The environment variable.
pub const VARIABLE: &str = "ADVERB_FAULT";

/// The argument of [`set`]. No lock, because the child of a fork must not meet a locked lock.
static CHOSEN: OnceLock<Spec> = OnceLock::new();

/// Requests faults, whatever `ADVERB_FAULT` says. `Spec::default()` requests none. The faults begin
/// with the first device that the process opens.
///
/// # Errors
/// EBUSY if a device was opened already, or faults were already chosen.
pub fn set(spec: Spec) -> Result<(), Error> {
    choose(&CHOSEN, spec, "faults are")
}

/// The requested faults; an empty `Spec` without a request.
pub(crate) fn asked() -> Result<Spec, Error> {
    if let Some(spec) = CHOSEN.get() {
        return Ok(spec.clone());
    }
    let Some(text) = adverb_os::chosen(VARIABLE) else { return Ok(Spec::default()) };
    text.to_string_lossy().parse().map_err(|e: SpecError| {
        let error = Error::invalid(VARIABLE, e);
        log::error!("{error}");
        error
    })
}

/// The injected faults of a process, except faults of packets.
#[derive(Debug)]
pub(crate) struct Injector {
    pub(crate) spec: Spec,
    /// Number of queue pairs created.
    qps: AtomicU32,
    /// Number of calls so far, in the order of [`Call::ALL`].
    calls: [AtomicU64; Call::ALL.len()],
    /// Number of connection manager messages sent so far, in the order of [`MadKind::ALL`].
    mads: [AtomicU64; MadKind::ALL.len()],
    /// Number of connection requests so far.
    requests: AtomicU64,
    pub(crate) counters: Injected<AtomicU64>,
}

impl Injector {
    /// `None` without requested faults.
    pub(crate) fn new(spec: Spec) -> Option<Self> {
        if spec.is_none() {
            return None;
        }
        log::warn!("faults are injected: {spec}");
        Some(Injector {
            spec,
            qps: AtomicU32::new(0),
            calls: [const { AtomicU64::new(0) }; Call::ALL.len()],
            mads: [const { AtomicU64::new(0) }; MadKind::ALL.len()],
            requests: AtomicU64::new(0),
            counters: Injected::default(),
        })
    }

    /// Counts a call; answers the error if the call has to fail.
    pub(crate) fn call(&self, call: Call) -> Result<(), Error> {
        let at = self.calls[call as usize].fetch_add(1, Ordering::Relaxed) + 1;
        let fail = self.spec.fail.iter().find(|f| f.call == call && f.at == at);
        let Some(FailCall { errno, .. }) = fail else { return Ok(()) };
        self.counters.fail.fetch_add(1, Ordering::Relaxed);
        log::warn!("injected: call {at} of {} fails with {errno:?}", call.name());
        Err(Error::injected(*errno))
    }

    /// A queue pair was created. Answers its number in the order of creation, and its faults.
    pub(crate) fn new_qp(&self) -> QpFaults {
        let nth = self.qps.fetch_add(1, Ordering::Relaxed) + 1;
        let kills = self.spec.kill_qp.iter().filter(|kill| kill.nth == nth);
        let kill = kills.min_by_key(|kill| kill.after).copied();
        let events = self.spec.events.iter().filter(|event| event.nth == nth).copied().collect();
        QpFaults { nth, messages: 0, kill, events, rnr: self.spec.rnr.map(|_| None) }
    }

    /// The asynchronous events that are due after the messages carried so far.
    pub(crate) fn events(&self, qp: &mut QpFaults) -> Vec<AsyncEvent> {
        let messages = qp.messages;
        let due: Vec<_> = qp
            .events
            .extract_if(.., |e| messages > 0 && messages >= e.after)
            .map(|e| e.event)
            .collect();
        for event in &due {
            self.counters.event.fetch_add(1, Ordering::Relaxed);
            log::warn!(
                "injected: {event:?} after {messages} messages of queue pair number {}",
                qp.nth
            );
        }
        due
    }

    /// Counts a departing message of the connection manager. `true`: the message is lost.
    pub(crate) fn loses_mad(&self, mad: &[u8]) -> bool {
        let Some(kind) = MadKind::of(mad) else { return false };
        let at = self.mads[kind.index()].fetch_add(1, Ordering::Relaxed) + 1;
        let lost = self.spec.drop_mad.iter().any(|drop| drop.kind == kind && drop.at == at);
        if lost {
            self.counters.cm_drop.fetch_add(1, Ordering::Relaxed);
            log::warn!("injected: {kind} number {at} is lost");
        }
        lost
    }

    /// Counts a connection request; answers the reason if the request has to be refused.
    pub(crate) fn refuses(&self) -> Option<RejectReason> {
        let at = self.requests.fetch_add(1, Ordering::Relaxed) + 1;
        let reason = self.spec.refuse.iter().find(|refuse| refuse.at == at)?.reason;
        self.counters.cm_reject.fetch_add(1, Ordering::Relaxed);
        log::warn!("injected: request {at} for a connection is refused: {reason}");
        Some(reason)
    }

    /// Do receives look absent to a message of this queue pair that needs a receive?
    pub(crate) fn hides_receives(&self, qp: &mut QpFaults, now: Time) -> bool {
        let Some((since, time)) = qp.rnr.as_mut().zip(self.spec.rnr) else { return false };
        let hides = now.since(*since.get_or_insert(now)) < time;
        if hides {
            self.counters.rnr.fetch_add(1, Ordering::Relaxed);
        } else {
            qp.rnr = None;
        }
        hides
    }

    /// Counts messages that a queue pair is about to carry. After the last message answers the
    /// cause of the failure, and the status of the oldest request if a status is given.
    pub(crate) fn carry(
        &self,
        qp: &mut QpFaults,
        number: Qpn,
        messages: u64,
    ) -> Option<(Cause, Option<WcStatus>)> {
        let Some(KillQp { status, .. }) =
            qp.kill.take_if(|kill| messages > 0 && qp.messages >= kill.after)
        else {
            qp.messages += messages;
            return None;
        };
        self.counters.kill_qp.fetch_add(1, Ordering::Relaxed);
        log::warn!(
            "injected: queue pair {number:#08x}, created as number {}, goes to the error state after {} messages",
            qp.nth,
            qp.messages
        );
        Some((Cause::Injected, status))
    }
}

/// The injected faults of a queue pair.
#[derive(Debug)]
pub(crate) struct QpFaults {
    /// Number in the process's order of creation, from 1.
    pub(crate) nth: u32,
    /// Messages carried.
    messages: u64,
    /// The queue pair ends after this many messages.
    kill: Option<KillQp>,
    /// Asynchronous events still to come.
    events: Vec<RaiseEvent>,
    /// Receives look absent for a while; the value is the start of this time, once a message has
    /// needed a receive.
    rnr: Option<Option<Time>>,
}
