//! The network between the nodes, their receiving sockets, and their hand-over connections.
use super::Config;
use crate::rng::Rng;
use adverb_device::node::SimulatedWire;
use adverb_engine::Time;
use adverb_link::{AddrIndex, Proof, Route, RxPacket, RxRun, Sink};
use adverb_local::{Delivery, MIN_SLOT, Slot, slot_of_qpn};
use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const LATE: u64 = 60_000_000;
/// Virtual time of a look at a socket.
const LOOK: Duration = Duration::from_nanos(300);

/// The address of a host.
pub(super) fn ip(host: usize) -> IpAddr {
    Ipv4Addr::new(10, 0, 1, host as u8 + 1).into()
}

/// The slot of a node.
fn slot(node: usize) -> Slot {
    MIN_SLOT + node as Slot
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Packet {
    from: usize,
    traffic_class: u8,
    bytes: Vec<u8>,
}

/// Packets not yet received by a node.
#[derive(Debug, Default)]
struct Inbox {
    socket: VecDeque<Packet>,
    /// Messages, each with its packets.
    connection: VecDeque<Vec<Packet>>,
}

#[derive(Debug)]
pub(super) struct Net {
    rng: Rng,
    config: Config,
    pub(super) now: Time,
    /// Host of each node.
    pub(super) hosts: Vec<usize>,
    flying: BinaryHeap<Reverse<(Time, u64, usize, Packet)>>,
    inboxes: Vec<Inbox>,
    pub(super) sent: u64,
}

impl Net {
    pub(super) fn new(config: &Config, hosts: Vec<usize>) -> Net {
        let inboxes = hosts.iter().map(|_| Inbox::default()).collect();
        Net {
            rng: Rng::new(config.seed ^ 0x4e8),
            config: config.clone(),
            now: Time::ZERO,
            hosts,
            flying: BinaryHeap::new(),
            inboxes,
            sent: 0,
        }
    }

    /// When the next packet arrives.
    pub(super) fn next(&self) -> Option<Time> {
        self.flying.peek().map(|Reverse((at, ..))| *at)
    }

    /// Moves arrived packets into their sockets.
    pub(super) fn arrive(&mut self) {
        while self.next().is_some_and(|at| at <= self.now) {
            let Some(Reverse((_, _, to, packet))) = self.flying.pop() else { return };
            let socket = &mut self.inboxes[to].socket;
            if socket.len() < self.config.socket {
                socket.push_back(packet);
            }
        }
    }

    /// Ends all faults.
    pub(super) fn calm(&mut self) {
        let config = &mut self.config;
        (config.loss, config.duplicate, config.late) = (0, 0, 0);
        (config.socket, config.connection) = (1000, 16);
    }

    /// Has something arrived for a node?
    pub(super) fn has_arrived(&self, node: usize) -> bool {
        let inbox = &self.inboxes[node];
        !inbox.socket.is_empty() || !inbox.connection.is_empty()
    }

    fn launch(&mut self, to: usize, packet: Packet) {
        let longest = self.config.delay * 1000;
        let mut delay = if self.config.orderly { longest } else { self.rng.below(longest + 1) };
        if self.rng.chance(self.config.late) {
            delay += self.rng.below(LATE);
        }
        self.sent += 1;
        self.flying.push(Reverse((self.now + Duration::from_nanos(delay), self.sent, to, packet)));
    }

    /// The node that a packet is for. A host steers by the slot in the queue pair number.
    fn owner(&self, dst: IpAddr, packet: &[u8]) -> Option<usize> {
        let qpn = u32::from_be_bytes([0, packet[5], packet[6], packet[7]]);
        let node = usize::from(slot_of_qpn(qpn)?.checked_sub(MIN_SLOT)?);
        self.hosts.get(node).is_some_and(|host| ip(*host) == dst).then_some(node)
    }
}

/// The wire of one node.
pub(super) struct HostWire {
    pub(super) node: usize,
    pub(super) host: usize,
    pub(super) net: Arc<Mutex<Net>>,
}

pub(super) fn lock(net: &Mutex<Net>) -> MutexGuard<'_, Net> {
    net.lock().unwrap_or_else(PoisonError::into_inner)
}

