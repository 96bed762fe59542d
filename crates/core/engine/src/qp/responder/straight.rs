//! Payloads that the host copies straight to their destination.
use super::inbound::Pieces;
use super::reliable::Class;
use super::state::Responder;
use crate::keys::KeyTable;
use crate::memory::Range;
use crate::qp::recv_queue::RecvQueue;
use crate::types::{Access, PdId};
use adverb_wire::{Bth, Headers};

impl Responder {
    /// Is this the next packet, and does it belong to a SEND without a tag?
    pub(crate) fn takes_straight(&self, headers: &Headers) -> bool {
        headers.bth.psn == self.expected
            && is_send(&headers.bth)
            && self.active.as_ref().is_none_or(|active| active.wqe.tagged.is_none())
    }

    /// Where the payloads of the next packets go.
    pub(crate) fn course<'a>(&'a self, keys: &'a KeyTable, pd: PdId) -> Course<'a> {
        let active = self.active.as_ref();
        Course {
            keys,
            receives: (!self.receives_hidden).then_some(&self.rq),
            receive: self.rq.taken,
            within: active.is_some(),
            pd: active.map_or(pd, |active| active.wqe.pd),
            pieces: active.map_or(Pieces::default(), |active| active.pieces(0)),
            own_pd: pd,
        }
    }
}

fn is_send(bth: &Bth) -> bool {
    Class::of(bth.opcode.operation()) == Some(Class::Send)
}

/// Destinations of the payloads of the next packets, in order. The receive queue stays as it is.
pub struct Course<'a> {
    keys: &'a KeyTable,
    receives: Option<&'a RecvQueue>,
    /// The next receive.
    receive: u64,
    /// A message has begun and not ended.
    within: bool,
    /// The protection domain of the message's receive, and the rest of the receive's list.
    pd: PdId,
    pieces: Pieces<'a>,
    own_pd: PdId,
}

impl Course<'_> {
    /// The destination of the next packet's payload of `len` bytes. `None` if the bytes go to
    /// several entries, or the packet or the receive is unusual. The destinations of later packets
    /// are then unknown.
    pub fn next(&mut self, bth: &Bth, len: u32) -> Option<Range> {
        if !is_send(bth) || bth.opcode.starts_message() == self.within {
            return None;
        }
        if !self.within {
            self.pieces = Pieces::of(self.receives?.sges_of(self.receive)?);
            self.pd = self.own_pd;
            self.receive += 1;
        }
        self.within = !bth.opcode.ends_message();
        let entry = self.pieces.next_of(len).filter(|entry| entry.length == len)?;
        self.keys.check_local(self.pd, entry.lkey, Access::LOCAL_WRITE, entry.addr, len).ok()
    }
}
