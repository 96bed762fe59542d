//! Packets between processes.

use std::net::{IpAddr, SocketAddr};

/// The properties of a packet that its bytes do not contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// The sender's address and port.
    pub src: SocketAddr,
    /// The destination address of the packet.
    pub dst: IpAddr,
    /// Traffic class.
    pub traffic_class: u8,
    /// TTL or hop limit.
    pub hop_limit: u8,
}

/// A packet for another process.
#[derive(Clone, Copy, Debug)]
pub struct LocalPacket<'a> {
    /// Source and destination.
    pub envelope: Envelope,
    /// This process made the packet; the packet was never on a network.
    pub from_sender: bool,
    /// The bytes from the BTH through the padding.
    pub bytes: &'a [u8],
}

/// A message from another process of this user, for the receiver of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrived<'a> {
    /// Packets of one flow.
    Packets {
        /// Source and destination.
        envelope: Envelope,
        /// The packets come from their sender, otherwise from a process that received them over
        /// UDP.
        from_sender: bool,
        /// The packets, each preceded by its length: see [`crate::message::packets`].
        packets: &'a [u8],
    },
    /// The sender's socket at this address is closed: the receiver must measure the steering again.
    Refresh {
        /// The address.
        ip: IpAddr,
    },
}

/// Takes an arrived message, and returns the number of packets given to the receiver.
pub type Taker<'a> = &'a mut dyn FnMut(Arrived<'_>) -> usize;

/// The result of [`crate::Local::deliver`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The owner has the packets.
    Done,
    /// The owner has not taken earlier packets yet; nothing was sent.
    Full,
    /// No living process of this user owns the slot; nothing was sent.
    NoOwner,
}

/// The largest number of bytes in one call of [`crate::Local::deliver`].
pub const DELIVERY: usize = 60 << 10;

/// Adds a packet for [`crate::Local::deliver`]: headers from the BTH on, `payload_len` bytes
/// written by `fill`, and padding. Returns the result of `fill`; on `false` nothing was added.
pub fn add_packet(
    out: &mut Vec<u8>,
    headers: &[u8],
    payload_len: usize,
    pad: u8,
    fill: impl FnOnce(&mut [u8]) -> bool,
) -> bool {
    let before = out.len();
    let len = headers.len() + payload_len + usize::from(pad);
    out.extend_from_slice(&(len as u16).to_le_bytes());
    out.extend_from_slice(headers);
    let at = out.len();
    out.resize(at + payload_len + usize::from(pad), 0);
    let filled = fill(&mut out[at..at + payload_len]);
    if !filled {
        out.truncate(before);
    }
    filled
}
