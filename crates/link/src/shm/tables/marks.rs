//! Marks: what of other processes a thread is using just now, and waiting until it has finished.

use std::hint::spin_loop;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::shm::sync::{AtomicU64, enter_barrier, fence, full_barrier};

/// A thread's mark, in a line of its own: odd while the thread uses what others have published. Never goes back.
#[repr(C, align(64))]
pub(super) struct Mark(AtomicU64);

impl Mark {
    #[cfg(all(test, loom))]
    pub(super) fn new() -> Self {
        Mark(AtomicU64::new(0))
    }

    /// Sets the mark, which is not set. What is read of tables from here on is at least as new as any write to them that
    /// was followed by a [`quiet`] which did not see this mark.
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

/// Waits until each mark set at the call has been taken away. The barrier at its beginning stands behind what its caller
/// wrote to its tables. `pause` is called between two looks, with the number of looks so far, and ends the wait by false.
pub(super) fn quiet(used: &AtomicU64, marks: &[Mark], mut pause: impl FnMut(u32) -> bool) -> bool {
    full_barrier();
    let used = usize::try_from(used.load(Relaxed)).unwrap_or(usize::MAX).min(marks.len());
    for Mark(word) in &marks[..used] {
        let seen = word.load(Relaxed);
        if seen.is_multiple_of(2) {
            continue;
        }
        let mut looks = 0;
        while word.load(Relaxed) == seen {
            looks += 1;
            if !pause(looks) {
                return false;
            }
            spin_loop();
        }
    }
    // What those threads did happened before what comes next.
    fence(Acquire);
    true
}
