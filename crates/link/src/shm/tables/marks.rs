//! Marks: what of other processes a thread is using just now, and waiting until it has finished.

use std::hint::spin_loop;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::shm::sync::{AtomicU64, enter_barrier, fence, full_barrier};

/// A thread's mark, in a line of its own: odd while the thread uses what others have published.
/// Never goes back.
#[repr(C, align(64))]
pub(super) struct Mark(AtomicU64);

impl Mark {
    #[cfg(all(test, loom))]
    pub(super) fn new() -> Self {
        Mark(AtomicU64::new(0))
    }

    /// Sets the mark, which is not set. What is read of tables from here on is at least as new as
    /// any write to them that was followed by a [`quiet`] which did not see this mark.
    #[inline]
    pub(super) fn enter(&self) {
        enter_barrier(&self.0);
    }

    /// Takes it away again, behind all that was done meanwhile.
    #[inline]
    pub(super) fn leave(&self) {
        self.0.store(self.0.load(Relaxed).wrapping_add(1), Release);
    }

    pub(super) fn is_set(&self) -> bool {
        !self.0.load(Relaxed).is_multiple_of(2)
    }
}

/// Marks that were set at one moment.
pub(super) struct Set(Vec<(usize, u64)>);

impl Set {
    /// Those that are set now. The barrier stands behind what the caller wrote to its tables
    /// before.
    pub(super) fn now(used: &AtomicU64, marks: &[Mark]) -> Self {
        full_barrier();
        let used = usize::try_from(used.load(Relaxed)).unwrap_or(usize::MAX).min(marks.len());
        let words = marks[..used].iter().map(|mark| mark.0.load(Relaxed)).enumerate();
        Set(words.filter(|(_, word)| !word.is_multiple_of(2)).collect())
    }

    /// Has each of them been taken away since? What those threads did happened before what comes
    /// next then.
    pub(super) fn is_over(&mut self, marks: &[Mark]) -> bool {
        self.0.retain(|&(at, seen)| marks[at].0.load(Relaxed) == seen);
        fence(Acquire);
        self.0.is_empty()
    }
}

/// Waits until each mark set at the call has been taken away. `pause` is called between two looks,
/// with the number of looks so far, and ends the wait by false.
pub(super) fn quiet(used: &AtomicU64, marks: &[Mark], mut pause: impl FnMut(u32) -> bool) -> bool {
    let mut set = Set::now(used, marks);
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
