//! Several senders and one receiver: flows that share a router and its line.
use super::end::GoodputEnd;
use super::path::{Path, PathDirection};
use super::{DEPTH, LIMIT, MESSAGE, Transfer, Verb};
use crate::rng::Rng;
use adverb_engine::{Time, WcStatus};

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

/// A sender and its end at the receiver.
struct Flow {
    ends: [GoodputEnd; 2],
    back: PathDirection,
    start: Time,
    posted: u64,
    done: u64,
}

/// Runs the senders until the end of the counted time.
#[must_use]
pub fn share(many: &ManyToOne) -> Shares {
    let transfer =
        Transfer { verb: Verb::Write, bytes: DEPTH * MESSAGE, path: many.path, seed: many.seed };
    let begin = Time(1_000_000);
    let mut flows: Vec<Flow> = (0..many.senders)
        .map(|n| {
            let mut ends = [GoodputEnd::new(0, &transfer), GoodputEnd::new(1, &transfer)];
            ends.iter_mut().for_each(|end| end.connect());
            let start = Time(begin.0 + many.stagger * n as u64);
            Flow { ends, back: PathDirection::new(many.path), start, posted: 0, done: 0 }
        })
        .collect();
    let mut line = PathDirection::new(many.path);
    let mut hosts: Vec<Time> = vec![Time::ZERO; many.senders];
    let mut rng = Rng::new(many.seed ^ 0x3a11);
    let mut now = begin;
    let mut bytes = vec![[0; 2]; many.senders];
    let failure = loop {
        if let Err(why) = flows
            .iter_mut()
            .enumerate()
            .try_for_each(|(n, flow)| flow.pump(now, n, &mut line, &mut hosts[n], &mut rng))
        {
            break Some(why);
        }
        let starts = flows.iter().map(|f| f.start).filter(|at| *at > now);
        let timers = flows.iter().flat_map(|f| f.ends.iter().filter_map(GoodputEnd::timeout));
        let backs = flows.iter().filter_map(|f| f.back.next());
        let Some(next) = line.next().into_iter().chain(starts).chain(timers).chain(backs).min()
        else {
            break Some("nothing happens any more".to_owned());
        };
        let next = now.max(next);
        for (at, end) in many.window.iter().enumerate() {
            let end = Time(begin.0 + end);
            if now < end && next >= end {
                flows
                    .iter()
                    .zip(&mut bytes)
                    .for_each(|(f, b)| b[at] = f.ends[1].counters().executed * MTU);
            }
        }
        now = next;
        if now >= Time(begin.0 + many.window[1]) {
            break None;
        }
        if now > LIMIT {
            break Some("it does not end".to_owned());
        }
        if let Some((n, packet)) = line.arrive_of(now) {
            flows[n].ends[1].take(now, &packet);
        }
        for flow in &mut flows {
            if let Some(packet) = flow.back.arrive(now) {
                flow.ends[0].take(now, &packet);
            }
            for end in &mut flow.ends {
                if end.timeout().is_some_and(|at| at <= now) {
                    end.handle_timeout(now);
                }
            }
        }
    };
    let sum = |f: fn(&adverb_engine::qp::Counters) -> u64| {
        flows.iter().map(|x| f(x.ends[0].counters())).sum()
    };
    Shares {
        bytes: bytes.iter().map(|b| b[1] - b[0]).collect(),
        nanos: many.window[1] - many.window[0],
        overflowed: line.overflowed,
        retransmitted: sum(|c| c.retransmitted),
        timeouts: sum(|c| c.timeouts),
        failure,
    }
}

impl Flow {
    /// Posts the next messages and sends all packets that both ends have ready.
    fn pump(
        &mut self,
        now: Time,
        n: usize,
        line: &mut PathDirection,
        host: &mut Time,
        rng: &mut Rng,
    ) -> Result<(), String> {
        if now < self.start {
            return Ok(());
        }
        for completion in self.ends[0].take_sends() {
            if completion.status != WcStatus::Success {
                return Err(format!("{:?}: {:?}", completion.status, completion.cause));
            }
            self.done += 1;
        }
        while self.posted < self.done + DEPTH {
            let at = self.posted % DEPTH * MESSAGE;
            let remote = self.ends[1].remote(at);
            self.ends[0].post(Verb::Write, at, remote)?;
            self.posted += 1;
        }
        while let Some(packet) = self.ends[0].poll(now) {
            line.send_of(n, host, now, rng, packet);
        }
        while let Some(packet) = self.ends[1].poll(now) {
            self.back.send(now, rng, packet);
        }
        Ok(())
    }
}
