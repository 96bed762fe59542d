//! SEND and RDMA WRITE, packet by packet: the common part of RC, UC and XRC. The caller has checked
//! the PSN, the order of opcodes and the length of the packet. A refusal is a NAK on a reliable
//! transport and a drop on UC.
use super::inbound::Active;
use super::state::{Message, Responder};
use crate::cause::Cause;
use crate::completion::{Completion, WcFlags, WcOpcode, WcStatus};
use crate::effects::{CountedOp, CqRef, Effects, Rendezvous};
use crate::keys::KeyOp;
use crate::memory::{Memory, MemoryFault, Range};
use crate::packet::Packet;
use crate::qp::context::QpCtx;
use crate::qp::{Env, NoRecv, QpConfig, RecvSource};
use crate::types::{Access, QpType};
use crate::wr::{TagKind, Tagged};
use adverb_wire::{NakCode, Reth};
use alloc::sync::Arc;

/// Longest message (IBTA 9.7.7).
pub(super) const MAX_MESSAGE: u32 = 1 << 31;

/// Why a packet is not executed. Apart from the refusal nothing has happened.
#[derive(Debug)]
pub(super) enum Refusal {
    /// No receive is posted.
    NotReady,
    /// Final: the NAK code, and the status of the active receive, if there is an active receive.
    Final { code: NakCode, cause: Cause, status: WcStatus },
    /// The sender took the payload back.
    Withdrawn,
    /// The whole message arrived and its receive is filled, but the key in the message cannot be
    /// invalidated.
    NotInvalidated { cause: Cause },
}

impl Refusal {
    pub(super) fn new(code: NakCode, cause: Cause, status: WcStatus) -> Self {
        Refusal::Final { code, cause, status }
    }
    /// The request itself is not allowed.
    pub(super) fn request(cause: Cause) -> Self {
        Refusal::new(NakCode::InvalidRequest, cause, WcStatus::RemInvReqErr)
    }
    pub(super) fn invalid(what: &'static str, packet: &Packet<'_>) -> Self {
        Refusal::request(Cause::ProtocolViolation { what, psn: packet.headers.bth.psn.get() })
    }
    /// The payload could not be placed.
    fn placing(cause: Cause, status: WcStatus) -> Self {
        match cause {
            Cause::Fault { addr } if addr == MemoryFault::WITHDRAWN.addr => Refusal::Withdrawn,
            cause => Refusal::new(NakCode::RemoteOperational, cause, status),
        }
    }
    pub(super) fn access(cause: Cause) -> Self {
        Refusal::new(NakCode::RemoteAccess, cause, WcStatus::LocAccessErr)
    }
}

/// Checks the queue pair's access flags, before any key (IBTA 10.7.2.2). An operation that the
/// queue pair does not allow is an invalid request, like an unknown opcode (IBTA 9.9.3,
/// "unsupported or reserved opcode"). Only keys and regions give access errors.
pub(super) fn check_qp_access(ctx: &QpCtx<'_>, needed: Access) -> Result<(), Refusal> {
    if ctx.attr.access.contains(needed) {
        Ok(())
    } else {
        Err(Refusal::request(Cause::QpAccessDenied { needed }))
    }
}

impl Responder {
    /// Makes sure that a receive is active.
    pub(super) fn take_receive<M: Memory + ?Sized, S: RecvSource + ?Sized>(
        &mut self,
        ctx: &QpCtx<'_>,
        env: &mut Env<'_, M, S>,
        packet: &Packet<'_>,
        is_send: bool,
    ) -> Result<(), Refusal> {
        if let Some(active) = &mut self.active {
            active.rewind();
            return Ok(());
        }
        if self.receives_hidden {
            return Err(Refusal::NotReady);
        }
        let xrc_srqn = packet.headers.xrceth.map(|x| x.srqn);
        let taken = match ctx.config.qp_type {
            QpType::XrcRecv => env.srq.pop(xrc_srqn),
            _ if ctx.config.uses_srq && is_send => env.srq.pop_message(packet.payload),
            _ if ctx.config.uses_srq => env.srq.pop(None),
            _ => self.rq.pop().ok_or(NoRecv::Empty),
        };
        match taken {
            Ok(wqe) => {
                self.active = Some(Active::new(wqe, xrc_srqn));
                Ok(())
            }
            Err(NoRecv::Empty) => Err(Refusal::NotReady),
            Err(NoRecv::NoSuchSrq) => {
                let rule = "names a shared receive queue of the target's XRC domain";
                Err(Refusal::request(Cause::BadArgument { what: "XRC SRQ number", rule }))
            }
        }
    }

