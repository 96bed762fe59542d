//! A shared receive queue as the node knows it: its receives, and who takes from it.
//!
//! Receives of the queue are offered to a peer ([`adverb_shm::Offers`]) while one queue pair alone
//! takes from it: then its oldest receive is that queue pair's next one.
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

    /// A queue pair takes from it from now on. Answers the one that did so alone.
    pub(crate) fn join(&self, qpn: Qpn) -> Option<Qpn> {
        let mut takers = self.takers.lock();
        takers.push(qpn);
        if let [alone, _] = **takers { Some(alone) } else { None }
    }

    /// A queue pair takes from it no more. Answers the one that does so alone now.
    pub(crate) fn leave(&self, qpn: Qpn) -> Option<Qpn> {
        let mut takers = self.takers.lock();
        takers.retain(|taker| *taker != qpn);
        if let [alone] = **takers { Some(alone) } else { None }
    }

    /// Does one queue pair alone take from it, whatever a message says?
    pub(crate) fn has_one_taker(&self) -> bool {
        self.takers.lock().len() == 1 && !self.receives.lock().has_tags()
    }
}
