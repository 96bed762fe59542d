//! The device as an adversary: choices at calls of the program, within the rules.
//!
//! A hunted program (`adverb hunt`, `adverb run --replay`) has a schedule of points with choices.
//! All choices concern the moment at which a completion becomes visible:
//!
//! - A call may take long, as in a thread that loses the processor.
//! - A completion may come late, as over a slow network, but in order and after `LONGEST` at most.
//! - A send queue may count its places as NICs do, which free a place when a completion is polled.
//!
//! A withheld completion is not in its queue yet, so arms and events see the completion when it is
//! added (CQN-3, CQN-7). Without a schedule a queue has no `Hunted`, and the cost is the check of
//! this field.
mod late;
mod process;
mod quiet;
mod sends;

pub use process::{
    AlreadyHunted, Chosen, Hunt, HuntedPart, LOG, SCHEDULE, WORDS, hunt, join_part, note_refused,
    part, part_so_far, set, set_namers,
};

use super::{CompChannel, Cq};
use crate::node::Node;
use crate::objects::context::Context;
use crate::ranks;
use adverb_choice::{Call, Choice, mix};
use adverb_engine::{Cause, Completion, PostError, SendFlags, SendWr, WcOpcode, WcStatus};
use adverb_sync::Ranked;
use nix::errno::Errno;
use sends::LateReads;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// The longest time that a completion is withheld,
const LONGEST: Duration = Duration::from_millis(20);
/// for this many holds of a process. Later holds are short, so that a program that polls often is
/// not slowed down for seconds.
const LONG_HOLDS: u64 = 20;
const SHORT: Duration = Duration::from_millis(3);
/// Completions withheld to fill a send queue come after this many polls at the latest.
const LAST_POLL: u32 = 64;
/// This long after an arm the program counts as asleep.
const ASLEEP: Duration = Duration::from_micros(500);
/// This many calls of a process return EINTR.
const INTERRUPTS: u64 = 8;
/// How long a call waits for a signal.
const SIGNAL: Duration = Duration::from_millis(400);
/// This many times completions of a process are withheld.
const HOLDS: u64 = 100;

/// The hunt's part of a completion queue.
#[derive(Debug)]
pub(super) struct Hunted {
    hunt: &'static Hunt,
    withheld: Ranked<Withheld, ranks::HuntWithheld>,
    reads: Ranked<LateReads, ranks::HuntReads>,
    /// The turn to repeat READs and to add the completions behind them.
    turn: Ranked<(), ranks::HuntTurn>,
}

#[derive(Debug, Default)]
struct Withheld {
    way: Visibility,
    list: VecDeque<Completion>,
    /// When the first withheld completion arrived.
    since: Option<Instant>,
    /// When the queue was armed after `since`.
    armed: Option<Instant>,
    /// The longest hold after `since`.
    longest: Duration,
    /// Polls after `since` that found no visible completion.
    polls: u32,
    /// The last poll found no completion.
    drained: bool,
}

/// How completions become visible.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Visibility {
    #[default]
    AtOnce,
    Together,
    OneByOne,
    /// Together, and before a polling program has lost much time.
    Shortly,
}

/// Why withheld completions are released.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Why {
    /// The hunt's thread has come: releases completions that are due.
    Time,
    /// The same, and no process of the run goes on without these completions.
    Rest,
    /// A poll found no visible completion.
    Poll,
    /// Releases all of them now.
    Now,
}

impl Hunted {
    /// For a new queue, if the process is hunted.
    pub(super) fn new() -> Option<Box<Hunted>> {
        process::of_new_queue().map(|hunt| {
            Box::new(Hunted {
                hunt,
                withheld: Ranked::default(),
                reads: Ranked::default(),
                turn: Ranked::default(),
            })
        })
    }

    /// Holds completions from now on.
    fn holds(&self, way: Visibility) {
        if let Some(longest) = self.hunt.next_hold() {
            let mut withheld = self.withheld.lock();
            (withheld.way, withheld.longest) = (way, longest);
        }
    }

