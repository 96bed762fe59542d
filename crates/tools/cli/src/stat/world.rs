//! What the answers of all processes say together: rates, ages of requests, and which queue pair
//! waits for which process. Pure: values in, values out.
use super::ask::{Answered, Round, Silent};
use adverb_device::snapshot::{Arm, Pair, Queue};
use adverb_local::slot_of_qpn;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Most remembered times of a queue pair's requests.
const MOST: usize = 64;
/// Ages by which open requests are counted.
pub const AGES: [Duration; 3] =
    [Duration::from_secs(1), Duration::from_secs(10), Duration::from_secs(60)];
/// A queue whose completions have lain for this time is worth a word.
const UNPOLLED: u64 = 1000;

/// Messages and bytes a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rate {
    pub messages: f64,
    pub bytes: f64,
}

impl Rate {
    fn max(self, other: Rate) -> Rate {
        Rate { messages: self.messages.max(other.messages), bytes: self.bytes.max(other.bytes) }
    }
}

impl std::ops::AddAssign for Rate {
    fn add_assign(&mut self, other: Rate) {
        self.messages += other.messages;
        self.bytes += other.bytes;
    }
}

/// The other end of a queue pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    /// None: not connected, or datagrams.
    None,
    /// A queue pair of a process that answered: places in [`World::processes`] and in its pairs.
    Here(usize, u32),
    /// A process of this host without an answer, by its place in [`World::silent`].
    Silent(usize),
    /// Another host, or a queue pair that no longer exists.
    Address(IpAddr),
}

/// How much a state matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    #[default]
    Quiet,
    Fact,
    Odd,
    Wrong,
}

/// A queue pair with what the answers say about it.
#[derive(Clone, Debug)]
pub struct ShownPair {
    pub pair: Pair,
    pub out: Rate,
    pub into: Rate,
    /// The oldest open request is at least this old. `None` without an open request.
    pub oldest: Option<Duration>,
    /// Open requests that are at least as old as each of [`AGES`].
    pub older: [u32; AGES.len()],
    pub peer: Peer,
    pub weight: Weight,
    /// The state in a few words; may be empty.
    pub note: String,
}

/// A process with what the answers say about it.
#[derive(Clone, Debug)]
pub struct Shown {
    pub answered: Answered,
    pub out: Rate,
    pub into: Rate,
    pub pairs: Vec<ShownPair>,
}

impl Shown {
    pub fn label(&self) -> String {
        format!("{} {}", self.answered.pid, self.answered.process.name)
    }

    /// Packets dropped, by reason.
    pub fn drops(&self) -> impl Iterator<Item = (&str, u64)> {
        let is_drop = |name: &str| {
            name.contains("drop")
                || ["malformed", "no_such_qp", "mad_refused", "frame_for_nobody"].contains(&name)
        };
        self.answered
            .counters
            .iter()
            .filter(move |(name, _)| is_drop(name))
            .map(|(name, n)| (name.as_str(), *n))
    }

    /// What was sent again or timed out, by reason.
    pub fn retries(&self) -> impl Iterator<Item = (&str, u64)> {
        const REASONS: [&str; 4] =
            ["qp_retransmitted", "qp_timeouts", "qp_rnr_naks", "qp_seq_naks"];
        REASONS.iter().filter_map(|name| Some((*name, *self.answered.counters.get(*name)?)))
    }

    pub fn retransmitted(&self) -> u64 {
        self.answered.counters.get("qp_retransmitted").copied().unwrap_or_default()
    }

    /// Completion queues with a lost wake-up, or overflowed.
    pub fn stuck(&self) -> impl Iterator<Item = &Queue> {
        self.answered.queues.values().filter(|queue| !queue.stuck.is_empty() || queue.broken)
    }
}

/// All processes.
#[derive(Clone, Debug, Default)]
pub struct World {
    pub processes: Vec<Shown>,
    pub silent: Vec<Silent>,
}

impl World {
    pub fn lost_wake_ups(&self) -> usize {
        let queues = self.processes.iter().flat_map(|shown| shown.answered.queues.values());
        queues.filter(|queue| !queue.stuck.is_empty()).count()
    }
}

/// The values of a queue pair in the last round, and when its open requests were seen first.
#[derive(Default)]
struct Past {
    at: u64,
    pair: Pair,
    /// Times, each with the number of requests posted until then.
    posted: VecDeque<(Instant, u64)>,
    /// Requests that were done in the round before.
    done: Option<u64>,
}

/// What earlier rounds have shown.
#[derive(Default)]
pub struct History {
    pairs: HashMap<(u16, u32, u32), Past>,
}

/// What a queue pair did since the last round.
#[derive(Clone, Copy, Default)]
struct Change {
    sent: Rate,
    read: f64,
    received: Rate,
    /// No open request was done since the last round.
    stands: bool,
}

