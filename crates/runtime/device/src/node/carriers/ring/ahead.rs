//! Payloads copied ahead of the packets (`fetch`).
use super::record::Reference;
use adverb_wire::{Headers, Psn};

/// Payloads copied together with an earlier payload, for the next records of a ring, in order. Any
/// other record makes this value void.
pub(in crate::node) struct Ahead {
    qpn: u32,
    epoch: u32,
    /// PSN of the next packet.
    psn: Psn,
    /// The payloads of this packet and the packets behind it.
    left: std::vec::IntoIter<Copied>,
}

/// The address of a payload in the sender's process, and the present address.
pub(super) struct Copied {
    pub(super) from: u64,
    pub(super) len: u32,
    pub(super) to: u64,
}

impl Ahead {
    /// Payloads of packets of a queue pair, from `psn` on.
    pub(super) fn new(qpn: u32, epoch: u32, psn: Psn, copied: Vec<Copied>) -> Self {
        Ahead { qpn, epoch, psn, left: copied.into_iter() }
    }

    /// Is no payload left?
    pub(super) fn is_empty(&self) -> bool {
        self.left.as_slice().is_empty()
    }

    /// Is the payload of this packet the next in `left`?
    pub(super) fn holds(&self, qpn: u32, headers: &Headers, reference: &Reference) -> bool {
        let is_it = |next: &Copied| (next.from, next.len) == (reference.addr, reference.len);
        (self.qpn, self.psn, self.epoch) == (qpn, headers.bth.psn, reference.epoch)
            && self.left.as_slice().first().is_some_and(is_it)
    }

    /// The present address of the next payload.
    pub(super) fn take(&mut self) -> Option<u64> {
        self.psn += 1;
        self.left.next().map(|next| next.to)
    }
}
