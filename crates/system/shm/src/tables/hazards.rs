//! Hazards, as in hazard pointers: each says which published objects of other processes a thread is
//! using now. An owner waits until the hazards are cleared.
//!
//! A hazard names a queue pair and a key. An owner taking an object back waits only for the hazards
//! naming this object.

use std::hint::spin_loop;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::thread;
use std::time::Duration;

use crate::sync::{AtomicU64, enter_barrier, enter_barrier_by, fence, full_barrier};

/// How often a wait reads a hazard without giving up the processor: most uses are short copies.
pub(super) const SPINS: u32 = 256;
/// How often a wait then yields the processor, before it sleeps between two reads.
const YIELDS: u32 = 64;
const NAP: Duration = Duration::from_micros(50);

/// What a thread is about to use of another process.
///
/// The thread uses a restartable sequence: after any time off the processor the thread begins again
/// at the check of the entries. So once the thread has left the processor, other than inside a
/// copying system call, the thread does nothing more with the object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Use {
    /// [`Identity::nonce`](super::Identity::nonce) of the owner of the objects.
    pub owner: u64,
    /// The number of the queue pair: 24 bits.
    pub qpn: u32,
    /// The key.
    pub key: u32,
}

const QPN_BITS: u32 = 24;

impl Use {
    fn object(&self) -> u64 {
        let qpn = u64::from(self.qpn) & ((1 << QPN_BITS) - 1);
        qpn | u64::from(self.key) << QPN_BITS
    }

    fn new(owner: u64, object: u64) -> Self {
        let qpn = object as u32 & ((1 << QPN_BITS) - 1);
        Use { owner, qpn, key: (object >> QPN_BITS) as u32 }
    }
}

/// The hazard of a thread, in a cache line of its own.
#[repr(C, align(64))]
pub(super) struct Hazard {
    /// Odd while the thread uses published objects of other processes. Never decreases.
    sequence: AtomicU64,
    /// [`Use::owner`].
    owner: AtomicU64,
    /// The rest of [`Use`].
    object: AtomicU64,
    /// The kernel's number of the thread.
    thread: AtomicU64,
}

impl Hazard {
    #[cfg(all(test, loom))]
    pub(super) fn new() -> Self {
        let [sequence, owner, object, thread] = [(); 4].map(|()| AtomicU64::new(0));
        Hazard { sequence, owner, object, thread }
    }

    /// Records which thread sets the hazard. Called before that thread's first
    /// [`enter`](Self::enter).
    pub(super) fn belongs_to(&self, thread: u32) {
        self.thread.store(thread.into(), Relaxed);
    }

    /// Sets the hazard, which must be clear. Suppose an owner wrote to its tables, and its
    /// following [`Inside::now`] did not see this hazard. Then reads of the tables after this call
    /// see the owner's write, or a newer value.
    #[inline]
    pub(super) fn enter(&self, at: &Use) {
        if !self.names(at) {
            // The fence orders the end of the earlier use before the new name: an owner reading the
            // new name also sees the end of the earlier use.
            fence(Release);
            self.owner.store(at.owner, Relaxed);
            self.object.store(at.object(), Relaxed);
        }
        enter_barrier(&self.sequence);
    }

    /// Sets the hazard, which must be clear, for the use already named by the hazard. `step`
    /// replaces the barrier of [`enter`](Self::enter): `step` performs an atomic read-modify-write.
    #[inline]
    pub(super) fn enter_by<R>(&self, step: impl FnOnce() -> R) -> R {
        enter_barrier_by(&self.sequence, step)
    }

    /// Whether the hazard names this use. For the hazard's own thread.
    #[inline]
    pub(super) fn names(&self, at: &Use) -> bool {
        self.owner.load(Relaxed) == at.owner && self.object.load(Relaxed) == at.object()
    }

    /// Clears the hazard, ordered after all accesses of the thread while the hazard was set.
    #[inline]
    pub(super) fn leave(&self) {
        self.sequence.store(self.sequence.load(Relaxed).wrapping_add(1), Release);
    }

    #[inline]
    pub(super) fn is_set(&self) -> bool {
        !self.sequence.load(Relaxed).is_multiple_of(2)
    }

    /// The content of the hazard, if the hazard is set and does not change during the read.
    fn read(&self, index: usize) -> Option<SetHazard> {
        let sequence = self.sequence.load(Relaxed);
        if sequence.is_multiple_of(2) {
            return None;
        }
        fence(Acquire);
        let what = Use::new(self.owner.load(Relaxed), self.object.load(Relaxed));
        let thread = self.thread.load(Relaxed) as u32;
        fence(Acquire);
        // If the sequence has changed, the use seen here is over. A later use reads the tables
        // after the barrier of its `enter`, and so after the owner's write.
        let hazard = SetHazard { index, sequence, what, thread };
        (self.sequence.load(Relaxed) == sequence).then_some(hazard)
    }
}

/// A hazard found set at one moment.
#[derive(Clone, Copy, Debug)]
pub struct SetHazard {
    index: usize,
    sequence: u64,
    /// The use named by the hazard.
    pub what: Use,
    /// The kernel's number of the hazard's thread, as claimed by the thread's process.
    pub thread: u32,
}

/// The hazards found set at one moment, and so the threads using published objects then: see
/// [`PeerTables::inside`](super::PeerTables::inside).
#[derive(Default)]
pub struct Inside(Vec<SetHazard>);

impl Inside {
    /// The hazards that are set now and name a use that `wanted` accepts. The full barrier orders
    /// this read after the caller's writes to its tables.
    pub(super) fn now(used: &AtomicU64, hazards: &[Hazard], wanted: impl Fn(&Use) -> bool) -> Self {
        full_barrier();
        let used = usize::try_from(used.load(Relaxed)).unwrap_or(usize::MAX).min(hazards.len());
        let found =
            hazards[..used].iter().enumerate().filter_map(|(index, hazard)| hazard.read(index));
        Inside(found.filter(|found| wanted(&found.what)).collect())
    }

    /// Whether each of the hazards has been cleared since. If so, all accesses of the threads
    /// happened before the caller's next ones.
    pub(super) fn is_over(&mut self, hazards: &[Hazard]) -> bool {
        self.0.retain(|found| hazards[found.index].sequence.load(Relaxed) == found.sequence);
        fence(Acquire);
        self.0.is_empty()
    }

    /// Keeps the threads for which `stays` returns true. For the other threads the caller has
    /// another proof of having left.
    pub fn retain(&mut self, stays: impl FnMut(&SetHazard) -> bool) {
        self.0.retain(stays);
    }
}

/// Waits until each hazard set at the call has been cleared. Between two checks this function calls
/// `pause` with the number of checks so far; `false` from `pause` ends the wait.
pub(super) fn quiet(
    used: &AtomicU64,
    hazards: &[Hazard],
    mut pause: impl FnMut(u32) -> bool,
) -> bool {
    let mut set = Inside::now(used, hazards, |_| true);
    let mut looks = 0;
    while !set.is_over(hazards) {
        looks += 1;
        if !pause(looks) {
            return false;
        }
        spin_loop();
    }
    true
}

/// Pauses between two checks of hazards, after `looks` checks.
pub(super) fn pause(looks: u32) {
    if looks < SPINS {
        return;
    }
    if looks < SPINS + YIELDS { thread::yield_now() } else { thread::sleep(NAP) }
}
