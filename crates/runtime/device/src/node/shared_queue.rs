//! A shared receive queue as the node sees it: its receives, and the queue pairs that take them.
//!
//! While a single queue pair takes from the queue, the receives are offered to a peer
//! ([`adverb_shm::Offers`]). The oldest receive of the queue is then the next receive of this queue
//! pair.
use crate::ranks;
use adverb_engine::{Qpn, Srq};
use adverb_sync::Ranked;

/// A shared receive queue.
#[derive(Debug)]
pub(crate) struct SharedQueue {
    pub(crate) receives: Ranked<Srq, ranks::SharedReceives>,
    takers: Ranked<Vec<Qpn>, ranks::Takers>,
}

impl SharedQueue {
    pub(crate) fn new(receives: Srq) -> Self {
        SharedQueue { receives: Ranked::new(receives), takers: Ranked::default() }
    }

    /// Adds a queue pair. Returns the queue pair that was the only taker so far, if there was
    /// exactly one.
    pub(crate) fn join(&self, qpn: Qpn) -> Option<Qpn> {
        let mut takers = self.takers.lock();
        takers.push(qpn);
        if let [alone, _] = **takers { Some(alone) } else { None }
    }

    /// Removes a queue pair. Returns the only remaining taker, if there is exactly one.
    pub(crate) fn leave(&self, qpn: Qpn) -> Option<Qpn> {
        let mut takers = self.takers.lock();
        takers.retain(|taker| *taker != qpn);
        if let [alone] = **takers { Some(alone) } else { None }
    }

    /// Does a single queue pair take from the queue, without tag matching?
    pub(crate) fn has_one_taker(&self) -> bool {
        self.takers.lock().len() == 1 && !self.receives.lock().has_tags()
    }
}
