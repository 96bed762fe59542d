//! A peer's side: looking things up, and waiting until it has let go of what is taken back.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::layout::{self, Identity, KeyEntry, KeySeen, QPS, QpEntry, QpSeen, WAYS};
use super::marks::{self, Held, Use};
use super::memory::Memory;
use super::offers::Offers;
use crate::ShmError;
use crate::sync::full_barrier;

/// Threads that were at work at one moment: see [`PeerTables::inside`].
#[derive(Default)]
pub struct Inside(marks::Set);

impl Inside {
    /// Keeps the threads of which `stays` says so; the others are out by another proof.
    pub fn retain(&mut self, stays: impl FnMut(&Held) -> bool) {
        self.0.retain(stays);
    }
}

/// What another process publishes.
pub struct PeerTables {
    memory: Memory,
    identity: Identity,
}

impl PeerTables {
    /// Opens what the descriptor, got from that process, holds.
    pub fn open(fd: OwnedFd) -> Result<PeerTables, ShmError> {
        let (memory, identity) = Memory::open(fd)?;
        Ok(PeerTables { memory, identity })
    }

    /// The process has ended, or shares nothing any more: its memory is mapped here no longer.
    /// Other threads may look at the same time; to all of them the tables are empty from now on.
    pub fn let_go(&self) {
        self.memory.let_go();
    }

    /// Which process it says it is. The number is to be compared with what the kernel says of its
    /// socket.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// The thread that it says lives as long as its program; 0 for none.
    pub fn thread(&self) -> u32 {
        self.memory.thread().load(Relaxed) as u32
    }

    /// A queue pair by its number.
    pub fn qp(&self, qpn: u32) -> Option<(QpEntry, QpSeen)> {
        let slot = layout::qp_index(qpn);
        if !self.memory.is_allocated(slot) {
            return None;
        }
        let (words, sequence) = self.memory.entry(slot).read()?;
        let entry = QpEntry::from_words(&words).filter(|entry| entry.qpn == qpn)?;
        Some((entry, QpSeen { slot, sequence }))
    }

    /// The offers at the place that an entry names ([`QpEntry::offers`]). `None`: there are none.
    #[inline]
    pub fn offers(&self, place: u16) -> Option<&Offers> {
        self.memory.offers(place)
    }

    /// The generation of offers.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.memory.generation().load(Relaxed)
    }

    /// A key. None: it is not published, or is being changed at this moment.
    pub fn key(&self, key: u32) -> Option<(KeyEntry, KeySeen)> {
        let start = QPS + layout::bucket(key);
        if !self.memory.is_allocated(start) {
            return None;
        }
        for slot in start..start + WAYS {
            let entry = self.memory.entry(slot);
            if layout::key_of(entry.peek()) != key {
                continue;
            }
            let (words, sequence) = entry.read()?;
            if let Some(found) = KeyEntry::from_words(&words).filter(|found| found.key == key) {
                return Some((found, KeySeen { slot, sequence }));
            }
        }
        None
    }

    /// Whether the key is still as it was when [`key`](Self::key) of these tables gave `seen`: one
    /// load.
    #[inline]
    pub fn key_unchanged(&self, seen: &KeySeen) -> bool {
        self.memory.entry(seen.slot).is_unchanged(seen.sequence)
    }

    /// Whether the queue pair is still as it was when [`qp`](Self::qp) of these tables gave `seen`:
    /// one load.
    #[inline]
    pub fn qp_unchanged(&self, seen: &QpSeen) -> bool {
        self.memory.entry(seen.slot).is_unchanged(seen.sequence)
    }

    /// Whether the process sleeps: odd. To be asked after something was put where it looks before
    /// it sleeps; has the barrier which that needs.
    #[inline]
    pub fn sleeping(&self) -> u32 {
        full_barrier();
        self.memory.sleeping().load(Relaxed)
    }

    /// The threads of that process that are within [`enter`](super::Published::enter) now, for a
    /// use that is `wanted`.
    pub fn inside(&self, wanted: impl Fn(&Use) -> bool) -> Inside {
        Inside(marks::Set::now(self.memory.used(), self.memory.marks(), wanted))
    }

    /// Have they all left it since? If the owner made an entry invalid before it looked for them,
    /// no thread there uses the entry then.
    pub fn are_out(&self, inside: &mut Inside) -> bool {
        inside.0.is_over(self.memory.marks())
    }

    /// The sequence word of an entry for a key, and the value it had when the entry was read. The
    /// entry is unchanged while the word has that value.
    #[inline]
    pub fn key_word(&self, seen: &KeySeen) -> (&AtomicU64, u64) {
        (self.memory.entry(seen.slot).sequence(), seen.sequence)
    }

    /// The same of an entry for a queue pair.
    #[inline]
    pub fn qp_word(&self, seen: &QpSeen) -> (&AtomicU64, u64) {
        (self.memory.entry(seen.slot).sequence(), seen.sequence)
    }

    /// Waits until every thread of that process which was within [`enter`](super::Published::enter)
    /// at the call has left it.
    ///
    /// With an entry made invalid before the call, nobody there uses it behind the call. False:
    /// `patience` ran out, or `gone`, asked now and then, said that the process is no more.
    pub fn wait_quiet(&self, patience: Duration, mut gone: impl FnMut() -> bool) -> bool {
        let start = Instant::now();
        marks::quiet(self.memory.used(), self.memory.marks(), |looks| {
            if looks >= marks::SPINS && (start.elapsed() >= patience || gone()) {
                return false;
            }
            marks::pause(looks);
            true
        })
    }
}
