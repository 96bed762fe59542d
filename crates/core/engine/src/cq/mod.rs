//! Completion queues: a bounded ring and the arming machine (CQN-1 … CQN-8).
use crate::cause::Cause;
use crate::completion::Completion;
use crate::room::{self, OutOfMemory};
use crate::time::Time;
use crate::types::Qpn;
use alloc::collections::VecDeque;
use arm::{ArmKind, Arming, Class, Moderation};
use core::time::Duration;

pub mod arm;
#[cfg(test)]
mod tests;

/// A completion queue.
#[derive(Debug)]
pub struct Cq {
    /// Grown as needed, up to `capacity`: programs ask for far more entries than they use.
    ring: VecDeque<Completion>,
    capacity: u32,
    broken: bool,
    /// A completion that does not fit takes the place of the oldest one.
    overwrites: bool,
    arming: Arming,
    /// Completions added since the queue was made.
    added: u64,
    /// `added` when the last callback of NDKPI was called (NDK-2).
    notified: u64,
    /// `added` at the last arm; `None` before the first (EXT-4).
    armed_at: Option<u64>,
    /// `added` when the last event was made, by a completion or by the moderation timer; 0 before
    /// the first. An event that NDKPI's arm makes at once does not count.
    fired_at: u64,
}

/// A completion that did not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overrun {
    /// `CqOverflow`.
    pub cause: Cause,
    /// An arm of NDKPI's was satisfied by it; its event is due.
    pub fire: bool,
}

impl Cq {
    /// A queue of at least `cqe` entries: of exactly `cqe`, but at least 1. The memory of all
    /// entries is allocated here, and touched when it is used.
    ///
    /// # Errors
    /// There is no such memory.
    pub fn new(cqe: u32) -> Result<Self, OutOfMemory> {
        let capacity = cqe.max(1);
        Ok(Cq {
            ring: room::ring(capacity as usize)?,
            capacity,
            broken: false,
            overwrites: false,
            arming: Arming::default(),
            added: 0,
            notified: 0,
            armed_at: None,
            fired_at: 0,
        })
    }

    /// From now on a completion that does not fit takes the place of the oldest one, and the queue
    /// never falls into error (`IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN`).
    pub fn ignore_overrun(&mut self) {
        self.overwrites = true;
    }

    /// Adds a completion, stamped `now`. `Ok(true)`: the pending arm fired, an event is due (CQN-1,
    /// CQN-2); the completion can be polled already (CQN-7).
    ///
    /// # Errors
    /// [`Overrun`]: the queue is full, or was full once; the completion is lost and the queue is in error. The host
    /// raises CQ_ERR at the first one (when [`Cq::is_broken`] was false before). What is in the
    /// queue can still be polled; nothing is added any more, as on a NIC.
    #[inline(always)]
    pub fn push(&mut self, mut completion: Completion, now: Time) -> Result<bool, Overrun> {
        let is_full = self.ring.len() >= self.capacity as usize;
        if is_full && self.overwrites {
            self.ring.pop_front();
        } else if is_full || self.broken {
            self.broken = true;
            return Err(Overrun {
                cause: Cause::CqOverflow { depth: self.capacity },
                fire: self.arming.overrun(),
            });
        }
        completion.timestamp = now;
        let class = Class::of(&completion);
        self.ring.push_back(completion);
        self.added += 1;
        let fire = self.arming.added(class, now);
        Ok(self.fired(fire))
    }

    fn fired(&mut self, fire: bool) -> bool {
        if fire {
            self.fired_at = self.added;
        }
        fire
    }

    /// Takes the oldest completion. Consumes no event and changes no arm (CQN-8).
    #[inline]
    pub fn pop(&mut self) -> Option<Completion> {
        let oldest = self.ring.pop_front();
        if self.ring.is_empty() {
            // The next completion goes to the start of the ring: a queue that is polled often uses
            // few of its pages.
            self.ring.clear();
        }
        oldest
    }

    /// Takes the memory for a larger capacity, before [`Cq::resize`].
    ///
    /// # Errors
    /// There is no such memory.
    pub fn make_room(&mut self, cqe: u32) -> Result<(), OutOfMemory> {
        let more = (cqe as usize).saturating_sub(self.ring.len());
        Ok(self.ring.try_reserve_exact(more)?)
    }

    /// Looks at the completions, oldest first, without removing them (EXT-1).
    pub fn peek(&self) -> impl Iterator<Item = &Completion> {
        self.ring.iter()
    }

