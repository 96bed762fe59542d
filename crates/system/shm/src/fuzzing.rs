//! For fuzzing: an owner of tables that breaks every rule.

use std::ops::Range;

use crate::Published;
use crate::tables::words;

/// An owner of tables that writes arbitrary values to them.
#[derive(Clone, Copy)]
pub struct HostileOwner<'a>(pub &'a Published);

impl HostileOwner<'_> {
    /// Writes a word of the segment. The index wraps around at the end of the segment.
    pub fn write(&self, word: usize, value: u64) {
        self.0.overwrite(word, value);
    }
    /// The words of a queue pair's entry: the sequence, then the values.
    #[must_use]
    pub fn qp(&self, qpn: u32) -> Range<usize> {
        words::qp(qpn)
    }
    /// The words of all entries of a key's bucket.
    #[must_use]
    pub fn key(&self, key: u32) -> Range<usize> {
        words::key(key)
    }
    /// The word with the sleep sequence of the process.
    #[must_use]
    pub fn sleeping(&self) -> usize {
        words::sleeping()
    }
    /// The word with the number of hazards ever used.
    #[must_use]
    pub fn used(&self) -> usize {
        words::used()
    }
    /// The first word of a hazard. The index wraps around at the number of hazards.
    #[must_use]
    pub fn hazard(&self, index: usize) -> usize {
        words::hazard(index)
    }
}

impl std::fmt::Debug for HostileOwner<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HostileOwner")
    }
}
