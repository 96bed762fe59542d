//! What a node keeps for this carrier.
use super::backlog::Backlog;
use crate::node::queue_pair::AnyQp;
use crate::ranks;
use adverb_sync::Ranked;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a node keeps for this carrier.
#[derive(Default)]
pub(crate) struct Kept {
    /// Queue pairs with packets that wait for a receive.
    pub(in crate::node) stashed: Ranked<Vec<Arc<AnyQp>>, ranks::Stashed>,
    pub(in crate::node) any_stashed: AtomicBool,
    /// What queue pairs that have ended left for other processes.
    pub(in crate::node) leaving: Ranked<Vec<Backlog>, ranks::Leaving>,
    pub(in crate::node) any_leaving: AtomicBool,
}

impl Kept {
    /// Something waits for another process, or for a receive: the background thread looks again
    /// soon.
    pub(crate) fn is_waiting(&self) -> bool {
        self.any_stashed.load(Ordering::Acquire) || self.any_leaving.load(Ordering::Acquire)
    }
}
