//! The queue pair.
use crate::attr::{AttrError, AttrMask, QpAttr, QpCap};
use crate::cause::Cause;
use crate::effects::{Effects, QpEvent};
use crate::keys::KeyTable;
use crate::memory::{Memory, MemoryFault};
use crate::packet::{Output, Packet};
use crate::time::Time;
use crate::types::{Limits, PathMtu, PdId, QpState, QpType, Qpn};
use crate::wr::{PostError, RecvWqe, RecvWr, SendWr};
use alloc::sync::Arc;

mod counters;
mod recv_queue;
mod requester;
mod responder;
mod send_queue;
#[cfg(test)]
mod tests;

pub use counters::{Counters, DropReason};
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
    /// Bytes a requester keeps unacknowledged at most, so that it does not overrun the socket buffers on the way
    /// ([`QpConfig::MAX_INFLIGHT`] is a good value). Responses to reads are counted by the same measure.
    pub max_inflight: u32,
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
    /// It goes to ERR. The receive at fault is completed already and a NAK, if due, is queued in the responder, which
    /// is polled for it in ERR too. The frame flushes the rest and raises `event`.
    Fatal { cause: Arc<Cause>, event: Option<QpEvent> },
}

/// Where receives of an SRQ (or of the XRC SRQ that a packet names) come from.
pub trait RecvSource {
    /// Takes a receive. `xrc_srqn` is the SRQ number of an XRC packet, `None` on RC and UD.
    fn pop(&mut self, xrc_srqn: Option<u32>) -> Result<RecvWqe, NoRecv>;
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
    /// Now.
    pub now: Time,
    /// Keys of the device.
    pub keys: &'a KeyTable,
    /// Memory.
    pub memory: &'a M,
    /// SRQ of the queue pair.
    pub srq: &'a mut S,
    /// Outcome.
    pub effects: &'a mut Effects,
}

/// A queue pair.
#[derive(Debug)]
pub struct Qp {
    config: QpConfig,
    attr: QpAttr,
    requester: Requester,
    // Contract: new(&QpConfig), reset(), start(&QpAttr), update(&QpAttr), post_recv(&QpConfig, &RecvWr),
    // handle_request(&QpCtx, &mut Env, &Packet, &mut Counters) -> Verdict,
    // in two steps, as the borrow checker needs it (a conditional return of a borrow blocks the error flow):
    //   prepare_response(&mut self, &QpCtx<'_>, now, keys, memory, effects) -> bool (a response is ready), then
    //   response<'a>(&'a self, &QpCtx<'a>) -> Transmit<'a> (hands out the one just prepared),
    // take_fatal() -> Option<Verdict> (a failure found by poll_response; asked at the next step),
    // transmit_failed(&QpCtx, MemoryFault, effects) -> Verdict (the payload of its last packet faulted),
    // has_output(), flush(&QpConfig, &Arc<Cause>, effects) (keeps a queued NAK).
    responder: Responder,
    first_error: Option<Arc<Cause>>,
    counters: Counters,
}

impl Qp {
    /// A queue pair in RESET.
    #[must_use]
    pub fn new(config: QpConfig) -> Self {
        let _ = config;
        unimplemented!()
    }
    /// What it was created with.
    #[must_use]
    pub fn config(&self) -> &QpConfig {
        unimplemented!()
    }
    /// Its state.
    #[must_use]
    pub fn state(&self) -> QpState {
        unimplemented!()
    }
    /// All attributes (`ibv_query_qp`).
    #[must_use]
    pub fn query(&self) -> QpAttr {
        unimplemented!()
    }
    /// Changes attributes and state. On refusal nothing changed. A move to ERR flushes into `effects`.
    pub fn modify(
        &mut self,
        attr: &QpAttr,
        mask: AttrMask,
        limits: &Limits,
        now: Time,
        effects: &mut Effects,
    ) -> Result<(), AttrError> {
        let _ = (attr, mask, limits, now, effects);
        unimplemented!()
    }
    /// Queues a send request without handing it over yet (DEF-2): [`Qp::commit_sends`] does.
    /// In SQE and ERR it is accepted and flushed at the commit.
    pub fn stage_send(&mut self, wr: &SendWr<'_>) -> Result<(), PostError> {
        let _ = wr;
        unimplemented!()
    }
    /// Hands over everything staged and answers how many requests that was.
    pub fn commit_sends(&mut self, effects: &mut Effects) -> usize {
        let _ = effects;
        unimplemented!()
    }
    /// Forgets everything staged since the last commit (`ibv_wr_abort`).
    pub fn abort_sends(&mut self) {
        unimplemented!()
    }
    /// Queues a receive. In ERR it is flushed at once.
    pub fn post_recv(&mut self, wr: &RecvWr<'_>, effects: &mut Effects) -> Result<(), PostError> {
        let _ = (wr, effects);
        unimplemented!()
    }
    /// Takes a packet that names this QP. Cannot fail: a bad packet is a counted drop or a NAK.
    pub fn handle_packet<M: Memory + ?Sized, S: RecvSource + ?Sized>(&mut self, env: &mut Env<'_, M, S>, packet: &Packet<'_>) {
        let _ = (env, packet);
        unimplemented!()
    }
    /// The next thing to do; call until [`Output::Idle`].
    pub fn poll_output<M: Memory + ?Sized>(
        &mut self,
        now: Time,
        keys: &KeyTable,
        memory: &M,
        effects: &mut Effects,
    ) -> Output<'_> {
        let _ = (now, keys, memory, effects);
        unimplemented!()
    }
    /// The host performed (or refused) the last [`Output::Key`].
    pub fn key_op_done(&mut self, result: Result<(), Cause>, now: Time, effects: &mut Effects) {
        let _ = (result, now, effects);
        unimplemented!()
    }
    /// The host could not read the payload of the last [`Output::Packet`], which it did not send.
    pub fn transmit_failed(&mut self, fault: MemoryFault, now: Time, effects: &mut Effects) {
        let _ = (fault, now, effects);
        unimplemented!()
    }
    /// When [`Qp::handle_timeout`] wants to be called.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        unimplemented!()
    }
    /// Time has come.
    pub fn handle_timeout(&mut self, now: Time, effects: &mut Effects) {
        let _ = (now, effects);
        unimplemented!()
    }
    /// Fails the queue pair from outside (its CQ overflowed, its SRQ failed): ERR, flushes, QP_FATAL.
    pub fn fail(&mut self, cause: Cause, effects: &mut Effects) {
        let _ = (cause, effects);
        unimplemented!()
    }
}
