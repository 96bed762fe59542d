//! Worlds of nodes. Whole devices run in one process and in virtual time, each with the turns of
//! its background thread, its policy, timers, carriers and completion channels.
//!
//! A [`Config`] is drawn from a seed and decides everything. A world has two to four nodes on one
//! or more hosts. Nodes of one host have the same address. They reach each other as processes of
//! one user do: UC and UD over hand-over connections, which report when they are full, and RC over
//! the network. Each node has three threads. The world takes steps of the threads in turn, with
//! delays like those of a busy machine:
//!
//! - The background thread of the device runs every line of `node/thread.rs` but its `ppoll`.
//! - The poster posts requests, connects, resets and destroys queue pairs, and sets moderation.
//! - The consumer polls in bursts. It sleeps on the channel's descriptor, as programs do with
//!   `epoll`, or in a get-event call. The consumer posts receives again, sometimes late.
//!
//! The network delays, loses, repeats and reorders packets, and sockets may be full. The oracle
//! checks after each step:
//!
//! - RC: each message arrives once, in order, with the posted bytes and immediate data. When a
//!   request completes, a WRITE's bytes are in place, and the bytes of a READ or an atomic have
//!   arrived.
//! - UC and UD: each arriving message was posted, and arrives whole. Between processes of one host
//!   each message arrives once, in order.
//! - Each signaled request completes once, in order, and with success.
//! - Completion queues are first in, first out. Their events follow CQN-1 to CQN-6 and EXT-2. The
//!   expected events come from the naive queue of the engine's worlds.
//! - The background thread never sleeps past a deadline, nor while there is work that no other
//!   thread can find.
//! - At the end the network is whole and consumers sleep for every completion. Then all posted
//!   requests end within bounded time, and the device comes to rest.
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
    /// Seed of all later draws.
    pub seed: u64,
    /// Nodes.
    pub nodes: usize,
    /// Hosts, over which the nodes are spread.
    pub hosts: usize,
    /// Pairs of queue pairs.
    pub links: usize,
    /// Messages of each end.
    pub messages: u64,
    /// Packets arrive once, in order, and in time.
    pub orderly: bool,
    /// Packets lost.
    pub loss: u32,
    /// Packets delivered twice.
    pub duplicate: u32,
    /// Packets up to 60 ms late.
    pub late: u32,
    /// The longest delay of the other packets.
    pub delay: u64,
    /// Capacity of a socket in packets.
    pub socket: usize,
    /// Capacity of a hand-over connection in messages.
    pub connection: usize,
    /// How often a thread gets the processor late.
    pub stalls: u32,
    /// Connections to break and make again.
    pub breaks: u64,
    /// Queues with moderation.
    pub moderated: u32,
    /// Posts while the background thread is about to sleep.
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
