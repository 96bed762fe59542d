//! The queue pair: its parts, and the calls that one part answers.
use super::ack::{AckDelay, AckOrder};
use super::context::ctx;
use super::ecn::Notifier;
use super::requester::{Direct, MAX_MSG, Requester};
use super::responder::Responder;
use super::{Counters, QpConfig, ReorderMemory};
use crate::attr::QpAttr;
use crate::cause::Cause;
use crate::completion::{Completion, WcOpcode};
use crate::effects::Effects;
use crate::keys::{KeyTable, MappedRegion};
use crate::room::OutOfMemory;
use crate::time::Time;
use crate::types::{Access, Key, QpState};
use crate::wr::{PostError, RecvWr, SendFlags, SendWr, Sge};
use adverb_wire::Psn;
use alloc::sync::Arc;

/// Which half made the packet handed out last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Half {
    Requester,
    Responder,
}

/// A queue pair.
#[derive(Debug)]
pub struct Qp {
    pub(super) config: QpConfig,
    /// `attr.state` is the state.
    pub(super) attr: QpAttr,
    pub(super) requester: Requester,
    pub(super) responder: Responder,
    /// Why it is in ERR or SQE, unless the consumer moved it there.
    pub(super) first_error: Option<Arc<Cause>>,
    pub(super) ack: AckDelay,
    pub(super) ack_order: AckOrder,
    pub(super) counters: Counters,
    pub(super) last_packet: Half,
    /// COMM_EST was raised.
    pub(super) established: bool,
    pub(super) notifier: Notifier,
    /// Requests wait, and answers leave.
    pub(super) held: bool,
}

impl Qp {
    /// A queue pair in RESET. Its queues are allocated here; the data path allocates nothing.
    ///
    /// # Errors
    /// There is no memory for its queues.
    pub fn new(config: QpConfig) -> Result<Self, OutOfMemory> {
        Ok(Qp {
            attr: QpAttr { cap: config.cap, ..QpAttr::default() },
            requester: Requester::new(&config)?,
            responder: Responder::new(&config)?,
            first_error: None,
            ack: AckDelay::None,
            ack_order: AckOrder::default(),
            counters: Counters::default(),
            last_packet: Half::Requester,
            established: false,
            notifier: Notifier::default(),
            held: false,
            config,
        })
    }
    /// What it was created with.
    #[must_use]
    pub fn config(&self) -> &QpConfig {
        &self.config
    }
    /// Its state.
    #[must_use]
    pub fn state(&self) -> QpState {
        self.attr.state
    }
    /// All attributes (`ibv_query_qp`).
    #[must_use]
    pub fn query(&self) -> QpAttr {
        QpAttr { cur_state: self.attr.state, ..self.attr }
    }
    /// Its attributes, as they are kept.
    #[must_use]
    pub fn attr(&self) -> &QpAttr {
        &self.attr
    }
    /// From now on operations that end are noted in [`Effects::counted`].
    pub fn count(&mut self) {
        self.config.counted = true;
    }
    /// May [`Qp::poll_output`] have something to do?
    #[inline]
    #[must_use]
    pub fn wants_output(&self) -> bool {
        self.requester.wants_output()
            || self.responder.has_output() && !self.delays_ack()
            || self.notifier.is_due()
    }
    /// What it counted.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }
    /// Why it is in ERR or SQE, if that was not the consumer's own doing.
    #[must_use]
    pub fn first_error(&self) -> Option<&Arc<Cause>> {
        self.first_error.as_ref()
    }