    pub(super) fn send_packet<M: Memory + ?Sized, S: RecvSource + ?Sized>(
        &mut self,
        ctx: &QpCtx<'_>,
        env: &mut Env<'_, M, S>,
        packet: &Packet<'_>,
    ) -> Result<(), Refusal> {
        let op = packet.headers.bth.opcode;
        if op.starts_message() {
            self.take_receive(ctx, env, packet, true)?;
        }
        let Some(active) = &mut self.active else {
            return Err(Refusal::invalid("SEND without a first packet", packet));
        };
        let payload = match &active.wqe.tagged {
            None => packet.payload,
            Some(tagged) => tagged.data(packet.payload, op.starts_message(), active.capacity),
        };
        let message = active.filled + payload.len() as u64;
        if message > active.capacity || message > u64::from(MAX_MESSAGE) {
            let cause = Cause::RecvTooShort { message, buffers: active.capacity };
            return Err(Refusal::new(NakCode::InvalidRequest, cause, WcStatus::LocLenErr));
        }
        let invalidate = packet.headers.ieth.map(|i| KeyOp::Invalidate {
            key: i.rkey,
            pd: ctx.config.pd,
            qpn: ctx.config.qpn,
        });
        active
            .place(env.keys, env.memory, payload)
            .map_err(|cause| Refusal::placing(cause, WcStatus::LocProtErr))?;
        if let Some(op) = &invalidate {
            env.keys.check_op(op).map_err(|cause| Refusal::NotInvalidated { cause })?;
        }
        if op.starts_message() && !op.ends_message() && active.wqe.tagged.is_some() {
            announce(active, ctx.config, env.effects);
        }
        if op.ends_message() {
            self.message = None;
            env.effects.key_op = invalidate.or(env.effects.key_op.take());
            self.complete(ctx, env.effects, packet, WcOpcode::Recv, message as u32);
        } else {
            self.message = Some(Message::Send);
        }
        Ok(())
    }

    pub(super) fn write_packet<M: Memory + ?Sized, S: RecvSource + ?Sized>(
        &mut self,
        ctx: &QpCtx<'_>,
        env: &mut Env<'_, M, S>,
        packet: &Packet<'_>,
    ) -> Result<(), Refusal> {
        let op = packet.headers.bth.opcode;
        let n = packet.payload.len() as u32;
        let (pd, qpn) = (ctx.config.pd, ctx.config.qpn);
        // Checked with each packet: after the right is taken back, no byte of a message under way
        // is placed.
        check_qp_access(ctx, Access::REMOTE_WRITE)?;
        if let Some(reth) = packet.headers.reth
            && reth.len > MAX_MESSAGE
        {
            let (len, max) = (u64::from(reth.len), u64::from(MAX_MESSAGE));
            return Err(Refusal::request(Cause::MessageTooLong { len, max }));
        }
        // Resources come before keys and lengths (IBTA 9.7.4.1.4). So the receive of the immediate
        // data is active when a wrong key is found, and completes with a "local access error" (IBTA
        // 11.6.2).
        if packet.headers.imm.is_some() {
            self.take_receive(ctx, env, packet, false)?;
        }
        let (va, rkey, len, before, base) = if let Some(reth) = packet.headers.reth {
            // The whole range is checked before the first byte. A WRITE of no bytes has no key to
            // check (IBTA 9.7.4.1.5).
            let Reth { va, rkey, len } = reth;
            let base = if len > 0 {
                let whole = env.keys.check_remote(pd, qpn, rkey, Access::REMOTE_WRITE, va, len);
                Some(whole.map_err(Refusal::access)?)
            } else {
                None
            };
            (va, rkey, len, 0, base)
        } else if let Some(Message::Write { va, rkey, len, received }) = self.message {
            (va, rkey, len, received, None)
        } else {
            return Err(Refusal::invalid("RDMA WRITE without a first packet", packet));
        };
        let received = u64::from(before) + u64::from(n);
        let ends = op.ends_message();
        if received > u64::from(len) || ends != (received == u64::from(len)) {
            return Err(Refusal::invalid("RDMA WRITE data and RETH length differ", packet));
        }
        let range = match base {
            Some(whole) => Some(Range { len: n, ..whole }),
            None if n == 0 => None,
            None => {
                let va = va.wrapping_add(u64::from(before));
                let piece = env.keys.check_remote(pd, qpn, rkey, Access::REMOTE_WRITE, va, n);
                Some(piece.map_err(Refusal::access)?)
            }
        };
        if let Some(range) = range {
            env.memory.write(range, packet.payload).map_err(|f| {
                Refusal::placing(Cause::Fault { addr: f.addr }, WcStatus::LocAccessErr)
            })?;
        }
        if ends {
            self.message = None;
            if ctx.config.counted {
                env.effects.count(CountedOp::RemoteWrite, u64::from(len), true);
            }
            if packet.headers.imm.is_some() {
                self.complete(ctx, env.effects, packet, WcOpcode::RecvRdmaWithImm, len);
            }
        } else {
            self.message = Some(Message::Write { va, rkey, len, received: received as u32 });
        }
        Ok(())
    }

