//! The objects of a process by their numbers.
use super::numbers::Numbers;
use super::queue_pair::CompletionQueue;
use crate::error::Error;
use crate::ranks;
use adverb_engine::PdId;
use adverb_sync::{Ranked, RankedRw};
use std::any::Any;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

/// Objects other than queue pairs, and the next number of each kind.
pub(crate) struct Registry {
    pub(crate) qps: Numbers,
    next_pd: AtomicU32,
    next_cq: AtomicU32,
    next_srq: AtomicU32,
    /// Shared receive queues. The node knows only their numbers.
    srqs: RankedRw<HashMap<u32, Arc<dyn Any + Send + Sync>>, ranks::SharedQueues>,
    /// Completion queues in the timer queue: moderated or watched queues.
    timed_cqs: Ranked<HashMap<u32, Weak<dyn CompletionQueue>>, ranks::TimedQueues>,
}

impl Registry {
    /// `seed`: first number of a queue pair.
    pub(super) fn new(seed: u64) -> Self {
        Registry {
            qps: Numbers::new(seed),
            next_pd: AtomicU32::new(1),
            next_cq: AtomicU32::new(1),
            next_srq: AtomicU32::new(1),
            srqs: RankedRw::default(),
            timed_cqs: Ranked::default(),
        }
    }

    pub(crate) fn new_pd(&self) -> PdId {
        PdId(self.next_pd.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn new_cq(&self) -> u32 {
        self.next_cq.fetch_add(1, Ordering::Relaxed)
    }

    /// Enters the shared receive queue made by `make` for a free number.
    ///
    /// # Errors
    /// ENOMEM.
    pub(crate) fn add_srq<T: Any + Send + Sync>(
        &self,
        make: impl FnOnce(u32) -> Arc<T>,
    ) -> Result<Arc<T>, Error> {
        let number = self.next_srq.fetch_add(1, Ordering::Relaxed) & 0x00ff_ffff;
        let mut srqs = self.srqs.write();
        srqs.try_reserve(1).map_err(adverb_engine::OutOfMemory::from)?;
        let srq = make(number);
        srqs.insert(number, srq.clone());
        Ok(srq)
    }

    pub(crate) fn remove_srq(&self, number: u32) {
        self.srqs.write().remove(&number);
    }

    /// The shared receive queue with this number.
    pub(crate) fn srq<T: Any + Send + Sync>(&self, number: u32) -> Option<Arc<T>> {
        let srq = self.srqs.read().get(&number).cloned()?;
        srq.downcast().ok()
    }

    pub(crate) fn add_timed_cq(&self, number: u32, cq: Weak<dyn CompletionQueue>) {
        self.timed_cqs.lock().insert(number, cq);
    }

    pub(crate) fn remove_timed_cq(&self, number: u32) {
        self.timed_cqs.lock().remove(&number);
    }

    pub(super) fn timed_cq(&self, number: u32) -> Option<Arc<dyn CompletionQueue>> {
        self.timed_cqs.lock().get(&number).and_then(Weak::upgrade)
    }
}
