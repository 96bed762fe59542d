//! A queue pair as the node sees it: the engine, the state of the carriers, and a trait for the
//! object above.
use super::carriers::Carried;
use super::carriers::wire::Wire;
use super::traffic::Traffic;
use crate::async_event::AsyncEvent;
use crate::counts::Attached;
use crate::faults::{OutageKind, QpFaults};
use crate::ranks;
use crate::snapshot::Queue;
use adverb_engine::qp::{NoRecv, RecvSource};
use adverb_engine::{
    Cause, Completion, CqRef, Gid, PdId, QpEvent, QpType, RecvWqe, Rendezvous, Time, Unfit,
};
use adverb_local::RawFrame;
use adverb_steering::Frame;
use adverb_sync::Ranked;
use std::any::Any;
use std::collections::VecDeque;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// A queue pair. `O` is the object's part. One allocation holds both.
#[derive(Debug)]
pub struct QueuePair<O: ?Sized> {
    number: u32,
    qp_type: QpType,
    pub(crate) inner: Ranked<QpInner, ranks::QueuePair>,
    /// Time of its entry in the timer queue, `u64::MAX` without an entry. Changed under the lock of
    /// `inner`.
    pub(super) timer_at: AtomicU64,
    /// The last chain of requests began with one-sided requests that were performed at once.
    pub(crate) posts_one_sided: AtomicBool,
    /// Listed for the next poll.
    pub(super) pending: AtomicBool,
    /// Already listed among the queue pairs of the current batch of packets.
    pub(super) touched: AtomicBool,
    /// The interface for its frames, for raw packet queue pairs.
    pub(super) port: Option<Arc<dyn FramePort>>,
    pub(crate) own: O,
}

/// Any queue pair.
pub(crate) type AnyQp = QueuePair<dyn Owner>;

/// A shared receive queue.
pub(crate) type SharedQueue = Ranked<adverb_engine::Srq, ranks::SharedReceives>;

/// A completion queue, as the node sees it.
pub(crate) trait CompletionQueue: Send + Sync {
    /// The number of the queue.
    fn number(&self) -> u32;
    /// The entry of the timer queue at `at` is due.
    fn timer_due(self: Arc<Self>, at: Time, now: Time);
    /// The watch's entry of the timer queue is due.
    fn watch_due(self: Arc<Self>, now: Time);
    /// The state of the queue. `closely`: with the threads that wait for the queue's events, which
    /// costs a few system calls a thread.
    fn show(self: Arc<Self>, now: Time, closely: bool) -> Queue;
    /// Makes an event without a completion, because no completion can come any more.
    fn announce(self: Arc<Self>);
}

/// The object of a queue pair, as the node sees it. Called under the queue pair's lock, except for
/// [`Owner::me`] and [`Owner::spread`].
pub(crate) trait Owner: Any + Debug + Send + Sync {
    /// The queue pair. `None` while the object is being dropped.
    fn me(&self) -> Option<Arc<AnyQp>>;
    /// The name of the device.
    fn device(&self) -> &str;
    /// Adds a completion to a queue, if there is a queue.
    fn complete(&self, to: CqRef, completion: Completion) -> Result<(), Cause>;
    /// Tells the program of an event.
    fn raise(&self, event: QpEvent);
    /// Tells the program of an event on request, about the queue pair or its port.
    fn raise_injected(&self, event: AsyncEvent);
    /// The completion queues, for sends and for receives.
    fn queues(&self) -> [Option<Arc<dyn CompletionQueue>>; 2];
    /// The shared receive queue. `None`: the queue pair has its own receives.
    fn shared(&self) -> Option<&SharedQueue>;
    /// The number of the shared receive queue, and its receives. Of an XRC target: the queue that
    /// last had no receive for a message.
    fn shared_receives(&self) -> Option<(u32, usize)>;
    /// Does the shared queue match tags?
    fn matches_tags(&self) -> bool;
    /// Takes a receive from the shared queue, or from the XRC shared queue named by a packet.
    fn take_receive(&self, xrc_srqn: Option<u32>) -> Result<RecvWqe, NoRecv>;
    /// Takes the receive for a message that begins with `first`, from a queue that matches tags.
    fn take_matching(&self, first: &[u8]) -> Result<RecvWqe, NoRecv>;
    /// The protection domain of an XRC shared receive queue.
    fn xrc_pd(&self, xrc_srqn: u32) -> Option<PdId>;
    /// Is a multicast packet of this sender kept from the queue pair? The queue pair may have asked
    /// not to receive its own packets.
    fn blocks_own(&self, number: u32, src: &Gid, src_qpn: u32) -> bool;
    /// The queue pair that gets a frame of this queue pair's flows, if another queue pair gets it.
    fn spread(&self, frame: &Frame) -> Option<Arc<AnyQp>>;
}

