//! Packets at the engine's boundary.
use crate::attr::AddressVector;
use crate::keys::KeyOp;
use crate::memory::Range;
use crate::types::{Gid, PathMtu};
use adverb_wire::Headers;

/// A packet from the link: ICRC checked and removed, headers parsed, padding removed.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// Source address.
    pub src: Gid,
    /// Destination address.
    pub dst: Gid,
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// TTL or hop limit, if known to the link (else 64).
    pub hop_limit: u8,
    /// Most payload bytes of a packet of this sender, if not the path MTU. A link without a network
    /// may carry longer packets.
    pub mtu: Option<u32>,
    /// BTH and extension headers.
    pub headers: Headers,
    /// Payload.
    pub payload: &'a [u8],
}

impl Packet<'_> {
    /// The size of the pieces of the sender's messages, and of answers to the sender.
    pub(crate) fn mtu(&self, path: PathMtu) -> usize {
        self.mtu.map_or(path.bytes(), |mtu| mtu as usize)
    }
}

/// A packet to send. The packet stays in the queue pair until the next call.
#[derive(Debug)]
pub struct Transmit<'a> {
    /// The destination.
    pub path: &'a AddressVector,
    /// DSCP and ECN of the path. On reliable transports ECN says that the queue pair responds to
    /// congestion marks (RFC 3168).
    pub traffic_class: u8,
    /// Preferred UDP source port, for a path without a flow label.
    pub source_port: u16,
    /// BTH and extension headers; `bth.pad` is set.
    pub headers: &'a Headers,
    /// Payload.
    pub payload: Data<'a>,
}

/// The payload of a [`Transmit`].
#[derive(Clone, Copy, Debug)]
pub enum Data<'a> {
    /// Bytes held by the engine (inline data, atomics); possibly empty.
    Bytes(&'a [u8]),
    /// Registered memory, in order, checked. No entry is empty.
    Gather(&'a [Range]),
}

impl Data<'_> {
    /// Total number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Data::Bytes(b) => b.len(),
            Data::Gather(g) => g.iter().map(|r| r.len as usize).sum(),
        }
    }
    /// Is there no payload?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The next task for the host.
#[derive(Debug)]
pub enum Output<'a> {
    /// Send this packet. If the copy of the payload faults, the host calls
    /// [`Qp::transmit_failed`](crate::Qp::transmit_failed).
    Packet(Transmit<'a>),
    /// Perform this operation on the key table, then call
    /// [`Qp::key_op_done`](crate::Qp::key_op_done).
    Key(KeyOp),
    /// There is no task until the next post, packet or timeout.
    Idle,
}
