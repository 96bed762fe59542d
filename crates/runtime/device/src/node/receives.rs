//! The shared receive queues as a source of receives while a packet is handled.
use super::queue_pair::Owner;
use adverb_engine::qp::{NoRecv, RecvSource};
use adverb_engine::{PdId, RecvWqe};

/// The shared receive queues known to an object.
pub(super) struct Receives<'a>(pub(super) &'a dyn Owner);

impl RecvSource for Receives<'_> {
    fn pop(&mut self, xrc_srqn: Option<u32>) -> Result<RecvWqe, NoRecv> {
        self.0.take_receive(xrc_srqn)
    }

    fn pop_message(&mut self, first: &[u8]) -> Result<RecvWqe, NoRecv> {
        self.0.take_matching(first)
    }

    fn pd(&mut self, xrc_srqn: u32) -> Option<PdId> {
        self.0.xrc_pd(xrc_srqn)
    }
}
