//! The queue pair.
use crate::attr::{AddressVector, QpAttr, QpCap};
use crate::cause::Cause;
use crate::clock::Clock;
use crate::completion::Completion;
use crate::effects::{Effects, QpEvent};
use crate::keys::KeyTable;
use crate::room::OutOfMemory;
use crate::time::Time;
use crate::types::{Access, PathMtu, PdId, QpState, QpType, Qpn};
use crate::wr::{PostError, RecvWqe, RecvWr, SendFlags, SendWr, Sge};
use adverb_wire::{QPN_MASK, ud_source_port, udp_source_port};
use alloc::sync::Arc;

/// The context of a queue pair, borrowing just those two fields.
macro_rules! ctx {
    ($qp:ident) => {
        $crate::qp::QpCtx { config: &$qp.config, attr: &$qp.attr }
    };
}

mod congestion;
mod counters;
mod ending;
mod frames;
mod input;
mod inside;
mod modify;
mod output;
mod recv_queue;
mod reorder;
mod requester;
mod responder;
mod send_queue;
#[cfg(test)]
mod tests;

use congestion::{ECN, ECT_0, Notifier};
pub use counters::{Counters, DropReason};
#[doc(hidden)]
pub use inside::Inside;
pub use output::AckOrder;
use output::{AckDelay, Half};
pub use reorder::{Kept, ReorderMemory};
pub use requester::Direct;
use requester::Requester;
use responder::Responder;

/// What a queue pair is created with.
#[derive(Clone, Copy, Debug)]
pub struct QpConfig {
    /// Number.
    pub qpn: Qpn,
    /// Transport service.
    pub qp_type: QpType,
    /// Protection domain.
    pub pd: PdId,
    /// Sizes.
    pub cap: QpCap,
    /// Every send completes (`sq_sig_all`).
    pub signal_all: bool,
    /// Receives come from an SRQ.
    pub uses_srq: bool,
    /// Path MTU of the port: the longest UD message (the `path_mtu` attribute is not set on UD).
    pub port_mtu: PathMtu,
    /// Bytes a requester keeps unacknowledged at most, so that it does not overrun the socket
    /// buffers on the way ([`QpConfig::MAX_INFLIGHT`] is a good value). Responses to reads are
    /// counted by the same measure.
    pub max_inflight: u32,
    /// Operations that end are noted for completion counters.
    pub counted: bool,
}

impl QpConfig {
    /// The usual `max_inflight`: below the default receive buffer of a Linux UDP socket (208 KiB).
    pub const MAX_INFLIGHT: u32 = 192 * 1024;
}

/// What both halves of a queue pair look at: how it was created and its attributes now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QpCtx<'a> {
    pub(crate) config: &'a QpConfig,
    /// `attr.state` is the state.
    pub(crate) attr: &'a QpAttr,
}

/// What a packet or a response did to the queue pair as a whole.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// It goes on.
    Ok,
    /// It goes to ERR. The receive at fault is completed already and a NAK, if due, is queued in
    /// the responder, which is polled for it in ERR too. The frame flushes the rest and raises
    /// `event`.
    Fatal { cause: Arc<Cause>, event: Option<QpEvent> },
}

/// Where receives of an SRQ (or of the XRC SRQ that a packet names) come from.
pub trait RecvSource {
    /// Takes a receive. `xrc_srqn` is the SRQ number of an XRC packet, `None` on RC and UD.
    fn pop(&mut self, xrc_srqn: Option<u32>) -> Result<RecvWqe, NoRecv>;
    /// Takes a receive of the SRQ for a SEND whose first packet has this payload.
    fn pop_message(&mut self, first: &[u8]) -> Result<RecvWqe, NoRecv> {
        let _ = first;
        self.pop(None)
    }
    /// The protection domain of the XRC SRQ with this number, if the QP's domain has one.
    fn pd(&mut self, xrc_srqn: u32) -> Option<PdId> {
        let _ = xrc_srqn;
        None
    }
}

/// Why no receive could be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRecv {
    /// The queue is empty: RNR on reliable transports, a drop elsewhere.
    Empty,
    /// No XRC SRQ with this number in the QP's domain.
    NoSuchSrq,
}

/// A source for queue pairs without SRQ.
#[derive(Debug)]
pub struct NoSrq;
impl RecvSource for NoSrq {
    fn pop(&mut self, _: Option<u32>) -> Result<RecvWqe, NoRecv> {
        Err(NoRecv::NoSuchSrq)
    }
}

