//! Faults on request: arriving packets are dropped, duplicated, reordered, delayed or damaged.
//!
//! Faults apply where packets enter, after the ICRC check and before the queue pair sees the
//! packets. This holds for packets over UDP and for packets directly from another process of this
//! host. Without rules, the cost is one branch for each packet. A carrier without UDP packets has
//! its own instance of the rules, with its own type of packets ([`Faults::judge_as`]); it damages
//! no packets.
//!
//! # Repeatability
//!
//! The fault of a packet depends on:
//!
//! * the seed,
//! * the receiving queue pair, by its order of creation in its process, because numbers are random,
//! * whether the packet is a request or a response,
//! * the number of such packets sent to the queue pair before.
//!
//! It does not depend on the clock or on threads. So the k-th request reaching the n-th queue pair
//! has the same fault in every run. Which packet is the k-th depends on the program, and on the
//! protocol: retransmissions after a timeout and coalesced acknowledgements shift the count.
//! Exchanges without either (UC and UD from one sender; RC in lockstep) repeat exactly.

mod dice;
mod effects;
mod items;
mod queue;
mod rules;
mod table;
mod text;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use adverb_sync::Mutex;
use adverb_wire::Opcode;

use crate::packet::{OwnedPacket, RxPacket};
use dice::Dice;
pub(crate) use dice::flipped;
pub use items::{Form, Item, Value};
use queue::Queue;
pub use rules::{Delay, DelayQp, DropPsn, FaultTarget, Rate};
use table::Kind;
pub use table::{Fault, FaultStats, PacketFaults};
pub use text::{nth_qp, number};

/// How long an overtaken packet waits if no later packet follows.
const OVERTAKEN: Duration = Duration::from_millis(2);
/// The largest number of packets that overtake it.
const MOST_OVERTAKE: u64 = 3;
/// The largest number of delayed packets; further packets are not delayed.
const MOST_DELAYED: usize = 16384;
/// The bits of the traffic class for ECN: whether a packet may be marked, and whether it was.
const ECN: u8 = 3;
/// No packet is delayed.
const NEVER: u64 = u64::MAX;

/// The active rules. `P` is the type of a delayed packet.
pub struct Faults<P = OwnedPacket> {
    rules: PacketFaults,
    epoch: Instant,
    state: Mutex<State<P>>,
    /// The time at which the first delayed packet is due, in nanoseconds since `epoch`; may be too
    /// early.
    due: AtomicU64,
}

struct State<P> {
    qps: HashMap<u32, QpState<P>>,
    delayed: usize,
}

/// The properties of a packet used by the rules.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    /// The receiving queue pair.
    pub qpn: u32,
    /// The packet sequence number.
    pub psn: u32,
    /// The packet answers a request.
    pub response: bool,
    /// A switch may mark the packet (ECN).
    pub may_be_marked: bool,
}

/// The state of a queue pair.
struct QpState<P> {
    /// The index in the order of creation in the process, from 1.
    nth: u32,
    /// The numbers of requests and responses seen.
    seen: [u64; 2],
    /// Which of the PSN rules have applied.
    struck: Vec<bool>,
    queue: Queue<P>,
}

/// What to do with a packet.
pub struct Ruling<P> {
    /// The faults of the packet.
    pub fault: Fault,
    /// How often to give the packet to the sink now.
    pub copies: usize,
    /// Earlier packets overtaken by this packet, to be given to the sink after it.
    pub after: Vec<P>,
}

impl Head {
    pub(crate) fn of(packet: &RxPacket<'_>) -> Self {
        Head {
            qpn: packet.dest_qpn(),
            psn: u32::from_be_bytes([0, packet.bytes[9], packet.bytes[10], packet.bytes[11]]),
            response: Opcode::from_u8(packet.bytes[0]).is_some_and(Opcode::is_response),
            may_be_marked: packet.traffic_class & ECN != 0,
        }
    }
}

impl Fault {
    /// The packet with its ECN mark, if any.
    pub(crate) fn mark<'a>(&self, packet: &RxPacket<'a>) -> RxPacket<'a> {
        let bits = if self.marked { ECN } else { 0 };
        RxPacket { traffic_class: packet.traffic_class | bits, ..*packet }
    }

    /// Whether the packet has no fault.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Fault::default()
    }
}

impl PacketFaults {
    /// Whether no packet is affected.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == PacketFaults { seed: self.seed, first: self.first, ..PacketFaults::default() }
    }
}

impl Faults {
    /// Decides on a packet with a valid ICRC. A packet for an unknown queue pair passes.
    pub(crate) fn judge(&self, packet: &RxPacket<'_>) -> Ruling<OwnedPacket> {
        self.judge_as(&Head::of(packet), |fault| OwnedPacket::keep(&fault.mark(packet)))
    }
}

impl<P> Faults<P> {
    /// Rules without queue pairs.
    #[must_use]
    pub fn new(rules: PacketFaults) -> Self {
        let state = Mutex::new(State { qps: HashMap::new(), delayed: 0 });
        Faults { rules, epoch: Instant::now(), state, due: AtomicU64::new(NEVER) }
    }

    /// Adds a queue pair, the `nth` of its process.
    pub fn add_qp(&self, qpn: u32, nth: u32) {
        let struck = vec![false; self.rules.drop_psn.len()];
        let qp = QpState { nth, seen: [0; 2], struck, queue: Queue::default() };
        self.state.lock().qps.insert(qpn, qp);
    }

    /// Removes a queue pair and its delayed packets.
    pub fn remove_qp(&self, qpn: u32) {
        let mut state = self.state.lock();
        if let Some(qp) = state.qps.remove(&qpn) {
            state.delayed -= qp.queue.len();
        }
    }

