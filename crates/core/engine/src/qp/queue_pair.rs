//! The queue pair: its parts, and the calls that a single part answers.
use super::ack::{AckDelay, AckOrder};
use super::context::ctx;
use super::ecn::Notifier;
use super::requester::{HostRequest, MAX_MSG, Requester};
use super::responder::Responder;
use super::{Counters, QpConfig, ReorderMemory};
use crate::attr::QpAttr;
use crate::cause::Cause;
use crate::completion::{Completion, WcOpcode};
use crate::effects::Effects;
use crate::keys::{KeyTable, MappedRegion};
use crate::room::OutOfMemory;
use crate::srq::Srq;
use crate::types::{Access, Key, QpState};
use crate::wr::{PostError, RecvWr, SendFlags, SendWr, Sge};
use adverb_wire::{Psn, Time};
use alloc::sync::Arc;

/// Which half made the last packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Half {
    Requester,
    Responder,
}

/// A queue pair.
#[derive(Debug)]
pub struct Qp {
    pub(super) config: QpConfig,
    /// Contains the state: `attr.state`.
    pub(super) attr: QpAttr,
    pub(super) requester: Requester,
    pub(super) responder: Responder,
    /// Why the queue pair is in ERR or SQE. `None` if the consumer moved the queue pair there.
    pub(super) first_error: Option<Arc<Cause>>,
    pub(super) ack: AckDelay,
    pub(super) ack_order: AckOrder,
    pub(super) counters: Counters,
    pub(super) last_packet: Half,
    /// COMM_EST was raised.
    pub(super) established: bool,
    pub(super) notifier: Notifier,
    /// Requests are paused; answers leave.
    pub(super) paused: bool,
}

