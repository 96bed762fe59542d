//! For fuzzing: an owner of tables that breaks every rule.

use std::ops::Range;

use super::entry::WORDS;
use super::layout::{self, HAZARDS, QPS, WAYS};
use super::memory::{HAZARD_WORDS, Memory, SLEEPING_WORD, USED_WORD};
use super::published::Published;

/// Words of an entry; the sequence is the first.
const ENTRY: usize = 1 + WORDS;

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
        let at = Memory::word_of_entry(layout::qp_index(qpn));
        at..at + ENTRY
    }
    /// The words of all entries of a key's bucket.
    #[must_use]
    pub fn key(&self, key: u32) -> Range<usize> {
        let at = Memory::word_of_entry(QPS + layout::bucket(key));
        at..at + WAYS * ENTRY
    }
    /// The word with the sleep sequence of the process.
    #[must_use]
    pub fn sleeping(&self) -> usize {
        SLEEPING_WORD
    }
    /// The word with the number of hazards ever used.
    #[must_use]
    pub fn used(&self) -> usize {
        USED_WORD
    }
    /// The first word of a hazard. The index wraps around at the number of hazards.
    #[must_use]
    pub fn hazard(&self, index: usize) -> usize {
        HAZARD_WORDS + index % HAZARDS * ENTRY
    }
}
