//! Which memory of this process its peers reach by themselves.
use super::{Lanes, PRIVATE, SHARED};
use crate::pd::Backing;
use crate::qp::SETTLE;
use adverb_engine::keys::{Region, RegionKind};
use adverb_engine::{Access, Key};
use adverb_link::shm::KeyEntry;
use adverb_memory::{Adopted, Barred};
use adverb_sync::RwLock;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The rights of peers that they exercise by themselves.
const REMOTE: Access = Access::REMOTE_WRITE.union(Access::REMOTE_READ).union(Access::REMOTE_ATOMIC);

/// How a region is reached.
#[derive(Debug)]
pub(crate) enum Shared {
    /// By packets alone.
    No,
    /// Its pages are in the shared file, and were before.
    Pages { _held: Held },
    /// Its pages were moved there, and go back when it ends.
    Adopted { _held: Held, _pages: Adopted },
    /// By system calls, which would miss pages that move.
    Private { _stays: Barred },
}

/// Which memory of the process lies in the shared file, of all that is registered: for payloads that a peer may fetch itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reached(Arc<RwLock<BTreeMap<(u64, u64), usize>>>);

/// One region of it.
#[derive(Debug)]
pub(crate) struct Held {
    range: (u64, u64),
    all: Reached,
}

/// Regions looked at to find one that holds a range. Overlapping ones may hide it; then the payload is copied.
const LOOKS: usize = 4;

impl Reached {
    fn add(&self, addr: u64, len: u64) -> Held {
        let range = (addr, addr.saturating_add(len));
        *self.0.write().entry(range).or_default() += 1;
        Held { range, all: self.clone() }
    }
    /// Does a region hold the whole range?
    pub(crate) fn holds(&self, addr: u64, len: u64) -> bool {
        let end = addr.saturating_add(len);
        self.0.read().range(..=(addr, u64::MAX)).rev().take(LOOKS).any(|(&(_, to), _)| end <= to)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut all = self.all.0.write();
        if let Some(count) = all.get_mut(&self.range) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.range);
            }
        }
    }
}

impl Lanes {
    /// Sees to it that peers reach a region, as well as that is safe.
    pub(crate) fn share(&self, region: &Region, backing: &Backing) -> Shared {
        if region.len == 0 || !matches!(region.kind, RegionKind::Mapped | RegionKind::OnDemand) {
            return Shared::No;
        }
        let (addr, len) = (region.addr, region.len);
        if backing.is_shared() {
            return Shared::Pages { _held: self.reached.add(addr, len) };
        }
        if region.kind == RegionKind::Mapped {
            match self.shadow.adopt(addr, len) {
                Ok(pages) => {
                    return Shared::Adopted { _held: self.reached.add(addr, len), _pages: pages };
                }
                Err(refusal) => log::debug!("{len} bytes at {addr:#x} stay private: {refusal}"),
            }
        }
        Shared::Private { _stays: self.shadow.bar(addr, len) }
    }

    /// Lets peers use a key by themselves.
    pub(crate) fn publish_key(&self, key: Key, region: &Region, shared: &Shared) {
        let how = match shared {
            Shared::No => return,
            Shared::Pages { .. } | Shared::Adopted { .. } => SHARED,
            Shared::Private { .. } => PRIVATE,
        };
        if !region.access.intersects(REMOTE) || region.len == u64::MAX {
            return;
        }
        let entry = KeyEntry {
            key,
            pd: region.pd.0,
            access: region.access.bits(),
            va: region.iova,
            len: region.len,
            addr: region.addr,
            how,
            qpn: 0,
        };
        let _turn = self.publishing.lock();
        if !self.published.set_key(&entry) {
            log::debug!("key {key:#010x} is not published: no room");
        }
    }

    /// Takes a key back and waits until nobody uses it.
    pub(crate) fn withdraw_key(&self, key: Key) {
        let turn = self.publishing.lock();
        self.published.remove_key(key);
        drop(turn);
        self.settle(SETTLE);
    }
}
