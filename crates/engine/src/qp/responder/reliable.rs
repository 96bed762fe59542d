//! RC and the target side of XRC (IBTA 9.7, annex A14): PSN order, NAKs, duplicates, READ, atomics, FLUSH.
use super::messages::{MAX_MESSAGE, Message, Refusal, check_qp_access};
use super::responses::{Body, Response, packets};
use super::{Responder, SavedAtomic, fatal};
use crate::cause::Cause;
use crate::completion::WcStatus;
use crate::effects::Effects;
use crate::keys::KeyTable;
use crate::memory::{AtomicOp, Memory};
use crate::packet::Packet;
use crate::qp::{Counters, DropReason, Env, QpCtx, RecvSource, Verdict};
use crate::types::{Access, Key};
use adverb_wire::{NakCode, Operation, Psn, QPN_MASK, Syndrome};
use alloc::sync::Arc;

/// Placement types of a FLUSH (annex A19).
const FLUSH_GLOBAL: u8 = 1;
const FLUSH_PERSISTENT: u8 = 2;

/// What a request is, whatever its place in the message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Class {
    Send,
    Write,
    Read,
    Atomic,
    AtomicWrite,
    Flush,
}

impl Class {
    pub(super) fn of(op: Operation) -> Option<Class> {
        use Operation as O;
        Some(match op {
            O::SendFirst
            | O::SendMiddle
            | O::SendLast
            | O::SendLastImm
            | O::SendOnly
            | O::SendOnlyImm
            | O::SendLastInv
            | O::SendOnlyInv => Class::Send,
            O::WriteFirst
            | O::WriteMiddle
            | O::WriteLast
            | O::WriteLastImm
            | O::WriteOnly
            | O::WriteOnlyImm => Class::Write,
            O::ReadRequest => Class::Read,
            O::CompareSwap | O::FetchAdd => Class::Atomic,
            O::AtomicWrite => Class::AtomicWrite,
            O::Flush => Class::Flush,
            _ => return None,
        })
    }

    fn continues(self, message: &Message) -> bool {
        matches!((self, message), (Class::Send, Message::Send) | (Class::Write, Message::Write { .. }))
    }
}

/// Is the order of opcodes right (IBTA 9.7.4.1.3)? `Err` says what is wrong.
pub(super) fn check_sequence(
    class: Class,
    packet: &Packet<'_>,
    message: Option<&Message>,
) -> Result<(), &'static str> {
    let starts = packet.headers.bth.opcode.starts_message();
    match message {
        None if !starts => Err("middle or last packet of no message"),
        Some(_) if starts => Err("new message before the last one ended"),
        Some(m) if !class.continues(m) => Err("packet of another kind inside a message"),
        _ => Ok(()),
    }
}

