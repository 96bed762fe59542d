//! The state of the responder and its life: creation, RESET, RTR, new attributes, receives.
use super::inbound::Active;
use super::reliable::is_plain;
use super::responses::{ReadFailed, Responses};
use crate::attr::QpAttr;
use crate::cause::Cause;
use crate::completion::{Completion, WcOpcode, WcStatus};
use crate::effects::{CountedOp, CqRef, Effects, QpEvent};
use crate::keys::KeyTable;
use crate::memory::{Memory, MemoryFault};
use crate::packet::{Packet, Transmit};
use crate::qp::context::QpCtx;
use crate::qp::recv_queue::RecvQueue;
use crate::qp::reorder::{Reorder, Tell};
use crate::qp::verdict::Verdict;
use crate::qp::{Counters, DropReason, Env, QpConfig, RecvSource};
use crate::room::OutOfMemory;
use crate::time::Time;
use crate::types::{Key, QpState, QpType};
use crate::wr::{PostError, RecvWr};
use adverb_wire::{AtomicEth, NakCode, Opcode, Psn, Syndrome};
use alloc::collections::VecDeque;
use alloc::sync::Arc;

/// The result of an atomic, kept for duplicates of the request.
#[derive(Clone, Copy, Debug)]
pub(super) struct SavedAtomic {
    pub(super) psn: Psn,
    pub(super) opcode: Opcode,
    pub(super) eth: AtomicEth,
    pub(super) original: u64,
}

/// The message whose packets are arriving.
#[derive(Clone, Copy, Debug)]
pub(super) enum Message {
    Send,
    Write { va: u64, rkey: Key, len: u32, received: u32 },
}

/// The receiving half of a queue pair.
#[derive(Debug)]
pub(crate) struct Responder {
    pub(crate) rq: RecvQueue,
    /// PSN of the next request.
    pub(super) expected: Psn,
    /// Messages completed, 24 bits.
    pub(super) msn: u32,
    /// An RNR NAK was queued for `expected`: later packets are dropped.
    pub(super) awaiting_retry: bool,
    /// Packets that came before `expected`.
    pub(in crate::qp) reorder: Reorder,
    /// The last packet of a SEND or WRITE that was executed: an ACK for a duplicate goes up to it
    /// (IBTA C9-105).
    pub(super) executed: Option<Psn>,
    /// The message whose packets are arriving.
    pub(super) message: Option<Message>,
    /// The receive being filled, or kept for the next message (UC, UD).
    pub(super) active: Option<Active>,
    pub(super) responses: Responses,
    pub(super) saved: VecDeque<SavedAtomic>,
    /// A READ response that failed while it was made, for [`Responder::take_fatal`].
    pub(super) fatal: Option<Verdict>,
    /// The answer that ended the connection: its PSN, MSN and NAK code; without one it is an ACK.
    pub(super) last_answer: Option<(Psn, u32, Option<NakCode>)>,
    /// No receive is found, whatever is posted.
    pub(in crate::qp) receives_hidden: bool,
}

impl Responder {
    pub(crate) fn new(config: &QpConfig) -> Result<Self, OutOfMemory> {
        Ok(Responder {
            rq: RecvQueue::new(config.pd, config.cap.max_recv_wr, config.cap.max_recv_sge)?,
            expected: Psn::ZERO,
            msn: 0,
            awaiting_retry: false,
            reorder: Reorder::default(),
            executed: None,
            message: None,
            active: None,
            responses: Responses::default(),
            saved: VecDeque::new(),
            fatal: None,
            last_answer: None,
            receives_hidden: false,
        })
    }

    /// To RESET: everything is forgotten, posted receives too.
    pub(crate) fn reset(&mut self, counters: &mut Counters) {
        self.rq.clear();
        self.expected = Psn::ZERO;
        self.msn = 0;
        self.awaiting_retry = false;
        self.reorder.reset(counters);
        self.executed = None;
        self.message = None;
        self.active = None;
        self.responses.clear();
        self.saved.clear();
        self.fatal = None;
        self.last_answer = None;
    }