    /// As [`Hunted::holds`], if the queue holds no completions yet.
    fn holds_more(&self, way: Visibility) {
        if self.withheld.lock().way == Visibility::AtOnce {
            self.holds(way);
        }
    }
}

impl Hunt {
    /// The longest time of the next hold. `None`: the process had all its holds.
    fn next_hold(&self) -> Option<Duration> {
        let nth = self.holds.fetch_add(1, Ordering::Relaxed);
        (nth < HOLDS).then_some(if nth < LONG_HOLDS { LONGEST } else { SHORT })
    }
}

impl Cq {
    /// The queue was created.
    pub(super) fn enter_hunt(self: &Arc<Self>) {
        if let Some(h) = &self.hunted {
            if let Some(part) = &h.hunt.part {
                part.lock().before.get_or_insert(u64::from(self.number) - 1);
            }
            let mut cqs = h.hunt.cqs.lock();
            cqs.retain(|cq| cq.strong_count() > 0);
            cqs.push(Arc::downgrade(self));
            drop(cqs);
            h.hunt.see_to_thread();
        }
    }

    /// Does a schedule decide when completions of this queue come?
    #[must_use]
    pub fn is_hunted(&self) -> bool {
        self.hunted.is_some()
    }

    /// Holds a completion back, or returns the completion to be added now.
    pub(super) fn hold(self: &Arc<Self>, completion: Completion) -> Option<Completion> {
        let Some(h) = &self.hunted else { return Some(completion) };
        h.hunt.beat();
        let mut withheld = h.withheld.lock();
        if withheld.way == Visibility::AtOnce && withheld.list.is_empty() {
            h.reads_end();
            return Some(completion);
        }
        if withheld.list.is_empty() {
            withheld.since = Some(Instant::now());
        }
        withheld.list.push_back(completion);
        // A queue that is too small for all completions must overflow.
        if withheld.list.len() + self.core.waiting() > self.core.capacity() as usize {
            drop(withheld);
            self.release(Why::Now);
        }
        None
    }

    /// Is a completion of this queue withheld?
    fn withholds(&self) -> bool {
        self.hunted.as_ref().is_some_and(|h| !h.withheld.lock().list.is_empty())
    }

    /// The number of withheld completions that are due.
    fn due(&self, withheld: &Withheld, why: Why) -> usize {
        let all = withheld.list.len();
        let since = withheld.since.is_some_and(|at| at.elapsed() >= withheld.longest);
        let slept = withheld.armed.is_some_and(|at| at.elapsed() >= ASLEEP);
        let n = match (why, withheld.way) {
            (Why::Now, _) => all,
            (Why::Time | Why::Rest, _) if since => all,
            (Why::Rest, Visibility::OneByOne) => 1,
            (Why::Rest, _) => all,
            (Why::Time, Visibility::OneByOne) if slept => 1,
            (Why::Time, _) if slept => all,
            (Why::Poll, Visibility::OneByOne) if self.core.waiting() == 0 => 1,
            (Why::Poll, Visibility::Shortly) if withheld.polls > LAST_POLL => all,
            _ => 0,
        };
        n.min(all)
    }

    /// Adds the withheld completions that are due.
    fn release(self: &Arc<Self>, why: Why) {
        let Some(h) = &self.hunted else { return };
        let mut withheld = h.withheld.lock();
        withheld.polls += u32::from(why == Why::Poll && !withheld.list.is_empty());
        let n = self.due(&withheld, why);
        if n > 0 {
            h.reads_end();
        }
        // Under the lock, so that completions stay in order.
        for completion in withheld.list.drain(..n).collect::<Vec<_>>() {
            let _ = self.add(completion, || self.context.node().now());
        }
        if n > 0 && withheld.list.is_empty() {
            (withheld.way, withheld.since, withheld.armed, withheld.polls) =
                (Visibility::AtOnce, None, None, 0);
        }
    }

