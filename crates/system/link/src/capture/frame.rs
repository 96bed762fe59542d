//! The IP and UDP headers that a packet had, or would have had, on the wire.

use std::net::{IpAddr, SocketAddr};

const UDP_LEN: usize = 8;
const PROTOCOL_UDP: u8 = 17;
const DONT_FRAGMENT: u16 = 0x4000;
/// Of a packet whose sender left it to the machine.
const HOP_LIMIT: u8 = 64;

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
