//! A world: its nodes, and the steps of their threads in virtual time.
use super::Config;
use super::end::{AREA, NodeEnd, SENDS};
use super::net::{HostWire, Net, ip, lock};
use super::queue::Queue;
use super::threads::{Background, Consumer};
use crate::report::{Record, Report, caught};
use crate::rng::Rng;
use crate::verdict::{Check, Violation, ensure};
use adverb_device::buffer::Buffer;
use adverb_device::interfaces::Interface;
use adverb_device::node::SimulatedNode;
use adverb_device::{CompChannel, Context, Cq, Pd};
use adverb_engine::{Access, Completion, QpType, Time};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Limit of steps. A world with more steps never comes to rest.
const MOST_STEPS: u64 = 400_000;
/// A thread looks at its work again within this time while awake.
const AWAKE: Duration = Duration::from_millis(1);
/// Tolerance: the virtual clock moves on a little with each look.
const SLACK: Duration = Duration::from_micros(200);

/// A scheduled step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The background thread of a node wakes up from the sleep of this number.
    Wake(usize, u64),
    /// The same, because a packet has arrived. If another thread has taken the packet in the
    /// meantime, the kernel lets the background thread sleep on.
    Arrived(usize, u64),
    /// The background thread of a node goes to sleep.
    Rest(usize),
    /// The consumer of a node goes on. A sleeping consumer does so only if its sleep has this
    /// number.
    Consume(usize, u64),
    /// The consumer's timeout of the sleep of this number.
    TimeOut(usize, u64),
    /// The poster of a node posts.
    Post(usize),
    /// Receives are posted again.
    Refill(usize),
    Connect(usize),
    Break(usize, bool),
    Renew(usize),
    Moderate(usize),
    WindUp,
}

pub(super) struct Host {
    pub(super) context: Arc<Context>,
    pub(super) node: SimulatedNode,
    pub(super) pd: Arc<Pd>,
    pub(super) channel: Arc<CompChannel>,
    pub(super) buffer: Buffer,
    pub(super) queues: Vec<usize>,
    pub(super) ends: Vec<usize>,
    pub(super) background: Background,
    pub(super) consumer: Consumer,
}

/// A world.
pub struct World {
    pub(super) config: Config,
    pub(super) rng: Rng,
    pub(super) now: Time,
    steps: BTreeMap<(Time, u64), Step>,
    pub(super) serial: u64,
    pub(super) net: Arc<Mutex<Net>>,
    /// Host of each node.
    pub(super) hosts: Vec<usize>,
    pub(super) nodes: Vec<Host>,
    pub(super) ends: Vec<NodeEnd>,
    pub(super) queues: Vec<Queue>,
    pub(super) winding_up: bool,
    /// Time of the last post.
    pub(super) posted: Time,
    pub(super) record: Record,
    pub(super) completions: u64,
    pub(super) events: u64,
    /// How often requesters asked for an answer although no packet was lost or late.
    pub(super) asked: u64,
}

impl World {
    /// The world of a configuration.
    #[must_use]
    pub fn new(config: &Config) -> World {
        let mut rng = Rng::new(config.seed ^ 0x0de5);
        let hosts: Vec<usize> = (0..config.nodes)
            .map(|node| if node < config.hosts { node } else { rng.index(config.hosts) })
            .collect();
        World {
            config: config.clone(),
            rng,
            now: Time::ZERO,
            steps: BTreeMap::new(),
            serial: 0,
            net: Arc::new(Mutex::new(Net::new(config, hosts.clone()))),
            hosts,
            nodes: Vec::new(),
            ends: Vec::new(),
            queues: Vec::new(),
            winding_up: false,
            posted: Time::ZERO,
            record: Record::default(),
            completions: 0,
            events: 0,
            asked: 0,
        }
    }

    /// Keeps a line of text for every event.
    #[must_use]
    pub fn traced(mut self) -> World {
        self.record.trace(&self.config);
        self
    }

    /// Runs to the end and judges the result.
    #[must_use]
    pub fn run(mut self) -> Report {
        let result = caught(|| self.run_all());
        let now = self.now.0;
        let result = result.map_err(|Violation(why)| Violation(format!("{now} ns: {why}")));
        let counts =
            [("completions", self.completions), ("events", self.events), ("asked", self.asked)];
        let report = self.record.report(result, &counts);
        if report.failure.is_some() {
            // After a failure locks may be held and queue pairs busy, so the world is not dropped.
            std::mem::forget(self);
        }
        report
    }

    pub(super) fn note(&mut self, words: impl FnOnce() -> String) {
        self.record.note(self.now, words);
    }

