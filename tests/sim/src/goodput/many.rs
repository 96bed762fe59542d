//! Several senders and one receiver: flows that share a router and its line.
use super::{DEPTH, MESSAGE, Path, Transfer, Verb, World};
use adverb_engine::Time;

/// Bytes of a packet: a message is a multiple.
const MTU: u64 = 4096;

/// Senders which all write to one receiver, each by a queue pair of its own.
#[derive(Clone, Copy, Debug)]
pub struct ManyToOne {
    /// Number of senders.
    pub senders: usize,
    /// The shared line to the receiver. Each answer has a line of its own.
    pub path: Path,
    /// From this time on, and until this time, the received bytes count (nanoseconds).
    pub window: [u64; 2],
    /// Pause between the starts of two senders, in nanoseconds.
    pub stagger: u64,
    /// Seed.
    pub seed: u64,
}

/// The result for all senders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shares {
    /// Bytes that arrived from each sender in the counted time, in order.
    pub bytes: Vec<u64>,
    /// The counted time in nanoseconds.
    pub nanos: u64,
    /// Packets that found the router full.
    pub overflowed: u64,
    /// Request packets sent again.
    pub retransmitted: u64,
    /// Local ACK timeouts.
    pub timeouts: u64,
    /// Why the result is worthless.
    pub failure: Option<String>,
}

impl Shares {
    /// Jain's fairness index, in thousandths: 1000 means equal shares.
    #[must_use]
    pub fn fairness(&self) -> u64 {
        let sum: u128 = self.bytes.iter().map(|b| u128::from(*b)).sum();
        let squares: u128 = self.bytes.iter().map(|b| u128::from(*b).pow(2)).sum();
        (sum * sum * 1000 / (squares.max(1) * self.bytes.len() as u128)) as u64
    }

    /// Payload bytes per second of all senders.
    #[must_use]
    pub fn bytes_per_second(&self) -> u64 {
        let sum: u128 = self.bytes.iter().map(|b| u128::from(*b)).sum();
        (sum * 1_000_000_000 / u128::from(self.nanos.max(1))) as u64
    }
}

/// Runs the senders until the end of the counted time.
#[must_use]
pub fn share(many: &ManyToOne) -> Shares {
    let transfer =
        Transfer { verb: Verb::Write, bytes: DEPTH * MESSAGE, path: many.path, seed: many.seed };
    let mut world = World::new(&transfer, many.senders, many.stagger);
    let window = many.window.map(|at| Time(world.now.0 + at));
    let mut bytes = vec![[0; 2]; many.senders];
    let mut run = || -> Result<(), String> {
        while world.now < window[1] {
            world.pump(&transfer, u64::MAX)?;
            let before = world.now;
            world.advance()?;
            for at in (0..2).filter(|at| before < window[*at] && world.now >= window[*at]) {
                for (flow, bytes) in world.flows.iter().zip(&mut bytes) {
                    bytes[at] = flow.ends[1].counters().executed * MTU;
                }
            }
            world.deliver();
        }
        Ok(())
    };
    let failure = run().err();
    Shares {
        bytes: bytes.iter().map(|b| b[1] - b[0]).collect(),
        nanos: many.window[1] - many.window[0],
        overflowed: world.line.overflowed,
        retransmitted: world.sum(|c| c.retransmitted),
        timeouts: world.sum(|c| c.timeouts),
        failure,
    }
}
