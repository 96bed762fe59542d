//! A peer's tables, as seen from this process: looking up entries, and waiting until the peer's
//! threads have stopped using an object taken back by this process.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::hazards::{self, Inside, Use};
use super::layout::{self, EntrySeen, Failure, Identity, KeyEntry, QPS, QpEntry, WAYS};
use super::memory::Memory;
use crate::ShmError;
use crate::sync::full_barrier;

/// The tables published by another process.
pub struct PeerTables {
    memory: Memory,
    identity: Identity,
}

impl PeerTables {
    /// Opens the tables behind a descriptor sent by the other process.
    pub fn open(fd: OwnedFd) -> Result<PeerTables, ShmError> {
        let (memory, identity) = Memory::open(fd)?;
        Ok(PeerTables { memory, identity })
    }

    /// Unmaps the tables, because the process has ended or shares nothing any more. Other threads
    /// may read at the same time: for all of them the tables are empty from now on.
    pub fn let_go(&self) {
        self.memory.let_go();
    }

    /// The claimed identity of the process. The caller must compare `pid` with the kernel's
    /// credentials of the process's socket.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// The thread claimed to live as long as the process's program; 0 for none.
    pub fn thread(&self) -> u32 {
        self.memory.thread().load(Relaxed) as u32
    }

    /// Looks up a queue pair by its number.
    pub fn qp(&self, qpn: u32) -> Option<(QpEntry, EntrySeen)> {
        let slot = layout::qp_index(qpn);
        if !self.memory.is_allocated(slot) {
            return None;
        }
        let (words, sequence) = self.memory.entry(slot).read()?;
        let entry = QpEntry::from_words(&words).filter(|entry| entry.qpn == qpn)?;
        Some((entry, EntrySeen { slot, sequence }))
    }

    /// Why a queue pair has failed, if its owner has published this.
    pub fn failure(&self, qpn: u32) -> Option<Failure> {
        let slot = layout::qp_index(qpn);
        let (words, _) =
            self.memory.is_allocated(slot).then(|| self.memory.entry(slot).read()).flatten()?;
        layout::failure_from(&words).filter(|(number, _)| *number == qpn).map(|(_, why)| why)
    }

    /// Looks up a key. `None`: the key is not published, or the owner is changing its entry.
    pub fn key(&self, key: u32) -> Option<(KeyEntry, EntrySeen)> {
        let start = QPS + layout::bucket(key);
        if !self.memory.is_allocated(start) {
            return None;
        }
        for slot in start..start + WAYS {
            let entry = self.memory.entry(slot);
            if layout::low(entry.peek()) != key {
                continue;
            }
            let (words, sequence) = entry.read()?;
            if let Some(found) = KeyEntry::from_words(&words).filter(|found| found.key == key) {
                return Some((found, EntrySeen { slot, sequence }));
            }
        }
        None
    }

    /// Whether the entry is unchanged since [`key`](Self::key) or [`qp`](Self::qp) of these tables
    /// returned `seen`. Costs one load.
    #[inline]
    pub fn is_unchanged(&self, seen: &EntrySeen) -> bool {
        self.memory.entry(seen.slot).is_unchanged(seen.sequence)
    }

    /// The sleep sequence of the process; odd while the process sleeps. The caller must first store
    /// the message where the process looks before sleeping. This call has the full barrier between
    /// the caller's store and the load of the sequence.
    #[inline]
    pub fn sleeping(&self) -> u32 {
        full_barrier();
        self.memory.sleeping().load(Relaxed)
    }

    /// The threads of the peer that are now inside [`enter`](super::Published::enter) for a use
    /// accepted by `wanted`.
    pub fn inside(&self, wanted: impl Fn(&Use) -> bool) -> Inside {
        Inside::now(self.memory.used(), self.memory.hazards(), wanted)
    }

    /// Whether all threads of `inside` have left since. If the owner made an entry invalid before
    /// calling [`inside`](Self::inside), no thread of the peer uses the entry any more.
    pub fn are_out(&self, inside: &mut Inside) -> bool {
        inside.is_over(self.memory.hazards())
    }

    /// The sequence word of an entry, and the word's value when the entry was read. The entry is
    /// unchanged while the word has this value.
    #[inline]
    pub fn word(&self, seen: &EntrySeen) -> (&AtomicU64, u64) {
        (self.memory.entry(seen.slot).sequence(), seen.sequence)
    }

    /// Waits until every thread of the peer that was inside [`enter`](super::Published::enter) at
    /// the call has left.
    ///
    /// If the owner made an entry invalid before the call, no thread of the peer uses the entry
    /// after the call. Returns `false` if `patience` ran out, or if `ended`, which is called now
    /// and then, returned true because the process has ended.
    pub fn wait_quiet(&self, patience: Duration, mut ended: impl FnMut() -> bool) -> bool {
        let start = Instant::now();
        hazards::quiet(self.memory.used(), self.memory.hazards(), |looks| {
            if looks >= hazards::SPINS && (start.elapsed() >= patience || ended()) {
                return false;
            }
            hazards::pause(looks);
            true
        })
    }
}
