//! The IP and UDP headers of a packet on the wire, or the headers that it would have had.

use std::net::{IpAddr, SocketAddr};

use crate::icrc::{ICRC_LEN, octets};

const UDP_LEN: usize = 8;
const PROTOCOL_UDP: u8 = 17;
const DONT_FRAGMENT: u16 = 0x4000;
/// For a packet with the machine's default hop limit.
const HOP_LIMIT: u8 = 64;
/// The bits of a BTH's second byte with the pad count.
const PAD_BITS: u8 = 0x30;
/// The largest UDP payload over IPv4.
const LONGEST_UDP: usize = 65_535 - 20 - UDP_LEN;

/// The source and the destination of a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flow {
    pub(crate) src: SocketAddr,
    pub(crate) dst: SocketAddr,
    pub(crate) traffic_class: u8,
    /// 0: the machine's default.
    pub(crate) hop_limit: u8,
}

/// Appends an IP packet with `payload` (in two parts) as its UDP payload, and `id` as its IPv4
/// identification.
pub(super) fn put(out: &mut Vec<u8>, flow: &Flow, id: u16, payload: [&[u8]; 2]) {
    let len = UDP_LEN + payload[0].len() + payload[1].len();
    let hop_limit = if flow.hop_limit == 0 { HOP_LIMIT } else { flow.hop_limit };
    let (src, dst) = (flow.src.ip().to_canonical(), flow.dst.ip().to_canonical());
    let mut sum = Sum::default();
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let start = out.len();
            out.extend_from_slice(&[0x45, flow.traffic_class]);
            out.extend_from_slice(&((20 + len) as u16).to_be_bytes());
            out.extend_from_slice(&id.to_be_bytes());
            out.extend_from_slice(&DONT_FRAGMENT.to_be_bytes());
            out.extend_from_slice(&[hop_limit, PROTOCOL_UDP, 0, 0]);
            out.extend_from_slice(&src.octets());
            out.extend_from_slice(&dst.octets());
            let checksum = Sum::default().add(&out[start..]).finish();
            out[start + 10..start + 12].copy_from_slice(&checksum.to_be_bytes());
            sum = sum.add(&src.octets()).add(&dst.octets());
        }
        (src, dst) => {
            let class = u32::from(flow.traffic_class);
            out.extend_from_slice(&(6 << 28 | class << 20).to_be_bytes());
            out.extend_from_slice(&(len as u16).to_be_bytes());
            out.extend_from_slice(&[PROTOCOL_UDP, hop_limit]);
            let (src, dst) = (octets(src), octets(dst));
            out.extend_from_slice(&src);
            out.extend_from_slice(&dst);
            sum = sum.add(&src).add(&dst);
        }
    }
    let start = out.len();
    out.extend_from_slice(&flow.src.port().to_be_bytes());
    out.extend_from_slice(&flow.dst.port().to_be_bytes());
    out.extend_from_slice(&(len as u16).to_be_bytes());
    out.extend_from_slice(&[0; 2]);
    payload.iter().for_each(|part| out.extend_from_slice(part));
    // The pseudo-header ends with protocol and length. A checksum of zero is sent as ones, because
    // zero means "none".
    let pseudo = [0, PROTOCOL_UDP, (len >> 8) as u8, len as u8];
    let checksum = match sum.add(&pseudo).add(&out[start..]).finish() {
        0 => 0xffff,
        sum => sum,
    };
    out[start + 6..start + 8].copy_from_slice(&checksum.to_be_bytes());
}

/// A packet through shared memory, possibly longer than an IP packet.
#[derive(Clone, Copy)]
pub(super) struct Near {
    ends: (IpAddr, IpAddr),
    /// The number of recorded payload bytes.
    payload: usize,
    pad: usize,
    missing: usize,
}

impl Near {
    /// The largest number of bytes before the payload.
    pub(super) const LONGEST_HEAD: usize = 40 + UDP_LEN + adverb_wire::MAX_HEADER_LEN;

