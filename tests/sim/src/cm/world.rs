//! Hosts, the network between them, and planned actions.
use super::Config;
use super::net::Net;
use super::oracle::{Attempt, EndOutcome};
use super::process::{Mine, Plan, Process};
use crate::report::Record;
use crate::rng::Rng;
use crate::verdict::Check;
use adverb_cm::{Id, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Programs begin within this time.
const BEGIN_US: u64 = 20_000_000;

/// A world of connections, for one run.
pub struct World {
    pub(super) config: Config,
    pub(super) rng: Rng,
    pub(super) now: Time,
    pub(super) net: Net,
    /// Dead processes stay in the list, but nothing reaches them.
    pub(super) processes: Vec<Process>,
    pub(super) plans: BTreeMap<(Time, u64), (usize, Plan)>,
    serial: u64,
    pub(super) attempts: Vec<Attempt>,
    /// Communication ids that were given out.
    pub(super) ids: BTreeSet<Id>,
    /// Ids whose program disconnected or destroyed them, by process and communication id.
    pub(super) leaving: BTreeMap<(usize, Id), Mine>,
    pub(super) winding_up: bool,
    pub(super) record: Record,
}

impl World {
    /// The world of a configuration, at its beginning.
    #[must_use]
    pub fn new(config: &Config) -> World {
        let mut rng = Rng::new(config.seed ^ 0x5e);
        let processes = (0..config.hosts)
            .map(|host| Process::new(config, host, host as u32 + 1, &mut rng))
            .collect();
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
            leaving: BTreeMap::new(),
            winding_up: false,
            record: Record::default(),
        };
        for who in 0..config.hosts {
            for _ in 0..config.connects {
                let lookup = world.rng.chance(150);
                let plan = if lookup { Plan::Lookup } else { Plan::Connect };
                world.plan_within(who, BEGIN_US, plan);
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

    /// Keeps a line of text for every event.
    #[must_use]
    pub fn traced(mut self) -> World {
        self.record.trace(&self.config);
        self
    }

    pub(super) fn note(&mut self, words: impl FnOnce() -> String) {
        self.record.note(self.now, words);
    }

    pub(super) fn plan(&mut self, who: usize, after: Duration, plan: Plan) {
        self.serial += 1;
        self.plans.insert((self.now + after, self.serial), (who, plan));
    }

    /// Plans an action within this many microseconds.
    pub(super) fn plan_within(&mut self, who: usize, us: u64, plan: Plan) {
        let after = Duration::from_micros(self.rng.below(us + 1));
        self.plan(who, after, plan);
    }

    /// A process dies, and a new process replaces it.
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
                end.over(EndOutcome::Died)?;
            }
        }
        self.processes.push(fresh);
        let next = self.processes.len() - 1;
        self.plan_within(next, BEGIN_US, Plan::Connect);
        Ok(())
    }
}