/// The shared receive queues known to an object, while a packet is handled.
pub(super) struct Receives<'a>(pub(super) &'a dyn Owner);

impl RecvSource for Receives<'_> {
    fn pop(&mut self, xrc_srqn: Option<u32>) -> Result<RecvWqe, NoRecv> {
        self.0.take_receive(xrc_srqn)
    }
    fn pop_message(&mut self, first: &[u8]) -> Result<RecvWqe, NoRecv> {
        self.0.take_matching(first)
    }
    fn pd(&mut self, xrc_srqn: u32) -> Option<PdId> {
        self.0.xrc_pd(xrc_srqn)
    }
}

/// An interface with raw packet queue pairs.
pub(crate) trait FramePort: Any + Debug + Send + Sync {
    /// Sends frames. Lost frames are lost, as on any network. `true`: flows of this process took
    /// some frames, which were kept for them.
    fn send(&self, link: &Wire, frames: Vec<Vec<u8>>) -> bool;
    /// The queue pairs that get an arrived frame.
    fn takers(&self, frame: &RawFrame) -> Vec<Arc<AnyQp>>;
}

/// Committed requests that no pump has looked at yet.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Waiting {
    pub(crate) requests: usize,
    pub(crate) bytes: usize,
}

/// All commits of a queue pair (DEF-8).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Commits {
    /// Chains of requests.
    pub(crate) chains: u64,
    /// Requests in these chains.
    pub(crate) requests: u64,
}

/// The part of a queue pair under its lock.
#[derive(Debug)]
pub(crate) struct QpInner {
    pub(crate) engine: adverb_engine::Qp,
    /// The state of its carriers.
    pub(crate) carried: Carried,
    pub(crate) waiting: Waiting,
    /// An adversary keeps the requests in the send queue for a while.
    pub(crate) kept: bool,
    /// An adversary loses what leaves.
    pub(crate) loses: bool,
    pub(crate) commits: Commits,
    /// Messages and bytes.
    pub(crate) traffic: Traffic,
    /// Faults on request.
    pub(crate) faults: Option<QpFaults>,
    /// The outage of the device. No packet reaches or leaves the queue pair meanwhile.
    pub(crate) outage: Option<OutageKind>,
    /// The completion counters.
    pub(crate) attached: Option<Box<Attached>>,
    /// Data of peers that the tag matching SRQ has to read, and has not begun to read.
    pub(crate) rendezvous: VecDeque<Rendezvous>,
    /// The first message that was dropped because its receive is too short.
    pub(crate) unfit: Option<Unfit>,
}

impl<O> QueuePair<O> {
    /// A queue pair for an engine in RESET.
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
            waiting: Waiting::default(),
            kept: false,
            loses: false,
            commits: Commits::default(),
            traffic: Traffic::default(),
            faults,
            outage: None,
            attached: None,
            rendezvous: VecDeque::new(),
            unfit: None,
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
    /// The queue pair number.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }
    /// The transport.
    #[must_use]
    pub fn qp_type(&self) -> QpType {
        self.qp_type
    }
}
