//! Completion queues: a bounded ring and the arming machine (CQN-1 … CQN-8).
use crate::cause::Cause;
use crate::completion::Completion;
use crate::room::{self, OutOfMemory};
use crate::types::Qpn;
use adverb_wire::Time;
use alloc::collections::VecDeque;
use arm::{ArmKind, ArmRule, Arming, Class, Moderation};
use core::time::Duration;

pub mod arm;
#[cfg(test)]
mod tests;

/// A completion queue.
#[derive(Debug)]
pub struct Cq {
    /// The ring grows as needed, up to `capacity`. Programs ask for far more entries than they use.
    ring: VecDeque<Completion>,
    capacity: u32,
    broken: bool,
    /// A completion that does not fit replaces the oldest completion.
    overwrites: bool,
    arming: Arming,
    /// Completions added since the queue was made.
    added: u64,
    /// Value of `added` at the last callback of NDKPI (NDK-2).
    notified: u64,
    /// Value of `added` at the last arm; `None` before the first arm (EXT-4).
    armed_at: Option<u64>,
    /// Value of `added` at the last event, made by a completion or by the moderation timer; 0
    /// before the first event. An immediate event of NDKPI's arm does not count.
    fired_at: u64,
}

/// A completion that did not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overrun {
    /// `CqOverflow`.
    pub cause: Cause,
    /// The overrun satisfied an arm of NDKPI; the event of the arm is due.
    pub fire: bool,
}

impl Cq {
    /// A queue of exactly `cqe` entries, at least 1. The memory for all entries is allocated here;
    /// its pages are touched at their use.
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

    /// From now on a completion that does not fit replaces the oldest completion, and the queue
    /// never falls into error (`IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN`).
    pub fn ignore_overrun(&mut self) {
        self.overwrites = true;
    }

