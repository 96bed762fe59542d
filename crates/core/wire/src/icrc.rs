//! The invariant CRC (IBTA 7.8.1, RoCEv2 annex A17.3.3).
//!
//! The ICRC is a CRC-32 over 64 one bits (for the LRH), the IP and UDP headers, and the packet from
//! the BTH through the pad. Fields that routers may change count as ones: traffic class, hop limit,
//! flow label, both checksums, and byte 4 of the BTH.
//!
//! Over IPv4 the identification is covered, but a UDP socket does not report it. Because the CRC is
//! linear, the identification can be computed: [`Solver`].
use crc32fast::Hasher;

mod solve;
pub use solve::Solver;

/// Length of an IPv4 header without options. These functions do not support a header with options.
const IPV4_LEN: usize = 20;
/// Length of the UDP header.
const UDP_LEN: usize = 8;
/// Bytes of the length and the checksum in the UDP header.
const REST_LEN: usize = 4;
/// Length of the base transport header.
const BTH_LEN: usize = 12;
/// Bytes of ones in place of the LRH.
const ONES: usize = 8;
const PREFIX_V4: usize = ONES + IPV4_LEN + UDP_LEN;
const PREFIX_V6: usize = ONES + 40 + UDP_LEN;
const PROTOCOL_UDP: u8 = 17;
/// Byte of the BTH that holds FECN, BECN and reserved bits.
const MASKED_IN_BTH: usize = 4;

/// The IP header fields that the ICRC covers and the sender chooses.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum IpMeta {
    /// IPv4 without options, not a fragment. The total length is taken from the UDP length.
    V4 {
        /// Source address.
        src: [u8; 4],
        /// Destination address.
        dst: [u8; 4],
        /// Identification.
        id: u16,
        /// Don't-fragment flag.
        dont_fragment: bool,
    },
    /// IPv6 without extension headers. The payload length is the UDP length.
    V6 {
        /// Source address.
        src: [u8; 16],
        /// Destination address.
        dst: [u8; 16],
    },
}

impl IpMeta {
    /// The identification. 0 over IPv6, which has none.
    fn id(&self) -> u16 {
        match self {
            IpMeta::V4 { id, .. } => *id,
            IpMeta::V6 { .. } => 0,
        }
    }
}

/// The UDP header. The ICRC does not cover its checksum.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct UdpMeta {
    /// Source port actually used.
    pub src_port: u16,
    /// Destination port, [`crate::ROCE_PORT`].
    pub dst_port: u16,
    /// UDP length: 8, the packet from BTH to pad, and 4 for the ICRC.
    pub len: u16,
}

/// The headers before the BTH, summed once for all packets of one flow and one length. Only the
/// IPv4 identification differs from packet to packet.
#[derive(Clone, Copy, Debug)]
pub struct IcrcFlow {
    /// The CRC up to and with the UDP ports, for the identification 0.
    ports: u32,
    /// The rest of the UDP header.
    rest: [u8; REST_LEN],
    is_v4: bool,
}

impl IcrcFlow {
    /// Sums the headers. An IPv4 identification in `ip` does not count.
    #[must_use]
    pub fn new(ip: &IpMeta, udp: &UdpMeta) -> IcrcFlow {
        // One block on the stack, because several short pieces are slower than one longer piece.
        let mut block = [0xff; PREFIX_V6];
        let start = match ip {
            IpMeta::V4 { src, dst, id: _, dont_fragment } => {
                let total = udp.len.wrapping_add(IPV4_LEN as u16);
                let h = &mut block[ONES..ONES + IPV4_LEN];
                h[0] = 0x45;
                h[2..4].copy_from_slice(&total.to_be_bytes());
                h[4..6].fill(0);
                h[6] = if *dont_fragment { 0x40 } else { 0 };
                h[7] = 0;
                h[9] = PROTOCOL_UDP;
                h[12..16].copy_from_slice(src);
                h[16..20].copy_from_slice(dst);
                PREFIX_V4
            }
            IpMeta::V6 { src, dst } => {
                let h = &mut block[ONES..ONES + 40];
                h[0] = 0x6f;
                h[4..6].copy_from_slice(&udp.len.to_be_bytes());
                h[6] = PROTOCOL_UDP;
                h[8..24].copy_from_slice(src);
                h[24..40].copy_from_slice(dst);
                PREFIX_V6
            }
        };
        let h = &mut block[start - UDP_LEN..start];
        h[..2].copy_from_slice(&udp.src_port.to_be_bytes());
        h[2..4].copy_from_slice(&udp.dst_port.to_be_bytes());
        let mut hasher = Hasher::new();
        hasher.update(&block[..start - REST_LEN]);
        let mut rest = [0xff; REST_LEN];
        rest[..2].copy_from_slice(&udp.len.to_be_bytes());
        IcrcFlow { ports: hasher.finalize(), rest, is_v4: matches!(ip, IpMeta::V4 { .. }) }
    }

    /// The ICRC of a packet with this identification (without meaning over IPv6), as a number. The
    /// wire carries its bytes in little-endian order. `bth_and_rest` goes from the BTH through the
    /// pad.
    #[must_use]
    #[inline]
    pub fn icrc(&self, id: u16, bth_and_rest: &[u8]) -> u32 {
        let [high, low] = if self.is_v4 { id.to_be_bytes() } else { [0; 2] };
        let ports = self.ports ^ solve::HIGH[usize::from(high)] ^ solve::LOW[usize::from(low)];
        let mut hasher = Hasher::new_with_initial(ports);
        let (bth, rest) = bth_and_rest.split_at(bth_and_rest.len().min(BTH_LEN));
        // Sixteen bytes are one step of the CRC.
        let mut block = [0; REST_LEN + BTH_LEN];
        block[..REST_LEN].copy_from_slice(&self.rest);
        block[REST_LEN..][..bth.len()].copy_from_slice(bth);
        block[REST_LEN + MASKED_IN_BTH] = 0xff;
        hasher.update(&block[..REST_LEN + bth.len()]);
        hasher.update(rest);
        hasher.finalize()
    }
}

/// ICRC of a packet; `bth_and_rest` goes from the BTH through the pad.
#[must_use]
pub fn icrc(ip: &IpMeta, udp: &UdpMeta, bth_and_rest: &[u8]) -> u32 {
    IcrcFlow::new(ip, udp).icrc(ip.id(), bth_and_rest)
}
