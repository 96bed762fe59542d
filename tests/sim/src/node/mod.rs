//! Worlds of nodes: whole devices in one process and in virtual time, each with the background
//! thread's turns, its policy, its timers, its carriers and its completion channels.
//!
//! A [`Config`] is drawn from a seed, and decides on all. A world has two to four nodes on one or
//! more hosts. Nodes of one host have one address and reach each other as processes of one user do:
//! UC and UD over hand-over connections that say when they are full, RC over the network. Each node
//! has three threads, whose steps the world takes in turns, with delays as a busy machine has them:
//!
//! - the background thread of the device (`node/thread.rs`, every line but its `ppoll`);
//! - a poster, which posts requests, connects, resets and destroys queue pairs, and moderates;
//! - a consumer, which polls in bursts, sleeps on the channel's descriptor as programs do with
//!   `epoll`, or sleeps in a get-event call, and posts receives again, sometimes late.
//!
//! The network delays, loses, repeats and reorders packets, and sockets are full. The oracle checks
//! after each step:
//!
//! - RC: each message comes once, in order, with the bytes and the immediate data posted; a WRITE's
//!   bytes are in place and a READ's and an atomic's have come when the request completes;
//! - UC and UD: a message that comes was posted, whole; between processes of one host each comes
//!   once, in order;
//! - each signaled request completes once, in order, and with success;
//! - completion queues are first in, first out, and their events are those of CQN-1 to CQN-6 and
//!   EXT-2 (the naive queue of the engine's worlds says which);
//! - the background thread never sleeps past a deadline, nor beside work that only it may find;
//! - in the end, when the network is whole and consumers sleep for every completion, all that was
//!   posted ends within bounded time, and the device comes to rest for ever.
mod actors;
mod connect;
mod end;
mod finish;
mod net;
mod queue;
mod threads;
mod world;

pub use world::World;

use crate::rng::Rng;

/// A world of nodes. Rates are in thousandths, times in microseconds.
#[derive(Clone, Debug)]
pub struct Config {
    /// Seed of all that is drawn later.
    pub seed: u64,
    /// Nodes.
    pub nodes: usize,
    /// Hosts, over which the nodes are spread.
    pub hosts: usize,
    /// Pairs of queue pairs.
    pub links: usize,
    /// Messages that each end posts.
    pub messages: u64,
    /// Packets come once, in order, and in time.
    pub orderly: bool,
    /// Packets lost.
    pub loss: u32,
    /// Packets that come twice.
    pub duplicate: u32,
    /// Packets that come up to 60 ms late.
    pub late: u32,
    /// The longest way of others.
    pub delay: u64,
    /// Packets that a socket holds.
    pub socket: usize,
    /// Messages that a hand-over connection holds.
    pub connection: usize,
    /// How often a thread gets the processor late.
    pub stalls: u32,
    /// Connections that are broken and made again.
    pub breaks: u64,
    /// Queues with moderation.
    pub moderated: u32,
    /// Posts that come while the background thread is about to sleep.
    pub between: u32,
}

impl Config {
    /// The world of a seed.
    #[must_use]
    pub fn draw(seed: u64) -> Config {
        let rng = &mut Rng::new(seed ^ 0x0de);
        let orderly = rng.chance(300);
        let rough = |rng: &mut Rng, most: u64| {
            if !orderly && rng.chance(400) { rng.below(most + 1) as u32 } else { 0 }
        };
        let nodes = rng.range(2, 4) as usize;
        Config {
            seed,
            nodes,
            hosts: rng.range(1, nodes as u64) as usize,
            links: rng.range(1, 4) as usize,
            messages: rng.pick(&[3, 10, 25, 40]),
            orderly,
            loss: rough(rng, 100),
            duplicate: rough(rng, 200),
            late: rough(rng, 50),
            delay: rng.pick(&[1, 5, 50, 500]),
            socket: if orderly { 1000 } else { rng.pick(&[8, 64, 1000]) },
            connection: rng.pick(&[1, 2, 16]),
            stalls: rng.pick(&[0, 5, 50]),
            breaks: if rng.chance(400) { rng.range(1, 3) } else { 0 },
            moderated: if rng.chance(400) { 500 } else { 0 },
            between: rng.pick(&[0, 50, 500]),
        }
    }
}

/// What came of a world.
#[derive(Clone, Debug)]
pub struct Report {
    /// Of everything that happened: equal runs have equal hashes.
    pub hash: u64,
    /// What was wrong, with its time; `None` is a pass.
    pub failure: Option<String>,
    /// Completions that programs polled.
    pub completions: u64,
    /// Events that programs took.
    pub events: u64,
    /// How often a requester asked for an answer where nothing was lost or late. The asking may be
    /// due to an ACK that is held for a millisecond.
    pub asked: u64,
    /// A line for each thing that happened, if the world was traced.
    pub trace: Vec<String>,
}

/// Runs the world of a configuration.
#[must_use]
pub fn run(config: &Config) -> Report {
    World::new(config).run()
}
