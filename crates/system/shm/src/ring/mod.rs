//! A ring: records in one direction between two processes, one producer, one consumer.
//!
//! # Layout
//!
//! One page of control (the consumer's line: how far it has read), then cells of 64 bytes. A record
//! begins in a cell: a header word, the body right behind it, through as many cells as it needs,
//! never around the end; a *skip* fills what is left there. So a body of up to 56 bytes shares its
//! cache line with its header, and that line is all that has to move from one processor to the
//! other.
//!
//! # Protocol
//!
//! A header word of 0 means that nothing is there yet. Cells hold old bytes, which could look like
//! a header, so before a record is published the header word behind it is made 0. That is a store
//! to another line, which the record would wait for; so the words of the next cells are cleared in
//! advance, behind a record, whenever none is left.
//!
//! The consumer publishes how far it has read after every eighth of the ring, and when it finds
//! nothing to read. The producer looks there only if by what it knows the ring is full.

mod protocol;

#[cfg(not(all(test, loom)))]
#[allow(unsafe_code)]
mod shared;

#[cfg(all(test, loom))]
#[allow(unsafe_code)]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;

pub use protocol::Pushed;
#[cfg(not(all(test, loom)))]
pub use shared::{Behind, Consumer, Producer};
