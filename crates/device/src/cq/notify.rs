//! What races in a completion queue: add, poll, arm and close. No socket, clock or descriptor, so that a model checker
//! can explore it (CQN-12, `make loom`).
use crate::sync::{AtomicUsize, Mutex};
use adverb_engine::cq::arm::ArmKind;
use adverb_engine::{Cause, Completion, Time};
use std::sync::atomic::Ordering;

/// The ring and the arm under one lock.
#[derive(Debug)]
pub struct NotifyCore {
    inner: Mutex<Inner>,
    /// Completions waiting, so that polling an empty queue takes no lock. Stored under the lock, and before the event
    /// of the completion: whoever arms or reads an event afterwards sees what was added before.
    waiting: AtomicUsize,
}

/// Set in `waiting` once a completion was lost, so that a poll of the drained queue looks and says so.
const BROKEN: usize = 1 << (usize::BITS - 1);

#[derive(Debug)]
struct Inner {
    cq: adverb_engine::Cq,
    /// Nothing is added and no event is made any more.
    closed: bool,
    /// Moderation was asked for: deadlines matter.
    moderated: bool,
}

/// The queue was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed;

/// A completion was lost.
#[derive(Debug)]
pub struct Lost {
    pub cause: Cause,
    /// It is the first one: the queue fell into error with it.
    pub first: bool,
}

impl NotifyCore {
    pub fn new(cqe: u32) -> Self {
        NotifyCore {
            inner: Mutex::new(Inner { cq: adverb_engine::Cq::new(cqe), closed: false, moderated: false }),
            waiting: AtomicUsize::new(0),
        }
    }

    /// Adds a completion and, if the arm fires, makes its event with `notify`: the completion first (CQN-7), both under
    /// the lock, so that no arm, poll or close falls in between (CQN-12). `held` sees a moderated queue whose arm did
    /// not fire. A closed queue drops the completion.
    pub fn push(
        &self,
        completion: Completion,
        now: Time,
        notify: impl FnOnce(),
        held: impl FnOnce(&adverb_engine::Cq),
    ) -> Result<(), Lost> {
        let mut inner = self.inner.lock();
        if inner.closed {
            return Ok(());
        }
        let first = !inner.cq.is_broken();
        let fire = match inner.cq.push(completion, now) {
            Ok(fire) => fire,
            Err(cause) => {
                self.store_waiting(&inner);
                return Err(Lost { cause, first });
            }
        };
        self.store_waiting(&inner);
        if fire {
            notify();
        } else if inner.moderated {
            held(&inner.cq);
        }
        Ok(())
    }

    /// Takes up to `max` completions, oldest first; an empty queue takes no lock.
    pub fn poll(&self, max: usize, mut take: impl FnMut(Completion)) -> Result<usize, Cause> {
        if self.waiting.load(Ordering::Acquire) == 0 {
            return Ok(0);
        }
        let mut inner = self.inner.lock();
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

    /// Completions waiting.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Acquire) & !BROKEN
    }

    fn store_waiting(&self, inner: &Inner) {
        let broken = if inner.cq.is_broken() { BROKEN } else { 0 };
        self.waiting.store(inner.cq.len() | broken, Ordering::Release);
    }

    /// Arms the queue (CQN-1 … CQN-6).
    pub fn arm(&self, kind: ArmKind) -> Result<(), Closed> {
        let mut inner = self.inner.lock();
        if inner.closed {
            return Err(Closed);
        }
        inner.cq.arm(kind);
        Ok(())
    }

    /// From now on nothing is added and no event is made. Events made before are where `notify` has put them.
    pub fn close(&self) {
        self.inner.lock().closed = true;
    }

    /// Sets the moderation (EXT-2); `held` sees the queue with it.
    pub fn moderate(
        &self,
        change: impl FnOnce(&mut adverb_engine::Cq),
        held: impl FnOnce(&adverb_engine::Cq),
    ) -> Result<(), Closed> {
        let mut inner = self.inner.lock();
        if inner.closed {
            return Err(Closed);
        }
        change(&mut inner.cq);
        inner.moderated = true;
        held(&inner.cq);
        Ok(())
    }

    /// Time has come for an event that moderation held back; `after` sees the queue then, in any case.
    pub fn expired(&self, now: Time, notify: impl FnOnce(), after: impl FnOnce(&adverb_engine::Cq)) {
        let mut inner = self.inner.lock();
        if !inner.closed && inner.cq.handle_timeout(now) {
            notify();
        }
        after(&inner.cq);
    }

    pub fn capacity(&self) -> u32 {
        self.inner.lock().cq.capacity()
    }

    /// Changes the capacity and answers the new one.
    pub fn resize(&self, cqe: u32) -> Result<u32, Cause> {
        let mut inner = self.inner.lock();
        inner.cq.resize(cqe)?;
        Ok(inner.cq.capacity())
    }

    /// Removes the completions of a queue pair.
    pub fn purge(&self, qpn: u32) {
        let mut inner = self.inner.lock();
        inner.cq.purge(qpn);
        self.store_waiting(&inner);
    }
}
