//! The hunt's part of a completion queue: completions that are withheld. A withheld completion is
//! not in its queue yet, so arms and events see the completion when it is added (CQN-3, CQN-7).
mod thread;

use crate::process::{Hunt, hunted_here};
use crate::reads::LateReads;
use adverb_device::cq::Adversary;
use adverb_device::engine::{
    Cause, Completion, PostError, Qp, SendFlags, SendWr, WcOpcode, WcStatus,
};
use adverb_device::{Cq, ranks};
use adverb_sync::Ranked;
use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Completions withheld to fill a send queue come after this many polls at the latest.
const LAST_POLL: u32 = 64;
/// This long after an arm the program counts as asleep.
const ASLEEP: Duration = Duration::from_micros(500);

/// A completion queue of a hunted process.
#[derive(Debug)]
pub(crate) struct HuntedQueue {
    pub(crate) hunt: &'static Hunt,
    pub(crate) withheld: Ranked<Withheld, ranks::AdversaryQueue>,
    /// The turn to repeat READs and to add the completions behind them.
    pub(crate) turn: Ranked<(), ranks::AdversaryTurn>,
}

#[derive(Debug, Default)]
pub(crate) struct Withheld {
    way: Visibility,
    list: VecDeque<Completion>,
    /// READs to be repeated before the completions become visible.
    pub(crate) reads: LateReads,
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
pub(crate) enum Visibility {
    #[default]
    AtOnce,
    Together,
    OneByOne,
    /// Together, and before a polling program has lost much time.
    Shortly,
    /// Receives at once, and sends behind the next receive.
    ReceiveFirst,
}

/// Why withheld completions are released.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// The hunt's thread has come: releases completions that are due.
    Time,
    /// The same, and no process of the run goes on without these completions.
    Rest,
    /// A poll found no visible completion.
    Poll,
    /// Releases all of them now.
    Now,
}

/// The hunt's part of a queue, if the queue is hunted.
pub(crate) fn of(cq: &Cq) -> Option<&HuntedQueue> {
    let adversary: &dyn Any = cq.adversary()?;
    adversary.downcast_ref()
}

impl HuntedQueue {
    /// For the queue `number` that this thread makes, if the queue is hunted.
    pub(crate) fn make(number: u32) -> Option<Box<dyn Adversary>> {
        let hunt = hunted_here()?;
        hunt.note_first_queue(number);
        Some(Box::new(HuntedQueue { hunt, withheld: Ranked::default(), turn: Ranked::default() }))
    }

    /// Holds completions from now on.
    pub(crate) fn holds(&self, way: Visibility) {
        if let Some(longest) = self.hunt.next_hold() {
            let mut withheld = self.withheld.lock();
            (withheld.way, withheld.longest) = (way, longest);
        }
    }

    /// As [`HuntedQueue::holds`], if the queue holds no completions yet.
    pub(crate) fn holds_more(&self, way: Visibility) {
        if self.withheld.lock().way == Visibility::AtOnce {
            self.holds(way);
        }
    }

    /// Is a completion of this queue withheld?
    pub(crate) fn withholds(&self) -> bool {
        !self.withheld.lock().list.is_empty()
    }

    /// The queue was armed.
    pub(crate) fn note_arm(&self) {
        self.withheld.lock().armed = Some(Instant::now());
    }

    /// A poll found `found` completions. Is this the first poll of the empty queue?
    pub(crate) fn note_poll(&self, found: usize) -> bool {
        let mut withheld = self.withheld.lock();
        if found > 0 {
            withheld.armed = None;
        }
        let was_drained = std::mem::replace(&mut withheld.drained, found == 0);
        found == 0 && !was_drained
    }

    /// Adds the withheld completions that are due. The data of READs is taken just before.
    pub(crate) fn let_go(&self, cq: &Arc<Cq>, why: Why) {
        if self.withheld.lock().reads.is_empty() {
            return self.release(cq, why);
        }
        // Another thread may be reading for a completion that this thread would make visible.
        let _turn = self.turn.lock();
        let withheld = self.withheld.lock();
        if withheld.due(cq, why) == 0 {
            return;
        }
        let reads = withheld.reads.clone();
        drop(withheld);
        reads.repeat(cq.context().node());
        self.release(cq, Why::Now);
    }

