//! What a verbs program called, and what came of it.
//!
//! A process that is traced ([`begin`]) writes [`Record`]s to a file of its own, its *part*: calls
//! with their arguments, requests, completions, events, packets. Whoever started the processes
//! reads all parts ([`read`]), makes one [`Story`] of them, in which each thing knows what led to
//! it, and writes that as a Perfetto trace ([`perfetto`]) and as lines of JSON ([`lines`]).
//!
//! A process that is not traced pays a look at one word ([`on`]) where it would record.

pub mod calls;
mod clock;
pub mod lines;
mod merge;
mod names;
mod packets;
#[allow(unsafe_code, reason = "memory that is shared with a file")]
mod part;
pub mod perfetto;
mod proto;
mod queues;
mod read;
mod record;
mod recorder;
mod story;
#[cfg(test)]
mod tests;

pub use clock::now;
pub use packets::{packet, packet_at, packet_of};
pub use read::{Part, read};
pub use record::{Done, Record, Request};
pub use recorder::{ON, begin, finish, forked, on, record, thread};
pub use story::{Kind, Node, Story, Track};

/// The environment variable: the directory of the parts.
pub const VARIABLE: &str = "ADVERB_TRACE";
