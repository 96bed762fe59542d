//! Hosts, the network between them, and time.
use super::host::{Plan, Process};
use super::net::{Flying, Net, host_of};
use super::oracle::{Attempt, Outcome};
use super::{Config, Report};
use crate::rng::{Rng, mix};
use adverb_cm::{Id, MAD_LEN, Path, Route, Time, answer_for_nobody, route};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// What is wrong.
#[derive(Debug)]
pub(super) struct Violation(pub String);
pub(super) type Check = Result<(), Violation>;

macro_rules! ensure {
    ($cond:expr, $($why:tt)+) => {
        if !$cond {
            return Err(super::world::Violation(format!($($why)+)));
        }
    };
}
pub(super) use ensure;

/// The service that every process offers, and one that nobody does.
pub(super) const SERVICE: u64 = 0x0106_1c06;
pub(super) const NOBODY: u64 = 0x0106_0001;
/// Bits of the prefix by which a process is found.
pub(super) const PREFIX_BITS: u8 = 10;
/// Programs begin within this time.
const BEGIN_US: u64 = 20_000_000;
/// Then the network heals and programs end what they have.
const WINDING_UP: Time = Time(200_000_000_000);
/// The protocol's longest wait, seven retries of the longest service timeout among them, is over by
/// then.
const END: Duration = Duration::from_secs(3600);
/// More events mean that something never comes to rest.
const MAX_EVENTS: u64 = 200_000;

/// A world of connections that runs once.
pub struct World {
    pub(super) config: Config,
    pub(super) rng: Rng,
    pub(super) now: Time,
    pub(super) net: Net,
    /// Those that have died stay, without being reached.
    pub(super) processes: Vec<Process>,
    pub(super) plans: BTreeMap<(Time, u64), (usize, Plan)>,
    serial: u64,
    pub(super) attempts: Vec<Attempt>,
    /// Communication ids that were given out.
    pub(super) ids: BTreeSet<Id>,
    pub(super) winding_up: bool,
    hash: u64,
    lines: Option<Vec<String>>,
}

impl World {
    /// The world of a configuration, at its beginning.
    #[must_use]
    pub fn new(config: &Config) -> World {
        let mut rng = Rng::new(config.seed ^ 0x5e);
        let processes =
            (0..config.hosts).map(|host| Process::new(config, host, host as u32 + 1, &mut rng)).collect();
        let mut world = World {
            config: config.clone(),
            rng,
            now: Time(1_000_000_000),
            net: Net::new(config),
            processes,
            plans: BTreeMap::new(),
            serial: 0,
            attempts: Vec::new(),
            ids: BTreeSet::new(),
            winding_up: false,
            hash: 0,
            lines: None,
        };
        for who in 0..config.hosts {
            for _ in 0..config.connects {
                world.plan_within(who, BEGIN_US, Plan::Connect);
            }
        }
        for _ in 0..config.deaths {
            let who = world.rng.index(config.hosts);
            world.plan_within(who, BEGIN_US, Plan::Die);
        }
        for _ in 0..config.partings {
            world.plan_within(0, BEGIN_US, Plan::Part);
        }
        world
    }

    /// Keeps a text of everything that happens.
    #[must_use]
    pub fn traced(mut self) -> World {
        self.lines = Some(Vec::new());
        self
    }

    /// Runs to the end, and judges.
    #[must_use]
    pub fn run(mut self) -> Report {
        // A panic of the endpoint is a violation like others.
        let result = catch_unwind(AssertUnwindSafe(|| self.run_all()));
        let result = result.unwrap_or_else(|panic| {
            let words = panic.downcast_ref::<String>().cloned();
            let words = words.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
            Err(Violation(format!("panic: {}", words.unwrap_or_default())))
        });
        Report {
            hash: self.hash,
            failure: result.err().map(|Violation(why)| format!("{} ns: {why}", self.now.0)),
            made: self.attempts.iter().filter(|a| a.was_made()).count() as u64,
            mads: self.net.mads,
            trace: self.lines.unwrap_or_default(),
        }
    }

    pub(super) fn note(&mut self, words: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.lines {
            lines.push(format!("{:>15} {}", self.now.0, words()));
        }
    }

    pub(super) fn mix(&mut self, value: u64) {
        self.hash = mix(self.hash ^ value).wrapping_add(self.now.0);
    }

    pub(super) fn plan(&mut self, who: usize, after: Duration, plan: Plan) {
        self.serial += 1;
        self.plans.insert((self.now + after, self.serial), (who, plan));
    }

