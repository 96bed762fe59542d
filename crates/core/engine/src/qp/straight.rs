//! Payloads that the host copies from another process straight to where they go.
//!
//! The host gives [`Qp::handle_packet`] a stand-in of the same length, and has [`Memory::write`]
//! copy the payload itself. So nothing but `write` may look at the payload.
//!
//! [`Memory::write`]: crate::Memory::write
use super::{Course, Qp};
use crate::keys::KeyTable;
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

    /// Where the payloads of the next packets go, from the one that is expected on.
    #[must_use]
    pub fn course<'a>(&'a self, keys: &'a KeyTable) -> Course<'a> {
        self.responder.course(keys, self.config.pd)
    }
}