type Between = RefCell<Option<Box<dyn FnOnce()>>>;

thread_local! {
    static BETWEEN: Between = const { RefCell::new(None) };
}

/// Runs `f`. Another thread of the program acts in the middle of `f`, or after it.
pub(super) fn with_between<R>(between: Option<Box<dyn FnOnce()>>, f: impl FnOnce() -> R) -> R {
    BETWEEN.set(between);
    let result = f();
    if let Some(between) = BETWEEN.take() {
        between();
    }
    result
}

impl SimulatedWire for HostWire {
    fn is_own_address(&self, of: IpAddr) -> bool {
        of == ip(self.host)
    }

    fn slot(&self) -> Slot {
        slot(self.node)
    }

    fn send(&self, route: &Route, bytes: &[u8]) {
        let mut net = lock(&self.net);
        let Some(to) = net.owner(route.dst.ip(), bytes) else { return };
        let packet =
            Packet { from: self.host, traffic_class: route.traffic_class, bytes: bytes.to_vec() };
        let (loss, duplicate) = (net.config.loss, net.config.duplicate);
        if net.rng.chance(duplicate) {
            net.launch(to, packet.clone());
        }
        if !net.rng.chance(loss) {
            net.launch(to, packet);
        }
    }

    fn receive(&self, budget: usize, sink: Sink<'_>) -> usize {
        let (mut taken, mut messages) = (Vec::new(), Vec::new());
        {
            let mut net = lock(&self.net);
            net.now = net.now + LOOK;
            net.arrive();
            let inbox = &mut net.inboxes[self.node];
            let n = inbox.socket.len().min(budget);
            taken.extend(inbox.socket.drain(..n));
            messages.extend(inbox.connection.drain(..).flatten());
        }
        for (packets, proof) in [(&taken, Proof::Wire), (&messages, Proof::Process)] {
            // What a host has sent arrives as one run, whatever was lost or overtaken in between. A
            // kernel joins no packets of different traffic classes.
            let alike =
                |a: &Packet, b: &Packet| a.from == b.from && a.traffic_class == b.traffic_class;
            for run in packets.chunk_by(alike) {
                let head = RxPacket {
                    src: SocketAddr::new(ip(run[0].from), 4791),
                    dst: ip(self.host),
                    local: Some(AddrIndex::default()),
                    traffic_class: run[0].traffic_class,
                    hop_limit: 64,
                    proof,
                    bytes: &[],
                };
                sink(RxRun { head, packets: &mut run.iter().map(|packet| &packet.bytes[..]) });
            }
        }
        taken.len() + messages.len()
    }

    fn deliver(&self, to: Slot, route: &Route, packets: &[u8]) -> Delivery {
        let mut net = lock(&self.net);
        let node = usize::from(to - MIN_SLOT);
        if net.hosts.get(node) != Some(&self.host) {
            return Delivery::NoOwner;
        }
        let most = net.config.connection;
        let inbox = &mut net.inboxes[node];
        if inbox.connection.len() >= most {
            return Delivery::Full;
        }
        let (mut message, mut rest) = (Vec::new(), packets);
        while let [low, high, tail @ ..] = rest {
            let (packet, after) = tail.split_at(usize::from(u16::from_le_bytes([*low, *high])));
            let bytes = packet.to_vec();
            message.push(Packet { from: self.host, traffic_class: route.traffic_class, bytes });
            rest = after;
        }
        inbox.connection.push_back(message);
        Delivery::Done
    }

    fn maintenance_due(&self) -> bool {
        if let Some(between) = BETWEEN.take() {
            between();
        }
        false
    }
}
