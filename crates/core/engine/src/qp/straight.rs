//! Payloads that the host copies from another process straight to their destination.
//!
//! The host gives [`Qp::handle_packet`] a stand-in of the same length instead of the payload.
//! [`Memory::write`] of the host then copies the real payload. So no code but `write` may look at
//! the payload.
//!
//! [`Memory::write`]: crate::Memory::write
use super::{Course, Qp};
use crate::keys::KeyTable;
use crate::types::{QpState, QpType};
use adverb_wire::Headers;

impl Qp {
    /// Is a packet with these headers the next packet, and is its payload read by
    /// [`Memory::write`](crate::Memory::write) alone? The packet must belong to a SEND. A shared
    /// receive queue with tag matching reads the payload of a first packet; the host has to exclude
    /// such queues.
    #[must_use]
    pub fn takes_straight(&self, headers: &Headers) -> bool {
        matches!(self.attr.state, QpState::Rtr | QpState::Rts | QpState::Sqd)
            && self.config.qp_type == QpType::Rc
            && self.responder.takes_straight(headers)
    }

    /// Where the payloads of the next packets go, from the expected packet on.
    #[must_use]
    pub fn course<'a>(&'a self, keys: &'a KeyTable) -> Course<'a> {
        self.responder.course(keys, self.config.pd)
    }
}