    /// INIT to RTR.
    pub(crate) fn start(&mut self, attr: &QpAttr) {
        self.expected = Psn::new(attr.rq_psn);
        self.msn = 0;
        self.awaiting_retry = false;
        self.executed = None;
    }

    /// Attributes changed in RTR or later. All but the PSN are read where they are used.
    pub(crate) fn update(&mut self, attr: &QpAttr) {
        while self.saved.len() > usize::from(attr.max_dest_rd_atomic) {
            self.saved.pop_front();
        }
    }

    /// Queues a receive; the frame has checked the state.
    pub(crate) fn post_recv(&mut self, config: &QpConfig, wr: &RecvWr<'_>) -> Result<(), PostError> {
        let on = match config.qp_type {
            QpType::XrcSend | QpType::XrcRecv => "an XRC queue pair",
            _ if config.uses_srq => "a queue pair with a shared receive queue",
            _ => return self.rq.post(wr),
        };
        Err(PostError::Invalid(Cause::OpNotSupported { op: "posting a receive", on }))
    }

    /// Is an answer waiting?
    #[inline]
    pub(crate) fn has_output(&self) -> bool {
        !self.responses.is_empty() || self.fatal.is_some()
    }

    /// Has a READ still to take payload?
    pub(crate) fn owes_read(&self) -> bool {
        self.responses.owes_read()
    }

    /// Nothing waits but a plain ACK.
    #[inline]
    pub(crate) fn only_ack_waits(&self) -> bool {
        self.responses.only_ack()
    }

    /// PSN of the next request; answers that wait; results kept for duplicates.
    pub(crate) fn inside(&self) -> (Psn, usize, usize) {
        (self.expected, self.responses.len(), self.saved.len())
    }

    #[cfg(test)]
    pub(crate) fn expected_psn(&self) -> Psn {
        self.expected
    }

    /// The message under way: a SEND (`None`), or a WRITE of which so many bytes are to come.
    #[cfg(test)]
    pub(crate) fn under_way(&self) -> Option<Option<u32>> {
        self.message.map(|m| match m {
            Message::Send => None,
            Message::Write { len, received, .. } => Some(len - received),
        })
    }

    #[cfg(test)]
    pub(crate) fn pending(&self) -> usize {
        self.responses.len()
    }

