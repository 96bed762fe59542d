//! A world: devices, queue pairs and a network in virtual time. A program drives the world, and the
//! oracle watches.
use crate::config::Config;
use crate::memory::{Arena, SHARED, Touch};
use crate::model::keys::Keys;
use crate::model::{Check, Flow, Recv, Rx, Violation, cq::NaiveCq, ensure};
use crate::net::{Flying, Net};
use crate::program::{Action, Program};
use crate::report::{Record, Report, caught};
use crate::rng::Rng;
use adverb_engine::{
    Access, Cq, Effects, Key, KeyTable, PdId, Qp, QpState, QpType, Qpn, Srq, Time,
};
use std::time::Duration;

mod actions;
mod finish;
mod host;
mod post;
mod setup;
pub(crate) use setup::LIMITS;

pub(crate) const PD: PdId = PdId(1);
/// Another protection domain.
pub(crate) const OTHER_PD: PdId = PdId(2);
/// Number of queue pair 0; the others follow.
pub(crate) const QPN: Qpn = 0x100;
/// Number of the XRC SRQ of device 0; the others follow.
pub(crate) const XRC_SRQN: u32 = 0x300;
pub(crate) const QKEY: u32 = 0x1111;
/// Access rights for the peers of a world's ends.
pub(crate) const QP_ACCESS: Access = Access::REMOTE_WRITE
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_ATOMIC)
    .union(Access::FLUSH_GLOBAL)
    .union(Access::FLUSH_PERSISTENT);
/// Limit of events for an action, and for the end of the run: far more than any of these needs. The
/// limit does not hold for a whole run. Programs let hundreds of milliseconds pass, and a requester
/// that meets no receive may ask again every 10 µs for as long as `rnr_retry` says.
const MAX_EVENTS: u64 = 100_000;

/// A shared receive queue, with the contents expected by the oracle.
#[derive(Debug)]
pub(crate) struct SharedQueue {
    pub(crate) srq: Srq,
    pub(crate) queue: std::collections::VecDeque<Recv>,
    pub(crate) limit: u32,
    /// For each receive taken since the last check: was the limit event raised?
    pub(crate) taken: Vec<bool>,
}

impl SharedQueue {
    /// Checks a step in which the engine took one receive, or none. The caller has already removed
    /// the receive from `queue`.
    pub(crate) fn check_taken(&mut self, one: bool) -> Check {
        let taken = std::mem::take(&mut self.taken);
        ensure!(
            taken.len() == usize::from(one),
            "{} receives taken of an SRQ, {one} due",
            taken.len()
        );
        ensure!(self.srq.len() == self.queue.len(), "{} receives in an SRQ", self.srq.len());
        if one {
            let due = self.queue.len() < self.limit as usize;
            ensure!(taken[0] == due, "SRQ limit event: {}, due: {due}", taken[0]);
            if due {
                self.limit = 0;
            }
        }
        Ok(())
    }
}

/// A completion queue, with the contents expected by the oracle.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) cq: Cq,
    pub(crate) naive: NaiveCq,
    /// Events so far.
    pub(crate) events: u64,
}

#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) arena: Arena,
    pub(crate) keys: KeyTable,
    pub(crate) naive: Keys,
    /// Old contents of the shared area, one entry for each write: (step, address, bytes).
    pub(crate) history: Vec<(u64, u64, Vec<u8>)>,
    /// Key for local access to the whole arena.
    pub(crate) all: Key,
    pub(crate) good: Key,
    pub(crate) read_only: Key,
    pub(crate) other_pd: Key,
    pub(crate) volatile: Option<Key>,
    /// On-demand regions: `[0]` is the whole arena for local access, `[1]` is the shared area. The
    /// last page of the shared area has a hole.
    pub(crate) on_demand: [Key; 2],
    pub(crate) windows: [Key; 2],
    pub(crate) fast: [Key; 2],
}

