//! The state of a node for the relay.
use super::backlog::Backlog;
use crate::node::queue_pair::AnyQp;
use crate::ranks;
use adverb_sync::Ranked;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The state of a node for the relay.
#[derive(Default)]
pub(crate) struct Kept {
    /// Queue pairs with packets that wait for a receive.
    pub(in crate::node) with_pending: Ranked<Vec<Arc<AnyQp>>, ranks::PendingReceives>,
    pub(in crate::node) any_pending: AtomicBool,
    /// Packets that ended queue pairs have left for other processes.
    pub(in crate::node) leaving: Ranked<Vec<Backlog>, ranks::Leaving>,
    pub(in crate::node) any_leaving: AtomicBool,
}

impl Kept {
    /// Do packets wait for another process, or for a receive? If so, the background thread looks
    /// again soon.
    pub(crate) fn is_waiting(&self) -> bool {
        self.any_pending.load(Ordering::Acquire) || self.any_leaving.load(Ordering::Acquire)
    }
}