    /// Adds the withheld completions that are due.
    fn release(&self, cq: &Arc<Cq>, why: Why) {
        let mut withheld = self.withheld.lock();
        withheld.polls += u32::from(why == Why::Poll && !withheld.list.is_empty());
        let n = withheld.due(cq, why);
        if n == 0 {
            return;
        }
        withheld.reads = LateReads::default();
        // Under the lock, so that completions stay in order.
        for completion in withheld.list.drain(..n) {
            cq.make_visible(completion);
        }
        if withheld.list.is_empty() {
            (withheld.way, withheld.since, withheld.armed, withheld.polls) =
                (Visibility::AtOnce, None, None, 0);
        }
    }
}

impl Withheld {
    /// The number of withheld completions that are due.
    fn due(&self, cq: &Cq, why: Why) -> usize {
        let all = self.list.len();
        let since = self.since.is_some_and(|at| at.elapsed() >= self.longest);
        let slept = self.armed.is_some_and(|at| at.elapsed() >= ASLEEP);
        let n = match (why, self.way) {
            (Why::Now, _) => all,
            (Why::Time | Why::Rest, _) if since => all,
            (Why::Rest, Visibility::OneByOne) => 1,
            (Why::Rest, _) => all,
            (Why::Time, Visibility::OneByOne) if slept => 1,
            (Why::Time, _) if slept => all,
            (Why::Poll, Visibility::OneByOne) if cq.is_empty() => 1,
            (Why::Poll, Visibility::Shortly) if self.polls > LAST_POLL => all,
            _ => 0,
        };
        n.min(all)
    }
}

fn is_receive(c: &Completion) -> bool {
    c.opcode as u32 >= WcOpcode::Recv as u32
}

impl Adversary for HuntedQueue {
    fn enters(&self, cq: &Arc<Cq>) {
        self.hunt.enters(cq);
    }

    fn completes(&self, cq: &Arc<Cq>, completion: Completion) -> Option<Completion> {
        self.hunt.beat();
        let mut withheld = self.withheld.lock();
        let is_first = withheld.way == Visibility::ReceiveFirst && is_receive(&completion);
        if withheld.list.is_empty() && (is_first || withheld.way == Visibility::AtOnce) {
            withheld.reads = LateReads::default();
            return Some(completion);
        }
        if is_first {
            withheld.list.push_front(completion);
            drop(withheld);
            self.release(cq, Why::Now);
            return None;
        }
        if withheld.list.is_empty() {
            withheld.since = Some(Instant::now());
        }
        withheld.list.push_back(completion);
        // A queue that is too small for all completions must overflow.
        if withheld.list.len() + cq.len() > cq.capacity() as usize {
            drop(withheld);
            self.release(cq, Why::Now);
        }
        None
    }

    fn polls(&self, cq: &Arc<Cq>) {
        self.let_go(cq, Why::Poll);
    }

    fn polled(&self, c: &Completion) {
        if !is_receive(c) {
            self.hunt.sends.lock().polled(c.qpn, c.wr_id, c.status == WcStatus::Success);
        }
    }

    fn purged(&self, qpn: u32) {
        let mut withheld = self.withheld.lock();
        withheld.list.retain(|c| c.qpn != qpn);
        withheld.reads.forget(qpn);
        drop(withheld);
        self.hunt.sends.lock().ledgers.remove(&qpn);
    }

    fn stages(&self, cq: &Cq, qpn: u32, engine: &Qp) -> Result<(), PostError> {
        let (staged, depth) = (engine.staged_sends(), engine.config().cap.max_send_wr);
        let holds = self.withholds();
        if self.hunt.sends.lock().ledger(qpn).has_room(staged, depth, holds) {
            return Ok(());
        }
        log::debug!("CQ {}: the send queue is full until its completions are polled", cq.number());
        Err(PostError::QueueFull(Cause::QueueFull { queue: "the send queue", depth }))
    }

    fn staged(&self, qpn: u32, wr: &SendWr<'_>, signals_all: bool) {
        self.withheld.lock().reads.note(qpn, wr);
        let signaled = signals_all || wr.flags.contains(SendFlags::SIGNALED);
        self.hunt.sends.lock().ledger(qpn).stage(wr.wr_id, signaled);
    }

    fn committed(&self, qpn: u32) {
        if let Some(ledger) = self.hunt.sends.lock().ledgers.get_mut(&qpn) {
            ledger.commit();
        }
    }
}
