//! The 40 bytes before a UD payload: a GRH; or over IPv4, twenty bytes and the IPv4 header (annex
//! A17.4.5.1).

/// Length of the area in bytes.
pub const GRH_LEN: usize = 40;

const VERSION_6: u32 = 6 << 28;

/// Global route header, which has the layout of an IPv6 header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Grh {
    /// Traffic class: DSCP and ECN.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Bytes after this header.
    pub payload_len: u16,
    /// 17 (UDP) over RoCEv2, 0x1b in a native GRH.
    pub next_header: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Source GID.
    pub sgid: [u8; 16],
    /// Destination GID.
    pub dgid: [u8; 16],
}

impl Grh {
    /// The bytes of the GRH.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; GRH_LEN] {
        let mut out = [0; GRH_LEN];
        let word = VERSION_6 | u32::from(self.traffic_class) << 20 | self.flow_label & 0xf_ffff;
        out[..4].copy_from_slice(&word.to_be_bytes());
        out[4..6].copy_from_slice(&self.payload_len.to_be_bytes());
        out[6] = self.next_header;
        out[7] = self.hop_limit;
        out[8..24].copy_from_slice(&self.sgid);
        out[24..].copy_from_slice(&self.dgid);
        out
    }
}

/// The IPv4 header in the last twenty bytes of the area; the first twenty are zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Ipv4InGrh {
    /// Type of service: DSCP and ECN.
    pub tos: u8,
    /// Length of the IPv4 packet in bytes, including this header.
    pub total_len: u16,
    /// Identification.
    pub id: u16,
    /// Don't-fragment flag.
    pub dont_fragment: bool,
    /// Time to live.
    pub ttl: u8,
    /// 17: UDP.
    pub protocol: u8,
    /// Source address.
    pub src: [u8; 4],
    /// Destination address.
    pub dst: [u8; 4],
}

impl Ipv4InGrh {
    /// The forty bytes, including the header checksum.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; GRH_LEN] {
        let mut out = [0; GRH_LEN];
        let h = &mut out[20..];
        h[0] = 0x45;
        h[1] = self.tos;
        h[2..4].copy_from_slice(&self.total_len.to_be_bytes());
        h[4..6].copy_from_slice(&self.id.to_be_bytes());
        h[6] = if self.dont_fragment { 0x40 } else { 0 };
        h[8] = self.ttl;
        h[9] = self.protocol;
        h[12..16].copy_from_slice(&self.src);
        h[16..20].copy_from_slice(&self.dst);
        let sum: u32 = h.chunks_exact(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum();
        let sum = (sum & 0xffff) + (sum >> 16);
        let sum = (sum & 0xffff) + (sum >> 16);
        h[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
        out
    }
}
