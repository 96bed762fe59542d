//! Finds mistakes of a program while the program still works.
//!
//! A [`Ledger`] records a program's calls, as values: queues and their sizes, posted requests,
//! polled completions, events taken and acknowledged, registered regions. The ledger returns
//! [`Report`]s, each kind of mistake once per place in the program. The ledger sees only what the
//! calls told the program, like a reviewer with a trace of the calls. It has no clock, no thread
//! and no access to the program's memory. The caller reads bytes and translates code addresses to
//! names.
#![forbid(unsafe_code)]

mod code;
mod connections;
mod edges;
mod events;
mod examine;
mod failures;
mod ledger;
mod objects;
mod orphans;
mod picture;
mod posts;
mod queues;
mod regions;
mod report;
mod scene;
mod silent;
mod state;
mod suppress;
#[cfg(test)]
mod tests;
mod told;
mod values;
mod waits;

pub use code::{Code, Weight};
pub use connections::CM_EVENTS;
pub use events::Source;
pub use ledger::Ledger;
pub use objects::{Kind, Made};
pub use picture::{NOTHING_WITHIN, PastCall, ToldCall};
pub use queues::Request;
pub use regions::{Region, Shared};
pub use report::{CodeAddress, Report, with_way, without_way};
pub use scene::{Armed, Occasion, PairScene, QueueScene, Scene, ThreadScene};
pub use suppress::{Bad, Suppressions};
pub use told::Told;
pub use values::{Completed, Descriptor, Left, Piece, QueuePair, Reads, Refused};
