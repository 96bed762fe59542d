//! A queue pair as the node knows it: its engine, how far its packets have come, and by a trait
//! whatever the object above does with what the engine says.
use super::carriers::Carried;
use super::carriers::wire::Wire;
use super::shared_queue::SharedQueue;
use crate::async_event::AsyncEvent;
use crate::counts::Attached;
use crate::faults::QpFaults;
use crate::ranks;
use adverb_engine::qp::NoRecv;
use adverb_engine::{Cause, Completion, CqRef, Gid, PdId, QpEvent, QpType, RecvWqe, Rendezvous};
use adverb_local::RawFrame;
use adverb_steering::Frame;
use adverb_sync::Ranked;
use std::any::Any;
use std::collections::VecDeque;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// A queue pair; `O` is what the object above adds. One allocation holds both.
#[derive(Debug)]
pub struct QueuePair<O: ?Sized> {
    number: u32,
    qp_type: QpType,
    pub(crate) inner: Ranked<QpInner, ranks::QueuePair>,
    /// Its entry in the timer queue; `u64::MAX` without one. Changed under the lock of `inner`.
    pub(super) timer_at: AtomicU64,
    /// Its last chain of requests began with one-sided ones that were performed at once.
    pub(crate) posts_one_sided: AtomicBool,
    /// Listed among those that wait for the next poll.
    pub(super) pending: AtomicBool,
    /// Already listed among those that the current batch of packets touched.
    pub(super) touched: AtomicBool,
    /// Where it sends frames, of raw packet queue pairs.
    pub(super) port: Option<Arc<dyn FramePort>>,
    pub(crate) own: O,
}

/// Any queue pair.
pub(crate) type AnyQp = QueuePair<dyn Owner>;

/// What a node asks of the object whose queue pair it is. Called under the queue pair's lock, but
/// for [`Owner::me`] and [`Owner::spread`].
pub(crate) trait Owner: Any + Debug + Send + Sync {
    /// The queue pair; `None` while it is being dropped.
    fn me(&self) -> Option<Arc<AnyQp>>;
    /// Adds a completion to a queue, if there is one.
    fn complete(&self, to: CqRef, completion: Completion) -> Result<(), Cause>;
    /// Tells the program of an event.
    fn raise(&self, event: QpEvent);
    /// Tells the program of an event, about the queue pair or its port, that was asked for.
    fn raise_injected(&self, event: AsyncEvent);
    /// Its shared queue; `None`: its receives are its own.
    fn shared(&self) -> Option<&SharedQueue>;
    /// The receives of its shared queue have become fewer than its program wants to be told of.
    fn limit_reached(&self);
    /// Is its shared queue one that matches tags?
    fn matches_tags(&self) -> bool;
    /// Takes a receive from its shared queue, or from the XRC one that a packet names.
    fn take_receive(&self, xrc_srqn: Option<u32>) -> Result<RecvWqe, NoRecv>;
    /// Takes the receive of a message that begins with `first`, from a queue that matches tags.
    fn take_matching(&self, first: &[u8]) -> Result<RecvWqe, NoRecv>;
    /// The protection domain of an XRC shared receive queue.
    fn xrc_pd(&self, xrc_srqn: u32) -> Option<PdId>;
    /// Is a group's packet of this sender kept from it? It may have asked to be spared its own.
    fn blocks_own(&self, number: u32, src: &Gid, src_qpn: u32) -> bool;
    /// Who gets a frame that its flows took, if it is another queue pair.
    fn spread(&self, frame: &Frame) -> Option<Arc<AnyQp>>;
}

/// An interface with raw packet queue pairs.
pub(crate) trait FramePort: Any + Debug + Send + Sync {
    /// Sends frames; what is lost is lost, as on any network. `true`: flows of this process took
    /// some, which were kept for them.
    fn send(&self, link: &Wire, frames: Vec<Vec<u8>>) -> bool;
    /// Who gets a frame that came.
    fn takers(&self, frame: &RawFrame) -> Vec<Arc<AnyQp>>;
}

/// What is locked while somebody works on a queue pair.
#[derive(Debug)]
pub(crate) struct QpInner {
    pub(crate) engine: adverb_engine::Qp,
    /// Of what carries its packets.
    pub(crate) carried: Carried,
    /// Requests committed and not yet looked at, and their bytes.
    pub(crate) waiting: (usize, usize),
    /// Chains of requests committed, and requests in them (DEF-8).
    pub(crate) handovers: (u64, u64),
    /// What is to befall it on request.
    pub(crate) faults: Option<QpFaults>,
    /// Its completion counters.
    pub(crate) attached: Option<Box<Attached>>,
    /// What its tag matching SRQ has to read for peers, and has not begun with.
    pub(crate) rendezvous: VecDeque<Rendezvous>,
}

impl<O> QueuePair<O> {
    /// That of an engine in RESET.
    pub(crate) fn of(
        engine: adverb_engine::Qp,
        faults: Option<QpFaults>,
        port: Option<Arc<dyn FramePort>>,
        own: O,
    ) -> Self {
        let (number, qp_type) = (engine.config().qpn, engine.config().qp_type);
        let inner = QpInner {
            engine,
            carried: Carried::default(),
            waiting: (0, 0),
            handovers: (0, 0),
            faults,
            attached: None,
            rendezvous: VecDeque::new(),
        };
        QueuePair {
            number,
            qp_type,
            inner: Ranked::new(inner),
            timer_at: AtomicU64::new(u64::MAX),
            posts_one_sided: AtomicBool::new(false),
            pending: AtomicBool::new(false),
            touched: AtomicBool::new(false),
            port,
            own,
        }
    }
}

impl<O: ?Sized> QueuePair<O> {
    /// Its number.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }
    /// Its transport.
    #[must_use]
    pub fn qp_type(&self) -> QpType {
        self.qp_type
    }
}
