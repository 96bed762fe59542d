//! The racing operations of a completion queue: add, poll, arm, disarm and close. The code has no
//! socket, clock or descriptor, so that a model checker can explore it (CQN-12, `make loom`).
use crate::ranks;
use crate::sync::{AtomicUsize, Ranked};
use adverb_engine::OutOfMemory;
use adverb_engine::cq::Overrun;
use adverb_engine::cq::arm::ArmKind;
use adverb_engine::{Cause, Completion, Time};
use std::sync::atomic::Ordering;

/// The ring and the arm under one lock.
#[derive(Debug)]
pub struct NotifyCore {
    inner: Ranked<Inner, ranks::CompletionQueue>,
    /// Number of waiting completions, so that polling an empty queue takes no lock. The value is
    /// stored under the lock and before the completion's event is made. So a thread that arms or
    /// reads an event afterwards sees all earlier completions.
    waiting: AtomicUsize,
}

/// Set in `waiting` after a completion was lost. A poll of the drained queue then takes the lock
/// and reports the overflow.
const BROKEN: usize = 1 << (usize::BITS - 1);

#[derive(Debug)]
struct Inner {
    cq: adverb_engine::Cq,
    /// The queue is closed: no completion is added and no event is made any more.
    closed: bool,
    /// Moderation was requested, so deadlines matter.
    moderated: bool,
    /// Polls that looked into the queue. A watch sees from this whether the program polls (EXT-4).
    polls: u64,
    /// Number of arms, and the place of the last arm.
    arms: u64,
    site: ArmSite,
}

/// The place of an arm in the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ArmSite {
    /// Unknown.
    #[default]
    Unknown,
    /// An address in the program's code.
    Code(usize),
    /// A line of Rust.
    Source(&'static std::panic::Location<'static>),
}

/// The state of a queue for EXT-4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Completions for which no event will come, unless an event is made and not yet read.
    pub unannounced: usize,
    /// The pending arm.
    pub arm: Option<ArmKind>,
    /// Arms so far.
    pub arms: u64,
    /// The place of the last arm.
    pub site: ArmSite,
    /// Number of polls that looked into the queue.
    pub polls: u64,
    /// An event should have come for one of the unannounced completions.
    pub missed: bool,
}

/// The state of the queue at an arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Armed {
    /// Completions waiting.
    pub waiting: usize,
    /// The queue was armed already, and has made no event since.
    pub idly: bool,
}

/// The queue was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed;

/// A completion was lost.
#[derive(Debug)]
pub struct Lost {
    pub cause: Cause,
    /// Is this the first lost completion, which put the queue into error?
    pub first: bool,
}

impl NotifyCore {
    pub fn new(cqe: u32) -> Result<Self, OutOfMemory> {
        Ok(NotifyCore {
            inner: Ranked::new(Inner {
                cq: adverb_engine::Cq::new(cqe)?,
                closed: false,
                moderated: false,
                polls: 0,
                arms: 0,
                site: ArmSite::Unknown,
            }),
            waiting: AtomicUsize::new(0),
        })
    }

    /// Calls `change` with the queue. The number of waiting completions stays.
    pub fn change<R>(&self, change: impl FnOnce(&mut adverb_engine::Cq) -> R) -> R {
        change(&mut self.inner.lock().cq)
    }

    /// Adds a completion and, if the arm fires, makes its event with `notify`. The completion is
    /// added first (CQN-7). Both happen under the lock, so that no arm, poll or close falls in
    /// between (CQN-12). `moderated` is called for a moderated queue. A closed queue drops the
    /// completion. Answers whether the completion arrived without a pending arm.
    #[inline(always)]
    pub fn push(
        &self,
        completion: Completion,
        now: Time,
        notify: impl FnOnce(&adverb_engine::Cq),
        moderated: impl FnOnce(&adverb_engine::Cq),
    ) -> Result<bool, Lost> {
        let mut inner = self.inner.lock();
        if inner.closed {
            return Ok(false);
        }
        let first = !inner.cq.is_broken();
        let fire = match inner.cq.push(completion, now) {
            Ok(fire) => fire,
            Err(Overrun { cause, fire }) => {
                self.store_waiting(&inner);
                if fire {
                    notify(&inner.cq);
                }
                return Err(Lost { cause, first });
            }
        };
        self.store_waiting(&inner);
        if fire {
            notify(&inner.cq);
        }
        if inner.moderated {
            moderated(&inner.cq);
        }
        Ok(!fire && inner.cq.armed().is_none())
    }

