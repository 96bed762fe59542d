//! A send queue of a hunted program. The schedule belongs to the completion queue.
use super::Qp;
use crate::node::Owner;
use crate::objects::cq::hunt::Chosen;
use adverb_engine::{PostError, SendWr};
use nix::errno::Errno;

impl Qp {
    /// The program is about to post at `address`. The caller passes the answer to
    /// [`Qp::hunt_posted`].
    ///
    /// # Errors
    /// ENOMEM: the post is refused and must not happen.
    pub fn hunt_posting(&self, address: usize) -> Result<Option<Chosen>, Errno> {
        let Some(cq) = &self.own.send_cq else { return Ok(None) };
        let chosen = cq.hunt_posting(self.number(), address)?;
        if let Some(chosen) = &chosen {
            chosen.post_begins(cq, self.own.me());
        }
        Ok(chosen)
    }

    /// The program is about to move the queue pair to the error state at `address`.
    pub fn hunt_failing(&self, address: usize) {
        let queues = [&self.own.recv_cq, &self.own.send_cq];
        let queues: Vec<_> = queues.into_iter().flatten().collect();
        if let Some(first) = queues.first()
            && first.flushes_late(address)
        {
            queues.iter().for_each(|cq| cq.hold_together());
        }
    }

    /// The program has posted at `address` with this result.
    pub fn hunt_posted(&self, address: usize, chosen: &Chosen, result: i32) {
        if let Some(cq) = &self.own.send_cq {
            chosen.post_ends(self.own.me());
            cq.hunt_posted(address, chosen, result);
        }
    }

    /// Posts at `address`, between [`Qp::hunt_posting`] and [`Qp::hunt_posted`].
    pub fn hunt_post(&self, address: usize, post: impl FnOnce() -> i32) -> i32 {
        let chosen = match self.hunt_posting(address) {
            Ok(chosen) => chosen,
            Err(e) => return e as i32,
        };
        let result = post();
        if let Some(chosen) = chosen {
            self.hunt_posted(address, &chosen, result);
        }
        result
    }

    /// A request is about to be staged. Refused if the queue is full as a NIC counts.
    pub(super) fn hunt_stage(&self, engine: &adverb_engine::Qp) -> Result<(), PostError> {
        self.own.send_cq.as_ref().map_or(Ok(()), |cq| cq.hunt_stage(self.number(), engine))
    }

    /// A request was staged.
    pub(super) fn hunt_staged(&self, wr: &SendWr<'_>, signals_all: bool) {
        if let Some(cq) = &self.own.send_cq {
            cq.hunt_staged(self.number(), wr, signals_all);
        }
    }

    /// The staged requests were committed.
    pub(super) fn hunt_committed(&self) {
        if let Some(cq) = &self.own.send_cq {
            cq.hunt_committed(self.number());
        }
    }
}