impl Past {
    fn change(&self, pair: &Pair, at: u64) -> Change {
        let seconds = at.saturating_sub(self.at) as f64 / 1e9;
        let known = self.at != 0 && seconds > 0.0;
        let rate = |now: u64, before: u64| {
            if known { now.saturating_sub(before) as f64 / seconds } else { 0.0 }
        };
        let then = &self.pair;
        Change {
            sent: Rate {
                messages: rate(pair.posted, then.posted),
                bytes: rate(pair.sent_bytes, then.sent_bytes),
            },
            read: rate(pair.read_bytes, then.read_bytes),
            received: Rate {
                messages: rate(pair.received, then.received),
                bytes: rate(pair.received_bytes, then.received_bytes),
            },
            stands: pair.open > 0 && self.done == Some(done(pair)),
        }
    }

    /// Notes the requests posted so far, and returns the age of the oldest open request and the
    /// numbers of older requests.
    fn ages(&mut self, pair: &Pair, now: Instant) -> (Option<Duration>, [u32; AGES.len()]) {
        let done = done(pair);
        // A sample before the oldest open request was posted says nothing about open requests. In
        // RESET the queue pair forgets its requests.
        self.posted.retain(|(_, posted)| *posted > done && *posted <= pair.posted);
        if pair.open == 0 {
            return (None, [0; AGES.len()]);
        }
        if self.posted.back().is_none_or(|(_, posted)| *posted < pair.posted) {
            if self.posted.len() >= MOST {
                self.posted.remove(MOST / 2);
            }
            self.posted.push_back((now, pair.posted));
        }
        let age = |then: Instant| now.saturating_duration_since(then);
        let oldest = self.posted.front().map(|(then, _)| age(*then));
        let older = AGES.map(|limit| {
            let seen = self.posted.iter().rev().find(|(then, _)| age(*then) >= limit);
            seen.map_or(0, |(_, posted)| (posted - done) as u32)
        });
        (oldest, older)
    }
}

/// Requests that are done.
fn done(pair: &Pair) -> u64 {
    pair.posted.saturating_sub(pair.open.into())
}

impl History {
    /// Adds a round.
    pub fn world(&mut self, round: &Round) -> World {
        let mut kept = HashMap::new();
        let mut changes: Vec<BTreeMap<u32, Change>> = Vec::new();
        let mut ages = HashMap::new();
        for (place, answered) in round.answered.iter().enumerate() {
            let mut own = BTreeMap::new();
            for (number, pair) in &answered.pairs {
                let key = (answered.process.slot, answered.process.pid, *number);
                let mut past = self.pairs.remove(&key).unwrap_or_default();
                if pair.busy {
                    kept.insert(key, past);
                    continue;
                }
                own.insert(*number, past.change(pair, answered.process.at));
                ages.insert((place, *number), past.ages(pair, round.at));
                (past.at, past.done, past.pair) =
                    (answered.process.at, Some(done(pair)), pair.clone());
                kept.insert(key, past);
            }
            changes.push(own);
        }
        self.pairs = kept;
        let change =
            |place: usize, number: u32| changes[place].get(&number).copied().unwrap_or_default();
        let processes = round.answered.iter().enumerate().map(|(place, answered)| {
            let (mut out, mut into) = (Rate::default(), Rate::default());
            let pairs = answered.pairs.iter().map(|(number, pair)| {
                let own = change(place, *number);
                let peer = peer_of(pair, round);
                let mut received = own.received;
                if let Peer::Here(there, other) = peer {
                    // A peer on this host performs one-sided requests by itself.
                    received = received.max(change(there, other).sent);
                }
                received.bytes += own.read;
                out += own.sent;
                into += received;
                let (oldest, older) = ages.remove(&(place, *number)).unwrap_or_default();
                let (weight, note) = note(answered, pair, &peer, own.stands, oldest, round);
                ShownPair {
                    pair: pair.clone(),
                    out: own.sent,
                    into: received,
                    oldest,
                    older,
                    peer,
                    weight,
                    note,
                }
            });
            let pairs = pairs.collect();
            Shown { answered: answered.clone(), out, into, pairs }
        });
        World { processes: processes.collect(), silent: round.silent.clone() }
    }
}

fn ip(gid: &[u8; 16]) -> IpAddr {
    IpAddr::from(*gid).to_canonical()
}

