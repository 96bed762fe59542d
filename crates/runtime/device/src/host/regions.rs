//! Which registered memory peers reach by themselves, and how.
use super::{HostConnections, PRIVATE, SHARED};
use crate::ranks;
use adverb_engine::keys::Region;
use adverb_engine::{Access, Key};
use adverb_shm::KeyEntry;
use adverb_sync::RankedRw;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The rights used by peers themselves.
const REMOTE: Access = Access::REMOTE_WRITE.union(Access::REMOTE_READ).union(Access::REMOTE_ATOMIC);

/// The place of a region's bytes, for a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoryRoute {
    /// At this offset of the file that peers map.
    File(u64),
    /// At this address of the process, by system calls.
    Process(u64),
    /// Only the owner's own engine reaches the bytes.
    Nowhere,
}

/// All registered memory of the process in the shared file. Peers may fetch payloads from there.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reached(Arc<RankedRw<Regions, ranks::Reached>>);

type Regions = BTreeMap<MappedRange, Registrations>;

/// A range of addresses in the device's own mappings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct MappedRange {
    start: u64,
    end: u64,
}

/// The registrations of a range.
#[derive(Clone, Copy, Debug)]
struct Registrations {
    /// Offset of the first byte in the file.
    offset: u64,
    count: usize,
}

/// A region listed in [`Reached`].
#[derive(Debug)]
pub(crate) struct Listed {
    range: MappedRange,
    all: Reached,
}

/// The largest number of regions checked to find the region of a range. Overlapping regions may
/// hide the right region. The payload is then copied.
const LOOKS: usize = 4;

impl Reached {
    fn add(&self, addr: u64, len: u64, offset: u64) -> Listed {
        let range = MappedRange { start: addr, end: addr.saturating_add(len) };
        self.0.write().entry(range).or_insert(Registrations { offset, count: 0 }).count += 1;
        Listed { range, all: self.clone() }
    }
    /// The offset of a range in the file, if a single region holds the whole range.
    pub(crate) fn offset_of(&self, addr: u64, len: u64) -> Option<u64> {
        let end = addr.checked_add(len)?;
        let all = self.0.read();
        let last = MappedRange { start: addr, end: u64::MAX };
        let mut near = all.range(..=last).rev().take(LOOKS);
        near.find_map(|(at, of)| (end <= at.end).then(|| of.offset + (addr - at.start)))
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        let mut all = self.all.0.write();
        if let Some(registrations) = all.get_mut(&self.range) {
            registrations.count -= 1;
            if registrations.count == 0 {
                all.remove(&self.range);
            }
        }
    }
}

impl HostConnections {
    /// Lists a region of memory in the file.
    pub(crate) fn list(&self, region: &Region, place: MemoryRoute) -> Option<Listed> {
        match place {
            MemoryRoute::File(offset) => Some(self.reached.add(region.addr, region.len, offset)),
            _ => None,
        }
    }

    /// Publishes a key to peers.
    pub(crate) fn publish_key(&self, key: Key, region: &Region, place: MemoryRoute) {
        let (how, addr) = match place {
            MemoryRoute::File(offset) => (SHARED, offset),
            MemoryRoute::Process(addr) => (PRIVATE, addr),
            MemoryRoute::Nowhere => return,
        };
        if !region.access.intersects(REMOTE) || region.len == 0 || region.len == u64::MAX {
            return;
        }
        let entry = KeyEntry {
            key,
            pd: region.pd.0,
            access: region.access.bits(),
            va: region.iova,
            len: region.len,
            addr,
            how,
            qpn: 0,
        };
        let _turn = self.publishing.lock();
        if !self.published.set_key(&entry) {
            log::debug!("key {key:#010x} is not published: no room");
        }
    }

    /// Takes a key back. `false`: the key was not published. A peer in the middle of a use goes on:
    /// see [`HostConnections::settle`].
    pub(crate) fn remove_key(&self, key: Key) -> bool {
        let _turn = self.publishing.lock();
        self.published.remove_key(key)
    }
}
