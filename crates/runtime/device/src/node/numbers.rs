//! Queue pair numbers. The upper ten bits are the slot, which names the owning process. The other
//! bits name a queue pair of the process.
use super::carriers::wire::Wire;
use super::queue_pair::{AnyQp, Owner, QueuePair};
use crate::error::Error;
use crate::ranks;
use adverb_engine::OutOfMemory;
use adverb_local::{SLOT_SHIFT, Slot};
use adverb_sync::RankedRw;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// Numbers in a slot.
const PER_SLOT: usize = 1 << SLOT_SHIFT;

/// The table of a process's queue pairs.
pub(crate) struct Numbers {
    inner: RankedRw<Inner, ranks::Numbers>,
    /// Queue pairs that have left the table. Changed under the lock.
    removals: AtomicU64,
}

/// The queue pair that one thread found last. The thread finds the same queue pair again without a
/// lock of the table. A `Weak`, so that a destroyed queue pair does not live on here.
#[derive(Default)]
pub(super) struct Found {
    number: u32,
    /// [`Numbers::removals`] when the queue pair was found.
    removals: u64,
    qp: Option<Weak<AnyQp>>,
}

struct Inner {
    slots: Vec<Block>,
    /// Start of the search for a free number: behind the last number given. So a number rests as
    /// long as possible before it names another queue pair.
    next: usize,
}

struct Block {
    slot: Slot,
    /// Numbers in use: of queue pairs, and reserved numbers.
    used: usize,
    qps: Vec<Option<Arc<AnyQp>>>,
    /// Reserved numbers, each with its number of reservations.
    reserved: HashMap<usize, u32>,
}

impl Block {
    fn is_free(&self, local: usize) -> bool {
        self.qps[local].is_none() && !self.reserved.contains_key(&local)
    }
}

impl Inner {
    fn block(&mut self, qpn: u32) -> Option<&mut Block> {
        self.slots.iter_mut().find(|b| u32::from(b.slot) == qpn >> SLOT_SHIFT)
    }

    fn all(&self) -> impl Iterator<Item = &Arc<AnyQp>> {
        self.slots.iter().flat_map(|block| block.qps.iter().flatten())
    }
}

impl Numbers {
    pub(super) fn new(seed: u64) -> Self {
        Numbers {
            inner: RankedRw::new(Inner { slots: Vec::new(), next: seed as usize % PER_SLOT }),
            removals: AtomicU64::new(0),
        }
    }

    /// Calls `then` if no number was given yet. No number is given during the call.
    pub(super) fn before_first<E>(&self, then: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        let inner = self.inner.write();
        if inner.slots.is_empty() { then() } else { Ok(()) }
    }

    /// Finds a free number, and enters the queue pair made by `make` for the number. Claims a
    /// further slot if all are full. Returns the queue pair, and whether a slot, with a new socket,
    /// was claimed.
    pub(super) fn insert<O: Owner>(
        &self,
        link: &Wire,
        make: impl FnOnce(u32) -> Result<Arc<QueuePair<O>>, Error>,
    ) -> Result<(Arc<QueuePair<O>>, bool), Error> {
        let mut claimed = false;
        let mut inner = self.inner.write();
        let Inner { slots, next } = &mut *inner;
        let block = match slots.iter().position(|b| b.used < PER_SLOT) {
            Some(free) => &mut slots[free],
            None => {
                let known: Vec<Slot> = slots.iter().map(|b| b.slot).collect();
                let mut qps = Vec::new();
                qps.try_reserve_exact(PER_SLOT).map_err(OutOfMemory::from)?;
                qps.resize_with(PER_SLOT, || None);
                let slot = match link.slots().into_iter().find(|s| !known.contains(s)) {
                    Some(first) => first,
                    None => {
                        claimed = true;
                        link.claim_slot().map_err(|e| Error::no_memory(e.to_string()))?
                    }
                };
                slots.push(Block { slot, used: 0, qps, reserved: HashMap::new() });
                slots.last_mut().expect("just pushed")
            }
        };
        let local = (0..PER_SLOT)
            .map(|i| (*next + i) % PER_SLOT)
            .find(|&i| block.is_free(i))
            .ok_or_else(|| Error::no_memory("no queue pair number is free"))?;
        *next = (local + 1) % PER_SLOT;
        let qp = make((u32::from(block.slot) << SLOT_SHIFT) | local as u32)?;
        let entry: Arc<QueuePair<O>> = qp.clone();
        block.qps[local] = Some(entry);
        block.used += 1;
        Ok((qp, claimed))
    }

    pub(super) fn remove(&self, qpn: u32) {
        let mut inner = self.inner.write();
        let local = qpn as usize % PER_SLOT;
        if let Some(block) = inner.block(qpn)
            && block.qps[local].take().is_some()
        {
            self.removals.fetch_add(1, Ordering::Release);
            block.used -= usize::from(!block.reserved.contains_key(&local));
        }
    }

    /// Keeps the number from new queue pairs until it is released as often as reserved.
    pub(crate) fn reserve(&self, qpn: u32) {
        let mut inner = self.inner.write();
        let local = qpn as usize % PER_SLOT;
        if let Some(block) = inner.block(qpn) {
            block.used += usize::from(block.is_free(local));
            *block.reserved.entry(local).or_default() += 1;
        }
    }

    pub(crate) fn release(&self, qpn: u32) {
        let mut inner = self.inner.write();
        let local = qpn as usize % PER_SLOT;
        if let Some(block) = inner.block(qpn)
            && let Some(times) = block.reserved.get_mut(&local)
        {
            *times -= 1;
            if *times == 0 {
                block.reserved.remove(&local);
                block.used -= usize::from(block.qps[local].is_none());
            }
        }
    }

    /// The queue pairs with this or a larger number, in order.
    pub(super) fn from(&self, first: u32) -> Vec<Arc<AnyQp>> {
        let mut all = Vec::new();
        {
            let inner = self.inner.read();
            all.extend(inner.all().filter(|qp| qp.number() >= first).cloned());
        }
        all.sort_unstable_by_key(|qp| qp.number());
        all
    }

    /// Number of queue pairs.
    pub(super) fn count(&self) -> usize {
        self.inner.read().all().count()
    }

    pub(super) fn get(&self, qpn: u32) -> Option<Arc<AnyQp>> {
        let inner = self.inner.read();
        let block = inner.slots.iter().find(|b| u32::from(b.slot) == qpn >> SLOT_SHIFT)?;
        block.qps[qpn as usize % PER_SLOT].clone()
    }

    /// As [`Numbers::get`]. `last` is what the calling thread found before.
    #[inline]
    pub(super) fn find(&self, last: &mut Found, qpn: u32) -> Option<Arc<AnyQp>> {
        let removals = self.removals.load(Ordering::Acquire);
        if last.number == qpn
            && last.removals == removals
            && let Some(qp) = last.qp.as_ref().and_then(Weak::upgrade)
        {
            return Some(qp);
        }
        let qp = self.get(qpn)?;
        // The number of removals is from before the search: a removal since then makes the next
        // call search again.
        *last = Found { number: qpn, removals, qp: Some(Arc::downgrade(&qp)) };
        Some(qp)
    }
}