fn peer_of(pair: &Pair, round: &Round) -> Peer {
    if pair.dest == 0 || pair.busy {
        return Peer::None;
    }
    let is_peer = |other: &Pair| {
        other.dest == pair.number
            && other.own_gid == pair.peer_gid
            && other.peer_gid == pair.own_gid
    };
    let found = round
        .answered
        .iter()
        .position(|answered| answered.pairs.get(&pair.dest).is_some_and(is_peer));
    if let Some(place) = found {
        return Peer::Here(place, pair.dest);
    }
    let near = pair.peer_pid != 0 || pair.own_gid == pair.peer_gid;
    let slot = slot_of_qpn(pair.dest);
    let silent = round.silent.iter().position(|silent| {
        near && (silent.pid != 0 && silent.pid == pair.peer_pid || Some(silent.slot) == slot)
    });
    silent.map_or_else(|| Peer::Address(ip(&pair.peer_gid.0)), Peer::Silent)
}

/// A completion queue of a queue pair in a few words.
fn queue_note(queue: &Queue) -> Option<(Weight, String)> {
    let Queue { number, waiting, unread, silent_ms, .. } = queue;
    if !queue.stuck.is_empty() {
        return Some((Weight::Wrong, format!("LOST WAKE-UP on CQ {number}")));
    }
    if queue.broken {
        return Some((Weight::Wrong, format!("CQ {number} has overflowed")));
    }
    if *unread > 0 {
        let s = if *unread == 1 { "" } else { "s" };
        return Some((
            Weight::Odd,
            format!("{unread} unread event{s} of CQ {number}, {waiting} completions"),
        ));
    }
    if *waiting > 0 && *silent_ms >= UNPOLLED {
        return Some((
            Weight::Odd,
            format!("{waiting} completions unpolled in CQ {number} for {} s", silent_ms / 1000),
        ));
    }
    if queue.arm != Arm::None && *waiting == 0 && !queue.waiter.is_empty() {
        let kind = match queue.arm {
            Arm::Solicited => " (solicited)",
            Arm::Errors => " (errors)",
            _ => "",
        };
        return Some((Weight::Fact, format!("asleep on armed CQ {number}{kind}")));
    }
    None
}

/// The begin of the report in the log. The whole report has the place of the arm and the thread.
fn short(queue: &Queue) -> String {
    let text = queue.stuck.split([':', '(']).next().unwrap_or_default().trim_end();
    text.strip_prefix(&format!("CQ {} holds ", queue.number)).unwrap_or(text).to_owned()
}

fn queues_of<'a>(answered: &'a Answered, pair: &Pair) -> impl Iterator<Item = &'a Queue> {
    let mut numbers = vec![pair.recv_cq, pair.send_cq];
    numbers.dedup();
    numbers.into_iter().filter_map(|number| answered.queues.get(&number))
}

/// The most important note of the queues.
fn of_queues(answered: &Answered, pair: &Pair) -> Option<(Weight, String)> {
    let all = queues_of(answered, pair).filter_map(queue_note);
    // Of equal notes the first counts: that of the receives.
    all.reduce(|best, next| if next.0 > best.0 { next } else { best })
}

fn note(
    answered: &Answered,
    pair: &Pair,
    peer: &Peer,
    stands: bool,
    oldest: Option<Duration>,
    round: &Round,
) -> (Weight, String) {
    if pair.busy {
        return (Weight::Odd, "locked by a thread of the program".into());
    }
    if !pair.error.is_empty() {
        return (Weight::Wrong, format!("{}: {}", pair.state_name(), pair.error));
    }
    let own = of_queues(answered, pair);
    if let Some((Weight::Wrong, text)) = own {
        let stuck = queues_of(answered, pair).find(|queue| !queue.stuck.is_empty()).map(short);
        return (
            Weight::Wrong,
            stuck.map_or_else(|| text.clone(), |stuck| format!("{text}: {stuck}")),
        );
    }
    if stands || pair.retrying {
        let (who, what) = match peer {
            Peer::Here(place, number) => {
                let other = &round.answered[*place];
                let there = &other.pairs[number];
                let receives = || format!("no receive posted at {:#08x}", number);
                let what = match of_queues(other, there) {
                    Some((Weight::Wrong, text)) => text,
                    _ if there.receives == 0 && pair.rnr_naks > 0 => receives(),
                    Some((_, text)) => text,
                    None if there.receives == 0 => receives(),
                    None => String::new(),
                };
                (format!("{} {}", other.pid, other.process.name), what)
            }
            Peer::Silent(place) => {
                let silent = &round.silent[*place];
                (format!("{} {}", silent.pid, silent.name), silent.why.clone())
            }
            Peer::Address(ip) => (ip.to_string(), String::new()),
            Peer::None => ("the network".into(), String::new()),
        };
        let what = match (what.is_empty(), pair.retrying) {
            (false, _) => format!(": {what}"),
            (true, true) => ", and sends again".to_owned(),
            (true, false) => String::new(),
        };
        let weight =
            if oldest.is_some_and(|age| age >= AGES[0]) { Weight::Odd } else { Weight::Fact };
        return (weight, format!("waits for {who}{what}"));
    }
    own.unwrap_or_default()
}

#[cfg(test)]
mod tests;
