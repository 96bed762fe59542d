//! Worlds of the connection manager: programs on several hosts that connect, accept, refuse, hang
//! up and forget while the network loses, repeats, delays and parts and processes die; and an
//! oracle that knows both ends of every connection.
//!
//! A [`Config`] is drawn from a seed, and decides on all. The oracle checks, when it happens or in
//! the end:
//!
//! - each command has one outcome, and nobody waits for ever: in the end every endpoint is empty;
//! - both ends of a connection end the same way: what one takes for made the other has made or
//!   given up in words, nothing ends that nobody has ended, and words of a farewell are those of
//!   the other end;
//! - no communication id is given out twice;
//! - no queue pair number is given to another connection while packets of the old one may come:
//!   programs send data as long as they think that a connection stands, and none of it ever meets
//!   another connection.
mod net;
mod oracle;
mod process;
mod program;
mod run;
mod world;

pub use world::World;

use crate::rng::Rng;

/// A world of connections. Rates are in thousandths, times in microseconds.
#[derive(Clone, Debug)]
pub struct Config {
    /// Seed of all that is drawn later.
    pub seed: u64,
    /// Hosts, with a process each.
    pub hosts: usize,
    /// Connections that each process asks for.
    pub connects: u64,
    /// Queue pair numbers of a process.
    pub numbers: u32,
    /// Requests that a process has room for.
    pub backlog: usize,
    /// MADs lost.
    pub loss: u32,
    /// MADs that come twice.
    pub duplicate: u32,
    /// MADs that come up to three seconds late.
    pub late: u32,
    /// The longest way of others.
    pub delay: u64,
    /// How often a program does something else than what leads to a connection.
    pub wild: u32,
    /// Processes that die.
    pub deaths: u64,
    /// Times at which nothing gets from one host to another for a while.
    pub partings: u64,
    /// A mistake made on purpose: programs do not wait until a queue pair number may be used again.
    pub hasty: bool,
}

impl Config {
    /// The world of a seed.
    #[must_use]
    pub fn draw(seed: u64) -> Config {
        let rng = &mut Rng::new(seed ^ 0xc3);
        let rough = |rng: &mut Rng, most: u64| if rng.chance(500) { rng.below(most + 1) as u32 } else { 0 };
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

/// What came of a world.
#[derive(Clone, Debug)]
pub struct Report {
    /// Of everything that happened: equal runs have equal hashes.
    pub hash: u64,
    /// What was wrong, with its time; `None` is a pass.
    pub failure: Option<String>,
    /// Connections that both ends had.
    pub made: u64,
    /// MADs handed to the network.
    pub mads: u64,
    /// A line for each thing that happened, if the world was traced.
    pub trace: Vec<String>,
}

/// Runs the world of a configuration.
#[must_use]
pub fn run(config: &Config) -> Report {
    World::new(config).run()
}