    /// Adds a completion with the time stamp `now`. `Ok(true)`: the pending arm fired and an event
    /// is due (CQN-1, CQN-2). The completion can be polled before the event (CQN-7).
    ///
    /// # Errors
    /// [`Overrun`]: the queue is full, or was full once. The completion is lost and the queue is in
    /// error. The host raises CQ_ERR at the first overrun ([`Cq::is_broken`] was false before). The
    /// completions in the queue can still be polled, and no completion is added any more, as on a
    /// NIC.
    #[inline(always)]
    pub fn push(&mut self, mut completion: Completion, now: Time) -> Result<bool, Overrun> {
        let is_full = self.ring.len() >= self.capacity as usize;
        if is_full && self.overwrites {
            self.ring.pop_front();
        } else if is_full || self.broken {
            self.broken = true;
            let cause = Cause::CqOverflow { depth: self.capacity };
            return Err(Overrun { cause, fire: self.arming.overrun() });
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

    /// Takes the oldest completion. Consumes no event and does not change the arm (CQN-8).
    #[inline]
    pub fn pop(&mut self) -> Option<Completion> {
        let oldest = self.ring.pop_front();
        if self.ring.is_empty() {
            // The next completion goes to the start of the ring. So a queue which is polled often
            // uses few pages of the ring.
            self.ring.clear();
        }
        oldest
    }

    /// Allocates the memory for a larger capacity, before [`Cq::resize`].
    ///
    /// # Errors
    /// There is no such memory.
    pub fn make_room(&mut self, cqe: u32) -> Result<(), OutOfMemory> {
        let more = (cqe as usize).saturating_sub(self.ring.len());
        Ok(self.ring.try_reserve_exact(more)?)
    }

    /// The completions, oldest first. Removes none (EXT-1).
    pub fn peek(&self) -> impl Iterator<Item = &Completion> {
        self.ring.iter()
    }

    /// Number of waiting completions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ring.len()
    }

    /// Is no completion waiting?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Most entries of the queue.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Did the queue overflow?
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Asks for a notification (CQN-1 … CQN-6).
    pub fn arm(&mut self, kind: ArmKind) {
        self.armed_at = Some(self.added);
        self.arming.arm(kind);
    }

    /// Asks for a notification by the rule of a device. `true`: completions in the queue satisfy
    /// the arm, and the event is due (NIC-7).
    #[must_use]
    pub fn arm_by(&mut self, rule: ArmRule, kind: ArmKind, now: Time) -> bool {
        self.arm(kind);
        let Some(pending) = self.armed().filter(|_| rule == ArmRule::Waiting) else { return false };
        let enough = self.arming.moderation.count.max(1);
        let mut waiting = self.ring.iter().filter(|c| pending.matches(Class::of(c)));
        let Some(oldest) = waiting.next() else { return false };
        let count = 1 + waiting.take(enough as usize - 1).count();
        self.arming.count_waiting(count as u32, oldest.timestamp, now)
    }

    /// Asks for a notification of every matching completion until [`Cq::disarm`] (EXT-3).
    pub fn arm_persistent(&mut self, kind: ArmKind) {
        self.arm(kind);
        self.arming.persistent = true;
    }

    /// Removes the pending arm.
    pub fn disarm(&mut self) {
        self.arming.disarm();
    }

    /// Does the pending arm stay after it fires (EXT-3)?
    #[must_use]
    pub fn is_persistent(&self) -> bool {
        self.arming.persistent
    }

    /// Arms as NDKPI does. A completion in the queue that was added after the last
    /// [`Cq::mark_notified`] satisfies the arm at once (NDK-2). An overrun satisfies the arm too,
    /// now or later. `true`: the event is due.
    #[must_use]
    pub fn arm_fresh(&mut self, kind: ArmKind, now: Time) -> bool {
        self.armed_at = Some(self.added);
        let fresh = (self.added - self.notified).min(self.ring.len() as u64) as usize;
        let since = match fresh {
            0 => now,
            n => self.ring[self.ring.len() - n].timestamp,
        };
        self.arming.arm_fresh(kind, fresh as u32, since, now)
            || (self.broken && self.arming.overrun())
    }

    /// The callback of NDKPI is about to run. The completions in the queue are no longer new for
    /// NDKPI (NDK-2).
    pub fn mark_notified(&mut self) {
        self.notified = self.added;
    }

    /// Completions for which no event will come: all completions before the pending arm, or all
    /// completions without a pending arm (EXT-4). An event that is made and not read may still
    /// announce them. Only the host knows about such events.
    #[must_use]
    pub fn unannounced(&self) -> usize {
        match (self.armed(), self.armed_at) {
            (Some(_), Some(at)) => {
                // The newest completion in the ring has the number `added`. Numbers have no gaps
                // except after purges.
                let after = usize::try_from(self.added - at).unwrap_or(usize::MAX);
                self.ring.len().saturating_sub(after)
            }
            _ => self.ring.len(),
        }
    }

    /// Should an event have come for one of the unannounced completions? An arm for solicited
    /// completions says that all other completions may wait.
    #[must_use]
    pub fn has_missed(&self) -> bool {
        let mut unannounced = self.ring.iter().take(self.unannounced());
        unannounced.any(|c| self.armed().is_none_or(|kind| kind.matches(Class::of(c))))
    }

    /// The pending arm.
    #[must_use]
    pub fn armed(&self) -> Option<ArmKind> {
        self.arming.pending
    }

    /// Holds events back until `count` matching completions were added since the arm, or `period`
    /// has passed since the first of them (`ibv_modify_cq`, EXT-2). Zero disables a condition; both
    /// zero disable moderation.
    pub fn set_moderation(&mut self, count: u32, period: Duration) {
        self.arming.moderation = Moderation { count, period };
    }

    /// When [`Cq::handle_timeout`] has to be called; `None` while no event is moderated. Only
    /// [`Cq::push`], [`Cq::handle_timeout`] and [`Cq::set_moderation`] change the value.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        self.arming.deadline()
    }

    /// A deadline has come. `true`: a moderated event is due.
    #[must_use]
    pub fn handle_timeout(&mut self, now: Time) -> bool {
        let fire = self.arming.fire_if_due(now);
        self.fired(fire)
    }

    /// Did the oldest completion make the last event, when the completion was added or by the
    /// moderation timer? Only the host knows whether the event was read.
    #[must_use]
    pub fn next_made_the_event(&self) -> bool {
        // Numbers have no gaps except after purges. After a purge the answer may be off by the
        // number of purged completions.
        !self.ring.is_empty() && self.fired_at == self.added - self.ring.len() as u64 + 1
    }

    /// Changes the capacity. The completions and the arm stay.
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

    /// Removes the completions of a queue pair that is destroyed or reset. An arm satisfied by such
    /// completions has fired already. Its event then finds fewer completions, or none (CQN-8).
    pub fn purge(&mut self, qpn: Qpn) {
        self.ring.retain(|c| c.qpn != qpn);
    }
}
