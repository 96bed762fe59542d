//! Two hosts over a network that loses, duplicates, delays and reorders MADs. The programs send any
//! command at any time. An oracle checks that each command has one outcome, both ends agree, and
//! nothing is left behind.
use crate::{Config, Endpoint, Id, MAD_LEN, Path, Route, State, Time, answer_for_nobody, route};
use core::net::{IpAddr, Ipv4Addr};
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::vec::Vec;
use std::{format, println};

mod programs;

/// SplitMix64.
pub(crate) struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }
    pub fn below(&mut self, n: u64) -> u64 {
        self.roll() % n
    }
    fn percent(&mut self, n: u64) -> bool {
        self.below(100) < n
    }
    /// A random duration of up to `ms` milliseconds.
    fn wait(&mut self, ms: u64) -> Duration {
        Duration::from_micros(self.below(ms * 1000))
    }
}

const SERVICE: u64 = 0x0106_1c06;
const DATAGRAMS: u64 = 0x0111_1c07;
const NOBODY: u64 = 0x0106_0001;
const PREFIX_BITS: u8 = 10;

fn address(host: usize) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, host as u8 + 1).into()
}

/// An action that a program plans for a certain time.
#[derive(Clone, Copy, Debug)]
enum Plan {
    Connect,
    Lookup,
    Answer(Id),
    AnswerLookup(Id),
    Confirm(Id),
    Hang(Id),
    Release(Id),
}

/// A program's view of an id.
#[derive(Debug, Default)]
struct Known {
    passive: bool,
    datagram: bool,
    /// Commands without an outcome yet.
    connecting: bool,
    accepting: bool,
    /// Confirmed or established, so `Disconnected` must come.
    standing: bool,
    ended: bool,
    timewait_over: bool,
    qpn: u32,
    released: bool,
}

/// A process: its endpoint and its program.
struct Process {
    host: usize,
    endpoint: Endpoint,
    known: BTreeMap<Id, Known>,
    plans: BTreeMap<(Time, u64), Plan>,
    /// Local queue pairs of connections that the program has confirmed (active side) or that were
    /// reported established (passive side).
    confirmed: BTreeSet<u32>,
}

/// Parameters of a run.
#[derive(Clone, Copy, Debug)]
struct Setting {
    seed: u64,
    loss: u64,
    doubles: u64,
    /// Largest delay of a MAD, in milliseconds.
    delay: u64,
    connects: u64,
    /// Programs disconnect at the end. Otherwise connections stay, and both ends are compared.
    hangs: bool,
    /// Programs also release early, reject and drop.
    wild: bool,
    /// One process is killed during the run, and a new process replaces it.
    deaths: bool,
}

struct World {
    setting: Setting,
    dice: Dice,
    now: Time,
    order: u64,
    next_qpn: u32,
    next_prefix: u32,
    processes: Vec<Process>,
    /// MADs in flight, by arrival time.
    wire: BTreeMap<(Time, u64), (Path, [u8; MAD_LEN])>,
    /// Requests that arrived: prefix of the receiver, queue pair of the sender, number of arrivals.
    requests: BTreeMap<(u32, u32), u32>,
    dropped: u32,
}

impl Process {
    fn new(host: usize, prefix: u32, dice: &mut Dice) -> Process {
        let config = Config {
            prefix,
            prefix_bits: PREFIX_BITS,
            first: dice.roll() as u32,
            transaction: dice.roll() as u32,
            max_requests: 8,
            ..Config::default()
        };
        let mut endpoint = Endpoint::new(config);
        endpoint.listen(SERVICE, None).unwrap();
        endpoint.listen(DATAGRAMS, Some(address(host))).unwrap();
        Process {
            host,
            endpoint,
            known: BTreeMap::new(),
            plans: BTreeMap::new(),
            confirmed: BTreeSet::new(),
        }
    }
}

impl World {
    fn new(setting: Setting) -> World {
        let mut dice = Dice(setting.seed);
        let processes = (0..2).map(|host| Process::new(host, host as u32 + 1, &mut dice)).collect();
        let mut world = World {
            setting,
            dice,
            now: Time(1_000_000),
            order: 0,
            next_qpn: 100,
            next_prefix: 3,
            processes,
            wire: BTreeMap::new(),
            requests: BTreeMap::new(),
            dropped: 0,
        };
        for _ in 0..setting.connects {
            let who = world.dice.below(2) as usize;
            let at = world.dice.wait(3_000);
            let plan = if world.dice.percent(15) { Plan::Lookup } else { Plan::Connect };
            world.plan(who, at, plan);
        }
        world
    }