    /// Queues a send request without handing it over yet (DEF-2): [`Qp::commit_sends`] does.
    /// In SQE and ERR it is accepted and flushed at the commit.
    pub fn stage_send(&mut self, wr: &SendWr<'_>) -> Result<(), PostError> {
        self.requester.queue_mut().stage(&self.config, self.attr.state, wr)
    }
    /// Hands over everything staged and answers how many requests that was.
    pub fn commit_sends(&mut self, effects: &mut Effects) -> usize {
        let n = self.requester.commit();
        if matches!(self.attr.state, QpState::Err | QpState::Sqe) {
            let cause = self.flush_cause();
            self.requester.flush(&self.config, &cause, effects, &mut self.counters);
        }
        n
    }
    /// Forgets everything staged since the last commit (`ibv_wr_abort`).
    pub fn abort_sends(&mut self) {
        let queue = self.requester.queue_mut();
        queue.staged = queue.posted;
    }
    /// Send requests that still fit into the queue.
    #[must_use]
    pub fn free_sends(&self) -> usize {
        let queue = self.requester.queue();
        (self.config.cap.max_send_wr as usize).saturating_sub((queue.staged - queue.head) as usize)
    }
    /// Send requests staged and not handed over.
    #[must_use]
    pub fn staged_sends(&self) -> usize {
        let queue = self.requester.queue();
        (queue.staged - queue.posted) as usize
    }
    /// Queues a receive. In ERR it is flushed at once.
    pub fn post_recv(&mut self, wr: &RecvWr<'_>, effects: &mut Effects) -> Result<(), PostError> {
        if self.attr.state == QpState::Reset {
            let cause = Cause::WrongState { op: "post receive", state: QpState::Reset };
            return Err(PostError::Invalid(cause));
        }
        self.responder.post_recv(&self.config, wr)?;
        if self.attr.state == QpState::Err {
            let cause = self.flush_cause();
            self.responder.flush(&self.config, &cause, effects, &mut self.counters);
        }
        Ok(())
    }

    /// Keeps packets that come early in memory that others have a share of, too.
    #[must_use]
    pub fn with_reorder_memory(mut self, memory: &Arc<ReorderMemory>) -> Self {
        self.responder.reorder.share(Arc::clone(memory));
        self.requester.reorder_mut().share(Arc::clone(memory));
        self
    }

