//! Repeated requests: answered again and not executed again (IBTA 9.7.5.1.4).
use super::messages::MAX_MESSAGE;
use super::reliable::{Class, is_plain};
use super::responses::{Body, packets};
use super::state::{Responder, SavedAtomic};
use crate::keys::KeyTable;
use crate::packet::Packet;
use crate::qp::context::QpCtx;
use crate::qp::{Counters, DropReason};
use crate::types::Access;
use adverb_wire::{NakCode, Operation, Psn};

impl Responder {
    /// Handles a request that was executed before (IBTA 9.7.5.1.4). The request is answered again.
    /// Only a READ is executed again.
    pub(super) fn repeat(
        &mut self,
        ctx: &QpCtx<'_>,
        class: Class,
        packet: &Packet<'_>,
        counters: &mut Counters,
    ) {
        let psn = packet.headers.bth.psn;
        let answered = match class {
            Class::Send | Class::Write => {
                let newest = self.executed.filter(|newest| psn.precedes(*newest)).unwrap_or(psn);
                self.respond_to(newest, Body::Ack, true);
                true
            }
            Class::Read => self.repeat_read(ctx, packet),
            Class::Atomic => {
                let same = |s: &&SavedAtomic| {
                    s.psn == psn
                        && s.opcode == packet.headers.bth.opcode
                        && Some(s.eth) == packet.headers.atomic
                };
                match self.saved.iter().find(same).map(|s| s.original) {
                    Some(original) => self.repeat_short(ctx, psn, Body::Atomic { original }),
                    None => false,
                }
            }
            Class::AtomicWrite | Class::Flush => self.repeat_short(ctx, psn, Body::Done),
        };
        if answered {
            counters.duplicates = counters.duplicates.wrapping_add(1);
        } else {
            counters.drop(DropReason::Sequence);
        }
    }

    /// Is there room for another answer to a duplicate? Duplicates get no more answers than new
    /// requests, so that a flood of duplicates is bounded.
    fn repeats_left(&self, ctx: &QpCtx<'_>) -> bool {
        self.responses.resources(true) < usize::from(ctx.attr.max_dest_rd_atomic)
    }

    fn repeat_short(&mut self, ctx: &QpCtx<'_>, psn: Psn, body: Body) -> bool {
        if self.responses.holds(psn) {
            return true;
        }
        let room = self.repeats_left(ctx);
        if room {
            self.respond_to(psn, body, true);
        }
        room
    }

    /// The PSN and code of the NAK for a READ repeated after the end of the connection. A NAK at
    /// the PSN where the connection ended would also acknowledge all earlier responses (IBTA
    /// 9.7.7.2.2). A requester that lost an earlier response would then repeat the READ for ever.
    pub(super) fn refuse_read(
        &self,
        ctx: &QpCtx<'_>,
        keys: &KeyTable,
        packet: &Packet<'_>,
        (at, code): (Psn, NakCode),
    ) -> Option<(Psn, NakCode)> {
        let bth = &packet.headers.bth;
        let reth =
            packet.headers.reth.filter(|_| bth.opcode.operation() == Operation::ReadRequest)?;
        let count = packets(reth.len, packet.mtu(ctx.attr.path_mtu));
        if u32::try_from(at.since(bth.psn)).is_ok_and(|ahead| ahead < count) {
            return Some((bth.psn, code));
        }
        // A part before the end of the connection is refused only if its memory is no longer
        // registered.
        let (pd, qpn) = (ctx.config.pd, ctx.config.qpn);
        keys.check_remote(pd, qpn, reth.rkey, Access::REMOTE_READ, reth.va, reth.len)
            .err()
            .filter(|_| reth.len > 0)
            .map(|_| (bth.psn, NakCode::RemoteAccess))
    }

    /// Handles a repeated READ, or the rest of a READ. Keys and rights are checked when the packets
    /// are prepared. A failure is answered with a NAK and ends nothing: a copy from the network may
    /// name memory deregistered long ago, and its sender ignores the NAK.
    fn repeat_read(&mut self, ctx: &QpCtx<'_>, packet: &Packet<'_>) -> bool {
        let Some(reth) = packet.headers.reth else { return false };
        let psn = packet.headers.bth.psn;
        let mtu = packet.mtu(ctx.attr.path_mtu);
        let count = packets(reth.len, mtu);
        if reth.len > MAX_MESSAGE
            || count > self.expected.since(psn).unsigned_abs()
            || !ctx.attr.access.contains(Access::REMOTE_READ)
        {
            return false;
        }
        let original = self.responses.restart_reads(psn, count);
        if !original && !self.repeats_left(ctx) {
            return false;
        }
        self.respond_to(psn, Body::read(ctx.config.pd, &reth, mtu), !original);
        true
    }

    /// Queues the last answer again, because the request that ended the connection, or an earlier
    /// request, has come again and the answer was lost. By IBTA 10.3.1.7 a queue pair in ERR drops
    /// the request. Then the peer would get a timeout instead of the reason, because over UDP a NAK
    /// may be lost like any packet. An ACK carries no result, so only SENDs and WRITEs get an ACK.
    pub(crate) fn end_again(
        &mut self,
        ctx: &QpCtx<'_>,
        keys: &KeyTable,
        packet: &Packet<'_>,
        counters: &mut Counters,
    ) {
        counters.duplicates = counters.duplicates.wrapping_add(1);
        match self.last_answer {
            Some((at, msn, Some(code))) if self.responses.is_empty() => {
                let refused = self.refuse_read(ctx, keys, packet, (at, code));
                let (psn, code) = refused.unwrap_or((at, code));
                self.responses.end_with(psn, msn, Some(code));
            }
            Some((at, msn, None)) if self.responses.is_empty() && is_plain(packet) => {
                self.responses.end_with(at, msn, None);
            }
            _ => {}
        }
    }
}
