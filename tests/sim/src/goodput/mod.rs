//! The speed of a connection over a lossy network: one transfer between two queue pairs in virtual
//! time.
//!
//! Unlike a [`World`](crate::World) a transfer has no oracle for every step, so it can carry
//! megabytes. At the end all bytes are compared. A [`Path`] has a rate, a round-trip time, and a
//! router with room for a number of packets. The router drops packets when it is full, and may mark
//! packets before. The hosts take no time, so the figures are those of the protocol alone.
//!
//! ```
//! use adverb_sim::goodput::{Path, Transfer, Verb, measure};
//! let path = Path { loss: 50, ..Path::new(10_000_000_000, 20_000) };
//! let one = measure(&Transfer { verb: Verb::Write, bytes: 1 << 20, path, seed: 1 });
//! assert_eq!(one.failure, None);
//! assert!(one.retransmitted > 0);
//! assert_eq!(one, measure(&Transfer { verb: Verb::Write, bytes: 1 << 20, path, seed: 1 }));
//! ```
mod end;
mod many;
mod path;
mod table;

pub use many::{ManyToOne, Shares, share};
pub use path::Path;
pub use table::table;

use crate::rng::Rng;
use adverb_engine::qp::Counters;
use adverb_engine::{Time, WcStatus};
use end::GoodputEnd;
use path::PathDirection;

/// Bytes of a message.
const MESSAGE: u64 = 1 << 20;
/// Messages posted at a time.
const DEPTH: u64 = 16;
/// Limit of a transfer's virtual time.
const LIMIT: Time = Time(3_600_000_000_000);

/// The operation of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Verb {
    Write,
    Send,
    Read,
}

/// A transfer in messages of one MiB, sixteen posted at a time, over RC with a path MTU of 4096.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    /// Operation.
    pub verb: Verb,
    /// Bytes in all: whole MiB.
    pub bytes: u64,
    /// The network, the same in both directions.
    pub path: Path,
    /// Seed: decides which packets are affected.
    pub seed: u64,
}

/// The result of a transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measured {
    /// Virtual time of the transfer, in nanoseconds.
    pub nanos: u64,
    /// Packets sent by both ends.
    pub packets: u64,
    /// Request packets sent again.
    pub retransmitted: u64,
    /// Local ACK timeouts.
    pub timeouts: u64,
    /// Restarts before a timeout, because no answer came.
    pub probes: u64,
    /// Packets that found the router full.
    pub overflowed: u64,
    /// Congestion notifications sent.
    pub cnps: u64,
    /// Why the result is worthless: the transfer did not end, failed, or delivered wrong bytes.
    pub failure: Option<String>,
}

impl Measured {
    /// Payload bytes per second.
    #[must_use]
    pub fn bytes_per_second(&self, bytes: u64) -> u64 {
        (u128::from(bytes) * 1_000_000_000 / u128::from(self.nanos.max(1))) as u64
    }
}

/// The network between the two ends, and the clock.
struct World {
    ends: [GoodputEnd; 2],
    ways: [PathDirection; 2],
    rng: Rng,
    now: Time,
    packets: u64,
}

/// Runs a transfer to its end.
#[must_use]
pub fn measure(transfer: &Transfer) -> Measured {
    let mut world = World {
        ends: [GoodputEnd::new(0, transfer), GoodputEnd::new(1, transfer)],
        ways: [PathDirection::new(transfer.path), PathDirection::new(transfer.path)],
        rng: Rng::new(transfer.seed ^ 0x600d),
        now: Time(1_000_000),
        packets: 0,
    };
    let begin = world.now;
    world.ends.iter_mut().for_each(|end| end.connect());
    let failure = world.run(transfer).err();
    let counters = |f: fn(&Counters) -> u64| world.ends.iter().map(|e| f(e.counters())).sum();
    Measured {
        nanos: world.now.since(begin).as_nanos() as u64,
        packets: world.packets,
        retransmitted: counters(|c| c.retransmitted),
        timeouts: counters(|c| c.timeouts),
        probes: counters(|c| c.probes),
        overflowed: world.ways.iter().map(|w| w.overflowed).sum(),
        cnps: counters(|c| c.cnps_sent),
        failure,
    }
}

impl World {
    fn run(&mut self, transfer: &Transfer) -> Result<(), String> {
        let messages = transfer.bytes / MESSAGE;
        let (mut posted, mut done) = (0, 0);
        loop {
            while posted < messages && posted < done + DEPTH {
                self.post(transfer.verb, posted)?;
                posted += 1;
            }
            self.pump(0);
            self.pump(1);
            for completion in self.ends[0].take_sends() {
                if completion.status != WcStatus::Success {
                    return Err(format!("{:?}: {:?}", completion.status, completion.cause));
                }
                done += 1;
            }
            if done == messages {
                break;
            }
            if posted == messages || posted == done + DEPTH {
                self.step()?;
            }
        }
        let (from, to) = if transfer.verb == Verb::Read { (1, 0) } else { (0, 1) };
        if self.ends[from].bytes() == self.ends[to].bytes() {
            Ok(())
        } else {
            Err("wrong bytes".to_owned())
        }
    }

    fn post(&mut self, verb: Verb, message: u64) -> Result<(), String> {
        let at = message * MESSAGE;
        if verb == Verb::Send {
            self.ends[1].post_recv(at)?;
        }
        let remote = self.ends[1].remote(at);
        self.ends[0].post(verb, at, remote)
    }

    /// Sends all packets that an end has ready.
    fn pump(&mut self, side: usize) {
        while let Some(packet) = self.ends[side].poll(self.now) {
            self.packets += 1;
            self.ways[side].send(self.now, &mut self.rng, packet);
        }
    }

    /// Advances to the next event.
    fn step(&mut self) -> Result<(), String> {
        let times = [
            self.ways[0].next(),
            self.ways[1].next(),
            self.ends[0].timeout(),
            self.ends[1].timeout(),
        ];
        let next = times.into_iter().flatten().min().ok_or("nothing happens any more")?;
        self.now = self.now.max(next);
        if self.now > LIMIT {
            return Err("it does not end".to_owned());
        }
        for side in 0..2 {
            if let Some(packet) = self.ways[side].arrive(self.now) {
                self.ends[1 - side].take(self.now, &packet);
            }
            if self.ends[side].timeout().is_some_and(|at| at <= self.now) {
                self.ends[side].handle_timeout(self.now);
            }
        }
        Ok(())
    }
}
