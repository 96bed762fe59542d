//! The state of the responder and its life: creation, RESET, RTR, new attributes, receives.
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

    /// Has a message begun and not ended?
    pub(crate) fn is_within_message(&self) -> bool {
        self.message.is_some() || self.active.is_some()
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
}
