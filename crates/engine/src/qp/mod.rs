//! The queue pair.
use crate::attr::{AddressVector, AttrError, AttrMask, QpAttr, QpCap, check_modify};
use crate::cause::Cause;
use crate::clock::Clock;
use crate::effects::{Effects, QpEvent};
use crate::keys::KeyTable;
use crate::memory::{Memory, MemoryFault};
use crate::packet::{Output, Packet, Transmit};
use crate::time::Time;
use crate::types::{Limits, PathMtu, PdId, QpState, QpType, Qpn};
use crate::wr::{PostError, RecvWqe, RecvWr, SendWr};
use adverb_wire::{Opcode, Psn, QPN_MASK, ud_source_port, udp_source_port};
use alloc::sync::Arc;

mod congestion;
mod counters;
mod frames;
mod inside;
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
pub use reorder::{Kept, ReorderMemory};
pub use requester::Direct;
use requester::{AnswerEnv, Requester, Step, transport_of};
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

/// Which half made the packet handed out last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Half {
    Requester,
    Responder,
}

/// May a plain ACK wait for company?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AckDelay {
    /// It leaves at once.
    None,
    /// It waits until something else leaves.
    Alone,
    /// Something else has left: it leaves behind that, in the same run.
    Accompanied,
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
    counters: Counters,
    last_packet: Half,
    /// COMM_EST was raised.
    established: bool,
    notifier: Notifier,
}

/// The context of a queue pair, borrowing just those two fields.
macro_rules! ctx {
    ($qp:ident) => {
        QpCtx { config: &$qp.config, attr: &$qp.attr }
    };
}