    /// Takes up to `max` completions, oldest first. An empty queue takes no lock.
    pub fn poll(&self, max: usize, take: impl FnMut(Completion)) -> Result<usize, Cause> {
        self.poll_unless(|_| false, max, take)
    }

    /// As [`NotifyCore::poll`], but takes nothing if `leave` answers `true`.
    pub fn poll_unless(
        &self,
        leave: impl FnOnce(&adverb_engine::Cq) -> bool,
        max: usize,
        mut take: impl FnMut(Completion),
    ) -> Result<usize, Cause> {
        if self.waiting.load(Ordering::Acquire) == 0 {
            return Ok(0);
        }
        let mut inner = self.inner.lock();
        inner.polls += 1;
        if leave(&inner.cq) {
            return Ok(0);
        }
        let mut n = 0;
        while n < max {
            let Some(completion) = inner.cq.pop() else { break };
            take(completion);
            n += 1;
        }
        self.store_waiting(&inner);
        if n == 0 && inner.cq.is_broken() {
            return Err(Cause::CqOverflow { depth: inner.cq.capacity() });
        }
        Ok(n)
    }

    /// Shows up to `max` completions, oldest first, and leaves them in the queue (EXT-1). Answers
    /// their number.
    pub fn peek(&self, max: usize, mut show: impl FnMut(&Completion)) -> usize {
        let inner = self.inner.lock();
        inner.cq.peek().take(max).map(&mut show).count()
    }

    /// Number of waiting completions.
    #[inline]
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Acquire) & !BROKEN
    }

    #[inline]
    fn store_waiting(&self, inner: &Inner) {
        let broken = if inner.cq.is_broken() { BROKEN } else { 0 };
        self.waiting.store(inner.cq.len() | broken, Ordering::Release);
    }

    /// Arms the queue by `change` (CQN-1 … CQN-6). The program armed at `site`.
    pub fn arm(
        &self,
        site: ArmSite,
        change: impl FnOnce(&mut adverb_engine::Cq),
    ) -> Result<Armed, Closed> {
        let mut inner = self.inner.lock();
        if inner.closed {
            return Err(Closed);
        }
        inner.arms += 1;
        inner.site = site;
        let idly = inner.cq.armed().is_some() && !inner.cq.is_persistent();
        change(&mut inner.cq);
        Ok(Armed { waiting: inner.cq.len(), idly })
    }

    /// Makes an event with `notify`, and removes the pending arm.
    pub fn announce(&self, notify: impl FnOnce(&adverb_engine::Cq)) {
        let mut inner = self.inner.lock();
        if !inner.closed {
            inner.cq.disarm();
            notify(&inner.cq);
        }
    }

    /// The state of the queue for EXT-4.
    pub fn look(&self) -> Look {
        let inner = self.inner.lock();
        Look {
            unannounced: if inner.closed { 0 } else { inner.cq.unannounced() },
            arm: inner.cq.armed(),
            arms: inner.arms,
            site: inner.site,
            polls: inner.polls,
            missed: inner.cq.has_missed(),
        }
    }

    /// Has the queue overflowed?
    pub fn is_broken(&self) -> bool {
        self.waiting.load(Ordering::Acquire) & BROKEN != 0
    }

    /// From now on no completion is added and no event is made. Earlier events stay where `notify`
    /// has put them.
    pub fn close(&self) {
        self.inner.lock().closed = true;
    }

    /// Sets the moderation (EXT-2) by `change`.
    pub fn moderate(&self, change: impl FnOnce(&mut adverb_engine::Cq)) -> Result<(), Closed> {
        let mut inner = self.inner.lock();
        if inner.closed {
            return Err(Closed);
        }
        inner.moderated = true;
        change(&mut inner.cq);
        Ok(())
    }

    /// A deadline has come: makes a moderated event, if due. `after` is called in
    /// any case.
    pub fn expired(
        &self,
        now: Time,
        notify: impl FnOnce(&adverb_engine::Cq),
        after: impl FnOnce(&adverb_engine::Cq),
    ) {
        let mut inner = self.inner.lock();
        if !inner.closed && inner.cq.handle_timeout(now) {
            notify(&inner.cq);
        }
        after(&inner.cq);
    }

    /// Removes the completions of a queue pair.
    pub fn purge(&self, qpn: u32) {
        let mut inner = self.inner.lock();
        inner.cq.purge(qpn);
        self.store_waiting(&inner);
    }
}
