//! Payloads that the host copies from another process straight to where they go.
//!
//! The host gives [`Qp::handle_packet`] a stand-in of the same length, and has [`Memory::write`]
//! copy the payload itself. So nothing but `write` may look at the payload.
//!
//! [`Memory::write`]: crate::Memory::write
use super::Qp;
use crate::keys::KeyTable;
use crate::memory::Range;
use crate::types::{QpState, QpType};
use adverb_wire::Headers;

impl Qp {
    /// Is a packet with these headers the next one, of a SEND whose payload nothing but
    /// [`Memory::write`](crate::Memory::write) looks at? A shared receive queue that matches tags
    /// looks at the payload of a first packet, which the host has to exclude.
    #[must_use]
    pub fn takes_straight(&self, headers: &Headers) -> bool {
        matches!(self.attr.state, QpState::Rtr | QpState::Rts | QpState::Sqd)
            && self.config.qp_type == QpType::Rc
            && self.responder.takes_straight(headers)
    }

    /// Where the payload of such a packet goes, and what follows it in the message, `len` bytes in
    /// all. `None`: not to memory side by side, or something is unusual about it.
    #[must_use]
    pub fn straight_to(&self, keys: &KeyTable, headers: &Headers, len: u32) -> Option<Range> {
        self.responder.straight_to(keys, self.config.pd, headers.bth.opcode.starts_message(), len)
    }
}