    fn plan(&mut self, who: usize, after: Duration, plan: Plan) {
        self.order += 1;
        let at = self.now + after;
        self.processes[who].plans.insert((at, self.order), plan);
    }

    fn qpn(&mut self) -> u32 {
        self.next_qpn += 1;
        self.next_qpn
    }

    /// Sends the MADs of an endpoint.
    fn flush(&mut self, who: usize) {
        while let Some(transmit) = self.processes[who].endpoint.poll_transmit() {
            assert_eq!(transmit.path.local, address(self.processes[who].host));
            self.send(transmit.path, transmit.mad);
        }
    }

    fn send(&mut self, path: Path, mad: [u8; MAD_LEN]) {
        let copies = match () {
            () if self.dice.percent(self.setting.loss) => 0,
            () if self.dice.percent(self.setting.doubles) => 2,
            () => 1,
        };
        for _ in 0..copies {
            self.order += 1;
            let at = self.now + self.dice.wait(self.setting.delay) + Duration::from_micros(1);
            self.wire.insert((at, self.order), (path.reversed(), mad));
        }
    }

    /// Delivers a MAD as a transport does: by the receiver's communication id, or to the listener.
    fn deliver(&mut self, path: Path, mad: &[u8; MAD_LEN]) {
        let host = (0..2).find(|&h| address(h) == path.local).expect("an address of the two");
        let there: Vec<usize> =
            (0..self.processes.len()).filter(|&p| self.processes[p].host == host).collect();
        let to: Vec<usize> = match route(mad).expect("a MAD") {
            Route::Id(id) => {
                let prefix = id.0 >> (32 - u32::from(PREFIX_BITS));
                there
                    .into_iter()
                    .filter(|&p| self.processes[p].endpoint.config.prefix == prefix)
                    .collect()
            }
            Route::Service(SERVICE | DATAGRAMS) | Route::All => there,
            Route::Service(_) => Vec::new(),
        };
        if to.is_empty()
            && let Some(answer) = answer_for_nobody(mad)
        {
            self.send(path, answer);
        }
        for who in to {
            self.processes[who].endpoint.handle_mad(self.now, path, mad).expect("a MAD");
            self.settle(who);
        }
    }

    fn settle(&mut self, who: usize) {
        self.flush(who);
        while let Some((id, event)) = self.processes[who].endpoint.poll_event() {
            self.on_event(who, id, event);
            self.flush(who);
        }
    }

    fn known(&mut self, who: usize, id: Id) -> &mut Known {
        self.processes[who]
            .known
            .get_mut(&id)
            .unwrap_or_else(|| panic!("an event for {id:?}, which nobody has"))
    }

    /// Runs until no MAD, timer or plan is left.
    fn run(&mut self) {
        let death = self.setting.deaths.then(|| self.now + self.dice.wait(9_000));
        let mut alive = death;
        for steps in 0.. {
            assert!(steps < 1_000_000, "this never ends");
            let wire = self.wire.keys().next().map(|k| k.0);
            let plans =
                self.processes.iter().filter_map(|p| p.plans.keys().next()).map(|k| k.0).min();
            let timers = self.processes.iter().filter_map(|p| p.endpoint.poll_timeout()).min();
            let Some(next) = [wire, plans, timers, alive].into_iter().flatten().min() else {
                break;
            };
            self.now = self.now.max(next);
            if alive == Some(next) {
                alive = None;
                self.die();
            } else if wire == Some(next) {
                let (_, (path, mad)) = self.wire.pop_first().unwrap();
                self.deliver(path, &mad);
            } else if plans == Some(next) {
                let who = (0..self.processes.len())
                    .find(|&w| self.processes[w].plans.keys().next().map(|k| k.0) == Some(next))
                    .unwrap();
                let (_, plan) = self.processes[who].plans.pop_first().unwrap();
                self.run_plan(who, plan);
            } else {
                for who in 0..self.processes.len() {
                    self.processes[who].endpoint.handle_timeout(self.now);
                    self.settle(who);
                }
            }
        }
    }

    /// Kills process 1 and replaces it with a new process.
    fn die(&mut self) {
        let fresh = Process::new(1, self.next_prefix, &mut self.dice);
        self.next_prefix += 1;
        self.processes[1] = fresh;
        for _ in 0..3 {
            let after = self.dice.wait(2_000);
            self.plan(1, after, Plan::Connect);
        }
    }

