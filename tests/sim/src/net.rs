//! The network: packets as bytes, delayed, lost, repeated, reordered, damaged, held back.
use crate::config::Faults;
use crate::rng::Rng;
use adverb_engine::{Gid, Time};
use adverb_wire::icrc::{IpMeta, UdpMeta, icrc};
use adverb_wire::{ICRC_LEN, ROCE_PORT};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

const IP_AND_UDP: usize = 28;
/// Congestion experienced, in the traffic class (RFC 3168).
pub(crate) const CE: u8 = 3;
/// The longest extra delay of a late packet: longer than any ACK timeout of a world.
const LATE: u64 = 60_000_000;

/// The oracle's knowledge of a packet. The engines never see this value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Meta {
    /// Sender.
    pub(crate) qp: usize,
    /// Connection of the sender's link.
    pub(crate) epoch: u32,
    /// Number of the packet's request, and the place of the PSN in the packet's direction, counted
    /// from 0.
    pub(crate) op: usize,
    pub(crate) psn: u64,
    pub(crate) response: bool,
}

/// A packet in flight: the bytes from the BTH to the ICRC.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Flying {
    pub(crate) meta: Meta,
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) source_port: u16,
    pub(crate) traffic_class: u8,
    pub(crate) bytes: Vec<u8>,
}

/// Address of a device.
pub(crate) fn ip(device: usize) -> [u8; 4] {
    [10, 0, 0, device as u8 + 1]
}

pub(crate) fn gid(device: usize) -> Gid {
    Gid::from_ipv4(ip(device))
}

impl Flying {
    fn headers(&self, bytes: &[u8]) -> (IpMeta, UdpMeta) {
        let ip = IpMeta::V4 { src: ip(self.from), dst: ip(self.to), id: 0, dont_fragment: true };
        let len = (8 + bytes.len() + ICRC_LEN) as u16;
        (ip, UdpMeta { src_port: self.source_port, dst_port: ROCE_PORT, len })
    }

    /// Appends the ICRC.
    pub(crate) fn seal(&mut self) {
        let (ip, udp) = self.headers(&self.bytes);
        let crc = icrc(&ip, &udp, &self.bytes);
        self.bytes.extend_from_slice(&crc.to_le_bytes());
    }

    /// The bytes from the BTH through the pad, if the ICRC is right.
    pub(crate) fn checked(&self) -> Option<&[u8]> {
        let (body, crc) = self.bytes.split_last_chunk::<ICRC_LEN>()?;
        if body.len() < 12 {
            return None;
        }
        let (ip, udp) = self.headers(body);
        (icrc(&ip, &udp, body).to_le_bytes() == *crc).then_some(body)
    }

    /// The packet as an IPv4 packet, for a capture.
    pub(crate) fn datagram(&self) -> Vec<u8> {
        let total = (IP_AND_UDP + self.bytes.len()) as u16;
        let mut out = vec![0x45, self.traffic_class];
        out.extend_from_slice(&total.to_be_bytes());
        out.extend_from_slice(&[0, 0, 0x40, 0, 64, 17, 0, 0]);
        out.extend_from_slice(&ip(self.from));
        out.extend_from_slice(&ip(self.to));
        let sum: u32 = out.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
        let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
        out[10..12].copy_from_slice(&sum.to_be_bytes());
        out.extend_from_slice(&self.source_port.to_be_bytes());
        out.extend_from_slice(&ROCE_PORT.to_be_bytes());
        out.extend_from_slice(&(total - 20).to_be_bytes());
        out.extend_from_slice(&[0, 0]);
        out.extend_from_slice(&self.bytes);
        out
    }
}

#[derive(Debug)]
pub(crate) struct Net {
    devices: usize,
    faults: Faults,
    rng: Rng,
    queue: BinaryHeap<Reverse<(Time, u64, Flying)>>,
    serial: u64,
    /// From (row) and to (column): packets are lost.
    parted: Vec<bool>,
    /// End of each clog: packets wait until then.
    clogged: Vec<Time>,
    /// Packets lost, late or damaged.
    pub(crate) harmed: u64,
    pub(crate) calm_since: Option<Time>,
}

impl Net {
    pub(crate) fn new(devices: usize, faults: Faults, seed: u64) -> Net {
        Net {
            devices,
            faults,
            rng: Rng::new(seed ^ 0x4e7),
            queue: BinaryHeap::new(),
            serial: 0,
            parted: vec![false; devices * devices],
            clogged: vec![Time::ZERO; devices * devices],
            harmed: 0,
            calm_since: None,
        }
    }

    fn way(&self, a: usize, b: usize) -> usize {
        (a % self.devices) * self.devices + b % self.devices
    }
    pub(crate) fn part(&mut self, a: usize, b: usize) {
        let way = self.way(a, b);
        self.parted[way] = true;
    }
    pub(crate) fn clog(&mut self, a: usize, b: usize, until: Time) {
        let way = self.way(a, b);
        self.clogged[way] = until;
    }
    /// Ends all partitions. Packets in a clog stay delayed.
    pub(crate) fn heal(&mut self) {
        self.parted.fill(false);
    }
    /// Ends all faults. After `calm_since` no late packet arrives either.
    pub(crate) fn calm(&mut self, now: Time) {
        self.heal();
        self.faults = Faults { delay: self.faults.delay, ..Faults::default() };
        let clogged = self.clogged.iter().copied().fold(now, Time::max);
        self.calm_since = Some(clogged + Duration::from_nanos(LATE));
    }

    /// Sends a packet. All faults of this packet are drawn now.
    pub(crate) fn send(&mut self, now: Time, flying: Flying) {
        let f = self.faults;
        if self.rng.chance(f.duplicate) {
            self.launch(now, flying.clone());
        }
        if self.parted[self.way(flying.from, flying.to)] || self.rng.chance(f.loss) {
            self.harmed += 1;
            return;
        }
        self.launch(now, flying);
    }

    fn launch(&mut self, now: Time, mut flying: Flying) {
        let f = self.faults;
        if flying.traffic_class & CE != 0 && self.rng.chance(f.mark) {
            flying.traffic_class |= CE;
        }
        if self.rng.chance(f.corrupt) {
            self.harmed += 1;
            // Up to three bits: in packets of this size the CRC finds so many for certain.
            for _ in 0..self.rng.range(1, 3) {
                let at = self.rng.index(flying.bytes.len());
                flying.bytes[at] ^= 1 << self.rng.below(8);
            }
        }
        let mut delay = f.delay + self.rng.below(f.jitter + 1);
        if self.rng.chance(f.late) {
            self.harmed += 1;
            delay += self.rng.below(LATE);
        }
        let clogged = self.clogged[self.way(flying.from, flying.to)];
        if clogged > now {
            self.harmed += 1;
        }
        let at = now.max(clogged) + Duration::from_nanos(delay);
        self.serial += 1;
        self.queue.push(Reverse((at, self.serial, flying)));
    }

    /// When the next packet arrives.
    pub(crate) fn next(&self) -> Option<Time> {
        self.queue.peek().map(|Reverse((at, ..))| *at)
    }
    /// The next packet, if arrived.
    pub(crate) fn arrive(&mut self, now: Time) -> Option<Flying> {
        if self.next()? > now {
            return None;
        }
        self.queue.pop().map(|Reverse((_, _, flying))| flying)
    }
    /// Removes all packets of a queue pair from the network.
    pub(crate) fn purge(&mut self, qp: usize) {
        self.queue.retain(|Reverse((_, _, f))| f.meta.qp != qp);
    }
}