    pub(super) fn of(src: IpAddr, dst: IpAddr, headers: usize, payload: usize) -> Near {
        let ends = (src.to_canonical(), dst.to_canonical());
        let most = (LONGEST_UDP - headers - ICRC_LEN) & !3;
        let kept = payload.min(most);
        Near { ends, payload: kept, pad: kept.wrapping_neg() % 4, missing: payload - kept }
    }

    /// The number of payload bytes left out.
    pub(super) fn missing(&self) -> usize {
        self.missing
    }

    /// The number of recorded payload bytes.
    pub(super) fn payload(&self) -> usize {
        self.payload
    }

    /// The length of the IP packet in bytes.
    pub(super) fn len(&self, headers: usize) -> usize {
        self.ip_len() + UDP_LEN + headers + self.payload + self.pad + ICRC_LEN
    }

    fn ip_len(&self) -> usize {
        if let (IpAddr::V4(_), IpAddr::V4(_)) = self.ends { 20 } else { 40 }
    }

    /// Writes everything before the payload; returns its length.
    #[inline]
    pub(super) fn head(&self, headers: &[u8], out: &mut [u8]) -> usize {
        let ip = self.ip_len();
        let len = self.len(headers.len());
        let port = adverb_wire::ROCE_PORT.to_be_bytes();
        let length = ((len - ip) as u16).to_be_bytes();
        match self.ends {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                out[0] = 0x45;
                out[2..4].copy_from_slice(&(len as u16).to_be_bytes());
                out[6..8].copy_from_slice(&DONT_FRAGMENT.to_be_bytes());
                (out[8], out[9]) = (HOP_LIMIT, PROTOCOL_UDP);
                out[12..16].copy_from_slice(&src.octets());
                out[16..20].copy_from_slice(&dst.octets());
                let checksum = Sum::default().add(&out[..20]).finish();
                out[10..12].copy_from_slice(&checksum.to_be_bytes());
            }
            (src, dst) => {
                out[0] = 0x60;
                out[4..6].copy_from_slice(&length);
                (out[6], out[7]) = (PROTOCOL_UDP, HOP_LIMIT);
                out[8..24].copy_from_slice(&octets(src));
                out[24..40].copy_from_slice(&octets(dst));
            }
        }
        out[ip..ip + 2].copy_from_slice(&port);
        out[ip + 2..ip + 4].copy_from_slice(&port);
        out[ip + 4..ip + 6].copy_from_slice(&length);
        let at = ip + UDP_LEN;
        out[at..at + headers.len()].copy_from_slice(headers);
        // The packet's own pad count is for the whole payload.
        out[at + 1] = out[at + 1] & !PAD_BITS | (self.pad as u8) << 4;
        at + headers.len()
    }

    /// Writes the UDP checksum of a whole packet. Over IPv4 there is none; over IPv6 it is
    /// mandatory.
    #[inline]
    pub(super) fn sum(&self, frame: &mut [u8]) {
        if self.ip_len() == 20 {
            return;
        }
        let pseudo = [0, PROTOCOL_UDP, frame[4], frame[5]];
        let sum = Sum::default().add(&frame[8..40]).add(&pseudo);
        let checksum = match sum.add(&frame[40..]).finish() {
            0 => 0xffff,
            sum => sum,
        };
        frame[46..48].copy_from_slice(&checksum.to_be_bytes());
    }
}

/// The Internet checksum (RFC 1071).
#[derive(Clone, Copy, Default)]
struct Sum(u64);

impl Sum {
    /// Adds bytes. An odd last byte counts as the upper half of a word, so only the last part may
    /// have an odd length.
    fn add(self, bytes: &[u8]) -> Self {
        let (words, odd) = bytes.as_chunks::<2>();
        let sum: u64 = words.iter().map(|w| u64::from(u16::from_be_bytes(*w))).sum();
        Sum(self.0 + sum + odd.first().map_or(0, |b| u64::from(*b) << 8))
    }

    fn finish(self) -> u16 {
        let mut sum = self.0;
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }
}
