//! Worlds of the connection manager. Programs on several hosts connect, accept, refuse, disconnect
//! and forget. Meanwhile the network loses, repeats and delays MADs, hosts are parted, and
//! processes die. An oracle knows both ends of every connection.
//!
//! A [`Config`] is drawn from a seed and decides everything. The oracle checks, at the event or at
//! the end:
//!
//! - Each command has one outcome, and no program waits forever: at the end every endpoint is
//!   empty.
//! - Both ends of a connection end the same way. If one end takes a connection for made, the other
//!   end has made the connection or has given up in a message. A connection ends only if an end has
//!   ended it, and the private data of a farewell is the other end's.
//! - No communication id is given out twice.
//! - No queue pair number is given to another connection while packets of the old connection may
//!   arrive. Programs send data for as long as they take a connection for established. This data
//!   never reaches another connection.
mod lookup;
mod net;
mod oracle;
mod process;
mod program;
mod run;
mod world;

pub use world::World;

use crate::report::Report;
use crate::rng::Rng;

/// A world of connections. Rates are in thousandths, times in microseconds.
#[derive(Clone, Debug)]
pub struct Config {
    /// Seed of all later draws.
    pub seed: u64,
    /// Hosts, each with one process.
    pub hosts: usize,
    /// Connections requested by each process.
    pub connects: u64,
    /// Queue pair numbers of a process.
    pub numbers: u32,
    /// Capacity of a process in requests.
    pub backlog: usize,
    /// MADs lost.
    pub loss: u32,
    /// MADs delivered twice.
    pub duplicate: u32,
    /// MADs up to three seconds late.
    pub late: u32,
    /// The longest delay of the other MADs.
    pub delay: u64,
    /// How often a program does something other than the next step towards a connection.
    pub wild: u32,
    /// Number of deaths of processes.
    pub deaths: u64,
    /// Periods in which nothing gets from one host to another.
    pub partings: u64,
    /// A deliberate mistake: programs do not wait until a queue pair number may be used again.
    pub hasty: bool,
}

impl Config {
    /// The world of a seed.
    #[must_use]
    pub fn draw(seed: u64) -> Config {
        let rng = &mut Rng::new(seed ^ 0xc3);
        let rough =
            |rng: &mut Rng, most: u64| if rng.chance(500) { rng.below(most + 1) as u32 } else { 0 };
        Config {
            seed,
            hosts: rng.range(2, 4) as usize,
            connects: rng.range(1, 8),
            numbers: rng.range(1, 12) as u32,
            backlog: rng.range(1, 8) as usize,
            loss: rough(rng, 300),
            duplicate: rough(rng, 400),
            late: rough(rng, 300),
            delay: rng.pick(&[1, 100, 10_000, 250_000]),
            wild: rough(rng, 400),
            deaths: if rng.chance(200) { rng.range(1, 2) } else { 0 },
            partings: if rng.chance(200) { rng.range(1, 3) } else { 0 },
            hasty: false,
        }
    }
}

/// Runs the world of a configuration.
#[must_use]
pub fn run(config: &Config) -> Report {
    World::new(config).run()
}
