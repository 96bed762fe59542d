//! Traces of verbs programs: their calls, and the effects of these calls.
//!
//! 1. Each traced process ([`begin`]) writes [`Record`]s to its own file, its *part*: calls with
//!    their arguments, requests, completions, events and packets.
//! 2. The process that started the run reads all parts ([`read`]) and makes a [`Story`] of them, in
//!    which each event refers to its causes.
//! 3. It writes the story as a Perfetto trace ([`perfetto`]) and as lines of JSON ([`lines`]).
//!
//! In a process without tracing, each place that could record costs one load of a flag ([`on`]).

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
pub use read::{ProcessRecords, read};
pub use record::{Done, Record, Request};
pub use recorder::{ON, begin, finish, forked, on, record, thread};
pub use story::{Kind, Node, Story, Track};

/// Environment variable with the directory of the parts.
pub const VARIABLE: &str = "ADVERB_TRACE";
