//! RC and the target side of XRC (IBTA 9.7, annex A14): PSN order, NAKs, duplicates, READ, atomics,
//! FLUSH.
use super::ends::fatal;
use super::messages::{MAX_MESSAGE, Refusal, check_qp_access};
use super::responses::{Body, Response, packets};
use super::state::{Message, Responder, SavedAtomic};
use crate::cause::Cause;
use crate::completion::WcStatus;
use crate::effects::{CountedOp, Effects};
use crate::memory::{AtomicOp, Memory};
use crate::packet::Packet;
use crate::qp::context::QpCtx;
use crate::qp::verdict::Verdict;
use crate::qp::{Counters, DropReason, Env, Kept, RecvSource};
use crate::types::{Access, Key};
use adverb_wire::{NakCode, Operation, Psn, QPN_MASK, Syndrome, Time};
use alloc::sync::Arc;

/// Placement types of a FLUSH (annex A19).
const FLUSH_GLOBAL: u8 = 1;
const FLUSH_PERSISTENT: u8 = 2;

/// The kind of a request, for any position in the message.
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
        matches!(
            (self, message),
            (Class::Send, Message::Send) | (Class::Write, Message::Write { .. })
        )
    }
}

/// Is this a packet of a SEND or WRITE, which is answered by a plain ACK?
pub(super) fn is_plain(packet: &Packet<'_>) -> bool {
    matches!(Class::of(packet.headers.bth.opcode.operation()), Some(Class::Send | Class::Write))
}

/// Checks the order of opcodes (IBTA 9.7.4.1.3). `Err` says what is wrong.
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