    fn now(&self) -> u64 {
        nanos(self.epoch.elapsed())
    }

    /// Decides on a packet; `keep` makes the copy to delay. A packet for an unknown queue pair
    /// passes.
    pub fn judge_as(&self, head: &Head, keep: impl Fn(&Fault) -> P) -> Ruling<P> {
        let mut state = self.state.lock();
        let room = state.delayed < MOST_DELAYED;
        let Some(qp) = state.qps.get_mut(&head.qpn) else {
            return Ruling { fault: Fault::default(), copies: 1, after: Vec::new() };
        };
        let fault = qp.draw(&self.rules, head);
        let copies = 1 + usize::from(fault.doubled);
        let dropped = Ruling { fault, copies: 0, after: Vec::new() };
        if fault.dropped || fault.damaged.is_some() {
            return dropped;
        }
        if room && (fault.overtaken.is_some() || fault.delayed.is_some()) {
            let now = self.now();
            let kept = (0..copies).map(|_| keep(&fault)).collect();
            let due = match fault.overtaken {
                Some(passes) => qp.queue.set_aside(now + nanos(OVERTAKEN), passes, kept),
                None => qp.queue.line_up(now + fault.delayed.map_or(0, nanos), kept),
            };
            state.delayed += copies;
            self.due.fetch_min(due, Relaxed);
            return dropped;
        }
        let after = qp.queue.passed();
        state.delayed -= after.len();
        Ruling { fault: Fault { overtaken: None, delayed: None, ..fault }, copies, after }
    }

    /// Decides on a message that is not in a packet. A drop is not counted: the caller sends the
    /// message in a packet instead, which then gets the same fault.
    pub fn draw(&self, head: &Head) -> Fault {
        let mut state = self.state.lock();
        let Some(qp) = state.qps.get_mut(&head.qpn) else { return Fault::default() };
        let before = (qp.seen, qp.struck.clone());
        let fault = qp.draw(&self.rules, head);
        if fault.dropped {
            (qp.seen, qp.struck) = before;
        }
        fault
    }

    /// Removes the delayed packets for which `is_one` is true, whether due or not.
    pub fn release_if(&self, is_one: impl Fn(&P) -> bool) -> Vec<P> {
        let mut state = self.state.lock();
        let State { qps, delayed } = &mut *state;
        let mut out = Vec::new();
        qps.values_mut().for_each(|qp| qp.queue.release_if(&is_one, &mut out));
        *delayed -= out.len();
        out
    }

    /// Removes the packets that are due.
    pub fn release(&self) -> Vec<P> {
        if self.due.load(Relaxed) == NEVER {
            return Vec::new();
        }
        let now = self.now();
        if self.due.load(Relaxed) > now {
            return Vec::new();
        }
        let mut state = self.state.lock();
        let State { qps, delayed } = &mut *state;
        let mut out = Vec::new();
        let mut next = NEVER;
        for qp in qps.values_mut() {
            qp.queue.release(now, &mut out);
            next = next.min(qp.queue.next_due().unwrap_or(NEVER));
        }
        *delayed -= out.len();
        self.due.store(next, Relaxed);
        out
    }

    /// The time until [`Faults::release`] has a packet; `None` if no packet is delayed.
    pub fn due_in(&self) -> Option<Duration> {
        let due = self.due.load(Relaxed);
        (due != NEVER).then(|| Duration::from_nanos(due.saturating_sub(self.now())))
    }
}

impl<P> QpState<P> {
    /// Counts the packet and draws its faults.
    fn draw(&mut self, rules: &PacketFaults, head: &Head) -> Fault {
        let count = &mut self.seen[usize::from(head.response)];
        *count += 1;
        let over = rules.first.is_some_and(|first| *count > first);
        let dice = Dice::new(rules.seed, self.nth, head.response, *count);
        let mut fault = Fault::default();
        if self.psn_strikes(rules, head) {
            return Fault { dropped: true, by_psn: true, ..fault };
        }
        if over {
            return fault;
        }
        if dice.hits(rules.drop, Kind::Drop) {
            return Fault { dropped: true, ..fault };
        }
        if dice.hits(rules.corrupt, Kind::Corrupt) {
            return Fault { damaged: Some(dice.roll(Kind::Bit)), ..fault };
        }
        fault.doubled = dice.hits(rules.dup, Kind::Dup);
        if dice.hits(rules.reorder, Kind::Reorder) {
            fault.overtaken = Some(1 + dice.roll(Kind::Passes) % MOST_OVERTAKE);
        }
        fault.marked = head.may_be_marked && dice.hits(rules.ecn, Kind::Mark);
        let own = rules.delay_qp.iter().find(|rule| rule.nth == self.nth);
        if let Some(rule) = own.filter(|_| fault.overtaken.is_none()) {
            fault.delayed = Some(rule.time);
        } else if let Some(delay) = &rules.delay
            && fault.overtaken.is_none()
        {
            let spread = nanos(delay.spread);
            let shift = dice.roll(Kind::Delay) % (2 * spread + 1);
            fault.delayed =
                Some(delay.mean.saturating_sub(delay.spread) + Duration::from_nanos(shift));
        }
        fault
    }

    /// Whether a PSN rule drops the packet. Each rule applies once for each queue pair. If several
    /// rules match, one of them applies for each packet.
    fn psn_strikes(&mut self, rules: &PacketFaults, head: &Head) -> bool {
        let mut left = rules.drop_psn.iter().zip(&mut self.struck).filter(|(rule, struck)| {
            !**struck && rule.psn == head.psn && rule.at.is_none_or(|at| at.is(head.qpn, self.nth))
        });
        left.next().map(|(_, struck)| *struck = true).is_some()
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
