//! The lost wake-up report (EXT-4): completions lie in a queue, no event will speak of them, and
//! nobody polls.
//!
//! It happens to a program that does not poll until empty after it armed, or that arms after it
//! polled, or never. The device cannot see a program sleep in an `epoll` of its own, so it looks at
//! what it can see: after an arm over a queue that is not empty, and when a thread goes to sleep in
//! a get-event call, it comes back after [`REPORT_AFTER`]; if completions of then still lie there
//! and nobody has polled meanwhile, it says so, once an arm.
use super::notify::Look;
use super::{ArmSite, CompChannel, Cq, Sink};
use crate::node::{NEVER, Timed};
use adverb_engine::Time;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// How long completions may lie before it is said.
const REPORT_AFTER: Duration = Duration::from_millis(100);

/// When to come back, and what was seen when the watch began.
#[derive(Debug)]
pub(super) struct Watch {
    at: AtomicU64,
    polls: AtomicU64,
    /// The arm that was reported, plus one; 0: none.
    reported: AtomicU64,
}

impl Default for Watch {
    fn default() -> Self {
        Watch { at: AtomicU64::new(NEVER), polls: AtomicU64::new(0), reported: AtomicU64::new(0) }
    }
}

/// A queue whose completions no event will speak of (EXT-4).
#[derive(Clone, Debug)]
pub struct Overlooked {
    /// The queue.
    pub cq: Arc<Cq>,
    /// Completions in it that came before its pending arm; all, if none is pending.
    pub waiting: usize,
    /// Is an arm pending, which only later completions can satisfy?
    pub armed: bool,
    /// Arms so far.
    pub arms: u64,
    /// Where the last one was.
    pub site: ArmSite,
}

static CODE_NAMER: OnceLock<fn(usize) -> String> = OnceLock::new();

/// How to say in words where an address of the program's code is. Set once, by the face that knows.
pub fn set_code_namer(namer: fn(usize) -> String) {
    let _ = CODE_NAMER.set(namer);
}

impl fmt::Display for ArmSite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ArmSite::Unknown => write!(f, "an unknown place"),
            ArmSite::Code(address) => match CODE_NAMER.get() {
                Some(namer) => write!(f, "{}", namer(*address)),
                None => write!(f, "{address:#x}"),
            },
            ArmSite::Source(location) => write!(f, "{location}"),
        }
    }
}

impl fmt::Display for Overlooked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (number, n) = (self.cq.number, self.waiting);
        let s = if n == 1 { "" } else { "s" };
        write!(f, "CQ {number} holds {n} completion{s} ")?;
        match (self.armed, self.arms) {
            (_, 0) => write!(f, "and was never armed")?,
            (true, _) => write!(f, "that came before its last arm (armed at {})", self.site)?,
            (false, _) => {
                write!(f, "and was not armed again after its last event (last armed at {})", self.site)?;
            }
        }
        write!(
            f,
            ": no event will come for {}; arm, then poll until empty",
            if n == 1 { "it" } else { "them" }
        )
    }
}

impl Cq {
    /// What lies in the queue without an event to speak of it, now.
    #[must_use]
    pub fn overlooked(self: &Arc<Self>) -> Option<Overlooked> {
        self.overlooked_in(&self.core.look())
    }

    fn overlooked_in(self: &Arc<Self>, look: &Look) -> Option<Overlooked> {
        // An event that waits to be read speaks of them.
        if look.overlooked == 0 || self.unread.load(Ordering::Relaxed) > 0 {
            return None;
        }
        let Look { overlooked: waiting, armed, arms, site, .. } = *look;
        Some(Overlooked { cq: self.clone(), waiting, armed, arms, site })
    }

    /// Completions may be overlooked: comes back in a while to see.
    pub(super) fn watch(self: &Arc<Self>) {
        let Sink::Channel(channel) = &self.sink else { return };
        if !channel.is_watched() {
            return;
        }
        let at = (self.context.node().now() + REPORT_AFTER).0;
        // One watch at a time.
        if self.watch.at.compare_exchange(NEVER, at, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return;
        }
        self.enter_timed();
        self.watch.polls.store(self.core.look().polls, Ordering::Relaxed);
        self.context.node().enter_timer(Time(at), Timed::Watch(self.number), NEVER);
    }

    /// The watch's entry of the timer queue is due.
    pub(super) fn look_again(self: &Arc<Self>, now: Time) {
        if self.watch.at.load(Ordering::Acquire) > now.0 {
            return;
        }
        self.watch.at.store(NEVER, Ordering::Release);
        let look = self.core.look();
        let Some(overlooked) = self.overlooked_in(&look) else { return };
        if look.polls != self.watch.polls.load(Ordering::Relaxed) {
            // Somebody is at it.
            self.watch();
        } else if self.watch.reported.swap(look.arms + 1, Ordering::Relaxed) != look.arms + 1 {
            log::warn!("lost wake-up: {overlooked}");
        }
    }
}

impl CompChannel {
    /// The queues of this channel that hold completions no event will speak of, now: whoever sleeps
    /// on the channel sleeps beside them (EXT-4).
    #[must_use]
    pub fn overlooked(&self) -> Vec<Overlooked> {
        self.living().iter().filter_map(Cq::overlooked).collect()
    }

    /// Do completions lie in a queue of this channel, now?
    #[must_use]
    pub fn holds_completions(&self) -> bool {
        self.living().iter().any(|cq| !cq.is_empty())
    }

    /// A thread is about to sleep on the channel.
    pub(super) fn watch(&self) {
        if self.is_watched() {
            self.living().iter().filter(|cq| !cq.is_empty()).for_each(Cq::watch);
        }
    }

    /// Would anybody read the report?
    fn is_watched(&self) -> bool {
        log::log_enabled!(log::Level::Warn) && self.watched.load(Ordering::Relaxed)
    }

    fn living(&self) -> Vec<Arc<Cq>> {
        self.cqs.lock().iter().filter_map(Weak::upgrade).collect()
    }
}