    /// Schedules a step after this many nanoseconds.
    pub(super) fn after(&mut self, wait: u64, step: Step) {
        self.serial += 1;
        self.steps.insert((self.now + Duration::from_nanos(wait), self.serial), step);
    }

    /// Delay until a woken thread gets the processor, in nanoseconds.
    pub(super) fn latency(&mut self) -> u64 {
        match self.rng.chance(self.config.stalls) {
            true => self.rng.below(12_000_000),
            false => self.rng.range(500, 30_000),
        }
    }

    fn run_all(&mut self) -> Check {
        self.set_up()?;
        self.run_until(|_| false)?;
        self.finish()
    }

    /// Performs steps until none is left, or until `enough` holds.
    pub(super) fn run_until(&mut self, enough: impl Fn(&World) -> bool) -> Check {
        for steps in 0.. {
            ensure!(steps < MOST_STEPS, "it never comes to rest");
            let arrival = lock(&self.net).next();
            let next = self.steps.keys().next().map(|key| key.0);
            let Some(at) = next.into_iter().chain(arrival).min() else { return Ok(()) };
            self.now = self.now.max(at);
            {
                let mut net = lock(&self.net);
                net.now = net.now.max(self.now);
                net.arrive();
            }
            if next.is_some_and(|next| next <= at)
                && let Some((_, step)) = self.steps.pop_first()
            {
                self.record.mix(self.now, step_number(step));
                self.perform(step)?;
            }
            self.wake_those_with_packets();
            if enough(self) {
                return Ok(());
            }
        }
        Ok(())
    }

    fn set_up(&mut self) -> Check {
        let failed = |e: adverb_device::Error| Violation(format!("set-up: {e}"));
        let links = self.config.links;
        let mut places: Vec<(QpType, [usize; 2])> = Vec::new();
        for _ in 0..links {
            let qp_type = self.rng.pick(&[QpType::Rc, QpType::Rc, QpType::Uc, QpType::Ud]);
            let (a, b) = (self.rng.index(self.config.nodes), self.rng.index(self.config.nodes));
            places.push((qp_type, [a, b]));
        }
        for node in 0..self.config.nodes {
            let wire = HostWire { node, host: self.hosts[node], net: self.net.clone() };
            let made =
                SimulatedNode::new(self.config.seed.wrapping_add(node as u64), Box::new(wire))
                    .map_err(failed)?;
            let interface = Interface {
                name: format!("sim{node}"),
                index: node as u32 + 1,
                mtu: 1500,
                mac: [2, 0, 0, 0, 0, node as u8],
                loopback: false,
                outward: true,
                speed: 10_000,
                up: true,
                addresses: vec![ip(self.hosts[node])],
            };
            let context = Context::simulated(made.node(), interface).map_err(failed)?;
            let pd = Pd::new(&context).map_err(failed)?;
            let channel = CompChannel::new(&context).map_err(failed)?;
            let here = places.iter().flat_map(|(_, ends)| ends).filter(|of| **of == node).count();
            let access = Access::LOCAL_WRITE
                | Access::REMOTE_READ
                | Access::REMOTE_WRITE
                | Access::REMOTE_ATOMIC;
            let buffer = Buffer::new(&pd, AREA * here.max(1), access).map_err(failed)?;
            let mut queues = Vec::new();
            for _ in 0..self.rng.range(1, 2) {
                let cq = Cq::new(&context, 4096, Some(&channel), 0).map_err(failed)?;
                queues.push(self.queues.len());
                self.queues.push(Queue::new(cq));
            }
            self.nodes.push(Host {
                context,
                node: made,
                pd,
                channel,
                buffer,
                queues,
                ends: Vec::new(),
                background: Background::Awake,
                consumer: Consumer::new(),
            });
        }
        for (qp_type, ends) in places {
            for node in ends {
                self.add_end(qp_type, node, ends);
            }
        }
        for end in 0..self.ends.len() {
            self.create(end)?;
            self.fill(end)?;
            let wait = self.rng.below(2_000_000);
            self.after(wait, Step::Connect(end));
        }
        for node in 0..self.nodes.len() {
            self.after(0, Step::Rest(node));
            self.after(100, Step::Consume(node, 0));
            self.after(2_000_000, Step::Post(node));
        }
        self.plan();
        Ok(())
    }

