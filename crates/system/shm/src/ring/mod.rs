//! A ring carries records in one direction between two processes: one producer, one consumer.
//!
//! # Layout
//!
//! The first page is for control: a cache line in which the consumer publishes how far it has read.
//! Behind this page are cells of 64 bytes. A record begins in a cell with a header word; the body
//! follows directly, through as many cells as needed. A record never wraps around the end of the
//! ring: a *skip* fills the cells left there. So a body of up to 56 bytes shares the cache line of
//! its header, and only this line moves from one processor to the other.
//!
//! # Protocol
//!
//! 1. A header word of 0 means: no record yet. Cells hold old bytes, which could look like a
//!    header. So the producer clears the header word behind a record before publishing the record.
//! 2. This clear is a store to another cache line, and the record would wait for the line. So the
//!    producer clears the header words of the next cells in advance, after publishing a record,
//!    whenever no cleared word is left.
//! 3. The consumer publishes its position after every eighth of the ring, and when it finds no
//!    record.
//! 4. The producer reads the consumer's position only if the ring is full by the last known
//!    position.

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
