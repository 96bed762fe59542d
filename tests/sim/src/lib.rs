//! Seeded worlds of devices in virtual time, with an oracle that searches the verbs machine for
//! mistakes.
//!
//! A [`World`] drives the same engine as the device does. Its network delays, loses, repeats,
//! reorders and damages packets, and has partitions and clogs. A [`Program`] is what the consumers
//! do: posts of every kind, receives early and late, bad keys, queues that are too small, windows
//! that come and go, errors, reconnections and arms. A seed decides both the world and the program.
//! So a seed is enough to repeat a run: no clock, no thread and no order of a hash table has an
//! influence.
//!
//! The oracle runs beside the engine. It knows the requests in order of posting. From these it
//! computes anew, in a naive way, each expected packet, write to memory, completion and event. The
//! oracle checks at each step:
//!
//! - A request packet has the headers and bytes of the posted request, in order. Fences and drained
//!   queues delay the packet.
//! - The responder executes the next packet, exactly once (RC, XRC), into the memory that the key
//!   opens, with the posted bytes. On UC and UD only whole messages are accepted. Nothing else ever
//!   changes memory.
//! - An acknowledgement covers only executed requests. An atomic's answer is the old value. The
//!   bytes of a READ were at the named place at some time since the READ was executed.
//! - Each signaled request and each receive completes once, in order. A request succeeds only after
//!   all of it happened. Each failure has a reason, and after a failure nothing succeeds on the
//!   same queue pair. A flush forgets nothing.
//! - Completion queues are first in, first out. Events come when the rules CQN-1 to CQN-6, EXT-2,
//!   EXT-3 and NDK-2 say.
//! - At the end the network is whole and receives are posted. Then everything ends within bounded
//!   virtual time, and nothing is left.
//!
//! ```
//! let report = adverb_sim::run(&adverb_sim::Program::draw(7));
//! assert_eq!(report.failure, None);
//! assert_eq!(report.hash, adverb_sim::run(&adverb_sim::Program::draw(7)).hash);
//! ```
//!
//! Two more kinds of worlds have their own oracles. [`cm`] has worlds of the connection manager.
//! [`node`] has worlds of whole devices: contexts, queues and channels over a node, with the turns
//! of its background thread.
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
pub use report::Report;
pub use shrink::shrink;
pub use world::World;

use std::path::Path;

/// A kind of worlds.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// Name, and option of `adverb-sim`.
    pub name: &'static str,
    /// Runs the world of a seed; `true` for a trace, which begins with the configuration.
    pub run: fn(u64, bool) -> Report,
}

/// Programs on queue pairs.
pub const PROGRAMS: Kind = Kind {
    name: "programs",
    run: |seed, traced| {
        let program = Program::draw(seed);
        let world = World::new(&program.config);
        if traced { world.traced().run(&program) } else { world.run(&program) }
    },
};
/// The connection manager.
pub const CONNECTIONS: Kind = Kind {
    name: "connections",
    run: |seed, traced| {
        let world = cm::World::new(&cm::Config::draw(seed));
        if traced { world.traced().run() } else { world.run() }
    },
};
/// Whole devices.
pub const NODES: Kind = Kind {
    name: "nodes",
    run: |seed, traced| {
        let world = node::World::new(&node::Config::draw(seed));
        if traced { world.traced().run() } else { world.run() }
    },
};

/// Runs a program in its world.
#[must_use]
pub fn run(program: &Program) -> Report {
    World::new(&program.config).run(program)
}

/// Runs the program of a seed and writes its packets to `path` as pcapng.
///
/// # Errors
/// An error of writing the file.
pub fn capture(seed: u64, path: &Path) -> std::io::Result<Report> {
    let program = Program::draw(seed);
    let report = World::new(&program.config).captured().run(&program);
    std::fs::write(path, report.pcapng())?;
    Ok(report)
}