/// A queue pair, with the oracle's knowledge of it.
#[derive(Debug)]
pub(crate) struct WorldEnd {
    pub(crate) engine: Qp,
    pub(crate) effects: Effects,
    pub(crate) kind: QpType,
    pub(crate) device: usize,
    pub(crate) peer: usize,
    /// Indices of completion queues.
    pub(crate) cqs: [usize; 2],
    pub(crate) srq: Option<usize>,
    pub(crate) flow: Flow,
    pub(crate) rx: Rx,
    /// Packets that arrived before packets sent earlier.
    pub(crate) early: Vec<Flying>,
    /// When the host looks at this queue pair next.
    pub(crate) pump_at: Option<Time>,
    /// When this queue pair is connected again.
    pub(crate) connect_at: Option<Time>,
    /// This queue pair has a reason to be in ERR or SQE.
    pub(crate) doomed: bool,
    /// A marked packet (ECN) arrived since the last notification (CNP).
    pub(crate) marked: bool,
    /// Path MTU in bytes.
    pub(crate) mtu: u64,
}

impl Device {
    /// Does an access through this key to these pieces meet a hole?
    pub(crate) fn faults(&self, key: Key, pieces: &[(u64, u32)]) -> bool {
        self.naive.is_on_demand(key)
            && pieces.iter().any(|(addr, len)| self.arena.has_hole(*addr, *len))
    }
}

impl WorldEnd {
    pub(crate) fn is_reliable(&self) -> bool {
        self.kind.is_reliable()
    }
}

/// Devices, queue pairs, a network, and the program that runs on them.
#[derive(Debug)]
pub struct World {
    pub(crate) config: Config,
    pub(crate) now: Time,
    /// Events so far.
    pub(crate) step: u64,
    /// Value of `step` when the current action began.
    pub(crate) begun: u64,
    pub(crate) devices: Vec<Device>,
    pub(crate) queues: Vec<Queue>,
    pub(crate) srqs: Vec<SharedQueue>,
    pub(crate) ends: Vec<WorldEnd>,
    /// Number of connections of each link so far.
    pub(crate) epochs: Vec<u32>,
    pub(crate) net: Net,
    pub(crate) rng: Rng,
    pub(crate) next_id: u64,
    /// The end of the run: receives are posted and completions polled as needed.
    pub(crate) winding_up: bool,
    pub(crate) record: Record,
    capture: Option<Vec<(u64, Vec<u8>)>>,
    pub(crate) completions: u64,
    packets: u64,
}

impl World {
    /// Builds the world of a configuration and connects every link.
    #[must_use]
    pub fn new(config: &Config) -> World {
        setup::build(config)
    }

    /// Keeps a line of text for every event.
    #[must_use]
    pub fn traced(mut self) -> World {
        self.record.trace(&self.config);
        self
    }

    /// Keeps every packet sent to the network.
    #[must_use]
    pub fn captured(mut self) -> World {
        self.capture = Some(Vec::new());
        self
    }

    /// Runs a program and then winds up: the network heals, receives are posted, and everything
    /// must end.
    #[must_use]
    pub fn run(mut self, program: &Program) -> Report {
        let mut at = 0;
        let result = caught(|| {
            for action in &program.actions {
                self.act(action)?;
                at += 1;
            }
            self.finish()
        });
        let (step, now) = (self.step, self.now.0);
        let result = result.map_err(|Violation(why)| {
            Violation(format!("action {at}, event {step}, {now} ns: {why}"))
        });
        let counts = [("packets", self.packets), ("completions", self.completions)];
        let report = self.record.report(result, &counts);
        Report { packets: self.capture.unwrap_or_default(), ..report }
    }

    fn act(&mut self, action: &Action) -> Check {
        self.note(|| format!("{action:?}"));
        self.begun = self.step;
        self.apply(action)?;
        // Without a pump delay the host reacts at once.
        self.run_until(self.now)
    }

    pub(crate) fn note(&mut self, words: impl FnOnce() -> String) {
        self.record.note(self.now, words);
    }

    pub(crate) fn index_of(&self, end: &WorldEnd) -> usize {
        // `end` is the only end whose peer's peer is `end`, except for the two ends of a link
        // themselves.
        self.ends[end.peer].peer
    }
    pub(crate) fn epoch_of(&self, q: usize) -> u32 {
        self.epochs[q / 2]
    }

