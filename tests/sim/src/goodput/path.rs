//! The network: one direction of a path.
use crate::rng::Rng;
use adverb_engine::Time;
use adverb_wire::Headers;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::time::Duration;

/// Bytes of Ethernet, IPv4, UDP and ICRC around a packet.
const AROUND: u64 = 14 + 20 + 8 + 4 + 4;
/// The hosts are faster than the router by this factor.
const HOST: u32 = 4;
/// Congestion experienced (RFC 3168). A packet with any of these bits set is ECN-capable.
const CE: u8 = 3;

/// A path between two hosts, the same both ways. Rates are in thousandths.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    /// Bits a second.
    pub rate: u64,
    /// Round-trip time of a packet without bytes, in nanoseconds.
    pub round_trip: u64,
    /// Limit of a random delay of each packet, in nanoseconds, so that packets overtake each other.
    pub jitter: u64,
    /// Packets the router has room for.
    pub room: usize,
    /// The router marks ECN-capable packets while at least this many packets wait.
    pub mark: Option<usize>,
    /// Packets lost.
    pub loss: u32,
    /// Packets that arrive twice.
    pub duplicate: u32,
    /// Packets that are overtaken by others.
    pub reorder: u32,
    /// Packets damaged. The ICRC finds them, so they count as lost.
    pub corrupt: u32,
}

impl Path {
    /// A path without faults and with room for 256 packets.
    #[must_use]
    pub const fn new(rate: u64, round_trip: u64) -> Path {
        Path {
            rate,
            round_trip,
            jitter: 0,
            room: 256,
            mark: None,
            loss: 0,
            duplicate: 0,
            reorder: 0,
            corrupt: 0,
        }
    }
}

/// A packet on its way.
#[derive(Clone, Debug)]
pub(super) struct Packet {
    pub(super) headers: Headers,
    pub(super) payload: Vec<u8>,
    pub(super) traffic_class: u8,
}

/// One direction of a path.
pub(super) struct PathDirection {
    path: Path,
    /// When the wire behind the router is free.
    busy: Time,
    /// When each packet in the router will have left.
    leaving: VecDeque<Time>,
    flying: BinaryHeap<Reverse<(Time, u64)>>,
    /// Packets on their way, each with the number of its sender.
    packets: BTreeMap<u64, (usize, Packet)>,
    serial: u64,
    pub(super) overflowed: u64,
}

impl PathDirection {
    pub(super) fn new(path: Path) -> PathDirection {
        PathDirection {
            path,
            busy: Time::ZERO,
            leaving: VecDeque::new(),
            flying: BinaryHeap::new(),
            packets: BTreeMap::new(),
            serial: 0,
            overflowed: 0,
        }
    }

    /// Sends a packet of a sender, whose own wire is free at `host`. The packet's fate is drawn
    /// now.
    pub(super) fn send(
        &mut self,
        sender: usize,
        host: &mut Time,
        now: Time,
        rng: &mut Rng,
        mut packet: Packet,
    ) {
        let mut headers = [0; adverb_wire::MAX_HEADER_LEN];
        let bytes = (packet.headers.emit(&mut headers) + packet.payload.len()) as u64 + AROUND;
        let takes = Duration::from_nanos(bytes * 8 * 1_000_000_000 / self.path.rate);
        *host = (*host).max(now) + takes / HOST;
        let now = *host;
        while self.leaving.front().is_some_and(|at| *at <= now) {
            self.leaving.pop_front();
        }
        if self.leaving.len() >= self.path.room {
            self.overflowed += 1;
            return;
        }
        if self.path.mark.is_some_and(|mark| self.leaving.len() >= mark)
            && packet.traffic_class & CE != 0
        {
            packet.traffic_class |= CE;
        }
        self.busy = self.busy.max(now) + takes;
        self.leaving.push_back(self.busy);
        let f = self.path;
        // All four draws are always made, so that the rate of one fault does not shift the packets
        // of another.
        let [lost, corrupt, twice, late] =
            [f.loss, f.corrupt, f.duplicate, f.reorder].map(|n| rng.chance(n));
        let passed_by = rng.range(1, 3) as u32;
        if lost || corrupt {
            return;
        }
        let mut at = self.busy + Duration::from_nanos(f.round_trip / 2);
        if f.jitter > 0 {
            at = at + Duration::from_nanos(rng.below(f.jitter + 1));
        }
        if late {
            at = at + takes * passed_by + Duration::from_nanos(1);
        }
        if twice {
            self.launch(at, (sender, packet.clone()));
        }
        self.launch(at, (sender, packet));
    }

    fn launch(&mut self, at: Time, packet: (usize, Packet)) {
        self.serial += 1;
        self.flying.push(Reverse((at, self.serial)));
        self.packets.insert(self.serial, packet);
    }

    pub(super) fn next(&self) -> Option<Time> {
        self.flying.peek().map(|Reverse((at, _))| *at)
    }

    /// The next packet and the number of its sender, if the packet has arrived.
    pub(super) fn arrive(&mut self, now: Time) -> Option<(usize, Packet)> {
        if self.next()? > now {
            return None;
        }
        let Reverse((_, serial)) = self.flying.pop()?;
        self.packets.remove(&serial)
    }
}
