//! What processes of one user share on a host: rings for messages, tables of keys and queue pairs.
//!
//! Each structure is a *segment*: a memfd of fixed size, made by one process and opened by others
//! from a descriptor they were sent. Its seals bar everybody, its maker included, from changing its
//! size; its pages were allocated when it was made, so that a shortage of memory is an error of
//! [`Consumer::create`] or [`Published::create`] and no signal later.
//!
//! * A ring ([`Producer`], [`Consumer`]) carries records in one direction between two processes. A
//!   short record is one cache line, and the consumer waits on that very line.
//! * Tables ([`Published`], [`PeerTables`]) tell peers which queue pairs and keys a process has.
//!   Peers can only read them. They also hold marks that say which threads of the process are using
//!   what others have published, so that others know when they may take it back
//!   ([`Published::enter`], [`PeerTables::wait_quiet`]).
//!
//! # Trust
//!
//! A peer may write anything, at any time, wherever it can write, and may die at any instruction.
//! Every word that decides something is read once, checked, and used from the copy. What such a
//! peer achieves is wrong bytes in its own messages, or [`Broken`]; never a panic, an access
//! outside of the segment or a wait without end.
//!
//! # Fork
//!
//! The child of a fork has none of the mappings. It must not call these objects; dropping them does
//! nothing there.

#![deny(unsafe_code)]
#![cfg_attr(all(test, loom), allow(dead_code))]

mod error;
#[cfg(not(all(test, loom)))]
#[doc(hidden)]
pub mod fuzzing;
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
pub use tables::{
    Busy, Held, Identity, Inside, KeyEntry, KeySeen, LONGEST_OFFER, OFFERED, Offers, PeerTables, Published,
    QpEntry, QpSeen, Use,
};