    /// Takes a request of the queue pair's transport, in RTR or a later state that receives; the
    /// frame has checked that.
    pub(crate) fn handle_request<M: Memory + ?Sized, S: RecvSource + ?Sized>(
        &mut self,
        ctx: &QpCtx<'_>,
        env: &mut Env<'_, M, S>,
        packet: &Packet<'_>,
        counters: &mut Counters,
    ) -> Verdict {
        let h = &packet.headers;
        // A parsed packet always agrees with its opcode; a made-up one need not.
        if !h.is_consistent() {
            counters.drop(DropReason::Malformed);
            return Verdict::Ok;
        }
        // The host takes one invalidation a step. A second one before it did so counts as lost; the
        // peer sends it again.
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

    /// Time has come: a packet that is missing may be lost.
    pub(crate) fn handle_timeout(&mut self, now: Time, counters: &mut Counters) {
        let tell = self.reorder.expired(now);
        self.tell(tell, counters);
    }

    /// Asks for the packet that is missing.
    pub(super) fn tell(&mut self, tell: Tell, counters: &mut Counters) {
        if tell != Tell::Nothing && !self.responses.has_nak() {
            counters.gap_naks = counters.gap_naks.wrapping_add(1);
            self.queue_nak(Syndrome::Nak(NakCode::PsnSequence), counters);
        }
    }

    /// Makes the next answer ready for [`Responder::response`]; `false`: there is none.
    pub(crate) fn prepare_response(&mut self, ctx: &QpCtx<'_>, keys: &KeyTable) -> bool {
        // At most twice: what takes the place of a failed READ is a NAK.
        loop {
            match self.responses.prepare(ctx, keys) {
                Ok(ready) => return ready,
                Err(ReadFailed { psn, cause }) => {
                    let code = NakCode::RemoteAccess;
                    self.end_with(psn, code);
                    if ctx.attr.state != QpState::Err {
                        self.fatal = Some(fatal(code, Arc::new(cause)));
                    }
                }
            }
        }
    }

    /// The answer made ready last.
    pub(crate) fn response<'a>(&'a self, ctx: &QpCtx<'a>) -> Transmit<'a> {
        self.responses.transmit(ctx)
    }

    /// A failure that came up while an answer was made.
    pub(crate) fn take_fatal(&mut self) -> Option<Verdict> {
        self.fatal.take()
    }

    /// The host could not read the payload of the last answer, which it did not send.
    pub(crate) fn transmit_failed(
        &mut self,
        _ctx: &QpCtx<'_>,
        fault: MemoryFault,
        _effects: &mut Effects,
    ) -> Verdict {
        match self.responses.failed_read() {
            None => Verdict::Ok,
            Some((psn, true)) => {
                self.responses.refuse_repeated(psn, self.msn, NakCode::RemoteOperational);
                Verdict::Ok
            }
            Some((psn, false)) => {
                let code = NakCode::RemoteOperational;
                self.end_with(psn, code);
                fatal(code, Arc::new(Cause::Fault { addr: fault.addr }))
            }
        }
    }

    /// Drops what waits to be sent and ends the connection with a NAK.
    pub(super) fn end_with(&mut self, psn: Psn, code: NakCode) {
        self.last_answer = Some((psn, self.msn, Some(code)));
        self.responses.end_with(psn, self.msn, Some(code));
    }

    /// Did the connection end with an answer to the request with this PSN, or a later one?
    pub(crate) fn ended_at_or_after(&self, psn: Psn) -> bool {
        self.last_answer.is_some_and(|(at, ..)| !at.precedes(psn))
    }

    /// Completes every receive that the queue pair holds, in order, and drops what waits to be
    /// sent, but for the answer that ends the connection and what must go before it.
    pub(crate) fn flush(
        &mut self,
        config: &QpConfig,
        cause: &Arc<Cause>,
        effects: &mut Effects,
        counters: &mut Counters,
    ) {
        self.message = None;
        self.reorder.discard(counters);
        self.responses.clear_unless_final();
        self.complete_failed(config, effects, WcStatus::WrFlushErr, cause);
        while let Some(wr_id) = self.rq.pop_id() {
            let status = WcStatus::WrFlushErr;
            let c = Completion::failure(wr_id, config.qpn, WcOpcode::Recv, status, cause.clone());
            if config.counted {
                effects.count(CountedOp::Recv, 0, false);
            }
            effects.completions.push((CqRef::Recv, c));
        }
    }

    /// The request that ended the connection, or one before it, has come again: the answer was lost
    /// and is queued once more. By IBTA 10.3.1.7 a queue pair in ERR drops the request. Then the
    /// peer would get a timeout instead of the reason, as over UDP a NAK is lost as easily as any
    /// packet. An ACK carries no result, so only SENDs and WRITEs get one.
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

/// The end of the connection that no receive tells of: an event does (IBTA 9.9.3).
pub(super) fn fatal(code: NakCode, cause: Arc<Cause>) -> Verdict {
    let event = match code {
        NakCode::RemoteAccess => QpEvent::AccessErr(cause.clone()),
        NakCode::RemoteOperational => QpEvent::Fatal(cause.clone()),
        _ => QpEvent::ReqErr(cause.clone()),
    };
    Verdict::Fatal { cause, event: Some(event) }
}
