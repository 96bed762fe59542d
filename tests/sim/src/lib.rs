//! Seeded worlds of devices under virtual time, with an oracle: the verbs machine searched for
//! mistakes.
//!
//! A [`World`] drives the very engine that the device drives, over a network that delays, loses,
//! repeats, reorders and damages packets, parts and clogs. A [`Program`] says what its consumers
//! do: posts of every kind, receives early and late, bad keys, queues that are too small, windows
//! that come and go, errors, reconnections, arms. A seed decides on both, so that a seed is all
//! that it takes to see a run again: there is no clock, no thread, no hash table's order.
//!
//! Beside the engine runs an oracle that knows the requests in order of posting and works out anew,
//! naively, what each packet, each write to memory, each completion and each event must be. It
//! checks, at the step where it happens:
//!
//! - a request packet has the headers and bytes of its request, in order; fences and drained queues
//!   hold it back;
//! - what is executed at the responder is the next packet, exactly once (RC, XRC), into the memory
//!   its key opens, with the bytes it was posted with; on UC and UD whole messages only; nothing
//!   else ever changes memory;
//! - an acknowledgement covers only what was executed, an atomic's answer is the value that was
//!   there, a READ's bytes were at the place it names at some time since it was executed;
//! - each signaled request and each receive completes once, in order; success only after all of it
//!   happened; each failure has its reason, and after it nothing succeeds on that queue pair;
//!   nothing is forgotten by a flush;
//! - completion queues are first in, first out, and events come when the rules CQN-1 to CQN-6,
//!   EXT-2, EXT-3 and NDK-2 say;
//! - in the end, when the network is whole and receives are posted, everything ends within bounded
//!   virtual time, and nothing is left.
//!
//! ```
//! let report = adverb_sim::run(&adverb_sim::Program::draw(7));
//! assert_eq!(report.failure, None);
//! assert_eq!(report.hash, adverb_sim::run(&adverb_sim::Program::draw(7)).hash);
//! ```
//!
//! Two more kinds of worlds have oracles of their own. The worlds of [`cm`] are of the connection
//! manager. The worlds of [`node`] are of whole devices: contexts, queues and channels over a node,
//! with the turns of its background thread.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod cm;
mod config;
pub mod goodput;
mod memory;
mod model;
mod net;
pub mod node;
mod program;
mod report;
mod rng;
mod shrink;
mod verdict;
mod world;

pub use config::{Config, Faults, Link, Service};
pub use program::{Action, KeyChoice, Post, Program, Verb};
pub use report::{Failure, Report};
pub use shrink::shrink;
pub use world::World;

use std::path::Path;

/// Runs a program in its world.
#[must_use]
pub fn run(program: &Program) -> Report {
    World::new(&program.config).run(program)
}

/// Runs the program of a seed and writes its packets to `path` as pcapng.
///
/// # Errors
/// Those of writing the file.
pub fn capture(seed: u64, path: &Path) -> std::io::Result<Report> {
    let program = Program::draw(seed);
    let report = World::new(&program.config).captured().run(&program);
    std::fs::write(path, report.pcapng())?;
    Ok(report)
}