    /// Its packets do not cross a network from now on: messages are cut into pieces of `mtu` bytes
    /// (but on UD), and as many as the host takes may be on their way. Before the first request
    /// after RESET only.
    pub fn leave_network(&mut self, mtu: u32) {
        self.requester.leave_network(&self.config, mtu);
    }
    /// The peer's process has ended, as the host knows. Unfinished requests and later ones fail
    /// with `IBV_WC_RETRY_EXC_ERR` within a tenth of a second instead of after all their retries.
    /// Receives stay posted, as with a peer that is merely silent. Until RESET.
    pub fn peer_gone(&mut self, now: Time, effects: &mut Effects) {
        if self.config.qp_type.is_reliable() {
            self.requester.peer_gone(&ctx!(self), now);
            if matches!(self.attr.state, QpState::Rts | QpState::Sqd) {
                self.settle(effects);
            }
        }
    }
    /// Sends again all that is not acknowledged, in other packets than before: the host takes back
    /// what earlier ones point at.
    pub fn send_again(&mut self) {
        if self.attr.state == QpState::Rts {
            self.requester.send_again();
        }
    }
    /// Does no request leave from now on? Answers leave all the same.
    pub fn hold_requests(&mut self, held: bool) {
        self.held = held;
    }
    /// The PSN of the next packet of a request that was not sent before.
    #[must_use]
    pub fn next_psn(&self) -> Psn {
        self.requester.next_psn()
    }
    /// The oldest send request, if the host may perform it in the peer's memory by itself: it is
    /// one-sided or a SEND, nothing before it is on its way, and nothing is wrong with its own
    /// side. If the host did so it reports with [`Qp::direct_done`]; otherwise the request goes by
    /// [`Qp::poll_output`], which finds out what is wrong.
    pub fn poll_direct(&mut self, keys: &KeyTable) -> Option<Direct<'_>> {
        self.requester.direct(&ctx!(self), keys)
    }
    /// The host performed the request of the last [`Qp::poll_direct`].
    pub fn direct_done(&mut self, effects: &mut Effects) {
        let opcode = self.requester.direct_done(&self.config, effects);
        self.count_direct(opcode);
    }
    /// The consumer posts a WRITE, a READ or a SEND of one entry: where its bytes are, or are to
    /// go, in the host's terms, if the host may perform it in the peer's memory before it is
    /// queued. The send queue is empty, nothing is on its way or wants to leave, and the entry lies
    /// in `known`, which the entry's key opens ([`Qp::mapped_region`]). If the host did so it
    /// reports with [`Qp::direct_posted`]; otherwise the request is staged as any other, which
    /// finds out what is wrong.
    #[inline(always)]
    #[must_use]
    pub fn direct_post(&self, known: &MappedRegion, read: bool, entry: &Sge) -> Option<u64> {
        let needed = if read { Access::LOCAL_WRITE } else { Access::empty() };
        let takes = self.takes_direct_post(read) && self.config.cap.max_send_sge > 0;
        if !takes || u64::from(entry.length) > MAX_MSG {
            return None;
        }
        known.place(entry.lkey, needed, entry.addr, entry.length)
    }
    /// What a key opens for [`Qp::direct_post`], as long as the key stays.
    #[must_use]
    pub fn mapped_region(&self, keys: &KeyTable, key: Key) -> Option<MappedRegion> {
        keys.mapped_region(self.config.pd, key)
    }
    /// As [`Qp::direct_post`], of a WRITE of so many inline bytes.
    #[inline(always)]
    #[must_use]
    pub fn direct_post_inline(&self, len: usize) -> bool {
        self.takes_direct_post(false) && len <= self.config.cap.max_inline_data as usize
    }
    #[inline(always)]
    fn takes_direct_post(&self, read: bool) -> bool {
        !self.config.counted && !self.wants_output() && self.requester.takes_direct_post(&ctx!(self), read)
    }
    /// The host performed a request of [`Qp::direct_post`], whose completion is `opcode`; `read`:
    /// so many bytes. Answers its completion on the send CQ, if it makes one.
    #[inline(always)]
    pub fn direct_posted(
        &mut self,
        wr_id: u64,
        flags: SendFlags,
        opcode: WcOpcode,
        read: u32,
    ) -> Option<Completion> {
        self.count_direct(opcode);
        self.requester.direct_posted(&self.config, wr_id, flags, opcode, read)
    }
    fn count_direct(&mut self, opcode: WcOpcode) {
        let counter =
            if opcode == WcOpcode::Send { &mut self.counters.messages } else { &mut self.counters.direct };
        *counter += 1;
    }
    /// Is it sending again after a timeout?
    #[must_use]
    pub fn is_retrying(&self) -> bool {
        self.requester.is_retrying()
    }
    /// Receives posted on its own receive queue.
    #[must_use]
    pub fn receives_posted(&self) -> u32 {
        self.responder.rq.len()
    }
    /// Are packets of requests on their way that are not acknowledged yet?
    #[must_use]
    pub fn has_unacknowledged(&self) -> bool {
        self.requester.has_unacknowledged()
    }
    /// Does a READ of the peer's still have to take its payload, which a later request could
    /// change? The host sends the waiting responses before it gives the queue pair such a request.
    /// Verbs order a READ and the WRITE after it only by a fence, but NICs and soft-RoCE take the
    /// payload of a short READ first, and programs rely on it.
    #[must_use]
    pub fn owes_read(&self) -> bool {
        self.responder.owes_read()
    }
    /// While set, messages that need a receive find none, whatever is posted: a fault on request.
    pub fn hide_receives(&mut self, hide: bool) {
        self.responder.receives_hidden = hide;
    }
    /// When [`Qp::handle_timeout`] wants to be called.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        let due = self.requester.poll_timeout();
        let reorder = &self.responder.reorder;
        if reorder.is_idle() { due } else { Time::earliest(due, reorder.due()) }
    }
    /// When the peer's silence counts as a loss.
    #[must_use]
    pub fn ack_timeout(&self) -> Option<Time> {
        self.requester.ack_timeout()
    }
    /// Time has come. [`Qp::poll_output`] is to be called afterwards.
    pub fn handle_timeout(&mut self, now: Time, effects: &mut Effects) {
        self.responder.handle_timeout(now, &mut self.counters);
        self.requester.handle_timeout(&ctx!(self), now, &mut self.counters);
        self.settle(effects);
    }
}
