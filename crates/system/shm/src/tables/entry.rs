//! An entry of a table: values with one writer and many readers, which change together.

use std::hint::spin_loop;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::sync::{AtomicU64, fence, load_acquire};

/// Words of values in an entry.
pub(super) const WORDS: usize = 7;
/// How often a reader retries while a writer is active. A writer needs some nanoseconds, unless the
/// kernel stopped or killed the writer.
const ATTEMPTS: u32 = if cfg!(all(test, loom)) { 2 } else { 128 };

/// A cache line. (A model checks entries of `N` words, because each word adds many histories.)
#[repr(C, align(64))]
pub(super) struct TableEntry<const N: usize = WORDS> {
    /// Odd while the owner writes; 0 in an entry never written. The counter does not wrap around
    /// within the life of a process.
    sequence: AtomicU64,
    words: [AtomicU64; N],
}

impl<const N: usize> TableEntry<N> {
    #[cfg(all(test, loom))]
    pub(super) fn new() -> Self {
        TableEntry {
            sequence: AtomicU64::new(0),
            words: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// Writes the values, for the owner. Callers take turns.
    pub(super) fn write(&self, values: &[u64; N]) {
        let sequence = self.sequence.load(Relaxed);
        self.sequence.store(sequence.wrapping_add(1), Relaxed);
        fence(Release);
        for (word, value) in self.words.iter().zip(values) {
            word.store(*value, Relaxed);
        }
        self.sequence.store(sequence.wrapping_add(2), Release);
    }

    /// The sequence word.
    #[inline]
    pub(super) fn sequence(&self) -> &AtomicU64 {
        &self.sequence
    }

    /// The values, without a check of the sequence. For the owner only.
    pub(super) fn own(&self) -> [u64; N] {
        std::array::from_fn(|i| self.words[i].load(Relaxed))
    }

    /// The first word alone, to tell whether the rest is worth reading.
    pub(super) fn peek(&self) -> u64 {
        self.words[0].load(Relaxed)
    }

    /// The values, all of one write, and their sequence. `None`: the owner is in the middle of a
    /// write.
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

    /// Whether the owner has written nothing since `read` returned this sequence.
    #[inline]
    pub(super) fn is_unchanged(&self, sequence: u64) -> bool {
        load_acquire(&self.sequence) == sequence
    }
}