/// Checks that the payload has the length required by the opcode (IBTA 9.7.4.1.6).
pub(super) fn check_length(
    class: Class,
    packet: &Packet<'_>,
    mtu: usize,
) -> Result<(), &'static str> {
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
            self.reorder.repeated(bth.psn);
            self.repeat(ctx, class, packet, counters);
            return Verdict::Ok;
        }
        if ahead > 0 {
            // After an RNR NAK the responder drops later packets until the retry (IBTA 9.7.5.2.8).
            if self.awaiting_retry {
                counters.drop(DropReason::Sequence);
            } else {
                let tell = self.reorder.early(self.expected, packet, env.clock.now(), counters);
                self.tell(tell, counters);
            }
            return Verdict::Ok;
        }
        if self.awaiting_retry || !self.reorder.is_idle() {
            self.responses.revoke_nak();
            self.awaiting_retry = false;
        }
        match self.execute(ctx, env, class, packet) {
            Ok(count) => {
                if !self.reorder.is_idle() {
                    self.reorder.filled(bth.psn, env.clock.now());
                }
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
                // The peer sends this packet and all later packets again after a pause.
                self.awaiting_retry = true;
                self.reorder.discard(counters);
                self.queue_nak(Syndrome::RnrNak { timer: ctx.attr.min_rnr_timer }, counters);
                Verdict::Ok
            }
            Err(Refusal::Withdrawn) => {
                counters.drop(DropReason::Source);
                Verdict::Ok
            }
            Err(Refusal::Final { code, cause, status }) => {
                self.queue_nak(Syndrome::Nak(code), counters);
                self.last_answer = Some((self.expected, self.msn, Some(code)));
                self.fail(ctx, env.effects, code, cause, status)
            }
            // IBTA 9.9.6.3, class J: the message was received, so the sender gets a plain ACK. The
            // receive and the connection end in error at this end.
            Err(Refusal::NotInvalidated { cause }) => {
                counters.executed = counters.executed.wrapping_add(1);
                self.count_message();
                self.respond_to(bth.psn, Body::LastAck, false);
                self.last_answer = Some((bth.psn, self.msn, None));
                self.fail(ctx, env.effects, NakCode::InvalidRequest, cause, WcStatus::RemInvReqErr)
            }
        }
    }

    /// Takes out the early packet with the expected PSN. Early packets before the expected PSN are
    /// dropped.
    #[cold]
    pub(crate) fn take_turn(&mut self, now: Time, counters: &mut Counters) -> Option<Kept> {
        while let Some(headers) = self.reorder.first() {
            let ahead = headers.bth.psn.since(self.expected);
            if ahead == 0 {
                return self.reorder.take_first(counters);
            }
            if ahead > 0 {
                break;
            }
            self.reorder.drop_first(counters);
        }
        if self.reorder.was_filled() {
            // The ACK tells the peer at once which packets not to send again.
            if let Some(newest) = self.executed {
                self.respond_to(newest, Body::Ack, false);
            }
            let tell = self.reorder.settled(now);
            self.tell(tell, counters);
        }
        None
    }

    /// Executes the expected packet and answers how many PSNs the packet takes.
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

    pub(super) fn respond_to(&mut self, psn: Psn, body: Body, duplicate: bool) {
        self.responses.insert(Response { psn, msn: self.msn, duplicate, body });
    }

    pub(super) fn queue_nak(&mut self, syndrome: Syndrome, counters: &mut Counters) {
        counters.naks_sent = counters.naks_sent.wrapping_add(1);
        let is_rnr = matches!(syndrome, Syndrome::RnrNak { .. });
        counters.rnr_naks_sent = counters.rnr_naks_sent.wrapping_add(is_rnr.into());
        self.respond_to(self.expected, Body::Nak(syndrome), false);
    }

    /// Ends the connection. The active receive tells the consumer; without a receive, an event does
    /// (IBTA 9.9.3).
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
        if self.complete_failed(ctx.config, effects, status, &cause) {
            Verdict::Fatal { cause, event: None }
        } else {
            fatal(code, cause)
        }
    }

    /// Refuses a READ or atomic beyond `max_dest_rd_atomic` (IBTA 9.7.4.1.4).
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
            let (pd, qpn) = (ctx.config.pd, ctx.config.qpn);
            env.keys
                .check_remote(pd, qpn, reth.rkey, Access::REMOTE_READ, reth.va, reth.len)
                .map_err(Refusal::access)?;
        }
        self.count_message();
        if ctx.config.counted {
            env.effects.count(CountedOp::RemoteRead, u64::from(reth.len), true);
        }
        let mtu = packet.mtu(ctx.attr.path_mtu);
        let body = Body::read(ctx.config.pd, &reth, mtu);
        self.respond_to(packet.headers.bth.psn, body, false);
        Ok(packets(reth.len, mtu))
    }

    /// Checks and performs an atomic; answers the old value.
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
            return Err(Refusal::request(Cause::Misaligned { va }));
        }
        self.check_resources(ctx, packet)?;
        let at = env
            .keys
            .check_remote(ctx.config.pd, ctx.config.qpn, rkey, needed, va, 8)
            .map_err(Refusal::access)?;
        // A region and its address space may start at different bytes. The memory itself has to be
        // aligned.
        if at.addr % 8 != 0 {
            return Err(Refusal::request(Cause::Misaligned { va: at.addr }));
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
        let original =
            self.perform(ctx, env, packet, (eth.va, eth.rkey, Access::REMOTE_ATOMIC), op)?;
        self.count_message();
        // Keeps as many results as the peer may have outstanding. The peer cannot repeat an older
        // request.
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

    /// Handles a FLUSH. The data of earlier packets is globally visible already, so the FLUSH needs
    /// only a check and an answer.
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
            let what = "FLUSH of an unknown placement type or selectivity level";
            return Err(Refusal::invalid(what, packet));
        }
        check_qp_access(ctx, needed)?;
        self.check_resources(ctx, packet)?;
        // Selectivity 1 covers the whole region. Address and length mean nothing then, but the key
        // has to be valid.
        let (pd, qpn) = (ctx.config.pd, ctx.config.qpn);
        if feth.selectivity == 0 {
            env.keys
                .check_remote(pd, qpn, reth.rkey, needed, reth.va, reth.len)
                .map_err(Refusal::access)?;
        } else {
            env.keys.check_remote_key(pd, qpn, reth.rkey, needed).map_err(Refusal::access)?;
        }
        self.count_message();
        self.respond_to(packet.headers.bth.psn, Body::Done, false);
        Ok(())
    }
}