    /// Completions waiting.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ring.len()
    }

    /// None waiting?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Entries it holds at most.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// It overflowed.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Asks for a notification (CQN-1 … CQN-6).
    pub fn arm(&mut self, kind: ArmKind) {
        self.armed_at = Some(self.added);
        self.arming.arm(kind);
    }

    /// Asks for a notification of every completion that matches until [`Cq::disarm`] (EXT-3).
    pub fn arm_persistent(&mut self, kind: ArmKind) {
        self.armed_at = Some(self.added);
        self.arming.arm_persistent(kind);
    }

    /// Takes the pending arm back.
    pub fn disarm(&mut self) {
        self.arming.disarm();
    }

    /// Does the pending arm stay when it fires (EXT-3)?
    #[must_use]
    pub fn is_persistent(&self) -> bool {
        self.arming.is_persistent()
    }

    /// Asks for a notification as NDKPI does: a completion in the queue that came after the last
    /// [`Cq::mark_notified`] satisfies it at once (NDK-2), and so does an overrun, now or later.
    /// `true`: its event is due.
    #[must_use]
    pub fn arm_fresh(&mut self, kind: ArmKind, now: Time) -> bool {
        self.armed_at = Some(self.added);
        let fresh = (self.added - self.notified).min(self.ring.len() as u64) as usize;
        let since = match fresh {
            0 => now,
            n => self.ring[self.ring.len() - n].timestamp,
        };
        self.arming.arm_fresh(kind, fresh as u32, since, now) || (self.broken && self.arming.overrun())
    }

    /// The callback of NDKPI is being called: what is in the queue now is not new to it any more
    /// (NDK-2).
    pub fn mark_notified(&mut self) {
        self.notified = self.added;
    }

    /// Completions that no event will speak of: those that came before the pending arm, or all if
    /// none is pending (EXT-4). An event made and not yet read may still speak of them; the host
    /// knows.
    #[must_use]
    pub fn overlooked(&self) -> usize {
        match (self.armed(), self.armed_at) {
            (Some(_), Some(at)) => {
                // The newest in the ring is number `added`, and numbers are without gaps but for
                // purges.
                let after = usize::try_from(self.added - at).unwrap_or(usize::MAX);
                self.ring.len().saturating_sub(after)
            }
            _ => self.ring.len(),
        }
    }

    /// Is one of the overlooked completions such that an event for it was to be expected? An arm
    /// for solicited completions says that the others may wait.
    #[must_use]
    pub fn has_missed(&self) -> bool {
        let mut overlooked = self.ring.iter().take(self.overlooked());
        overlooked.any(|c| self.armed().is_none_or(|kind| kind.matches(Class::of(c))))
    }

    /// Was it ever armed?
    #[must_use]
    pub fn was_armed(&self) -> bool {
        self.armed_at.is_some()
    }

    /// The pending arm.
    #[must_use]
    pub fn armed(&self) -> Option<ArmKind> {
        self.arming.pending()
    }

    /// Holds events back until `count` completions that match the arm were added since it, or
    /// `period` has passed since the first of them (`ibv_modify_cq`, EXT-2). Zero leaves a part
    /// out; both zero is no moderation.
    pub fn set_moderation(&mut self, count: u32, period: Duration) {
        self.arming.set_moderation(Moderation { count, period });
    }

    /// When [`Cq::handle_timeout`] wants to be called; `None` while no event is held back. Changes
    /// with [`Cq::push`], [`Cq::handle_timeout`] and [`Cq::set_moderation`] only.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        self.arming.deadline()
    }

    /// Time has come. `true`: an event that moderation held back is due.
    #[must_use]
    pub fn handle_timeout(&mut self, now: Time) -> bool {
        let fire = self.arming.expired(now);
        self.fired(fire)
    }

    /// Did the oldest completion make the last event, when it was added or by the moderation timer?
    /// Only the host knows whether that event was read.
    #[must_use]
    pub fn next_made_the_event(&self) -> bool {
        // Numbers are without gaps but for purges, after which the answer may be off by what was
        // purged.
        !self.ring.is_empty() && self.fired_at == self.added - self.ring.len() as u64 + 1
    }

    /// Changes the capacity; completions and the arm stay.
    ///
    /// # Errors
    /// `BadArgument` for 0, or if more completions are waiting than would fit.
    pub fn resize(&mut self, cqe: u32) -> Result<(), Cause> {
        let bad = |rule| Err(Cause::BadArgument { what: "cqe", rule });
        if cqe == 0 {
            return bad("a completion queue holds at least one entry");
        }
        if self.ring.len() > cqe as usize {
            return bad("more completions are waiting than the new size holds");
        }
        self.capacity = cqe;
        self.ring.shrink_to(cqe as usize);
        Ok(())
    }

    /// Removes the completions of a QP that is being destroyed or reset. An arm they satisfied has
    /// fired already; its event then finds fewer completions, or none (CQN-8).
    pub fn purge(&mut self, qpn: Qpn) {
        self.ring.retain(|c| c.qpn != qpn);
    }
}