    /// Takes the engine's changes of a device's memory. Writes to the shared area enter its
    /// history.
    pub(crate) fn take_touches(&mut self, device: usize) -> Vec<Touch> {
        let device = &mut self.devices[device];
        let touches = device.arena.take_touches();
        for touch in &touches {
            let (addr, old) = match touch {
                Touch::Write { addr, old, .. } => (*addr, old.clone()),
                Touch::Atomic { addr, old, .. } => (*addr, old.to_ne_bytes().to_vec()),
            };
            if addr < device.arena.base + SHARED {
                device.history.push((self.step, addr, old));
            }
        }
        touches
    }

    /// Time of the earliest event.
    fn next_event(&self) -> Option<Time> {
        let ends =
            self.ends.iter().flat_map(|e| [e.engine.poll_timeout(), e.pump_at, e.connect_at]);
        let queues = self.queues.iter().map(|q| q.cq.poll_timeout());
        ends.chain(queues).chain([self.net.next()]).flatten().min()
    }

    /// Lets virtual time pass up to `until`, event by event.
    pub(crate) fn run_until(&mut self, until: Time) -> Check {
        while let Some(at) = self.next_event().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            self.step += 1;
            ensure!(self.step - self.begun < MAX_EVENTS, "they never come to rest");
            self.run_event()?;
        }
        self.now = self.now.max(until);
        Ok(())
    }

    /// Runs one of the due events.
    fn run_event(&mut self) -> Check {
        let now = self.now;
        let due = |t: Option<Time>| t.is_some_and(|t| t <= now);
        if let Some(q) = self.ends.iter().position(|e| due(e.connect_at)) {
            self.ends[q].connect_at = None;
            self.connect(q)?;
        } else if let Some(q) = self.ends.iter().position(|e| due(e.pump_at)) {
            self.ends[q].pump_at = None;
            self.pump(q)?;
        } else if let Some(q) = self.ends.iter().position(|e| due(e.engine.poll_timeout())) {
            self.timeout(q)?;
        } else if let Some(i) = self.queues.iter().position(|c| due(c.cq.poll_timeout())) {
            let queue = &mut self.queues[i];
            let (fired, expected) = (queue.cq.handle_timeout(now), queue.naive.fire(now));
            ensure!(fired == expected, "CQ {i}: event after moderation: {fired}, due: {expected}");
            queue.events += u64::from(fired);
            ensure!(!due(queue.cq.poll_timeout()), "CQ {i}: its time has come again and again");
        } else if let Some(flying) = self.net.arrive(now) {
            self.deliver(&flying)?;
        }
        if self.winding_up {
            self.attend()?;
        }
        Ok(())
    }

    /// Schedules a look of the host at a queue pair, after at most `pump_delay`.
    pub(crate) fn wake(&mut self, q: usize) {
        let delay = self.rng.below(self.config.pump_delay + 1);
        let at = self.now + Duration::from_nanos(delay);
        let end = &mut self.ends[q];
        end.pump_at = Some(end.pump_at.map_or(at, |before| before.min(at)));
    }

    pub(crate) fn count_packet(&mut self, flying: &Flying) {
        self.packets += 1;
        self.record.mix_bytes(&flying.bytes);
        if let Some(capture) = &mut self.capture {
            capture.push((self.now.0, flying.datagram()));
        }
    }

    /// ERR or SQE without a reason is a violation.
    pub(crate) fn check_state(&self, q: usize) -> Check {
        let end = &self.ends[q];
        let state = end.engine.state();
        if matches!(state, QpState::Err | QpState::Sqe) {
            let why = end.engine.first_error();
            ensure!(end.doomed, "queue pair {q} went to {state:?} without a reason: {why:?}");
        }
        if let Some(range) = self.devices[end.device].arena.stray() {
            return Err(Violation(format!("memory was reached that nobody gave out: {range:x?}")));
        }
        Ok(())
    }
}
