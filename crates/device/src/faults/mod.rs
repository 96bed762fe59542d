//! Faults on demand: what a program does when packets are lost, receives are late, queue pairs
//! fail, memory runs out.
//!
//! They are asked for with [`set`], or with the environment variable `ADVERB_FAULT`, before the
//! process first opens a device. [`Spec`] says how they are written. What was injected is counted
//! (the line of counters at level `info` when the process ends) and says "injected" in the log.
use crate::error::Error;
use crate::node::Node;
use adverb_engine::{Cause, Qpn, Time};
use nix::errno::Errno;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

mod parse;
mod spec;
#[cfg(test)]
mod tests;

pub use adverb_link::faults::{Delay, DropPsn, PacketFaults, Rate, Target};
pub use parse::SpecError;
pub use spec::{Call, FailCall, KillQp, Spec};

/// The environment variable.
pub const VARIABLE: &str = "ADVERB_FAULT";

/// What [`set`] was given. No lock: the child of a fork must not meet one that is held.
static CHOSEN: OnceLock<Spec> = OnceLock::new();

/// Asks for faults, whatever `ADVERB_FAULT` says; for none with `Spec::default()`. They begin with
/// the first device that the process opens.
///
/// # Errors
/// EBUSY if a device was opened already, or faults were chosen.
pub fn set(spec: Spec) -> Result<(), Error> {
    if Node::is_started() || CHOSEN.set(spec).is_err() {
        return Err(Error::new(Errno::EBUSY, "faults are chosen once, before the first device is opened"));
    }
    Ok(())
}

/// What was asked for; nothing if nothing was.
pub(crate) fn asked() -> Result<Spec, Error> {
    if let Some(spec) = CHOSEN.get() {
        return Ok(spec.clone());
    }
    let Some(text) = adverb_link::chosen(VARIABLE) else { return Ok(Spec::default()) };
    text.to_string_lossy().parse().map_err(|e: SpecError| {
        let error = Error::invalid(VARIABLE, e);
        log::error!("{error}");
        error
    })
}

/// The faults of a process that are no faults of packets.
#[derive(Debug)]
pub(crate) struct Injector {
    spec: Spec,
    /// Queue pairs created.
    qps: AtomicU32,
    /// Calls so far, in the order of [`Call::ALL`].
    calls: [AtomicU64; Call::ALL.len()],
    pub(crate) counters: Injected,
}

/// How often.
#[derive(Debug, Default)]
pub(crate) struct Injected {
    /// Packets answered as if no receive were posted.
    pub(crate) rnr: AtomicU64,
    /// Queue pairs moved to the error state.
    pub(crate) kill_qp: AtomicU64,
    /// Calls failed.
    pub(crate) fail: AtomicU64,
}

impl Injector {
    /// `None` when there is nothing to do.
    pub(crate) fn new(spec: Spec) -> Option<Self> {
        if spec.is_none() {
            return None;
        }
        log::warn!("faults are injected: {spec}");
        Some(Injector {
            spec,
            qps: AtomicU32::new(0),
            calls: [const { AtomicU64::new(0) }; Call::ALL.len()],
            counters: Injected::default(),
        })
    }

    /// Counts a call; ENOMEM if it is one that fails.
    pub(crate) fn call(&self, call: Call) -> Result<(), Error> {
        let at = self.calls[call as usize].fetch_add(1, Ordering::Relaxed) + 1;
        if !self.spec.fail.contains(&FailCall { call, at }) {
            return Ok(());
        }
        self.counters.fail.fetch_add(1, Ordering::Relaxed);
        log::warn!("injected: call {at} of {} fails with ENOMEM", call.name());
        Err(Error::injected(Errno::ENOMEM))
    }

    /// A queue pair was created: its number in the order of creation, and what is to befall it.
    pub(crate) fn new_qp(&self) -> QpFaults {
        let nth = self.qps.fetch_add(1, Ordering::Relaxed) + 1;
        let kill = self.spec.kill_qp.iter().filter(|kill| kill.nth == nth).map(|kill| kill.after).min();
        QpFaults { nth, messages: 0, kill, rnr: self.spec.rnr.map(|_| None) }
    }

    /// Do receives look absent to a message of this queue pair that needs one?
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

    /// Counts messages that a queue pair is about to carry; the cause of its end if it has carried
    /// its last.
    pub(crate) fn carry(&self, qp: &mut QpFaults, number: Qpn, messages: u64) -> Option<Cause> {
        if qp.kill.is_none_or(|after| messages == 0 || qp.messages < after) {
            qp.messages += messages;
            return None;
        }
        qp.kill = None;
        self.counters.kill_qp.fetch_add(1, Ordering::Relaxed);
        log::warn!(
            "injected: queue pair {number:#08x}, created as number {}, goes to the error state after {} messages",
            qp.nth,
            qp.messages
        );
        Some(Cause::Injected)
    }
}

/// What is to befall a queue pair.
#[derive(Debug)]
pub(crate) struct QpFaults {
    /// The how manieth of its process, from 1.
    pub(crate) nth: u32,
    /// Messages carried.
    messages: u64,
    /// It ends after so many.
    kill: Option<u64>,
    /// Receives look absent for a while: since when, once a message has needed one.
    rnr: Option<Option<Time>>,
}
