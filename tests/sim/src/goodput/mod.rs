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

/// A sender and its end at the receiver.
struct Flow {
    ends: [GoodputEnd; 2],
    /// When the wire of each end's host is free.
    wires: [Time; 2],
    /// The line of the answers.
    back: PathDirection,
    start: Time,
    posted: u64,
    done: u64,
}

impl Flow {
    /// Posts the next message. Its place in memory is used again after all of the memory.
    fn post(&mut self, transfer: &Transfer) -> Result<(), String> {
        let at = self.posted * MESSAGE % transfer.bytes;
        if transfer.verb == Verb::Send {
            self.ends[1].post_recv(at)?;
        }
        let remote = self.ends[1].remote(at);
        self.ends[0].post(transfer.verb, at, remote)?;
        self.posted += 1;
        Ok(())
    }

    fn take_sends(&mut self) -> Result<(), String> {
        for completion in self.ends[0].take_sends() {
            if completion.status != WcStatus::Success {
                return Err(format!("{:?}: {:?}", completion.status, completion.cause));
            }
            self.done += 1;
        }
        Ok(())
    }
}

/// Flows to one receiver, the network between them, and the clock.
struct World {
    flows: Vec<Flow>,
    /// The line to the receiver, which all flows share.
    line: PathDirection,
    rng: Rng,
    now: Time,
    packets: u64,
}

impl World {
    /// A world in which a flow starts `stagger` nanoseconds after the one before.
    fn new(transfer: &Transfer, flows: usize, stagger: u64) -> World {
        let now = Time(1_000_000);
        let flow = |n| {
            let mut ends = [GoodputEnd::new(0, transfer), GoodputEnd::new(1, transfer)];
            ends.iter_mut().for_each(GoodputEnd::connect);
            let (wires, back) = ([Time::ZERO; 2], PathDirection::new(transfer.path));
            Flow { ends, wires, back, start: Time(now.0 + stagger * n), posted: 0, done: 0 }
        };
        World {
            flows: (0..flows as u64).map(flow).collect(),
            line: PathDirection::new(transfer.path),
            rng: Rng::new(transfer.seed ^ 0x600d),
            now,
            packets: 0,
        }
    }

    /// Posts up to `messages` messages of each flow, and sends all packets that the ends have
    /// ready.
    fn pump(&mut self, transfer: &Transfer, messages: u64) -> Result<(), String> {
        let (now, line, rng) = (self.now, &mut self.line, &mut self.rng);
        for (n, flow) in self.flows.iter_mut().enumerate().filter(|(_, flow)| flow.start <= now) {
            loop {
                while flow.posted < messages.min(flow.done + DEPTH) {
                    flow.post(transfer)?;
                }
                while let Some(packet) = flow.ends[0].poll(now) {
                    self.packets += 1;
                    line.send(n, &mut flow.wires[0], now, rng, packet);
                }
                while let Some(packet) = flow.ends[1].poll(now) {
                    self.packets += 1;
                    flow.back.send(n, &mut flow.wires[1], now, rng, packet);
                }
                flow.take_sends()?;
                if flow.posted == messages.min(flow.done + DEPTH) {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Advances the clock to the next event.
    fn advance(&mut self) -> Result<(), String> {
        let starts = self.flows.iter().map(|f| f.start).filter(|at| *at > self.now);
        let timers = self.flows.iter().flat_map(|f| f.ends.iter().filter_map(GoodputEnd::timeout));
        let backs = self.flows.iter().filter_map(|f| f.back.next());
        let next = self.line.next().into_iter().chain(starts).chain(timers).chain(backs).min();
        self.now = self.now.max(next.ok_or("nothing happens any more")?);
        if self.now > LIMIT { Err("it does not end".to_owned()) } else { Ok(()) }
    }

    /// The ends take the packets that have arrived, and their timers run out.
    fn deliver(&mut self) {
        let now = self.now;
        if let Some((n, packet)) = self.line.arrive(now) {
            self.flows[n].ends[1].take(now, &packet);
        }
        for flow in &mut self.flows {
            flow.ends[0].handle_timeout(now);
            if let Some((_, packet)) = flow.back.arrive(now) {
                flow.ends[0].take(now, &packet);
            }
            flow.ends[1].handle_timeout(now);
        }
    }

    fn sum(&self, counter: fn(&Counters) -> u64) -> u64 {
        self.flows.iter().flat_map(|f| &f.ends).map(|end| counter(end.counters())).sum()
    }

    /// Runs a transfer over the only flow.
    fn run(&mut self, transfer: &Transfer) -> Result<(), String> {
        let messages = transfer.bytes / MESSAGE;
        loop {
            self.pump(transfer, messages)?;
            if self.flows[0].done == messages {
                break;
            }
            self.advance()?;
            self.deliver();
        }
        let [a, b] = &self.flows[0].ends;
        if a.has_same_bytes(b) { Ok(()) } else { Err("wrong bytes".to_owned()) }
    }
}

/// Runs a transfer to its end.
#[must_use]
pub fn measure(transfer: &Transfer) -> Measured {
    let mut world = World::new(transfer, 1, 0);
    let begin = world.now;
    let failure = world.run(transfer).err();
    Measured {
        nanos: world.now.since(begin).as_nanos() as u64,
        packets: world.packets,
        retransmitted: world.sum(|c| c.retransmitted),
        timeouts: world.sum(|c| c.timeouts),
        probes: world.sum(|c| c.probes),
        overflowed: world.line.overflowed + world.flows[0].back.overflowed,
        cnps: world.sum(|c| c.cnps_sent),
        failure,
    }
}