    fn add_end(&mut self, qp_type: QpType, node: usize, ends: [usize; 2]) {
        let number = self.ends.len();
        let host = &mut self.nodes[node];
        let area = AREA * host.ends.len();
        host.ends.push(number);
        let apart = ends[0] != ends[1];
        let relayed = apart && self.hosts[ends[0]] == self.hosts[ends[1]];
        let queues = host.queues.clone();
        self.ends.push(NodeEnd {
            number,
            node,
            qp_type,
            exact: qp_type == QpType::Rc || relayed,
            area,
            queues: [self.rng.pick(&queues), self.rng.pick(&queues)],
            qp: None,
            connected: false,
            epoch: 0,
            psn: self.rng.below(1 << 24) as u32,
            seq: 0,
            left: self.config.messages,
            outstanding: VecDeque::with_capacity(SENDS),
            unsignaled: 0,
            recvs: VecDeque::new(),
            next_recv: 0,
            owed: 64,
            words: [0; super::end::WORDS],
            due: Vec::new(),
        });
    }

    /// Schedules the program's other actions: breaks, moderation and the end.
    fn plan(&mut self) {
        let wind_up = self.rng.range(5_000_000, 300_000_000);
        for _ in 0..self.config.breaks {
            let link = self.rng.index(self.config.links);
            let at = self.rng.range(2_500_000, wind_up);
            if self.steps.values().any(|step| *step == Step::Renew(link)) {
                continue;
            }
            for end in [2 * link, 2 * link + 1] {
                let (wait, destroy) = (self.rng.below(5_000_000), self.rng.chance(500));
                self.after(at + wait, Step::Break(end, destroy));
            }
            self.after(at + 5_100_000, Step::Renew(link));
        }
        for queue in 0..self.queues.len() {
            if self.rng.chance(self.config.moderated) {
                let at = self.rng.below(wind_up);
                self.after(at, Step::Moderate(queue));
            }
        }
        self.after(wind_up + 8_000_000, Step::WindUp);
    }

    /// Judges a step of a node. `polled` has the completions that a queue was polled for.
    pub(super) fn judge(&mut self, node: usize, polled: Option<(usize, &[Completion])>) -> Check {
        let now = self.nodes[node].node.node().now();
        for &queue in &self.nodes[node].queues {
            let taken = polled.filter(|(of, _)| *of == queue).map_or(&[][..], |(_, taken)| taken);
            self.queues[queue].judge(taken, now)?;
        }
        self.watch_background(node)?;
        self.wake_consumer(node);
        Ok(())
    }

    /// The background thread must be woken for its work and deadlines. A sleep past either is a
    /// violation. Away from the sockets the thread leaves deadlines to the polling program, and is
    /// late by such a stay at most.
    fn watch_background(&mut self, node: usize) -> Check {
        let host = &self.nodes[node];
        let Background::Asleep { until, at_sockets, waking: false, number } = host.background
        else {
            return Ok(());
        };
        if host.node.is_woken() {
            self.wake(node, Step::Wake(node, number));
            return Ok(());
        }
        let now = host.node.node().now();
        let until = until.unwrap_or(Time(u64::MAX));
        let deadline = host.node.deadline().unwrap_or(Time(u64::MAX));
        ensure!(
            !at_sockets || until <= deadline.max(now) + SLACK,
            "node {node} sleeps until {until:?}, past its deadline at {deadline:?}"
        );
        let work = host.node.work();
        ensure!(
            work.is_none() || until <= now + AWAKE + SLACK,
            "node {node} sleeps until {until:?} beside {work:?}"
        );
        ensure!(
            at_sockets || until <= now + AWAKE + SLACK,
            "node {node} stays away from the sockets until {until:?}"
        );
        Ok(())
    }

    /// Schedules the wake-up of a node's background thread.
    pub(super) fn wake(&mut self, node: usize, step: Step) {
        if let Background::Asleep { waking, .. } = &mut self.nodes[node].background {
            *waking = true;
        }
        let wait = self.latency();
        self.after(wait, step);
    }

    fn wake_those_with_packets(&mut self) {
        for node in 0..self.nodes.len() {
            if !lock(&self.net).has_arrived(node) {
                continue;
            }
            if let Background::Asleep { at_sockets: true, waking: false, number, .. } =
                self.nodes[node].background
            {
                self.wake(node, Step::Arrived(node, number));
            }
            self.wake_consumer(node);
        }
    }
}

fn step_number(step: Step) -> u64 {
    let (kind, of) = match step {
        Step::Wake(n, _) => (1, n),
        Step::Arrived(n, _) => (13, n),
        Step::Rest(n) => (2, n),
        Step::Consume(n, _) => (3, n),
        Step::TimeOut(n, _) => (12, n),
        Step::Post(n) => (4, n),
        Step::Refill(n) => (5, n),
        Step::Connect(n) => (6, n),
        Step::Break(n, destroy) => (7 + u64::from(destroy), n),
        Step::Renew(n) => (9, n),
        Step::Moderate(n) => (10, n),
        Step::WindUp => (11, 0),
    };
    kind << 8 | of as u64
}
