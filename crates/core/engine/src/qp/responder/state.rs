//! The state of the responder: creation, RESET, RTR, new attributes, receives.
use super::inbound::Active;
use super::responses::Responses;
use crate::attr::QpAttr;
use crate::cause::Cause;
use crate::qp::recv_queue::RecvQueue;
use crate::qp::reorder::Reorder;
use crate::qp::verdict::Verdict;
use crate::qp::{Counters, QpConfig};
use crate::room::OutOfMemory;
use crate::types::{Key, QpType};
use crate::wr::{PostError, RecvWr};
use adverb_wire::{AtomicEth, NakCode, Opcode, Psn};
use alloc::collections::VecDeque;

/// The result of an atomic, kept for duplicates of the request.
#[derive(Clone, Copy, Debug)]
pub(super) struct SavedAtomic {
    pub(super) psn: Psn,
    pub(super) opcode: Opcode,
    pub(super) eth: AtomicEth,
    pub(super) original: u64,
}

/// The message which is arriving.
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
    /// Packets that arrived before `expected`.
    pub(in crate::qp) reorder: Reorder,
    /// The last executed packet of a SEND or WRITE. An ACK for a duplicate acknowledges up to this
    /// packet (IBTA C9-105).
    pub(super) executed: Option<Psn>,
    /// The message which is arriving.
    pub(super) message: Option<Message>,
    /// The receive that is being filled, or is kept for the next message (UC, UD).
    pub(super) active: Option<Active>,
    pub(super) responses: Responses,
    pub(super) saved: VecDeque<SavedAtomic>,
    /// A READ response failed while it was prepared; for [`Responder::take_fatal`].
    pub(super) fatal: Option<Verdict>,
    /// The answer that ended the connection: PSN, MSN and NAK code. Without a code the answer is an
    /// ACK.
    pub(super) last_answer: Option<(Psn, u32, Option<NakCode>)>,
    /// Hides posted receives (an injected fault).
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

    /// To RESET: all state and posted receives are forgotten.
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

    /// Attributes changed in RTR or later. All attributes except the PSN are read at their use.
    pub(crate) fn update(&mut self, attr: &QpAttr) {
        while self.saved.len() > usize::from(attr.max_dest_rd_atomic) {
            self.saved.pop_front();
        }
    }

    /// Queues a receive. The caller has checked the state.
    pub(crate) fn post_recv(
        &mut self,
        config: &QpConfig,
        wr: &RecvWr<'_>,
    ) -> Result<(), PostError> {
        let on = match config.qp_type {
            QpType::XrcSend | QpType::XrcRecv => "an XRC queue pair",
            _ if config.uses_srq => "a queue pair with a shared receive queue",
            _ => return self.rq.post(wr),
        };
        Err(PostError::Invalid(Cause::OpNotSupported { op: "posting a receive", on }))
    }

    /// Does an answer wait?
    #[inline]
    pub(crate) fn has_output(&self) -> bool {
        !self.responses.is_empty() || self.fatal.is_some()
    }

    /// Does a READ still have to take payload?
    pub(crate) fn owes_read(&self) -> bool {
        self.responses.owes_read()
    }

    /// Only a plain ACK waits.
    #[inline]
    pub(crate) fn only_ack_waits(&self) -> bool {
        self.responses.only_ack()
    }

    /// PSN of the next request, number of waiting answers, number of results kept for duplicates.
    pub(crate) fn inside(&self) -> (Psn, usize, usize) {
        (self.expected, self.responses.len(), self.saved.len())
    }

    /// The message under way: a SEND (`None`), or a WRITE with the number of missing bytes.
    #[cfg(test)]
    pub(crate) fn under_way(&self) -> Option<Option<u32>> {
        self.message.map(|m| match m {
            Message::Send => None,
            Message::Write { len, received, .. } => Some(len - received),
        })
    }
}
