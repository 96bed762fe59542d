//! Payloads that were copied ahead of their packets (`fetch`).
use super::record::Reference;
use adverb_wire::{Headers, Psn};

/// Payloads that were copied together with an earlier one. They belong to the next records of one
/// ring, in order: any other record voids this.
pub(in crate::node) struct Ahead {
    qpn: u32,
    epoch: u32,
    /// Of the next packet.
    psn: Psn,
    /// Their payloads.
    left: std::vec::IntoIter<Copied>,
}

/// Where a payload was, in the sender's process, and where it is now.
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

    /// Is none left?
    pub(super) fn is_empty(&self) -> bool {
        self.left.as_slice().is_empty()
    }

    /// Is the payload of a packet the next of them?
    pub(super) fn holds(&self, qpn: u32, headers: &Headers, reference: &Reference) -> bool {
        let is_it = |next: &Copied| (next.from, next.len) == (reference.addr, reference.len);
        (self.qpn, self.psn, self.epoch) == (qpn, headers.bth.psn, reference.epoch)
            && self.left.as_slice().first().is_some_and(is_it)
    }

    /// Where the next payload is.
    pub(super) fn take(&mut self) -> Option<u64> {
        self.psn += 1;
        self.left.next().map(|next| next.to)
    }
}
