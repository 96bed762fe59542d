//! Tables of a process's queue pairs and keys, which its peers read.
//!
//! An entry is one cache line: a sequence word, odd while the owner writes, and the values. A
//! reader copies the values, and uses the copy if the sequence was even before and is the same
//! after. A reader needs one load to learn later whether the entry has changed ([`EntrySeen`]).
//!
//! # Taking back what peers may be using
//!
//! 1. A peer's thread sets its hazard, which names the queue pair and the key ([`Use`]).
//! 2. The thread checks the two entries, uses the memory, and clears its hazard.
//! 3. The owner makes an entry invalid, and reads the hazards naming the entry.
//! 4. The owner waits until each of these hazards has changed once, or until another proof shows
//!    the thread to be out ([`Inside::retain`]).
//!
//! Either the owner sees the hazard, or the peer sees the invalid entry: both put a full barrier
//! between their write and their read. The hazards of a process are in its own segment, so no other
//! process can set or hold the hazards.

mod entry;
#[cfg(not(all(test, loom)))]
pub mod fuzzing;
mod hazards;
#[cfg(not(all(test, loom)))]
mod layout;
#[cfg(not(all(test, loom)))]
mod memory;
#[cfg(not(all(test, loom)))]
mod peer;
#[cfg(not(all(test, loom)))]
mod published;

#[cfg(all(test, loom))]
#[allow(unsafe_code)]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(not(all(test, loom)))]
pub use hazards::{Inside, SetHazard, Use};
#[cfg(not(all(test, loom)))]
pub use layout::{EntrySeen, Failure, Identity, KeyEntry, QpEntry};
#[cfg(not(all(test, loom)))]
pub use peer::PeerTables;
#[cfg(not(all(test, loom)))]
pub use published::{Busy, Published};