/// What the host lends a queue pair for one step.
pub struct Env<'a, M: ?Sized, S: ?Sized> {
    /// What time it is.
    pub clock: &'a dyn Clock,
    /// Keys of the device.
    pub keys: &'a KeyTable,
    /// Memory.
    pub memory: &'a M,
    /// SRQ of the queue pair.
    pub srq: &'a mut S,
    /// Outcome.
    pub effects: &'a mut Effects,
}

/// The multicast destination of UD packets.
const MULTICAST_QPN: Qpn = QPN_MASK;

impl QpCtx<'_> {
    /// DSCP and ECN of its packets.
    pub(crate) fn traffic_class(&self, path: &AddressVector) -> u8 {
        let class = path.traffic_class;
        // What the consumer says counts.
        if self.config.qp_type.is_reliable() && class & ECN == 0 { class | ECT_0 } else { class }
    }
    /// UDP source port of its packets.
    pub(crate) fn source_port(&self) -> u16 {
        if self.config.qp_type == QpType::Ud {
            ud_source_port(self.config.qpn)
        } else {
            udp_source_port(self.config.qpn, self.attr.dest_qpn)
        }
    }
}

/// A queue pair.
#[derive(Debug)]
pub struct Qp {
    config: QpConfig,
    /// `attr.state` is the state.
    attr: QpAttr,
    requester: Requester,
    responder: Responder,
    /// Why it is in ERR or SQE, unless the consumer moved it there.
    first_error: Option<Arc<Cause>>,
    ack: AckDelay,
    ack_order: AckOrder,
    counters: Counters,
    last_packet: Half,
    /// COMM_EST was raised.
    established: bool,
    notifier: Notifier,
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
    /// The peer's process has ended, as the host knows: unfinished requests and later ones fail
    /// with `IBV_WC_RETRY_EXC_ERR` at once instead of after their timeouts. Receives stay posted,
    /// as with a peer that is merely silent. Until RESET.
    pub fn peer_gone(&mut self, effects: &mut Effects) {
        if self.config.qp_type.is_reliable() {
            self.requester.peer_gone(&ctx!(self));
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
    /// The oldest send request, if the host may perform it in the peer's memory by itself: it is
    /// one-sided, nothing before it is on its way, and nothing is wrong with its own side. If the
    /// host did so it reports with [`Qp::direct_done`]; otherwise the request goes by
    /// [`Qp::poll_output`], which finds out what is wrong.
    pub fn poll_direct(&mut self, keys: &KeyTable) -> Option<Direct<'_>> {
        self.requester.direct(&ctx!(self), keys)
    }
    /// The host performed the request of the last [`Qp::poll_direct`].
    pub fn direct_done(&mut self, effects: &mut Effects) {
        self.requester.direct_done(&self.config, effects);
        self.counters.direct += 1;
    }
    /// The consumer posts a WRITE or a READ of one entry: where its bytes are, or are to go, in the
    /// host's terms, if the host may perform it in the peer's memory before it is queued. The send
    /// queue is empty, nothing is on its way or wants to leave, and the entry names memory that is
    /// mapped and registered. If the host did so it reports with [`Qp::direct_posted`]; otherwise
    /// the request is staged as any other, which finds out what is wrong.
    #[inline]
    #[must_use]
    pub fn direct_post(&self, keys: &KeyTable, read: bool, entry: &Sge) -> Option<u64> {
        let needed = if read { Access::LOCAL_WRITE } else { Access::empty() };
        let takes = self.takes_direct_post(read) && self.config.cap.max_send_sge > 0;
        if !takes || u64::from(entry.length) > requester::MAX_MSG {
            return None;
        }
        keys.mapped_local(self.config.pd, entry.lkey, needed, entry.addr, entry.length)
    }
    /// As [`Qp::direct_post`], of a WRITE of so many inline bytes.
    #[inline]
    #[must_use]
    pub fn direct_post_inline(&self, len: usize) -> bool {
        self.takes_direct_post(false) && len <= self.config.cap.max_inline_data as usize
    }
    #[inline]
    fn takes_direct_post(&self, read: bool) -> bool {
        !self.config.counted && !self.wants_output() && self.requester.takes_direct_post(&ctx!(self), read)
    }
    /// The host performed a request of [`Qp::direct_post`]: a WRITE, or a READ of so many bytes.
    /// Answers its completion on the send CQ, if it makes one.
    #[inline]
    pub fn direct_posted(&mut self, wr_id: u64, flags: SendFlags, read: Option<u32>) -> Option<Completion> {
        self.counters.direct += 1;
        self.requester.direct_posted(&self.config, wr_id, flags, read)
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