impl Qp {
    /// A queue pair in RESET. The queues are allocated here, because the data path allocates
    /// nothing.
    /// # Errors
    /// There is no memory for the queues.
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
            paused: false,
            config,
        })
    }
    /// The values with which the queue pair was created.
    #[must_use]
    pub fn config(&self) -> &QpConfig {
        &self.config
    }
    /// The state.
    #[must_use]
    pub fn state(&self) -> QpState {
        self.attr.state
    }
    /// All attributes (`ibv_query_qp`).
    #[must_use]
    pub fn query(&self) -> QpAttr {
        QpAttr { cur_state: self.attr.state, ..self.attr }
    }
    /// The attributes as stored.
    #[must_use]
    pub fn attr(&self) -> &QpAttr {
        &self.attr
    }
    /// From now on [`Effects::counted`] tells which operations have ended.
    pub fn count(&mut self) {
        self.config.counted = true;
    }
    /// May [`Qp::poll_output`] have something to do?
    #[inline]
    #[must_use]
    pub fn wants_output(&self) -> bool {
        self.requester.wants_output()
            || self.responder.has_output() && !self.delays_ack()
            || self.notifier.due
    }
    /// The counters of the queue pair.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }
    /// Why the queue pair is in ERR or SQE, unless the consumer moved it there.
    #[must_use]
    pub fn first_error(&self) -> Option<&Arc<Cause>> {
        self.first_error.as_ref()
    }

    /// Queues a send request without committing it (DEF-2); [`Qp::commit_sends`] commits it.
    /// In SQE and ERR the request is accepted, and the commit flushes it.
    pub fn stage_send(&mut self, wr: &SendWr<'_>) -> Result<(), PostError> {
        self.requester.sq.stage(&self.config, self.attr.state, wr)
    }
    /// Commits all staged requests and answers their number.
    pub fn commit_sends(&mut self, effects: &mut Effects) -> usize {
        let n = self.requester.commit();
        if matches!(self.attr.state, QpState::Err | QpState::Sqe) {
            let cause = self.flush_cause();
            self.requester.flush(&self.config, &cause, effects, &mut self.counters);
        }
        n
    }
    /// Forgets all requests staged since the last commit (`ibv_wr_abort`).
    pub fn abort_sends(&mut self) {
        let queue = &mut self.requester.sq;
        queue.staged = queue.posted;
    }
    /// How many more send requests fit into the queue.
    #[must_use]
    pub fn free_sends(&self) -> usize {
        let queue = &self.requester.sq;
        (self.config.cap.max_send_wr as usize).saturating_sub((queue.staged - queue.head) as usize)
    }
    /// Send requests that are staged and not committed.
    #[must_use]
    pub fn staged_sends(&self) -> usize {
        let queue = &self.requester.sq;
        (queue.staged - queue.posted) as usize
    }
    /// Queues a receive. In ERR the receive is flushed at once.
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

    /// Keeps packets that come early in memory which several queue pairs share.
    #[must_use]
    pub fn with_reorder_memory(mut self, memory: &Arc<ReorderMemory>) -> Self {
        self.responder.reorder.memory = Some(Arc::clone(memory));
        self.requester.reorder.memory = Some(Arc::clone(memory));
        self
    }

    /// From now on packets of this queue pair cross no network. Messages are cut into pieces of
    /// `mtu` bytes (except on UD), and the host limits how many packets are on their way. Only
    /// before the first request after RESET.
    pub fn leave_network(&mut self, mtu: u32) {
        self.requester.leave_network(&self.config, mtu);
    }
    /// The host knows that the peer's process has ended. Unfinished and later requests fail with
    /// `IBV_WC_RETRY_EXC_ERR` within 100 ms instead of after all retries. Receives stay posted, as
    /// with a peer that is merely silent. This lasts until RESET.
    pub fn peer_ended(&mut self, now: Time, effects: &mut Effects) {
        if self.config.qp_type.is_reliable() {
            self.requester.peer_ended(&ctx!(self), now);
            if matches!(self.attr.state, QpState::Rts | QpState::Sqd) {
                self.settle(effects);
            }
        }
    }
    /// Sends all unacknowledged requests again, in new packets. The host calls this when it takes
    /// back the memory at which earlier packets point.
    pub fn send_again(&mut self) {
        if self.attr.state == QpState::Rts {
            self.requester.send_again();
        }
    }
    /// With `paused`, no request leaves from now on. Answers still leave.
    pub fn pause_requests(&mut self, paused: bool) {
        self.paused = paused;
    }
    /// The PSN of the next packet that is sent for the first time.
    #[must_use]
    pub fn next_psn(&self) -> Psn {
        Psn::new(self.requester.high as u32)
    }
    /// The oldest send request, if the host may perform it in the peer's memory. The request is
    /// one-sided, no earlier request is on its way, and the local side is correct. The
    /// host reports a performed request with [`Qp::host_request_done`]. Any other request goes
    /// through [`Qp::poll_output`], which finds out what is wrong.
    pub fn poll_host_request(&mut self, keys: &KeyTable) -> Option<HostRequest<'_>> {
        self.requester.host_request(&ctx!(self), keys)
    }
    /// The host performed the request of the last [`Qp::poll_host_request`].
    pub fn host_request_done(&mut self, effects: &mut Effects) {
        self.requester.host_request_done(&self.config, effects);
        self.counters.one_sided += 1;
    }
    /// Asks whether the host may perform a WRITE or READ of one entry before the request is
    /// queued. Answers the host's address of the entry's bytes.
    ///
    /// The send queue must be empty, with nothing on its way and nothing to send. The entry must
    /// lie in `known`, which the entry's key opens ([`Qp::mapped_region`]). The host reports a
    /// performed request with [`Qp::host_posted`]. Any other request is staged as usual, and
    /// errors show there.
    #[inline(always)]
    #[must_use]
    pub fn host_post(&self, known: &MappedRegion, read: bool, entry: &Sge) -> Option<u64> {
        let needed = if read { Access::LOCAL_WRITE } else { Access::empty() };
        let takes = self.takes_host_post(read) && self.config.cap.max_send_sge > 0;
        if !takes || u64::from(entry.length) > MAX_MSG {
            return None;
        }
        known.place(entry.lkey, needed, entry.addr, entry.length)
    }
    /// What a key opens for [`Qp::host_post`]. Valid as long as the key exists.
    #[must_use]
    pub fn mapped_region(&self, keys: &KeyTable, key: Key) -> Option<MappedRegion> {
        keys.mapped_region(self.config.pd, key)
    }
    /// As [`Qp::host_post`], for a WRITE of `len` inline bytes.
    #[inline(always)]
    #[must_use]
    pub fn host_post_inline(&self, len: usize) -> bool {
        self.takes_host_post(false) && len <= self.config.cap.max_inline_data as usize
    }
    #[inline(always)]
    fn takes_host_post(&self, read: bool) -> bool {
        !self.config.counted
            && !self.wants_output()
            && self.requester.takes_host_post(&ctx!(self), read)
    }
    /// The host performed a request of [`Qp::host_post`]. `opcode` is the opcode of its
    /// completion, `read` the bytes of a READ. Answers the completion for the send CQ, if the
    /// request asks for a completion.
    #[inline(always)]
    pub fn host_posted(
        &mut self,
        wr_id: u64,
        flags: SendFlags,
        opcode: WcOpcode,
        read: u32,
    ) -> Option<Completion> {
        self.counters.one_sided += 1;
        self.requester.host_posted(&self.config, wr_id, flags, opcode, read)
    }
    /// Is the queue pair sending again after a timeout?
    #[must_use]
    pub fn is_retrying(&self) -> bool {
        self.requester.retries > 0
    }
    /// Does a request wait for a timer: after an RNR NAK, or for another try?
    #[must_use]
    pub fn waits_for_timer(&self) -> bool {
        self.requester.rnr_until.is_some() || self.is_retrying()
    }
    /// How many receives wait. `shared` is the SRQ of the queue pair.
    #[inline]
    #[must_use]
    pub fn receives_waiting(&self, shared: Option<&Srq>) -> usize {
        shared.map_or_else(|| self.responder.rq.len as usize, Srq::len)
    }
    /// Receives on the queue pair's own receive queue.
    #[must_use]
    pub fn receives_posted(&self) -> u32 {
        self.responder.rq.len
    }
    /// Are packets of requests on their way and not yet acknowledged?
    #[must_use]
    pub fn has_unacknowledged(&self) -> bool {
        self.requester.high > self.requester.una
    }
    /// Does a READ of the peer still have to take its payload, which a later request could change?
    /// The host sends the waiting responses before it gives such a request to the queue pair. Verbs
    /// orders a READ and a later WRITE only by a fence. But NICs and soft-RoCE take the payload of
    /// a short READ first, and programs rely on this order.
    #[must_use]
    pub fn owes_read(&self) -> bool {
        self.responder.owes_read()
    }
    /// While set, messages that need a receive find none. Receives may be posted all the same. Used
    /// for injected faults.
    pub fn hide_receives(&mut self, hide: bool) {
        self.responder.receives_hidden = hide;
    }
    /// When [`Qp::handle_timeout`] has to be called.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        let due = self.requester.poll_timeout();
        let reorder = &self.responder.reorder;
        if reorder.is_idle() { due } else { Time::earliest(due, reorder.due()) }
    }
    /// When the peer's silence counts as a loss.
    #[must_use]
    pub fn ack_timeout(&self) -> Option<Time> {
        self.requester.ack_deadline
    }
    /// A deadline has come. The caller calls [`Qp::poll_output`] afterwards.
    pub fn handle_timeout(&mut self, now: Time, effects: &mut Effects) {
        self.responder.handle_timeout(now, &mut self.counters);
        self.requester.handle_timeout(&ctx!(self), now, &mut self.counters);
        self.settle(effects);
    }
}
