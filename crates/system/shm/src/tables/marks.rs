//! Marks: what of other processes a thread is using just now, and waiting until it has finished.
//!
//! A mark names the queue pair and the key that its thread uses. An owner that takes one of them
//! back waits for the marks that name it, and for no others.

use std::hint::spin_loop;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::thread;
use std::time::Duration;

use crate::sync::{AtomicU64, enter_barrier, enter_barrier_by, fence, full_barrier};

/// Looks at a mark without giving the processor away: most uses are short copies.
pub(super) const SPINS: u32 = 256;
/// Looks that let others run between, before it sleeps between them.
const YIELDS: u32 = 64;
const NAP: Duration = Duration::from_micros(50);

/// What a thread is about to use of another process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Use {
    /// [`Identity::nonce`](super::Identity::nonce) of the process that published the objects.
    pub owner: u64,
    /// The number of its queue pair: 24 bits.
    pub qpn: u32,
    /// Its key.
    pub key: u32,
    /// The thread begins again, at its look at the entries, after any time off the processor. So
    /// it does nothing more once it has left the processor outside of a copying system call.
    pub restarts: bool,
}

const QPN_BITS: u32 = 24;
const RESTARTS: u64 = 1 << 63;

impl Use {
    fn object(&self) -> u64 {
        let qpn = u64::from(self.qpn) & ((1 << QPN_BITS) - 1);
        qpn | u64::from(self.key) << QPN_BITS | if self.restarts { RESTARTS } else { 0 }
    }

    fn new(owner: u64, object: u64) -> Self {
        let qpn = object as u32 & ((1 << QPN_BITS) - 1);
        Use { owner, qpn, key: (object >> QPN_BITS) as u32, restarts: object & RESTARTS != 0 }
    }
}

/// A thread's mark, in a line of its own.
#[repr(C, align(64))]
pub(super) struct Mark {
    /// Odd while the thread uses what others have published. Never goes back.
    sequence: AtomicU64,
    /// [`Use::owner`].
    owner: AtomicU64,
    /// The rest of [`Use`].
    object: AtomicU64,
    /// The number of the thread.
    thread: AtomicU64,
}

impl Mark {
    #[cfg(all(test, loom))]
    pub(super) fn new() -> Self {
        let [sequence, owner, object, thread] = [(); 4].map(|()| AtomicU64::new(0));
        Mark { sequence, owner, object, thread }
    }

    /// Says which thread sets the mark. Before the first [`enter`](Self::enter) of that thread.
    pub(super) fn belongs_to(&self, thread: u32) {
        self.thread.store(thread.into(), Relaxed);
    }

    /// Sets the mark, which is not set. What is read of tables from here on is at least as new as
    /// any write to them that was followed by a [`Set::now`] which did not see this mark.
    #[inline]
    pub(super) fn enter(&self, at: &Use) {
        if !self.names(at) {
            // An owner that reads a new name sees that the earlier use is over.
            fence(Release);
            self.owner.store(at.owner, Relaxed);
            self.object.store(at.object(), Relaxed);
        }
        enter_barrier(&self.sequence);
    }

    /// Sets the mark, which is not set, for the use that it names already. `step` is the barrier of
    /// [`enter`](Self::enter): it makes an atomic change that reads what it changes.
    #[inline]
    pub(super) fn enter_by<R>(&self, step: impl FnOnce() -> R) -> R {
        enter_barrier_by(&self.sequence, step)
    }

    /// Does the mark name this use? For the thread that has it.
    #[inline]
    pub(super) fn names(&self, at: &Use) -> bool {
        self.owner.load(Relaxed) == at.owner && self.object.load(Relaxed) == at.object()
    }

    /// Takes it away again, behind all that was done meanwhile.
    #[inline]
    pub(super) fn leave(&self) {
        self.sequence.store(self.sequence.load(Relaxed).wrapping_add(1), Release);
    }

    #[inline]
    pub(super) fn is_set(&self) -> bool {
        !self.sequence.load(Relaxed).is_multiple_of(2)
    }

    /// What the mark says, if it is set and stays so meanwhile.
    fn read(&self, index: usize) -> Option<Held> {
        let sequence = self.sequence.load(Relaxed);
        if sequence.is_multiple_of(2) {
            return None;
        }
        fence(Acquire);
        let what = Use::new(self.owner.load(Relaxed), self.object.load(Relaxed));
        let thread = self.thread.load(Relaxed) as u32;
        fence(Acquire);
        // Changed: the use that was seen is over. A later use looks at the tables behind its own
        // barrier, and so behind what the owner wrote.
        (self.sequence.load(Relaxed) == sequence).then_some(Held { index, sequence, what, thread })
    }
}

/// A mark that was set at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    index: usize,
    sequence: u64,
    /// What it names.
    pub what: Use,
    /// The number of the thread that set it, as its process says.
    pub thread: u32,
}

/// Marks that were set at one moment.
#[derive(Default)]
pub(super) struct Set(Vec<Held>);

impl Set {
    /// Those that are set now and name what is `wanted`. The barrier stands behind what the caller
    /// wrote to its tables before.
    pub(super) fn now(used: &AtomicU64, marks: &[Mark], wanted: impl Fn(&Use) -> bool) -> Self {
        full_barrier();
        let used = usize::try_from(used.load(Relaxed)).unwrap_or(usize::MAX).min(marks.len());
        let held = marks[..used].iter().enumerate().filter_map(|(index, mark)| mark.read(index));
        Set(held.filter(|held| wanted(&held.what)).collect())
    }

    /// Has each of them been taken away since? What those threads did happened before what comes
    /// next then.
    pub(super) fn is_over(&mut self, marks: &[Mark]) -> bool {
        self.0.retain(|held| marks[held.index].sequence.load(Relaxed) == held.sequence);
        fence(Acquire);
        self.0.is_empty()
    }

    /// Keeps those of which `stays` says so.
    pub(super) fn retain(&mut self, stays: impl FnMut(&Held) -> bool) {
        self.0.retain(stays);
    }
}

/// Waits until each mark set at the call has been taken away. `pause` is called between two looks,
/// with the number of looks so far, and ends the wait by false.
pub(super) fn quiet(used: &AtomicU64, marks: &[Mark], mut pause: impl FnMut(u32) -> bool) -> bool {
    let mut set = Set::now(used, marks, |_| true);
    let mut looks = 0;
    while !set.is_over(marks) {
        looks += 1;
        if !pause(looks) {
            return false;
        }
        spin_loop();
    }
    true
}

/// What stands between two looks at marks, `looks` of which were made.
pub(super) fn pause(looks: u32) {
    if looks < SPINS {
        return;
    }
    if looks < SPINS + YIELDS { thread::yield_now() } else { thread::sleep(NAP) }
}
