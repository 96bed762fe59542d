//! The IP and UDP headers that a packet had, or would have had, on the wire.

use std::net::{IpAddr, SocketAddr};

use crate::icrc::ICRC_LEN;

const UDP_LEN: usize = 8;
const PROTOCOL_UDP: u8 = 17;
const DONT_FRAGMENT: u16 = 0x4000;
/// Of a packet whose sender left it to the machine.
const HOP_LIMIT: u8 = 64;
/// Bytes that a UDP packet over IPv4 has room for.
const LONGEST_UDP: usize = 65_535 - 20 - UDP_LEN;

/// Where a packet comes from and goes to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flow {
    pub(crate) src: SocketAddr,
    pub(crate) dst: SocketAddr,
    pub(crate) traffic_class: u8,
    /// 0: the machine's default.
    pub(crate) hop_limit: u8,
}

/// Appends an IP packet with `payload` (in two parts) as its UDP payload and `id` as the
/// identification of IPv4.
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
    // The pseudo-header ends with protocol and length. A sum of zero is sent as ones: zero says
    // "none".
    let pseudo = [0, PROTOCOL_UDP, (len >> 8) as u8, len as u8];
    let checksum = match sum.add(&pseudo).add(&out[start..]).finish() {
        0 => 0xffff,
        sum => sum,
    };
    out[start + 6..start + 8].copy_from_slice(&checksum.to_be_bytes());
}

/// A packet that crosses shared memory, and would fit into an IP packet or not.
#[derive(Clone, Copy)]
pub(super) struct Near {
    ends: (IpAddr, IpAddr),
    /// Bytes of payload that are recorded.
    payload: usize,
    pad: usize,
    missing: usize,
}

impl Near {
    pub(super) fn of(src: IpAddr, dst: IpAddr, headers: usize, payload: usize) -> Near {
        let ends = (src.to_canonical(), dst.to_canonical());
        let most = (LONGEST_UDP - headers - ICRC_LEN) & !3;
        let kept = payload.min(most);
        Near { ends, payload: kept, pad: kept.wrapping_neg() % 4, missing: payload - kept }
    }

    /// Bytes that are left out.
    pub(super) fn missing(&self) -> usize {
        self.missing
    }

    /// Appends the IP packet. The payload is the caller's to fill in.
    #[inline]
    pub(super) fn put(&self, out: &mut Vec<u8>, headers: &[u8], fill: impl FnOnce(&mut [u8])) {
        let start = out.len();
        let udp = UDP_LEN + headers.len() + self.payload + self.pad + ICRC_LEN;
        let port = adverb_wire::ROCE_PORT.to_be_bytes();
        let length = (udp as u16).to_be_bytes();
        let at = match self.ends {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let mut ip = [0_u8; 20 + UDP_LEN];
                ip[0] = 0x45;
                ip[2..4].copy_from_slice(&((20 + udp) as u16).to_be_bytes());
                ip[6..8].copy_from_slice(&DONT_FRAGMENT.to_be_bytes());
                (ip[8], ip[9]) = (HOP_LIMIT, PROTOCOL_UDP);
                ip[12..16].copy_from_slice(&src.octets());
                ip[16..20].copy_from_slice(&dst.octets());
                let checksum = Sum::default().add(&ip[..20]).finish();
                ip[10..12].copy_from_slice(&checksum.to_be_bytes());
                ip[20..22].copy_from_slice(&port);
                ip[22..24].copy_from_slice(&port);
                ip[24..26].copy_from_slice(&length);
                out.extend_from_slice(&ip);
                20
            }
            (src, dst) => {
                let mut ip = [0_u8; 40 + UDP_LEN];
                ip[0] = 0x60;
                ip[4..6].copy_from_slice(&length);
                (ip[6], ip[7]) = (PROTOCOL_UDP, HOP_LIMIT);
                ip[8..24].copy_from_slice(&octets(src));
                ip[24..40].copy_from_slice(&octets(dst));
                ip[40..42].copy_from_slice(&port);
                ip[42..44].copy_from_slice(&port);
                ip[44..46].copy_from_slice(&length);
                out.extend_from_slice(&ip);
                40
            }
        };
        out.extend_from_slice(headers);
        let payload = out.len();
        out.resize(payload + self.payload + self.pad + ICRC_LEN, 0);
        fill(&mut out[payload..payload + self.payload]);
        if at == 40 {
            // IPv6 does not know a packet without a checksum.
            let pseudo = [0, PROTOCOL_UDP, length[0], length[1]];
            let sum = Sum::default().add(&out[start + 8..start + 40]).add(&pseudo);
            let checksum = match sum.add(&out[start + at..]).finish() {
                0 => 0xffff,
                sum => sum,
            };
            out[start + 46..start + 48].copy_from_slice(&checksum.to_be_bytes());
        }
    }
}

fn octets(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// The Internet checksum (RFC 1071).
#[derive(Clone, Copy, Default)]
struct Sum(u64);

impl Sum {
    /// Adds bytes; an odd one counts as the upper half of a word, so only the last part may have
    /// one.
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