    /// Completes the active receive with success.
    pub(super) fn complete(
        &mut self,
        ctx: &QpCtx<'_>,
        effects: &mut Effects,
        packet: &Packet<'_>,
        opcode: WcOpcode,
        byte_len: u32,
    ) {
        let Some(active) = self.active.take() else { return };
        let h = &packet.headers;
        let mut c = Completion::success(active.wqe.wr_id, ctx.config.qpn, opcode);
        if ctx.config.counted {
            effects.count(CountedOp::Recv, u64::from(byte_len), true);
        }
        c.byte_len = byte_len;
        c.solicited = h.bth.solicited;
        if let Some(imm) = h.imm {
            c.imm = imm.0;
            c.flags |= WcFlags::WITH_IMM;
        }
        if let Some(ieth) = h.ieth {
            c.imm = ieth.rkey;
            c.flags |= WcFlags::WITH_INV;
        }
        if let Some(deth) = h.deth {
            c.src_qpn = deth.src_qpn;
            c.flags |= WcFlags::GRH;
            // Tells the format of the 40 bytes before the payload, in the field where mlx5 tells it
            // and programs such as UCX look (annex A17.4.5.1 wants a flag). A UDP header (8)
            // follows an IPv4 (2) or IPv6 (1) header. RoCE has no service level.
            c.sl =
                if packet.src.ipv4().is_some() && packet.dst.ipv4().is_some() { 0xa } else { 0x9 };
        }
        if let Some(tagged) = &active.wqe.tagged {
            end_tagged(&active, tagged, h.bth.opcode.starts_message(), &mut c, effects);
        }
        effects.completions.push((cq_of(&active), c));
    }

    /// Completes the active receive, if there is a receive, with a failure.
    pub(super) fn complete_failed(
        &mut self,
        config: &QpConfig,
        effects: &mut Effects,
        status: WcStatus,
        cause: &Arc<Cause>,
    ) -> bool {
        let Some(active) = self.active.take() else { return false };
        let matched = active.wqe.tagged.as_ref().is_some_and(|t| t.matched());
        let opcode = if matched { WcOpcode::TmRecv } else { WcOpcode::Recv };
        let c = Completion::failure(active.wqe.wr_id, config.qpn, opcode, status, cause.clone());
        if config.counted {
            effects.count(CountedOp::Recv, 0, false);
        }
        effects.completions.push((cq_of(&active), c));
        true
    }
}

/// Reports at the first packet that a message of several packets has matched a tag. Matches of
/// other messages come later.
#[cold]
fn announce(active: &Active, config: &QpConfig, effects: &mut Effects) {
    if let Some(tagged) = active.wqe.tagged.as_ref().filter(|t| t.kind == TagKind::Eager) {
        let mut c = Completion::success(active.wqe.wr_id, config.qpn, WcOpcode::TmRecv);
        c.flags |= WcFlags::TM_MATCH;
        c.set_tag(tagged.tmh.tag, tagged.tmh.app_ctx);
        effects.completions.push((cq_of(active), c));
    }
}

/// The end of a message received by a tag-matching SRQ. `whole`: one packet was the whole message.
#[cold]
fn end_tagged(
    active: &Active,
    tagged: &Tagged,
    whole: bool,
    c: &mut Completion,
    effects: &mut Effects,
) {
    let tmh = tagged.tmh;
    c.opcode = if tagged.kind == TagKind::NoTag { WcOpcode::TmNoTag } else { WcOpcode::TmRecv };
    match tagged.kind {
        TagKind::NoTag => return,
        TagKind::Unexpected => {}
        TagKind::Eager => {
            c.flags |= WcFlags::TM_DATA_VALID;
            c.flags.set(WcFlags::TM_MATCH, whole);
        }
        TagKind::Rendezvous(rvh) if u64::from(rvh.len) > active.capacity => {
            let cause = Cause::RecvTooShort { message: rvh.len.into(), buffers: active.capacity };
            c.status = WcStatus::TmRndvIncomplete;
            c.flags |= WcFlags::TM_MATCH | WcFlags::TM_DATA_VALID;
            c.vendor_err = cause.vendor_err();
            c.cause = Some(Arc::new(cause));
            return;
        }
        TagKind::Rendezvous(rvh) => {
            c.flags |= WcFlags::TM_MATCH;
            c.byte_len = rvh.len;
            let buffer = active.wqe.sges.as_slice();
            effects.rendezvous.push(Rendezvous::new(active.wqe.wr_id, buffer, tmh, rvh));
        }
    }
    c.set_tag(tmh.tag, tmh.app_ctx);
}

fn cq_of(active: &Active) -> CqRef {
    active.xrc_srqn.map_or(CqRef::Recv, CqRef::XrcSrq)
}
