//! The fields of an Ethernet frame that rules and hashes use.

/// Length of an Ethernet header in bytes.
pub const HEADER: usize = 14;

const VLAN_TYPES: [[u8; 2]; 2] = [[0x81, 0x00], [0x88, 0xa8]];
const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];
const IPV4_LEN: usize = 20;
const IPV6_LEN: usize = 40;
const TCP: u8 = 6;
const UDP: u8 = 17;
/// IPv6 extension headers that a transport header may follow: hop-by-hop options, routing,
/// destination options.
const EXTENSIONS: [u8; 3] = [0, 43, 60];
/// Limit of extension headers to skip.
const MOST_EXTENSIONS: usize = 8;

/// The network layer of a frame, if it is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Network {
    /// A protocol that rules do not support.
    Other,
    /// IPv4 (RFC 791), with the three bits of flags.
    Ipv4 { src: [u8; 4], dst: [u8; 4], proto: u8, tos: u8, ttl: u8, flags: u8 },
    /// IPv6 (RFC 8200). The flow label has 20 bits, in network order.
    Ipv6 {
        src: [u8; 16],
        dst: [u8; 16],
        flow_label: [u8; 4],
        next_header: u8,
        traffic_class: u8,
        hop_limit: u8,
    },
}

/// The protocol above IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// RFC 9293.
    Tcp,
    /// RFC 768.
    Udp,
}

/// Ports of a TCP segment or UDP datagram, in network order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ports {
    pub(crate) transport: Transport,
    pub(crate) src: [u8; 2],
    pub(crate) dst: [u8; 2],
}

/// The fields of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Destination address.
    pub dst: [u8; 6],
    pub(crate) src: [u8; 6],
    /// The tag of the outermost VLAN, if the frame has a tag.
    pub(crate) vlan: Option<[u8; 2]>,
    /// The type after the header and its tags.
    pub(crate) ether_type: [u8; 2],
    pub(crate) network: Network,
    pub(crate) ports: Option<Ports>,
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

impl Frame {
    /// Reads a frame; `None` if the frame is shorter than its Ethernet header. An incomplete layer
    /// after the header counts as absent.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Frame> {
        let mut frame = Frame {
            dst: array(bytes, 0)?,
            src: array(bytes, 6)?,
            vlan: None,
            ether_type: array(bytes, 12)?,
            network: Network::Other,
            ports: None,
        };
        let mut rest = &bytes[HEADER..];
        // At most two tags: the tag of a service provider, and the customer's tag.
        for _ in 0..2 {
            if let Some([a, b, c, d]) = array(rest, 0)
                && VLAN_TYPES.contains(&frame.ether_type)
            {
                frame.vlan.get_or_insert([a, b]);
                frame.ether_type = [c, d];
                rest = &rest[4..];
            }
        }
        match frame.ether_type {
            IPV4 => frame.read_ipv4(rest),
            IPV6 => frame.read_ipv6(rest),
            _ => None,
        };
        Some(frame)
    }

    fn read_ipv4(&mut self, bytes: &[u8]) -> Option<()> {
        let header = bytes.first_chunk::<IPV4_LEN>()?;
        let words = usize::from(header[0] & 15);
        if header[0] >> 4 != 4 || words * 4 < IPV4_LEN {
            return None;
        }
        let proto = header[9];
        self.network = Network::Ipv4 {
            src: array(header, 12)?,
            dst: array(header, 16)?,
            proto,
            tos: header[1],
            ttl: header[8],
            flags: header[6] >> 5,
        };
        // No fragment has ports, not even the first, so that all fragments of a datagram go the
        // same way.
        let is_fragment = (u16::from_be_bytes([header[6], header[7]]) & 0x3fff) != 0;
        if !is_fragment {
            self.read_ports(proto, bytes.get(words * 4..)?);
        }
        Some(())
    }

    fn read_ipv6(&mut self, bytes: &[u8]) -> Option<()> {
        let header = bytes.first_chunk::<IPV6_LEN>()?;
        if header[0] >> 4 != 6 {
            return None;
        }
        self.network = Network::Ipv6 {
            src: array(header, 8)?,
            dst: array(header, 24)?,
            flow_label: [0, header[1] & 0x0f, header[2], header[3]],
            next_header: header[6],
            traffic_class: header[0] << 4 | header[1] >> 4,
            hop_limit: header[7],
        };
        let (mut next, mut rest) = (header[6], &bytes[IPV6_LEN..]);
        for _ in 0..MOST_EXTENSIONS {
            if !EXTENSIONS.contains(&next) {
                break;
            }
            let [following, units] = array(rest, 0)?;
            rest = rest.get(8 + 8 * usize::from(units)..)?;
            next = following;
        }
        self.read_ports(next, rest);
        Some(())
    }

    fn read_ports(&mut self, proto: u8, bytes: &[u8]) {
        let transport = match proto {
            TCP => Transport::Tcp,
            UDP => Transport::Udp,
            _ => return,
        };
        if let Some([a, b, c, d]) = array(bytes, 0) {
            self.ports = Some(Ports { transport, src: [a, b], dst: [c, d] });
        }
    }

    /// Is the destination a multicast or broadcast address?
    #[must_use]
    pub fn is_to_group(&self) -> bool {
        self.dst[0] & 1 != 0
    }
}