    /// The established ids, as pairs of communication ids.
    fn standing(&self, who: usize) -> BTreeSet<(u32, u32)> {
        let process = &self.processes[who];
        let stands = |id: &Id| process.endpoint.state(*id) == Some(State::Established);
        let ids = process.known.keys().filter(|&id| stands(id));
        ids.map(|id| (id.0, process.endpoint.remote(*id).unwrap().remote_id)).collect()
    }

    fn judge(&mut self) {
        for (qpn, times) in &self.requests {
            assert!(*times <= 1 + self.dropped, "the request of {qpn:?} came {times} times");
        }
        for process in &self.processes {
            for (id, known) in &process.known {
                assert!(!known.connecting && !known.accepting, "{id:?} has no outcome: {known:?}");
                assert!(!self.setting.hangs || !known.standing, "{id:?} has not ended: {known:?}");
                let state = process.endpoint.state(*id).unwrap();
                assert!(matches!(state, State::Idle | State::Established), "{id:?} {state:?}");
                assert_eq!(known.standing, state == State::Established, "{id:?} {known:?}");
            }
        }
        let swapped: BTreeSet<_> = self.standing(1).into_iter().map(|(a, b)| (b, a)).collect();
        assert_eq!(self.standing(0), swapped, "the ends do not agree");
        // Releases everything that is left. The peers must learn of it.
        for who in 0..2 {
            let ids: Vec<Id> = self.processes[who].known.keys().copied().collect();
            ids.into_iter().for_each(|id| self.release(who, id));
            self.settle(who);
        }
        self.run();
        for process in &mut self.processes {
            let ids: Vec<Id> = process.known.keys().copied().collect();
            for id in ids {
                assert_eq!(process.endpoint.state(id), Some(State::Idle));
                process.endpoint.release(self.now, id).unwrap();
            }
            assert_eq!(process.endpoint.leftovers(), (0, 0, 0, 0, 0), "something is left");
        }
    }
}

impl Endpoint {
    /// Numbers of connections, indexed requests, indexed queue pairs, timers, and waiting requests.
    pub(crate) fn leftovers(&self) -> (usize, usize, usize, usize, usize) {
        (
            self.conns.len(),
            self.by_remote.len(),
            self.by_qp.len(),
            self.running_timers(),
            self.requests,
        )
    }
}

fn world(setting: Setting) -> World {
    let mut world = World::new(setting);
    world.run();
    world.judge();
    world
}

fn worlds(count: u64, setting: impl Fn(u64) -> Setting) {
    let count = std::env::var("ADVERB_CM_WORLDS").map_or(count, |n| n.parse().expect("a number"));
    for seed in 0..count {
        let setting = setting(seed);
        if std::panic::catch_unwind(|| world(setting)).is_err() {
            println!("{setting:?}");
            panic!("{}", format!("fails: {setting:?}"));
        }
    }
}

const CALM: Setting = Setting {
    seed: 0,
    loss: 0,
    doubles: 0,
    delay: 1,
    connects: 20,
    hangs: true,
    wild: false,
    deaths: false,
};

#[test]
fn every_connection_is_made_and_ended_on_a_good_network() {
    for seed in 0..20 {
        let world = world(Setting { seed, hangs: false, ..CALM });
        let made: usize = world.processes.iter().map(|p| p.confirmed.len()).sum();
        assert_eq!(made, 2 * world.requests.len());
    }
    worlds(20, |seed| Setting { seed, ..CALM });
}

/// CM-1.
#[test]
fn ends_agree_over_a_bad_network() {
    worlds(150, |seed| Setting {
        seed,
        loss: 5 + seed % 30,
        doubles: seed % 40,
        delay: 1 + seed * 37 % 900,
        hangs: false,
        ..CALM
    });
}

/// CM-1.
#[test]
fn connections_end_over_a_bad_network() {
    worlds(150, |seed| Setting {
        seed,
        loss: seed % 35,
        doubles: seed % 40,
        delay: 1 + seed * 37 % 900,
        ..CALM
    });
}

/// CM-1.
#[test]
fn programs_do_what_they_like_over_a_bad_network() {
    worlds(400, |seed| Setting {
        seed,
        loss: seed % 35,
        doubles: seed % 50,
        delay: 1 + seed * 37 % 2_000,
        wild: true,
        hangs: seed % 2 == 0,
        ..CALM
    });
}

/// CM-9.
#[test]
fn connections_of_a_killed_process_end() {
    worlds(200, |seed| Setting {
        seed,
        loss: seed % 20,
        doubles: seed % 20,
        delay: 1 + seed * 37 % 500,
        wild: seed % 2 == 0,
        deaths: true,
        ..CALM
    });
}
