//! What a send queue does while its program is hunted: its completion queue has the schedule.
use super::Qp;
use adverb_engine::PostError;

impl Qp {
    /// The program posts at `address`.
    pub fn hunt_post(&self, address: usize, post: impl FnOnce() -> i32) -> i32 {
        match &self.own.send_cq {
            Some(cq) => cq.hunt_post(self.number(), address, post),
            None => post(),
        }
    }

    /// A request is about to be staged: refused if the queue is full as a NIC counts it.
    pub(super) fn hunt_stage(&self, engine: &adverb_engine::Qp) -> Result<(), PostError> {
        self.own.send_cq.as_ref().map_or(Ok(()), |cq| cq.hunt_stage(self.number(), engine))
    }

    /// A request was staged.
    pub(super) fn hunt_staged(&self, wr_id: u64) {
        if let Some(cq) = &self.own.send_cq {
            cq.hunt_staged(self.number(), wr_id);
        }
    }

    /// What was staged was handed over.
    pub(super) fn hunt_committed(&self) {
        if let Some(cq) = &self.own.send_cq {
            cq.hunt_committed(self.number());
        }
    }
}