    /// The queue is about to be armed at `address`. The caller passes the answer to
    /// [`Cq::hunt_armed`].
    #[must_use]
    pub fn hunt_arming(self: &Arc<Self>, address: usize) -> Option<Chosen> {
        let h = self.hunted.as_ref()?;
        let at = (Call::Arm, address, self.number.into());
        let chosen = h.hunt.before(at, || self.context.node().progress());
        if chosen.choice == Some(Choice::Before) {
            self.let_go(Why::Now);
        }
        Some(chosen)
    }

    /// The queue was armed.
    pub fn hunt_armed(self: &Arc<Self>, chosen: &Chosen) {
        let Some(h) = &self.hunted else { return };
        if chosen.after(|| self.context.node().progress()) {
            self.let_go(Why::Now);
        } else {
            h.withheld.lock().armed = Some(Instant::now());
        }
    }

    /// Arms the queue at `address`, between [`Cq::hunt_arming`] and [`Cq::hunt_armed`].
    pub fn hunt_arm(self: &Arc<Self>, address: usize, arm: impl FnOnce() -> i32) -> i32 {
        let chosen = self.hunt_arming(address);
        let result = arm();
        if let Some(chosen) = chosen {
            self.hunt_armed(&chosen);
        }
        result
    }

    /// Takes visible completions.
    pub(super) fn poll_hunted(
        self: &Arc<Self>,
        max: usize,
        mut take: impl FnMut(Completion),
    ) -> Result<usize, Cause> {
        self.let_go(Why::Poll);
        self.core.poll(max, |c| {
            self.hunt_polled(&c);
            take(c);
        })
    }

    /// The program polled a completion, which frees places of a send queue.
    fn hunt_polled(&self, c: &Completion) {
        if let Some(h) = &self.hunted
            && (c.opcode as u32) < WcOpcode::Recv as u32
        {
            h.hunt.refused.lock().polled += 1;
            if let Some(ledger) = h.hunt.ledgers.lock().get_mut(&c.qpn) {
                ledger.polled(c.wr_id, c.status == WcStatus::Success);
            }
        }
    }

    /// A poll at `address` found `found` completions.
    pub fn hunt_found(self: &Arc<Self>, address: usize, found: usize) {
        let Some(h) = &self.hunted else { return };
        let mut withheld = h.withheld.lock();
        if found > 0 || withheld.drained {
            withheld.drained = found == 0;
            if found > 0 {
                withheld.armed = None;
            }
            return;
        }
        withheld.drained = true;
        drop(withheld);
        match h.hunt.at(Call::Poll, address, self.number.into()) {
            Some(Choice::After) => h.hunt.wait(|| self.context.node().progress()),
            Some(Choice::Hold) => h.holds(Visibility::Together),
            Some(Choice::Drip) => h.holds(Visibility::OneByOne),
            _ => {}
        }
    }

    /// A poll at `address` found a failed completion. Answers the value for its undefined fields.
    pub fn hunt_failed(&self, address: usize) -> Option<u64> {
        let h = self.hunted.as_ref()?;
        let choice = h.hunt.at(Call::Error, address, self.number.into())?;
        (choice == Choice::Garbage)
            .then(|| mix(h.hunt.schedule.lock().seed ^ h.hunt.beats.load(Ordering::Relaxed)))
    }

    /// The completions of a queue pair are removed.
    pub(super) fn hunt_purge(&self, qpn: u32) {
        if let Some(h) = &self.hunted {
            h.withheld.lock().list.retain(|c| c.qpn != qpn);
            h.forget_reads(qpn);
            h.hunt.ledgers.lock().remove(&qpn);
        }
    }
}

impl CompChannel {
    /// The program is about to get an event at `address`. The caller passes the answer to
    /// [`CompChannel::hunt_got`].
    #[must_use]
    pub fn hunt_getting(&self, address: usize) -> Option<Chosen> {
        let first = self.cqs.lock().first().and_then(Weak::upgrade);
        let of_first = |cq: &Arc<Cq>| Some((cq.hunted.as_ref()?.hunt, cq.number));
        let of_process = || hunt().map(|hunt| (hunt, 0));
        let (hunt, first) = first.as_ref().and_then(of_first).or_else(of_process)?;
        Some(hunt.before((Call::Event, address, first.into()), || self.context.node().progress()))
    }

