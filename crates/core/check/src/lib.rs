//! What can be seen of a program's mistakes while the program still works.
//!
//! A [`Ledger`] is told what a program calls, as values: queues and their sizes, requests posted,
//! completions polled, events taken and acknowledged, regions registered. It answers with
//! [`Report`]s, each kind of mistake once a place in the program. It knows what the device did only
//! from what the program was told, as a reviewer would who reads a trace of the calls. It has no
//! clock, no thread and no memory of the program's: who calls it reads bytes and names code.
#![forbid(unsafe_code)]

mod code;
mod edges;
mod events;
mod ledger;
mod objects;
mod posts;
mod queues;
mod regions;
mod report;
mod suppress;
#[cfg(test)]
mod tests;
mod told;
mod values;

pub use code::Code;
pub use edges::{Descriptor, Left, Reads};
pub use events::Source;
pub use ledger::Ledger;
pub use objects::{Kind, Made};
pub use queues::Request;
pub use regions::{Region, Shared};
pub use report::{Place, Report};
pub use suppress::{Bad, Suppressions};
pub use told::Told;
pub use values::{Completed, Piece, QueuePair, Refused};
