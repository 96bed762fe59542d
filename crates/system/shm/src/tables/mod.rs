//! Tables of a process's queue pairs and keys, which its peers read.
//!
//! An entry is a cache line: a sequence word, odd while the owner writes, and the values. A reader
//! copies the values and believes them if the sequence was even and stayed the same. Who has seen
//! an entry once needs one load to know that it is still so ([`KeySeen`]).
//!
//! # Taking back what peers may be using
//!
//! 1. A peer's thread sets its mark, which names the queue pair and the key ([`Use`]).
//! 2. It looks at the two entries, uses the memory, and takes its mark away.
//! 3. The owner makes an entry invalid, and reads the marks that name the entry.
//! 4. The owner waits until each of these marks has changed once, or until it has another proof
//!    that the thread is out ([`Inside::retain`]).
//!
//! Either the owner sees the mark or the peer sees the invalid entry: both put a full barrier
//! between their write and their look. The marks of a process are in its own segment, so no other
//! process can set or hold them.

mod entry;
#[cfg(not(all(test, loom)))]
mod layout;
mod marks;
#[cfg(not(all(test, loom)))]
mod memory;
#[cfg_attr(all(test, loom), expect(dead_code, reason = "the models take a part of it"))]
mod offers;
#[cfg(not(all(test, loom)))]
mod peer;
#[cfg(not(all(test, loom)))]
mod published;

#[cfg(all(test, loom))]
mod loom_offers;
#[cfg(all(test, loom))]
#[allow(unsafe_code)]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(not(all(test, loom)))]
pub use layout::{Identity, KeyEntry, KeySeen, QpEntry, QpSeen};
#[cfg(not(all(test, loom)))]
pub use marks::{Held, Use};
#[cfg(not(all(test, loom)))]
pub use offers::{LONGEST_OFFER, OFFERED, Offers};
#[cfg(not(all(test, loom)))]
pub use peer::{Inside, PeerTables};
#[cfg(not(all(test, loom)))]
pub use published::{Busy, Published};

/// Where in a segment of tables the words are that a peer reads: for a hostile owner
/// (`crate::fuzzing`).
#[cfg(not(all(test, loom)))]
pub(crate) mod words {
    use super::entry::WORDS;
    use super::layout::{self, MARKS, QPS, WAYS};
    use super::memory::{MARK_WORDS, Memory, SLEEPING_WORD, USED_WORD};
    use std::ops::Range;

    /// Words of an entry, its sequence first.
    const ENTRY: usize = 1 + WORDS;

    pub(crate) fn sleeping() -> usize {
        SLEEPING_WORD
    }
    pub(crate) fn used() -> usize {
        USED_WORD
    }
    pub(crate) fn mark(index: usize) -> usize {
        MARK_WORDS + index % MARKS * ENTRY
    }
    pub(crate) fn qp(qpn: u32) -> Range<usize> {
        let at = Memory::word_of_entry(layout::qp_index(qpn));
        at..at + ENTRY
    }
    /// The whole bucket.
    pub(crate) fn key(key: u32) -> Range<usize> {
        let at = Memory::word_of_entry(QPS + layout::bucket(key));
        at..at + WAYS * ENTRY
    }
}
