//! Packets as they go from process to process.

use std::net::{IpAddr, SocketAddr};

/// What a packet that changes processes needs beside its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// The sender, with its port.
    pub src: SocketAddr,
    /// The address that it was sent to.
    pub dst: IpAddr,
    /// Traffic class.
    pub traffic_class: u8,
    /// TTL or hop limit.
    pub hop_limit: u8,
}

/// A packet for another process.
#[derive(Clone, Copy, Debug)]
pub struct LocalPacket<'a> {
    /// From where to where.
    pub envelope: Envelope,
    /// This process made the packet; it was never on a network.
    pub direct: bool,
    /// BTH through the pad bytes.
    pub bytes: &'a [u8],
}

/// What came from another process of this user, for the receiver of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrived<'a> {
    /// Packets of one flow.
    Packets {
        /// From where to where.
        envelope: Envelope,
        /// They come from their sender, otherwise from a process that received them over UDP.
        direct: bool,
        /// Each behind its length: see [`crate::message::packets`].
        packets: &'a [u8],
    },
    /// The sender's socket at this address is gone: measure the steering again.
    Refresh {
        /// The address.
        ip: IpAddr,
    },
}

/// Takes what arrived, and answers how many packets it gave on.
pub type Taker<'a> = &'a mut dyn FnMut(Arrived<'_>) -> usize;

/// What became of packets given to [`crate::Local::deliver`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The owner has them.
    Done,
    /// The owner has not taken earlier ones yet; nothing was sent.
    Full,
    /// No living process of this user owns the slot; nothing was sent.
    NoOwner,
}

/// Most bytes of packets that one [`crate::Local::deliver`] takes.
pub const DELIVERY: usize = 60 << 10;

/// Adds a packet to those for [`crate::Local::deliver`]: headers from the BTH on, `payload_len`
/// bytes that `fill` writes, and pad. Answers what `fill` does; on `false` nothing was added.
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
