//! Packets at the engine's boundary.
use crate::attr::AddressVector;
use crate::keys::KeyOp;
use crate::memory::Range;
use crate::types::{Gid, PathMtu};
use adverb_wire::Headers;

/// A packet the link delivered: ICRC checked and removed, headers parsed, padding removed.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// Source address.
    pub src: Gid,
    /// Destination address.
    pub dst: Gid,
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// TTL or hop limit, if the link knows it (else 64).
    pub hop_limit: u8,
    /// Bytes a packet of its sender's messages holds, if that is not the path MTU: a link that is
    /// no network may carry more.
    pub mtu: Option<u32>,
    /// BTH and extension headers.
    pub headers: Headers,
    /// Payload.
    pub payload: &'a [u8],
}

impl Packet<'_> {
    /// What its sender cuts messages into, and wants answers cut into.
    pub(crate) fn mtu(&self, path: PathMtu) -> usize {
        self.mtu.map_or(path.bytes(), |mtu| mtu as usize)
    }
}

/// A packet to send; it stays in the queue pair until the next call.
#[derive(Debug)]
pub struct Transmit<'a> {
    /// Where to.
    pub path: &'a AddressVector,
    /// DSCP and ECN: those of the path, and on reliable transports the sign that the queue pair
    /// heeds marks (RFC 3168).
    pub traffic_class: u8,
    /// UDP source port a link should use if it can choose.
    pub source_port: u16,
    /// BTH and extension headers; `bth.pad` is set.
    pub headers: &'a Headers,
    /// Payload.
    pub payload: Data<'a>,
}

/// The payload of a [`Transmit`].
#[derive(Clone, Copy, Debug)]
pub enum Data<'a> {
    /// Bytes the engine holds (inline data, atomics); possibly empty.
    Bytes(&'a [u8]),
    /// Registered memory, in order, all checked; no entry is empty.
    Gather(&'a [Range]),
}

impl Data<'_> {
    /// Bytes in all.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Data::Bytes(b) => b.len(),
            Data::Gather(g) => g.iter().map(|r| r.len as usize).sum(),
        }
    }
    /// No payload?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What a queue pair wants done next.
#[derive(Debug)]
pub enum Output<'a> {
    /// Send this packet. A memory fault while the host copies the payload is reported with
    /// [`Qp::transmit_failed`](crate::Qp::transmit_failed).
    Packet(Transmit<'a>),
    /// Perform this on the key table, then report with [`Qp::key_op_done`](crate::Qp::key_op_done).
    Key(KeyOp),
    /// Nothing until the next post, packet or timeout.
    Idle,
}
