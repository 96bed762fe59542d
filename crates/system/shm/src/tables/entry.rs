//! An entry of a table: values that change together, written by one, read by many.

use std::hint::spin_loop;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::sync::{AtomicU64, fence, load_acquire};

/// Words of values an entry has.
pub(super) const WORDS: usize = 7;
/// How often a reader that meets a writer looks again. A writer needs some nanoseconds, or was
/// stopped or killed.
const ATTEMPTS: u32 = if cfg!(all(test, loom)) { 2 } else { 128 };

/// A cache line. (Of `N` words in a model, where each word has many histories.)
#[repr(C, align(64))]
pub(super) struct Entry<const N: usize = WORDS> {
    /// Odd while the owner writes; 0 in an entry that was never written. Does not come round within
    /// a life time.
    sequence: AtomicU64,
    words: [AtomicU64; N],
}

impl<const N: usize> Entry<N> {
    #[cfg(all(test, loom))]
    pub(super) fn new() -> Self {
        Entry { sequence: AtomicU64::new(0), words: std::array::from_fn(|_| AtomicU64::new(0)) }
    }

    /// The owner's write. Callers take turns.
    pub(super) fn write(&self, values: &[u64; N]) {
        let sequence = self.sequence.load(Relaxed);
        self.sequence.store(sequence.wrapping_add(1), Relaxed);
        fence(Release);
        for (word, value) in self.words.iter().zip(values) {
            word.store(*value, Relaxed);
        }
        self.sequence.store(sequence.wrapping_add(2), Release);
    }

    /// The sequence.
    #[inline]
    pub(super) fn sequence(&self) -> &AtomicU64 {
        &self.sequence
    }

    /// What the owner has written, without a look at the sequence: for the owner itself.
    pub(super) fn own(&self) -> [u64; N] {
        std::array::from_fn(|i| self.words[i].load(Relaxed))
    }

    /// The first word by itself, to tell whether the rest is worth reading.
    pub(super) fn peek(&self) -> u64 {
        self.words[0].load(Relaxed)
    }

    /// The values, all of one write, and the sequence they had. None: the owner is in the middle of
    /// a write.
    pub(super) fn read(&self) -> Option<([u64; N], u64)> {
        for _ in 0..ATTEMPTS {
            let sequence = load_acquire(&self.sequence);
            if sequence.is_multiple_of(2) {
                let values = self.own();
                fence(Acquire);
                if self.sequence.load(Relaxed) == sequence {
                    return Some((values, sequence));
                }
            }
            spin_loop();
        }
        None
    }

    /// Whether nothing was written since `read` gave this sequence.
    #[inline]
    pub(super) fn is_unchanged(&self, sequence: u64) -> bool {
        load_acquire(&self.sequence) == sequence
    }
}
