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

/// An IP packet with its length and what stands before its payload.
#[derive(Clone, Copy)]
pub(super) struct Frame<'a> {
    flow: Flow,
    /// The addresses of the flow, canonical.
    ends: (IpAddr, IpAddr),
    /// The IPv4 identification.
    id: u16,
    /// The beginning of the UDP payload, of a packet through shared memory.
    headers: &'a [u8],
    /// The number of recorded bytes after the headers.
    pub(super) payload: usize,
    pad: usize,
    icrc: usize,
    /// The number of payload bytes left out.
    pub(super) missing: usize,
    /// Over IPv4 the UDP checksum is optional.
    has_sum: bool,
}

impl<'a> Frame<'a> {
    /// The largest number of bytes before the payload.
    pub(super) const LONGEST_HEAD: usize = 40 + UDP_LEN + adverb_wire::MAX_HEADER_LEN;

    /// A packet with a UDP payload of `len` bytes, as on the wire.
    pub(super) fn of(flow: &Flow, id: u16, len: usize) -> Frame<'a> {
        let ends = (flow.src.ip().to_canonical(), flow.dst.ip().to_canonical());
        let (headers, pad, icrc, missing) = (&[][..], 0, 0, 0);
        Frame { flow: *flow, ends, id, headers, payload: len, pad, icrc, missing, has_sum: true }
    }

    /// A packet through shared memory, possibly longer than an IP packet.
    pub(super) fn near(src: IpAddr, dst: IpAddr, headers: &'a [u8], payload: usize) -> Frame<'a> {
        let at = |ip| SocketAddr::new(ip, adverb_wire::ROCE_PORT);
        let flow = Flow { src: at(src), dst: at(dst), traffic_class: 0, hop_limit: 0 };
        let most = (LONGEST_UDP - headers.len() - ICRC_LEN) & !3;
        let kept = payload.min(most);
        let (pad, missing) = (kept.wrapping_neg() % 4, payload - kept);
        let whole = Frame::of(&flow, 0, kept);
        Frame { headers, pad, icrc: ICRC_LEN, missing, has_sum: false, ..whole }
    }

    /// The length of the IP packet in bytes.
    pub(super) fn len(&self) -> usize {
        let after = self.payload + self.pad + self.icrc;
        self.ip_len() + UDP_LEN + self.headers.len() + after
    }

    fn ip_len(&self) -> usize {
        if let (IpAddr::V4(_), IpAddr::V4(_)) = self.ends { 20 } else { 40 }
    }

    /// Writes everything before the payload; returns its length.
    #[inline]
    pub(super) fn head(&self, out: &mut [u8]) -> usize {
        let Flow { src, dst, traffic_class, hop_limit } = self.flow;
        let hop_limit = if hop_limit == 0 { HOP_LIMIT } else { hop_limit };
        let (ip, len) = (self.ip_len(), self.len());
        let length = ((len - ip) as u16).to_be_bytes();
        match self.ends {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                (out[0], out[1]) = (0x45, traffic_class);
                out[2..4].copy_from_slice(&(len as u16).to_be_bytes());
                out[4..6].copy_from_slice(&self.id.to_be_bytes());
                out[6..8].copy_from_slice(&DONT_FRAGMENT.to_be_bytes());
                (out[8], out[9]) = (hop_limit, PROTOCOL_UDP);
                out[12..16].copy_from_slice(&src.octets());
                out[16..20].copy_from_slice(&dst.octets());
                let checksum = Sum::default().add(&out[..20]).finish();
                out[10..12].copy_from_slice(&checksum.to_be_bytes());
            }
            (src, dst) => {
                let word = 6 << 28 | u32::from(traffic_class) << 20;
                out[..4].copy_from_slice(&word.to_be_bytes());
                out[4..6].copy_from_slice(&length);
                (out[6], out[7]) = (PROTOCOL_UDP, hop_limit);
                out[8..24].copy_from_slice(&octets(src));
                out[24..40].copy_from_slice(&octets(dst));
            }
        }
        out[ip..ip + 2].copy_from_slice(&src.port().to_be_bytes());
        out[ip + 2..ip + 4].copy_from_slice(&dst.port().to_be_bytes());
        out[ip + 4..ip + 6].copy_from_slice(&length);
        let at = ip + UDP_LEN;
        let end = at + self.headers.len();
        out[at..end].copy_from_slice(self.headers);
        if let [_, bits, ..] = &mut out[at..end] {
            // The packet's own pad count is for the whole payload.
            *bits = *bits & !PAD_BITS | (self.pad as u8) << 4;
        }
        end
    }

    /// Writes the UDP checksum of a whole packet.
    #[inline]
    pub(super) fn sum(&self, frame: &mut [u8]) {
        let ip = self.ip_len();
        let addresses = if ip == 20 { 12..20 } else { 8..40 };
        if ip == 20 && !self.has_sum {
            return;
        }
        // The pseudo-header ends with protocol and length. A checksum of zero is sent as ones,
        // because zero means "none".
        let pseudo = [0, PROTOCOL_UDP, frame[ip + 4], frame[ip + 5]];
        let sum = Sum::default().add(&frame[addresses]).add(&pseudo);
        let checksum = match sum.add(&frame[ip..]).finish() {
            0 => 0xffff,
            sum => sum,
        };
        frame[ip + 6..ip + 8].copy_from_slice(&checksum.to_be_bytes());
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