    /// At some time up to so many microseconds from now.
    pub(super) fn plan_within(&mut self, who: usize, us: u64, plan: Plan) {
        let after = Duration::from_micros(self.rng.below(us + 1));
        self.plan(who, after, plan);
    }

    fn run_all(&mut self) -> Check {
        self.run_until(WINDING_UP)?;
        self.note(|| "winding up".to_owned());
        self.winding_up = true;
        self.net.heal();
        for who in 0..self.processes.len() {
            self.wind_up(who)?;
        }
        self.run_until(self.now + END)?;
        for who in 0..self.processes.len() {
            self.process_is_empty(who)?;
        }
        for attempt in &self.attempts {
            attempt.judge()?;
        }
        Ok(())
    }

    fn next(&self) -> Option<Time> {
        let timers = self.processes.iter().filter(|p| p.alive).filter_map(|p| p.endpoint.poll_timeout());
        timers.chain(self.plans.keys().next().map(|key| key.0)).chain(self.net.next()).min()
    }

    fn run_until(&mut self, until: Time) -> Check {
        for events in 0.. {
            ensure!(events < MAX_EVENTS, "it never comes to rest");
            let Some(next) = self.next().filter(|at| *at <= until) else { break };
            self.now = self.now.max(next);
            self.step()?;
        }
        self.now = until;
        Ok(())
    }

    fn step(&mut self) -> Check {
        let now = self.now;
        if self.net.next().is_some_and(|at| at <= now) {
            return match self.net.arrive() {
                Some(Flying::Mad(path, mad)) => self.deliver(path, &mad),
                Some(Flying::Data { to, qpn, attempt }) => self.meet(to, qpn, attempt),
                None => Ok(()),
            };
        }
        if let Some(entry) = self.plans.first_entry()
            && entry.key().0 <= now
        {
            let (who, plan) = entry.remove();
            return self.perform(who, plan);
        }
        for who in 0..self.processes.len() {
            let process = &mut self.processes[who];
            if process.alive && process.endpoint.poll_timeout().is_some_and(|at| at <= now) {
                process.endpoint.handle_timeout(now);
                self.settle(who)?;
            }
        }
        Ok(())
    }

    /// Gives a MAD to the process whose id it brings back, or that offers the service; else its
    /// host answers.
    fn deliver(&mut self, path: Path, mad: &[u8; MAD_LEN]) -> Check {
        let host = host_of(path.local);
        let way = route(mad).map_err(|e| Violation(format!("a MAD that is none: {e}")))?;
        let is_owner = |p: &Process| match way {
            Route::Id(id) => p.endpoint_prefix() == id.0 >> (32 - u32::from(PREFIX_BITS)),
            Route::Service(service) => service == SERVICE,
            Route::All => true,
        };
        let owner = self.processes.iter().position(|p| p.alive && p.host == host && is_owner(p));
        let Some(who) = owner else {
            if let Some(answer) = answer_for_nobody(mad) {
                self.net.send(self.now, path, &answer);
            }
            return Ok(());
        };
        let taken = self.processes[who].endpoint.handle_mad(self.now, path, mad);
        taken.map_err(|e| Violation(format!("a MAD of our own is refused: {e}")))?;
        self.settle(who)
    }

    /// A packet of a connection comes: the queue pair is that connection's, or nobody's.
    fn meet(&mut self, host: usize, qpn: u32, attempt: usize) -> Check {
        let users = self.processes.iter().filter(|p| p.alive && p.host == host);
        let user = users.filter_map(|p| p.users.get(&qpn)).next().copied();
        self.mix(u64::from(qpn) << 32 | user.map_or(0, |n| n as u64 + 1));
        if let Some(other) = user.filter(|&other| other != attempt) {
            let torn = self.attempts[attempt].is_torn();
            ensure!(
                torn,
                "queue pair {qpn:#x} of host {host} is of connection {other}, and a packet of {attempt} came: {:?}",
                self.attempts[attempt]
            );
        }
        Ok(())
    }

    /// A process dies; another takes its place.
    pub(super) fn die(&mut self, who: usize) -> Check {
        let host = self.processes[who].host;
        let prefix = self.processes.len() as u32 + 1;
        let fresh = Process::new(&self.config, host, prefix, &mut self.rng);
        self.note(|| format!("process {who} dies"));
        let dead = &mut self.processes[who];
        dead.alive = false;
        for mine in std::mem::take(&mut dead.mine).into_values() {
            let end = mine.end(&mut self.attempts);
            if end.outcome.is_none() {
                end.over(Outcome::Died)?;
            }
        }
        self.processes.push(fresh);
        let next = self.processes.len() - 1;
        self.plan_within(next, BEGIN_US, Plan::Connect);
        Ok(())
    }
}
