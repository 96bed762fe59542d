//! Shared memory between the processes of one user on one host: rings for messages, and tables of
//! keys and queue pairs.
//!
//! Each structure is a *segment*: a memfd of fixed size. One process creates the segment and sends
//! the descriptor to the processes allowed to open the segment. The file's seals keep every
//! process, the creator included, from changing the size. Every page is allocated before the first
//! access, so a shortage of memory is an error of `Consumer::create` or `Published::create` and
//! never a SIGBUS later.
//!
//! * A ring ([`Producer`], [`Consumer`]) carries records in one direction between two processes. A
//!   short record is one cache line, and the consumer polls the same line.
//! * Tables ([`Published`], [`PeerTables`]) tell peers which queue pairs and keys a process has.
//!   Peers can only read the tables. The tables also hold hazards. A hazard says which object of
//!   another process a thread is using. From the hazards the owner of the object knows when taking
//!   the object back is safe ([`Published::enter`], [`PeerTables::wait_quiet`]).
//!
//! # Trust
//!
//! A peer may write any value, at any time, to any word mapped for writing in its process, and may
//! die at any instruction. This crate reads every word behind a decision once, checks the copy, and
//! uses the copy. A hostile peer can cause wrong bytes in its own messages, or [`Broken`]. A
//! hostile peer cannot cause a panic, an access outside of the segment, or an endless wait.
//!
//! # Fork
//!
//! The child of a fork has none of the mappings. The child must not call these objects. Dropping an
//! object in the child does nothing.

#![deny(unsafe_code)]
#![cfg_attr(all(test, loom), allow(dead_code))]

mod error;
mod ring;
#[cfg(not(all(test, loom)))]
#[allow(unsafe_code)]
mod segment;
mod sync;
mod tables;

pub use error::{Broken, ShmError};
pub use ring::Pushed;
#[cfg(not(all(test, loom)))]
pub use ring::{Behind, Consumer, Producer};
#[cfg(not(all(test, loom)))]
#[doc(hidden)]
pub use tables::fuzzing;
#[cfg(not(all(test, loom)))]
pub use tables::{
    Busy, EntrySeen, Failure, Identity, Inside, KeyEntry, PeerTables, Published, QpEntry,
    SetHazard, Use,
};
