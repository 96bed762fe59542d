//! Shared receive queues.
use crate::cause::Cause;
use crate::tags::{ListDone, ListOp, TagList};
use crate::types::PdId;
use crate::wr::{PostError, RecvWqe, RecvWr, SgeList};
use alloc::boxed::Box;
use alloc::collections::VecDeque;

#[cfg(test)]
mod tests;

/// A shared receive queue.
#[derive(Debug)]
pub struct Srq {
    pd: PdId,
    /// The ring grows as needed, up to `max_wr`.
    ring: VecDeque<RecvWqe>,
    max_wr: u32,
    max_sge: u32,
    /// The armed limit; 0 is disarmed.
    limit: u32,
    /// The matching list of a tag-matching SRQ.
    tags: Option<Box<TagList>>,
}

impl Srq {
    /// A queue for `max_wr` requests (at least one) with `max_sge` entries each.
    #[must_use]
    pub fn new(pd: PdId, max_wr: u32, max_sge: u32) -> Self {
        Srq { pd, ring: VecDeque::new(), max_wr: max_wr.max(1), max_sge, limit: 0, tags: None }
    }

    /// Makes the queue a tag-matching SRQ with room for `max` tagged buffers.
    #[must_use]
    pub fn with_tags(self, max: u32) -> Self {
        Srq { tags: Some(Box::new(TagList::new(max))), ..self }
    }

    /// Performs an operation on the matching list. `known` is the number of unexpected messages
    /// that the program reports, if any.
    ///
    /// # Errors
    /// `Invalid` for too many entries, or without a matching list; `QueueFull`.
    pub fn tag_op(&mut self, op: ListOp<'_>, known: Option<u32>) -> Result<ListDone, PostError> {
        match &mut self.tags {
            Some(tags) => tags.perform(op, known),
            None => {
                let (op, on) = ("tag matching", "a shared receive queue of another type");
                Err(PostError::Invalid(Cause::OpNotSupported { op, on }))
            }
        }
    }

    /// As [`Srq::pop`], for a message with this payload in its first packet. A matching tagged
    /// buffer is taken before an ordinary receive.
    #[inline]
    pub fn pop_message(&mut self, first: &[u8]) -> Option<(RecvWqe, bool)> {
        if self.tags.is_some() { self.pop_tagged(first) } else { self.pop() }
    }

    #[cold]
    fn pop_tagged(&mut self, first: &[u8]) -> Option<(RecvWqe, bool)> {
        let tags = self.tags.as_mut()?;
        if let Some(wqe) = tags.take(self.pd, first) {
            return Some((wqe, false));
        }
        let (mut wqe, limit_reached) = self.pop()?;
        wqe.tagged = self.tags.as_mut().map(|tags| tags.pass(first));
        Some((wqe, limit_reached))
    }

    /// Queues a receive.
    ///
    /// # Errors
    /// `Invalid` with too many entries, `QueueFull`.
    pub fn post(&mut self, wr: &RecvWr<'_>) -> Result<(), PostError> {
        if wr.sges.len() > self.max_sge as usize {
            let given = u32::try_from(wr.sges.len()).unwrap_or(u32::MAX);
            return Err(PostError::Invalid(Cause::TooManySges { given, max: self.max_sge }));
        }
        // A failed allocation counts as a full queue.
        if self.ring.len() >= self.max_wr as usize || self.ring.try_reserve(1).is_err() {
            let queue = "the shared receive queue";
            return Err(PostError::QueueFull(Cause::QueueFull { queue, depth: self.max_wr }));
        }
        let sges = SgeList::new(wr.sges);
        self.ring.push_back(RecvWqe { wr_id: wr.wr_id, pd: self.pd, sges, tagged: None });
        Ok(())
    }

    /// Takes the oldest receive. `true`: the limit was crossed, and an SRQ_LIMIT_REACHED event is
    /// due (once per arm).
    ///
    /// Only a take crosses the limit. If the queue is below the limit at the arm, the event comes
    /// at the next take and not at the arm: by `ibv_modify_srq(3)` the event is raised when the
    /// number *drops* below the limit.
    pub fn pop(&mut self) -> Option<(RecvWqe, bool)> {
        let wqe = self.ring.pop_front()?;
        let reached = self.ring.len() < self.limit as usize;
        if reached {
            self.limit = 0;
        }
        Some((wqe, reached))
    }

    /// Changes the capacity, the armed limit, or both (`ibv_modify_srq`). An armed limit is raised
    /// once when fewer than `limit` requests are left; 0 disarms. A refusal changes nothing.
    ///
    /// # Errors
    /// `BadArgument` for a capacity of 0, below the number queued, or below the limit.
    pub fn modify(&mut self, max_wr: Option<u32>, limit: Option<u32>) -> Result<(), Cause> {
        let bad = |what, rule| Err(Cause::BadArgument { what, rule });
        let (new_max, new_limit) = (max_wr.unwrap_or(self.max_wr), limit.unwrap_or(self.limit));
        if new_max == 0 {
            return bad("max_wr", "a shared receive queue holds at least one request");
        }
        if self.ring.len() > new_max as usize {
            return bad("max_wr", "more requests are queued than the new size holds");
        }
        if new_limit > new_max {
            return bad("srq_limit", "the limit is at most max_wr");
        }
        (self.max_wr, self.limit) = (new_max, new_limit);
        Ok(())
    }

    /// `(max_wr, max_sge, limit)`. The limit reads 0 after its event.
    #[must_use]
    pub fn attributes(&self) -> (u32, u32, u32) {
        (self.max_wr, self.max_sge, self.limit)
    }

    /// Number of waiting receives.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ring.len()
    }

    /// Is no receive waiting?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
