//! Congestion marks and their notifications (RoCEv2 annex A17.9, RFC 3168).
//!
//! Packets of reliable queue pairs are ECN-capable. The receiver of a marked packet sends a
//! congestion notification (CNP) to the sender, and the sender's window shrinks. Responses have no
//! window of their own. So a requester that receives marked READ responses also asks for less.
use super::DropReason;
use super::context::ctx;
use super::ecn::ECN;
use super::queue_pair::{Half, Qp};
use crate::packet::{Data, Packet, Transmit};
use crate::types::QpState;
use adverb_wire::Time;

/// The payload of a notification (A17.9.3).
const RESERVED: [u8; 16] = [0; 16];

impl Qp {
    /// An admitted packet was marked on its way.
    #[cold]
    pub(super) fn marked(&mut self, packet: &Packet<'_>, now: Time) {
        if !self.config.qp_type.is_reliable() {
            return;
        }
        self.notifier.marked(now);
        if packet.headers.bth.opcode.is_response() {
            self.requester.congested();
        }
    }

    /// The congestion notification that is due.
    pub(super) fn notification(&mut self) -> Transmit<'_> {
        self.notifier.due = false;
        self.last_packet = Half::Requester;
        self.counters.cnps_sent = self.counters.cnps_sent.wrapping_add(1);
        let path = &self.attr.av;
        let source_port = ctx!(self).source_port();
        let (headers, payload) =
            (self.requester.notify(self.attr.dest_qpn), Data::Bytes(&RESERVED));
        Transmit { path, traffic_class: path.traffic_class & !ECN, source_port, headers, payload }
    }

    /// Takes a notification: packets of this queue pair were marked.
    pub(super) fn handle_cnp(&mut self, packet: &Packet<'_>) {
        let refused = if !self.config.qp_type.is_reliable() {
            Some(DropReason::Transport)
        } else if !matches!(self.attr.state, QpState::Rts | QpState::Sqd) {
            Some(DropReason::State)
        } else if packet.headers.bth.dest_qpn != self.config.qpn {
            Some(DropReason::DestQpn)
        } else if packet.src != self.attr.av.dgid {
            Some(DropReason::Source)
        } else {
            None
        };
        match refused {
            Some(reason) => self.counters.drop(reason),
            None => {
                self.counters.cnps = self.counters.cnps.wrapping_add(1);
                self.requester.congested();
            }
        }
    }
}