    /// Does the call for an event return EINTR? The call waits for a signal of the program, and
    /// returns EINTR after a handler without SA_RESTART has run in this thread. Only a call that
    /// would sleep waits.
    #[must_use]
    pub fn hunt_interrupts(&self, chosen: &Chosen) -> bool {
        chosen.choice == Some(Choice::Interrupt)
            && self.events.would_sleep()
            && adverb_os::signals_interrupt()
            && chosen.hunt.interrupts.fetch_add(1, Ordering::Relaxed) < INTERRUPTS
            && adverb_os::await_signal(SIGNAL)
    }

    /// The call for an event has returned.
    pub fn hunt_got(&self, chosen: &Chosen) {
        chosen.after(|| self.context.node().progress());
    }

    /// Gets an event at `address`, between [`CompChannel::hunt_getting`] and
    /// [`CompChannel::hunt_got`].
    pub fn hunt_event<R>(&self, address: usize, get: impl FnOnce() -> R) -> R {
        let chosen = self.hunt_getting(address);
        let event = get();
        if let Some(chosen) = chosen {
            self.hunt_got(&chosen);
        }
        event
    }
}

/// Requests of a send queue. A request takes its place as on a NIC: until its completion, or the
/// completion of a later request, was polled.
#[derive(Debug, Default)]
struct Ledger {
    /// The `wr_id` of each request, and whether the request is signaled.
    requests: VecDeque<(u64, bool)>,
    staged: usize,
    strict: bool,
}

impl Ledger {
    fn polled(&mut self, wr_id: u64, ok: bool) {
        let known = self.requests.len() - self.staged;
        // A successful completion belongs to the oldest signaled request with its number.
        let own = |(id, signaled): &(u64, bool)| *id == wr_id && (*signaled || !ok);
        if let Some(at) = self.requests.iter().take(known).position(own) {
            self.requests.drain(..=at);
        }
    }
}

impl Cq {
    /// Runs a call of the program at `address` that concerns this queue.
    pub fn hunt_call<R>(&self, call: Call, address: usize, does: impl FnOnce() -> R) -> R {
        let progress = || self.context.node().progress();
        let at = (call, address, self.number.into());
        let chosen = self.hunted.as_ref().map(|h| h.hunt.before(at, progress));
        let result = does();
        if let Some(chosen) = chosen {
            chosen.after(progress);
        }
        result
    }
}

impl Cq {
    /// A queue pair of this queue is moved to the error state at `address`. Do its completions come
    /// late?
    pub(crate) fn flushes_late(&self, address: usize) -> bool {
        let at = |h: &Hunted| h.hunt.at(Call::Modify, address, self.number.into());
        self.hunted.as_deref().and_then(at) == Some(Choice::Late)
    }

    /// Holds completions from now on, until the program sleeps or a bounded time has passed.
    pub(crate) fn hold_together(&self) {
        if let Some(h) = &self.hunted {
            h.holds_more(Visibility::Together);
        }
    }
}

impl Context {
    /// The program is about to make a call at `address` that takes or leaves events from elsewhere.
    /// The caller passes the answer to [`Context::hunt_called`].
    #[must_use]
    pub fn hunt_calling(&self, call: Call, address: usize) -> Option<Chosen> {
        Some(hunt()?.before((call, address, 1), || self.node().progress()))
    }

    /// The call has returned.
    pub fn hunt_called(&self, chosen: &Chosen) {
        chosen.after(|| self.node().progress());
    }
}

/// The program is about to read an event of a connection at `address`. With `true` the caller calls
/// [`read_connection_event`] after the read.
#[must_use]
pub fn read_connection_event_at(address: usize) -> bool {
    let Some(hunt) = hunt() else { return false };
    let choice = hunt.at(Call::Connection, address, 1);
    if choice == Some(Choice::Before) {
        read_connection_event();
    }
    choice == Some(Choice::After)
}

