//! Arriving requests, and the NAK for a missing packet.
use super::state::Responder;
use crate::memory::Memory;
use crate::packet::Packet;
use crate::qp::context::QpCtx;
use crate::qp::reorder::Tell;
use crate::qp::verdict::Verdict;
use crate::qp::{Counters, DropReason, Env, RecvSource};
use crate::types::QpType;
use adverb_wire::{NakCode, Syndrome, Time};

impl Responder {
    /// Takes a request of the queue pair's transport. The caller has checked that the state (RTR or
    /// later) receives.
    pub(crate) fn handle_request<M: Memory + ?Sized, S: RecvSource + ?Sized>(
        &mut self,
        ctx: &QpCtx<'_>,
        env: &mut Env<'_, M, S>,
        packet: &Packet<'_>,
        counters: &mut Counters,
    ) -> Verdict {
        let h = &packet.headers;
        // Headers from the parser always fit their opcode. Other headers may not.
        if !h.is_consistent() {
            counters.drop(DropReason::Malformed);
            return Verdict::Ok;
        }
        // The host takes one invalidation a step. A second invalidation in the same step counts as
        // lost, and the peer sends it again.
        if h.ieth.is_some() && env.effects.key_op.is_some() {
            counters.drop(DropReason::State);
            return Verdict::Ok;
        }
        match ctx.config.qp_type {
            QpType::Rc | QpType::XrcRecv => self.handle_reliable(ctx, env, packet, counters),
            QpType::Uc => self.handle_uc(ctx, env, packet, counters),
            QpType::Ud => self.handle_ud(ctx, env, packet, counters),
            QpType::XrcSend | QpType::RawPacket => {
                counters.drop(DropReason::Opcode);
                Verdict::Ok
            }
        }
    }

    /// A deadline has come: a missing packet may be lost.
    pub(crate) fn handle_timeout(&mut self, now: Time, counters: &mut Counters) {
        let tell = self.reorder.expired(now);
        self.tell(tell, counters);
    }

    /// Sends a NAK for the missing packet.
    pub(super) fn tell(&mut self, tell: Tell, counters: &mut Counters) {
        if tell != Tell::Nothing && !self.responses.has_nak() {
            counters.gap_naks = counters.gap_naks.wrapping_add(1);
            self.queue_nak(Syndrome::Nak(NakCode::PsnSequence), counters);
        }
    }
}
