//! Payloads that the host copies straight to where they go.
use super::reliable::Class;
use super::state::Responder;
use crate::keys::KeyTable;
use crate::memory::Range;
use crate::types::{Access, PdId};
use adverb_wire::Headers;

impl Responder {
    /// Is it the next packet, of a SEND that matches no tag?
    pub(crate) fn takes_straight(&self, headers: &Headers) -> bool {
        let bth = &headers.bth;
        bth.psn == self.expected
            && Class::of(bth.opcode.operation()) == Some(Class::Send)
            && self.active.as_ref().is_none_or(|active| active.wqe.tagged.is_none())
    }

    /// Where the next `len` bytes of a SEND go.
    pub(crate) fn straight_to(&self, keys: &KeyTable, pd: PdId, starts: bool, len: u32) -> Option<Range> {
        let (pd, entry) = match &self.active {
            Some(active) if !starts => (active.wqe.pd, active.next_entry(len)?),
            None if starts && !self.receives_hidden => (pd, *self.rq.sges_of(self.rq.taken())?.first()?),
            _ => return None,
        };
        if len > entry.length {
            return None;
        }
        keys.check_local(pd, entry.lkey, Access::LOCAL_WRITE, entry.addr, len).ok()
    }
}
