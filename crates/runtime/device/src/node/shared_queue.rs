//! A shared receive queue as the node sees it.
use crate::ranks;
use adverb_engine::Srq;
use adverb_sync::Ranked;

/// A shared receive queue.
#[derive(Debug)]
pub(crate) struct SharedQueue {
    pub(crate) receives: Ranked<Srq, ranks::SharedReceives>,
}

impl SharedQueue {
    pub(crate) fn new(receives: Srq) -> Self {
        SharedQueue { receives: Ranked::new(receives) }
    }
}