/// Waits until all packets on their way have come.
pub fn read_connection_event() {
    if let Some(hunt) = hunt() {
        let node = Node::existing();
        hunt.wait(|| node.as_ref().is_some_and(|node| node.progress()));
    }
}

impl Cq {
    /// The program is about to post to queue pair `qpn` at `address`. The caller passes the answer
    /// to [`Cq::hunt_posted`].
    ///
    /// # Errors
    /// ENOMEM: the post is refused and must not happen.
    pub(crate) fn hunt_posting(&self, qpn: u32, address: usize) -> Result<Option<Chosen>, Errno> {
        let Some(h) = &self.hunted else { return Ok(None) };
        let hunt = h.hunt;
        let choice = hunt.at(Call::Post, address, self.number.into());
        if choice == Some(Choice::Full) {
            hunt.ledgers.lock().entry(qpn).or_default().strict = true;
            // So that the send queue may fill.
            h.holds_more(Visibility::Shortly);
            if hunt.refused.lock().again(address) {
                return Err(Errno::ENOMEM);
            }
        }
        Ok(Some(Chosen { hunt, choice }))
    }

    /// The program has posted at `address` with this result.
    pub(crate) fn hunt_posted(&self, address: usize, chosen: &Chosen, result: i32) {
        if result == Errno::ENOMEM as i32 {
            chosen.hunt.refused.lock().note(address);
        }
        if result == 0 {
            chosen.hunt.beat();
        }
        chosen.after(|| self.context.node().progress());
    }

    /// A request is about to be staged. The request is refused if the queue is full as a NIC
    /// counts: when the schedule says so, and as long as completions are withheld.
    pub(crate) fn hunt_stage(&self, qpn: u32, engine: &adverb_engine::Qp) -> Result<(), PostError> {
        let Some(h) = &self.hunted else { return Ok(()) };
        let (staged, depth) = (engine.staged_sends(), engine.config().cap.max_send_wr);
        let holds = !h.withheld.lock().list.is_empty();
        let mut ledgers = h.hunt.ledgers.lock();
        let ledger = ledgers.entry(qpn).or_default();
        // Requests that were staged and are no longer staged were dropped.
        let forgotten = ledger.staged.saturating_sub(staged);
        let kept = ledger.requests.len() - forgotten;
        ledger.requests.truncate(kept);
        ledger.staged -= forgotten;
        if ledger.requests.len() >= depth as usize && (holds || ledger.strict) {
            log::debug!(
                "CQ {}: the send queue is full until its completions are polled",
                self.number
            );
            return Err(PostError::QueueFull(Cause::QueueFull { queue: "the send queue", depth }));
        }
        Ok(())
    }

    /// A request was staged.
    pub(crate) fn hunt_staged(&self, qpn: u32, wr: &SendWr<'_>, signals_all: bool) {
        if let Some(h) = &self.hunted {
            h.note_read(qpn, wr);
            let mut ledgers = h.hunt.ledgers.lock();
            let ledger = ledgers.entry(qpn).or_default();
            let signaled = signals_all || wr.flags.contains(SendFlags::SIGNALED);
            ledger.requests.push_back((wr.wr_id, signaled));
            ledger.staged += 1;
        }
    }

    /// The staged requests were committed.
    pub(crate) fn hunt_committed(&self, qpn: u32) {
        if let Some(h) = &self.hunted
            && let Some(ledger) = h.hunt.ledgers.lock().get_mut(&qpn)
        {
            ledger.staged = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Ledger;

    /// HUN-10: a completion frees its own request and all earlier ones, also if an earlier
    /// unsignaled request has the same number.
    #[test]
    fn a_completion_frees_the_signaled_request() {
        let new =
            || Ledger { requests: [(1, false), (1, true), (1, true)].into(), ..Ledger::default() };
        let mut ledger = new();
        ledger.polled(1, true);
        assert_eq!(ledger.requests, [(1, true)]);
        let mut ledger = new();
        ledger.polled(1, false);
        assert_eq!(ledger.requests.len(), 2, "a failed request completes in any case");
    }
}