impl Qp {
    /// A queue pair in RESET. Its queues are allocated here; the data path allocates nothing.
    #[must_use]
    pub fn new(config: QpConfig) -> Self {
        Qp {
            attr: QpAttr { cap: config.cap, ..QpAttr::default() },
            requester: Requester::new(&config),
            responder: Responder::new(&config),
            first_error: None,
            ack: AckDelay::None,
            counters: Counters::default(),
            last_packet: Half::Requester,
            established: false,
            notifier: Notifier::default(),
            config,
        }
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

    /// Changes attributes and state. On refusal nothing changed. A move to ERR flushes into
    /// `effects`.
    pub fn modify(
        &mut self,
        attr: &QpAttr,
        mask: AttrMask,
        limits: &Limits,
        now: Time,
        effects: &mut Effects,
    ) -> Result<(), AttrError> {
        let from = self.attr.state;
        // Programs set the attributes of a whole connection on either half of an XRC one; those of
        // the half that is not there are passed over, as the kernel does.
        let mask = mask
            - match self.config.qp_type {
                QpType::XrcSend => AttrMask::MAX_DEST_RD_ATOMIC | AttrMask::MIN_RNR_TIMER,
                QpType::XrcRecv => AttrMask::MAX_QP_RD_ATOMIC | AttrMask::RETRY_CNT | AttrMask::RNR_RETRY,
                _ => AttrMask::empty(),
            };
        let to = check_modify(self.config.qp_type, from, attr, mask, limits)?;
        copy_attributes(&mut self.attr, attr, mask);
        match (from, to) {
            (_, QpState::Reset) => self.reset(),
            (QpState::Err, QpState::Err) => {}
            (_, QpState::Err) => self.enter_error(None, None, effects),
            (QpState::Init, QpState::Rtr) => {
                self.attr.state = to;
                self.responder.start(&self.attr);
                self.requester.update(&self.config, &self.attr);
            }
            (QpState::Rtr, QpState::Rts) => {
                self.attr.state = to;
                self.responder.update(&self.attr);
                self.requester.start(&self.config, &self.attr, now);
            }
            _ => {
                self.attr.state = to;
                self.responder.update(&self.attr);
                self.requester.update(&self.config, &self.attr);
                if to == QpState::Sqd && from != QpState::Sqd {
                    self.attr.sq_draining = true;
                    self.attr.en_sqd_async_notify =
                        mask.contains(AttrMask::EN_SQD_ASYNC_NOTIFY) && attr.en_sqd_async_notify;
                } else if to == QpState::Rts {
                    self.attr.sq_draining = false;
                    self.first_error = None;
                }
                self.settle(effects);
            }
        }
        Ok(())
    }

    /// RESET drops everything without a completion.
    fn reset(&mut self) {
        self.requester.reset(&self.config, &mut self.counters);
        self.responder.reset(&mut self.counters);
        self.first_error = None;
        self.established = false;
        self.notifier = Notifier::default();
        self.attr = QpAttr { cap: self.config.cap, ..QpAttr::default() };
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

    /// Takes a packet that names this QP. Cannot fail: a bad packet is a counted drop or a NAK.
    /// [`Qp::take_turn`] is to be asked afterwards.
    pub fn handle_packet<M: Memory + ?Sized, S: RecvSource + ?Sized>(
        &mut self,
        env: &mut Env<'_, M, S>,
        packet: &Packet<'_>,
    ) {
        if packet.headers.bth.opcode == Opcode::CNP {
            return self.handle_cnp(packet);
        }
        if let Err(reason) = self.admit(packet) {
            self.counters.drop(reason);
            return;
        }
        if packet.traffic_class & ECN == ECN {
            self.marked(packet, env.clock.now());
        }
        if self.attr.state == QpState::Err {
            self.responder.end_again(&ctx!(self), env.keys, packet, &mut self.counters);
            return;
        }
        if packet.headers.bth.opcode.is_response() {
            let mut answer = AnswerEnv {
                ctx: &ctx!(self),
                clock: env.clock,
                keys: env.keys,
                memory: env.memory,
                effects: env.effects,
                counters: &mut self.counters,
            };
            self.requester.handle_response(&mut answer, packet);
            self.settle(env.effects);
            return;
        }
        if !self.established && self.attr.state == QpState::Rtr {
            self.established = true;
            env.effects.events.push(QpEvent::CommEst);
        }
        // An XRC target has no protection domain of its own: that of the SRQ the packet names opens
        // memory to it.
        if let Some(xrc) = packet.headers.xrceth
            && self.config.qp_type == QpType::XrcRecv
            && let Some(pd) = env.srq.pd(xrc.srqn)
        {
            self.config.pd = pd;
        }
        let verdict = self.responder.handle_request(&ctx!(self), env, packet, &mut self.counters);
        self.apply(verdict, env.effects);
    }

    /// May [`Qp::take_turn`] have something to give or to do?
    #[inline]
    #[must_use]
    pub fn has_kept(&self) -> bool {
        !(self.responder.reorder.is_idle() && self.requester.reorder().is_idle())
    }
    /// The next packet that came early and whose turn it is. The host asks after each packet that
    /// it gave to [`Qp::handle_packet`], and gives this one next, until there is none.
    #[inline]
    pub fn take_turn(&mut self, now: Time) -> Option<Kept> {
        if !self.has_kept() {
            return None;
        }
        self.responder
            .take_turn(now, &mut self.counters)
            .or_else(|| self.requester.take_turn(now, &mut self.counters))
    }

    /// The checks of IBTA 9.6.1 that come before either half.
    fn admit(&self, packet: &Packet<'_>) -> Result<(), DropReason> {
        let bth = &packet.headers.bth;
        let (state, qp_type) = (self.attr.state, self.config.qp_type);
        // In ERR nothing is received but the request that led there, sent again: its NAK was lost.
        let ended_here =
            state == QpState::Err && bth.opcode.is_request() && self.responder.ended_at_or_after(bth.psn);
        if matches!(state, QpState::Reset | QpState::Init | QpState::Err) && !ended_here {
            return Err(DropReason::State);
        }
        if qp_type == QpType::RawPacket || bth.opcode.transport() != transport_of(qp_type) {
            return Err(DropReason::Transport);
        }
        let multicast = qp_type == QpType::Ud && bth.dest_qpn == MULTICAST_QPN;
        if bth.dest_qpn != self.config.qpn && !multicast {
            return Err(DropReason::DestQpn);
        }
        // The only entry of the P_Key table is the default partition, as a full member: it talks to
        // full and limited members alike (IBTA 10.9.3).
        if bth.pkey & 0x7fff != 0x7fff {
            return Err(DropReason::PKey);
        }
        // The host gives the zero GID as the source of a packet that it takes for forged.
        if packet.src == crate::Gid::default() || qp_type != QpType::Ud && packet.src != self.attr.av.dgid {
            return Err(DropReason::Source);
        }
        if bth.opcode.is_response() {
            if qp_type == QpType::XrcRecv {
                return Err(DropReason::Opcode);
            }
            if !matches!(state, QpState::Rts | QpState::Sqd) {
                return Err(DropReason::State);
            }
        } else if qp_type == QpType::XrcSend || !bth.opcode.is_request() {
            return Err(DropReason::Opcode);
        }
        Ok(())
    }

    /// The next thing to do; call until [`Output::Idle`].
    pub fn poll_output(&mut self, clock: &dyn Clock, keys: &KeyTable, effects: &mut Effects) -> Output<'_> {
        if let Some(verdict) = self.responder.take_fatal() {
            self.apply(verdict, effects);
        }
        if self.notifier.is_due() {
            self.accompany_ack();
            return Output::Packet(self.notification());
        }
        let sends = matches!(self.attr.state, QpState::Rts | QpState::Sqd);
        // A plain ACK goes last: it then leaves in the same run as the data, and the peer gets the
        // data sooner. It does not wait for a message of several packets: the peer would get the
        // answer to its request, with an event, before the request itself completes.
        let ack_last = self.responder.only_ack_waits() && !(sends && self.requester.is_at_long_message());
        if !ack_last && self.responder.has_output() && self.responder.prepare_response(&ctx!(self), keys) {
            self.accompany_ack();
            self.last_packet = Half::Responder;
            return Output::Packet(self.responder.response(&ctx!(self)));
        }
        if sends {
            match self.requester.poll(&ctx!(self), clock, keys, effects, &mut self.counters) {
                Step::Packet => {
                    self.accompany_ack();
                    self.last_packet = Half::Requester;
                    return Output::Packet(self.request());
                }
                Step::Key(op) => return Output::Key(op),
                Step::Idle => self.settle(effects),
            }
        }
        if ack_last && !self.delays_ack() && self.responder.prepare_response(&ctx!(self), keys) {
            self.last_packet = Half::Responder;
            return Output::Packet(self.responder.response(&ctx!(self)));
        }
        Output::Idle
    }
    /// The packet that the requester has made ready.
    #[inline]
    fn request(&self) -> Transmit<'_> {
        let ud = self.config.qp_type == QpType::Ud;
        let path = if ud { self.requester.ud_path() } else { &self.attr.av };
        let (source_port, traffic_class) = (ctx!(self).source_port(), ctx!(self).traffic_class(path));
        let (headers, payload) = (self.requester.headers(), self.requester.payload());
        Transmit { path, traffic_class, source_port, headers, payload }
    }
    /// Something leaves: an ACK that was delayed may leave behind it.
    #[inline]
    fn accompany_ack(&mut self) {
        if self.ack == AckDelay::Alone {
            self.ack = AckDelay::Accompanied;
        }
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
    /// Does a plain ACK wait, and nothing else, because the host delays it?
    #[inline]
    #[must_use]
    pub fn delays_ack(&self) -> bool {
        self.ack == AckDelay::Alone && self.responder.only_ack_waits()
    }
    /// From now on a plain ACK waits until something else leaves, so that both leave in one run; or
    /// it does so no more. The host sees to it that it does not wait for long.
    #[inline]
    pub fn delay_ack(&mut self, delay: bool) {
        self.ack = if delay { AckDelay::Alone } else { AckDelay::None };
    }
    /// While set, messages that need a receive find none, whatever is posted: a fault on request.
    pub fn hide_receives(&mut self, hide: bool) {
        self.responder.receives_hidden = hide;
    }
    /// The host performed (or refused) the last [`Output::Key`].
    pub fn key_op_done(&mut self, result: Result<(), Cause>, effects: &mut Effects) {
        self.requester.key_op_done(&self.config, result, effects);
        self.settle(effects);
    }
    /// The host could not read the payload of the last [`Output::Packet`], which it did not send.
    pub fn transmit_failed(&mut self, fault: MemoryFault, effects: &mut Effects) {
        match self.last_packet {
            Half::Requester => {
                self.requester.transmit_failed(fault.addr);
                self.settle(effects);
            }
            Half::Responder => {
                let verdict = self.responder.transmit_failed(&ctx!(self), fault, effects);
                self.apply(verdict, effects);
            }
        }
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
    /// Fails the queue pair from outside (its CQ overflowed, its SRQ failed): ERR, flushes,
    /// QP_FATAL.
    pub fn fail(&mut self, cause: Cause, effects: &mut Effects) {
        if matches!(self.attr.state, QpState::Reset | QpState::Err) {
            return;
        }
        let cause = Arc::new(cause);
        self.enter_error(Some(Arc::clone(&cause)), Some(QpEvent::Fatal(cause)), effects);
    }

    /// After a step of the requester: a failed request flushes the send queue, and a drained send
    /// queue is reported.
    fn settle(&mut self, effects: &mut Effects) {
        if let Some(cause) = self.requester.take_failure(&self.config, effects) {
            if self.config.qp_type.is_reliable() {
                self.enter_error(Some(cause), None, effects);
            } else {
                // UC and UD keep receiving (IBTA 10.3.1.6).
                self.attr.state = QpState::Sqe;
                self.attr.sq_draining = false;
                self.first_error = Some(cause);
                let cause = self.flush_cause();
                self.requester.flush(&self.config, &cause, effects, &mut self.counters);
            }
        }
        if self.attr.sq_draining && self.requester.is_drained() {
            self.attr.sq_draining = false;
            if self.attr.en_sqd_async_notify {
                effects.events.push(QpEvent::SqDrained);
            }
        }
    }

    fn apply(&mut self, verdict: Verdict, effects: &mut Effects) {
        match verdict {
            Verdict::Ok => {}
            Verdict::Fatal { cause, event } => self.enter_error(Some(cause), event, effects),
        }
    }

    /// To ERR: both queues are flushed in order. `None` is the consumer's own wish.
    fn enter_error(&mut self, cause: Option<Arc<Cause>>, event: Option<QpEvent>, effects: &mut Effects) {
        if self.attr.state == QpState::Err {
            return;
        }
        self.attr.state = QpState::Err;
        self.attr.sq_draining = false;
        self.first_error = cause;
        let cause = self.flush_cause();
        self.requester.flush(&self.config, &cause, effects, &mut self.counters);
        self.responder.flush(&self.config, &cause, effects, &mut self.counters);
        effects.events.extend(event);
        if self.config.uses_srq {
            // It takes no more from the SRQ; what it had taken is completed above (IBTA
            // 11.6.3.1.3).
            effects.events.push(QpEvent::LastWqeReached);
        }
    }

    fn flush_cause(&self) -> Arc<Cause> {
        Arc::new(Cause::Flushed { first: self.first_error.clone() })
    }
}

/// Copies the fields that `mask` names, but for the state.
fn copy_attributes(to: &mut QpAttr, from: &QpAttr, mask: AttrMask) {
    macro_rules! copy {
        ($($bit:ident: $($field:ident),+;)*) => {
            $(if mask.contains(AttrMask::$bit) { $(to.$field = from.$field;)+ })*
        };
    }
    copy! {
        EN_SQD_ASYNC_NOTIFY: en_sqd_async_notify;
        ACCESS_FLAGS: access;
        PKEY_INDEX: pkey_index;
        PORT: port_num;
        QKEY: qkey;
        AV: av;
        PATH_MTU: path_mtu;
        TIMEOUT: timeout;
        RETRY_CNT: retry_cnt;
        RNR_RETRY: rnr_retry;
        RQ_PSN: rq_psn;
        MAX_QP_RD_ATOMIC: max_rd_atomic;
        ALT_PATH: alt_av, alt_pkey_index, alt_port_num, alt_timeout;
        MIN_RNR_TIMER: min_rnr_timer;
        SQ_PSN: sq_psn;
        MAX_DEST_RD_ATOMIC: max_dest_rd_atomic;
        PATH_MIG_STATE: path_mig_state;
        DEST_QPN: dest_qpn;
        RATE_LIMIT: rate_limit;
    }
    // 24-bit fields: hardware looks at the low bits.
    to.rq_psn &= Psn::MASK;
    to.sq_psn &= Psn::MASK;
    to.dest_qpn &= QPN_MASK;
}
