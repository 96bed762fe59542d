//! The ring to a peer, and the payloads outside the ring that its records name.
use crate::ranks;
use adverb_engine::{Qpn, Range};
use adverb_shm::Producer;
use adverb_sync::{Ranked, RankedGuard};
use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};

/// Attempts at a ring locked by another thread.
const TRIES: u32 = 200;

/// The ring to a peer. Each position in `referred` is a position of the present ring.
pub(crate) struct OutgoingRing {
    /// `None`: the peer was left.
    ring: Ranked<Option<Producer>, ranks::TxRing>,
    /// Payloads outside the ring, named by records in the ring, oldest first. Locked after the
    /// ring.
    referred: Ranked<VecDeque<Referred>, ranks::Referred>,
}

/// A payload outside the ring, named by a record in a peer's ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Referred {
    /// The ring position behind the record.
    pub(crate) position: u64,
    /// The sending queue pair of this process.
    pub(crate) qpn: Qpn,
    pub(crate) memory: Range,
}

impl Referred {
    /// Does the payload lie in the range, at least in part?
    pub(crate) fn overlaps(&self, addr: u64, len: u64) -> bool {
        let end = self.memory.addr.saturating_add(self.memory.len.into());
        self.memory.addr < addr.saturating_add(len) && addr < end
    }
}

/// The ring to a peer, locked.
pub(crate) struct TxRing<'a>(RankedGuard<'a, Option<Producer>, ranks::TxRing>);

impl<'a> TxRing<'a> {
    /// `None`: the peer was left.
    fn new(ring: RankedGuard<'a, Option<Producer>, ranks::TxRing>) -> Option<Self> {
        ring.is_some().then(|| TxRing(ring))
    }
}

impl Deref for TxRing<'_> {
    type Target = Producer;
    fn deref(&self) -> &Producer {
        self.0.as_ref().expect("the ring to a peer that was not left")
    }
}

impl DerefMut for TxRing<'_> {
    fn deref_mut(&mut self) -> &mut Producer {
        self.0.as_mut().expect("the ring to a peer that was not left")
    }
}

impl OutgoingRing {
    pub(super) fn new(ring: Producer) -> Self {
        OutgoingRing { ring: Ranked::new(Some(ring)), referred: Ranked::default() }
    }

    /// Takes the ring away for good.
    pub(super) fn close(&self) -> Option<Producer> {
        self.ring.lock().take()
    }

    /// Replaces the ring.
    pub(crate) fn replace(&self, ring: Producer) {
        if let Some(mut tx_ring) = TxRing::new(self.ring.lock()) {
            *tx_ring = ring;
            self.referred.lock().clear();
        }
    }

    /// The ring. `None` if another thread keeps the lock for more than a moment, or if the peer was
    /// left.
    pub(crate) fn try_lock(&self) -> Option<TxRing<'_>> {
        for _ in 0..TRIES {
            if let Some(ring) = self.ring.try_lock() {
                return TxRing::new(ring);
            }
            std::hint::spin_loop();
        }
        None
    }

    /// Notes the payload of the last record in the ring, which lies outside the ring.
    pub(crate) fn refers(&self, tx_ring: &mut Producer, to: Referred) {
        let mut all = self.referred.lock();
        while all.front().is_some_and(|first| tx_ring.has_read(first.position)) {
            all.pop_front();
        }
        all.push_back(to);
    }

    /// The `wanted` payloads still to be fetched by the peer.
    pub(crate) fn unfetched(&self, wanted: impl Fn(&Referred) -> bool) -> Vec<Referred> {
        let Some(mut tx_ring) = TxRing::new(self.ring.lock()) else { return Vec::new() };
        let all = self.referred.lock();
        all.iter().filter(|to| wanted(to) && !tx_ring.has_read(to.position)).copied().collect()
    }

    /// Does the peer have unread records of this process?
    pub(crate) fn is_behind(&self) -> bool {
        self.ring
            .try_lock()
            .is_none_or(|ring| TxRing::new(ring).is_some_and(|mut tx_ring| !tx_ring.is_read()))
    }
}