/// Is the payload as long as the opcode wants it (IBTA 9.7.4.1.6)?
pub(super) fn check_length(class: Class, packet: &Packet<'_>, mtu: usize) -> Result<(), &'static str> {
    let op = packet.headers.bth.opcode;
    let len = packet.payload.len();
    match class {
        Class::Send | Class::Write => {
            if len > mtu {
                Err("payload exceeds the path MTU")
            } else if !op.ends_message() && len != mtu {
                Err("first or middle packet is not as long as the path MTU")
            } else if op.is_last() && len == 0 {
                Err("last packet without payload")
            } else {
                Ok(())
            }
        }
        Class::AtomicWrite if len != 8 => Err("atomic write of other than 8 bytes"),
        Class::Read | Class::Atomic | Class::Flush if len != 0 => Err("payload where none belongs"),
        _ => Ok(()),
    }
}

impl Responder {
    pub(super) fn handle_reliable<M: Memory + ?Sized, S: RecvSource + ?Sized>(
        &mut self,
        ctx: &QpCtx<'_>,
        env: &mut Env<'_, M, S>,
        packet: &Packet<'_>,
        counters: &mut Counters,
    ) -> Verdict {
        let bth = &packet.headers.bth;
        let Some(class) = Class::of(bth.opcode.operation()) else {
            counters.drop(DropReason::Opcode);
            return Verdict::Ok;
        };
        let ahead = bth.psn.since(self.expected);
        if ahead < 0 {
            self.repeat(ctx, class, packet, counters);
            return Verdict::Ok;
        }
        if ahead > 0 {
            // One NAK a gap; after an RNR NAK what follows is dropped until the retry (IBTA 9.7.5.2.8). But if the packets after
            // the gap begin anew, the peer has sent again and the first one was lost again: a new gap.
            let anew =
                self.early.is_some_and(|before| !before.precedes(bth.psn)) && !self.responses.has_nak();
            if !core::mem::replace(&mut self.awaiting_retry, true) || anew {
                self.early = Some(bth.psn);
                self.queue_nak(Syndrome::Nak(NakCode::PsnSequence), counters);
            } else {
                self.early = self.early.map(|_| bth.psn);
                counters.drop(DropReason::Sequence);
            }
            return Verdict::Ok;
        }
        self.responses.revoke_nak();
        self.awaiting_retry = false;
        self.early = None;
        match self.execute(ctx, env, class, packet) {
            Ok(count) => {
                self.expected += count;
                counters.executed = counters.executed.wrapping_add(1);
                if matches!(class, Class::Send | Class::Write) {
                    self.executed = Some(bth.psn);
                    if bth.ack_req {
                        self.respond_to(bth.psn, Body::Ack, false);
                    }
                }
                Verdict::Ok
            }
            Err(Refusal::NotReady) => {
                self.awaiting_retry = true;
                self.queue_nak(Syndrome::RnrNak { timer: ctx.attr.min_rnr_timer }, counters);
                Verdict::Ok
            }
            Err(Refusal::Final { code, cause, status }) => {
                self.queue_nak(Syndrome::Nak(code), counters);
                self.final_nak = Some((self.expected, self.msn, code));
                self.fail(ctx, env.effects, code, cause, status)
            }
        }
    }

    /// Executes the expected packet and answers how many PSNs it takes.
    fn execute<M: Memory + ?Sized, S: RecvSource + ?Sized>(
        &mut self,
        ctx: &QpCtx<'_>,
        env: &mut Env<'_, M, S>,
        class: Class,
        packet: &Packet<'_>,
    ) -> Result<u32, Refusal> {
        let invalid = |what| Refusal::invalid(what, packet);
        check_sequence(class, packet, self.message.as_ref()).map_err(invalid)?;
        check_length(class, packet, packet.mtu(ctx.attr.path_mtu)).map_err(invalid)?;
        match class {
            Class::Send => self.send_packet(ctx, env, packet)?,
            Class::Write => self.write_packet(ctx, env, packet)?,
            Class::Read => return self.read_request(ctx, env, packet),
            Class::Atomic => self.atomic_request(ctx, env, packet)?,
            Class::AtomicWrite => self.atomic_write(ctx, env, packet)?,
            Class::Flush => self.flush_request(ctx, env, packet)?,
        }
        if matches!(class, Class::Send | Class::Write) && packet.headers.bth.opcode.ends_message() {
            self.count_message();
        }
        Ok(1)
    }

    fn count_message(&mut self) {
        self.msn = (self.msn + 1) & QPN_MASK;
    }

    fn respond_to(&mut self, psn: Psn, body: Body, duplicate: bool) {
        self.responses.insert(Response { psn, msn: self.msn, duplicate, body });
    }

    fn queue_nak(&mut self, syndrome: Syndrome, counters: &mut Counters) {
        counters.naks_sent = counters.naks_sent.wrapping_add(1);
        self.respond_to(self.expected, Body::Nak(syndrome), false);
    }

    /// The connection ends. The receive in hand tells the consumer; without one an event does (IBTA 9.9.3).
    pub(super) fn fail(
        &mut self,
        ctx: &QpCtx<'_>,
        effects: &mut Effects,
        code: NakCode,
        cause: Cause,
        status: WcStatus,
    ) -> Verdict {
        let cause = Arc::new(cause);
        self.message = None;
        if self.complete_failed(ctx.config.qpn, effects, status, &cause) {
            Verdict::Fatal { cause, event: None }
        } else {
            fatal(code, cause)
        }
    }

    /// One more READ or atomic than `max_dest_rd_atomic` is refused (IBTA 9.7.4.1.4).
    fn check_resources(&self, ctx: &QpCtx<'_>, packet: &Packet<'_>) -> Result<(), Refusal> {
        if self.responses.resources(false) >= usize::from(ctx.attr.max_dest_rd_atomic) {
            return Err(Refusal::invalid("more reads and atomics than max_dest_rd_atomic", packet));
        }
        Ok(())
    }

    fn read_request<M: Memory + ?Sized, S: RecvSource + ?Sized>(
        &mut self,
        ctx: &QpCtx<'_>,
        env: &mut Env<'_, M, S>,
        packet: &Packet<'_>,
    ) -> Result<u32, Refusal> {
        let Some(reth) = packet.headers.reth else {
            return Err(Refusal::invalid("RDMA READ without RETH", packet));
        };
        check_qp_access(ctx, Access::REMOTE_READ)?;
        self.check_resources(ctx, packet)?;
        if reth.len > MAX_MESSAGE {
            return Err(Refusal::invalid("RDMA READ of more than 2^31 bytes", packet));
        }
        if reth.len > 0 {
            env.keys
                .check_remote(
                    ctx.config.pd,
                    ctx.config.qpn,
                    reth.rkey,
                    Access::REMOTE_READ,
                    reth.va,
                    reth.len,
                )
                .map_err(Refusal::access)?;
        }
        self.count_message();
        let mtu = packet.mtu(ctx.attr.path_mtu);
        let body = Body::Read {
            pd: ctx.config.pd,
            va: reth.va,
            rkey: reth.rkey,
            left: reth.len,
            mtu: mtu as u32,
            started: false,
        };
        self.respond_to(packet.headers.bth.psn, body, false);
        Ok(packets(reth.len, mtu))
    }

    /// Checks and performs one atomic; answers the old value.
    fn perform<M: Memory + ?Sized, S: RecvSource + ?Sized>(
        &self,
        ctx: &QpCtx<'_>,
        env: &Env<'_, M, S>,
        packet: &Packet<'_>,
        (va, rkey, needed): (u64, Key, Access),
        op: AtomicOp,
    ) -> Result<u64, Refusal> {
        check_qp_access(ctx, needed)?;
        if va % 8 != 0 {
            let cause = Cause::Misaligned { va };
            return Err(Refusal::new(NakCode::InvalidRequest, cause, WcStatus::RemInvReqErr));
        }
        self.check_resources(ctx, packet)?;
        let at = env
            .keys
            .check_remote(ctx.config.pd, ctx.config.qpn, rkey, needed, va, 8)
            .map_err(Refusal::access)?;
        // A region may start at any byte, its address space at another: what must be aligned is the memory itself.
        if at.addr % 8 != 0 {
            let cause = Cause::Misaligned { va: at.addr };
            return Err(Refusal::new(NakCode::InvalidRequest, cause, WcStatus::RemInvReqErr));
        }
        env.memory.atomic(at, op).map_err(|f| {
            let cause = Cause::Fault { addr: f.addr };
            Refusal::new(NakCode::RemoteOperational, cause, WcStatus::LocAccessErr)
        })
    }

    fn atomic_request<M: Memory + ?Sized, S: RecvSource + ?Sized>(
        &mut self,
        ctx: &QpCtx<'_>,
        env: &Env<'_, M, S>,
        packet: &Packet<'_>,
    ) -> Result<(), Refusal> {
        let Some(eth) = packet.headers.atomic else {
            return Err(Refusal::invalid("atomic without AtomicETH", packet));
        };
        let bth = &packet.headers.bth;
        let op = if bth.opcode.operation() == Operation::CompareSwap {
            AtomicOp::CompareSwap { compare: eth.compare, swap: eth.swap_add }
        } else {
            AtomicOp::FetchAdd { add: eth.swap_add }
        };
        let original = self.perform(ctx, env, packet, (eth.va, eth.rkey, Access::REMOTE_ATOMIC), op)?;
        self.count_message();
        // As many results as the peer may have outstanding; it cannot ask for an older one again.
        while self.saved.len() >= usize::from(ctx.attr.max_dest_rd_atomic) {
            self.saved.pop_front();
        }
        self.saved.push_back(SavedAtomic { psn: bth.psn, opcode: bth.opcode, eth, original });
        self.respond_to(bth.psn, Body::Atomic { original }, false);
        Ok(())
    }

    fn atomic_write<M: Memory + ?Sized, S: RecvSource + ?Sized>(
        &mut self,
        ctx: &QpCtx<'_>,
        env: &Env<'_, M, S>,
        packet: &Packet<'_>,
    ) -> Result<(), Refusal> {
        let (Some(reth), Ok(bytes)) = (packet.headers.reth, packet.payload.try_into()) else {
            return Err(Refusal::invalid("atomic write without RETH or 8 bytes", packet));
        };
        if reth.len != 8 {
            return Err(Refusal::invalid("atomic write whose RETH length is not 8", packet));
        }
        let op = AtomicOp::Write { value: u64::from_ne_bytes(bytes) };
        self.perform(ctx, env, packet, (reth.va, reth.rkey, Access::REMOTE_WRITE), op)?;
        self.count_message();
        self.respond_to(packet.headers.bth.psn, Body::Done, false);
        Ok(())
    }

    /// What earlier packets placed is globally visible already, so that a FLUSH has only to be allowed and answered.
    fn flush_request<M: Memory + ?Sized, S: RecvSource + ?Sized>(
        &mut self,
        ctx: &QpCtx<'_>,
        env: &Env<'_, M, S>,
        packet: &Packet<'_>,
    ) -> Result<(), Refusal> {
        let (Some(reth), Some(feth)) = (packet.headers.reth, packet.headers.feth) else {
            return Err(Refusal::invalid("FLUSH without FETH or RETH", packet));
        };
        let mut needed = Access::empty();
        needed.set(Access::FLUSH_GLOBAL, feth.placement & FLUSH_GLOBAL != 0);
        needed.set(Access::FLUSH_PERSISTENT, feth.placement & FLUSH_PERSISTENT != 0);
        if needed.is_empty()
            || feth.placement & !(FLUSH_GLOBAL | FLUSH_PERSISTENT) != 0
            || feth.selectivity > 1
        {
            return Err(Refusal::invalid("FLUSH of an unknown placement type or selectivity level", packet));
        }
        check_qp_access(ctx, needed)?;
        self.check_resources(ctx, packet)?;
        // Selectivity 1 is the whole region: address and length say nothing then, but the key must still be good.
        let (pd, qpn) = (ctx.config.pd, ctx.config.qpn);
        if feth.selectivity == 0 {
            env.keys.check_remote(pd, qpn, reth.rkey, needed, reth.va, reth.len).map_err(Refusal::access)?;
        } else {
            env.keys.check_remote_key(pd, qpn, reth.rkey, needed).map_err(Refusal::access)?;
        }
        self.count_message();
        self.respond_to(packet.headers.bth.psn, Body::Done, false);
        Ok(())
    }

    /// A request that was executed before (IBTA 9.7.5.1.4): answered again, never executed again but for READ.
    fn repeat(&mut self, ctx: &QpCtx<'_>, class: Class, packet: &Packet<'_>, counters: &mut Counters) {
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

    /// Room for one more answer to a duplicate? A flood of them draws no more than requests in good order could.
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

    /// A READ that is asked for again when the connection has ended: where the NAK for it stands, and which. At the PSN where the
    /// connection ended it would say that all responses before were received (IBTA 9.7.7.2.2), so a requester that lost one of
    /// them asked again and again.
    pub(super) fn refuse_read(
        &self,
        ctx: &QpCtx<'_>,
        keys: &KeyTable,
        packet: &Packet<'_>,
        (at, code): (Psn, NakCode),
    ) -> Option<(Psn, NakCode)> {
        let bth = &packet.headers.bth;
        let reth = packet.headers.reth.filter(|_| bth.opcode.operation() == Operation::ReadRequest)?;
        let count = packets(reth.len, packet.mtu(ctx.attr.path_mtu));
        if u32::try_from(at.since(bth.psn)).is_ok_and(|ahead| ahead < count) {
            return Some((bth.psn, code));
        }
        // A part that ends before, of memory that is gone.
        let (pd, qpn) = (ctx.config.pd, ctx.config.qpn);
        keys.check_remote(pd, qpn, reth.rkey, Access::REMOTE_READ, reth.va, reth.len)
            .err()
            .filter(|_| reth.len > 0)
            .map(|_| (bth.psn, NakCode::RemoteAccess))
    }

    /// A READ again, or the rest of one. Keys and rights are checked as its packets are made. What fails then is refused, but it
    /// ends nothing: a copy that the network kept may name memory long gone, and whoever sent it takes no notice.
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
        let body = Body::Read {
            pd: ctx.config.pd,
            va: reth.va,
            rkey: reth.rkey,
            left: reth.len,
            mtu: mtu as u32,
            started: false,
        };
        self.respond_to(psn, body, !original);
        true
    }
}
