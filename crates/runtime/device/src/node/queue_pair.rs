//! A queue pair as the node knows it: its engine, how far its packets have come, and by a trait
//! whatever the object above does with what the engine says.
use super::Node;
use super::backlog::Backlog;
use super::early::{KeptFrames, Stash};
use crate::async_event::AsyncEvent;
use crate::counts::Attached;
use crate::faults::QpFaults;
use crate::host::{Peer, Seen};
use crate::ranks;
use adverb_engine::qp::NoRecv;
use adverb_engine::{
    AddressVector, Cause, Completion, CqRef, Gid, PdId, QpEvent, QpType, RecvWqe, Rendezvous, Time,
};
use adverb_link::shm::QpEntry;
use adverb_link::{RawFrame, Route};
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
    /// Receives in its shared queue; `None`: its receives are its own.
    fn shared_receives(&self) -> Option<usize>;
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
    /// Sends frames; what is lost is lost, as on any network.
    fn send(&self, node: &Node, frames: Vec<Vec<u8>>);
    /// Who gets a frame that came.
    fn takers(&self, frame: &RawFrame) -> Vec<Arc<AnyQp>>;
}

/// What is locked while somebody works on a queue pair.
#[derive(Debug)]
pub(crate) struct QpInner {
    pub(crate) engine: adverb_engine::Qp,
    /// The route of the address vector used last.
    pub(super) route: Option<(AddressVector, Route)>,
    /// Packets for other processes of this host that wait for these to take earlier ones (UC, UD).
    pub(crate) backlog: Backlog,
    /// Packets of other processes of this host that came before their receive (UC, UD).
    pub(super) stash: Stash,
    /// Frames that came before their receive.
    pub(super) frames: KeptFrames,
    /// The last request came from its process directly: the answer goes the same way.
    pub(super) direct: bool,
    /// Requests committed and not yet looked at, and their bytes.
    pub(crate) waiting: (usize, usize),
    /// Chains of requests committed, and requests in them (DEF-8).
    pub(crate) handovers: (u64, u64),
    /// When it was pumped last.
    pub(crate) pumped: Time,
    /// The process of its peer, if that needs no network.
    pub(crate) peer: Option<Arc<Peer>>,
    /// A packet of its peer came through a ring.
    pub(super) heard: bool,
    /// Its messages are cut by the MTU of that ring.
    pub(super) long: bool,
    /// As what peers on this host see it; they may use it then, and payloads that it only points
    /// at.
    pub(super) shown: Option<QpEntry>,
    /// Peers on this host may be at work in it, by what they saw of it since the last wait for
    /// them.
    pub(super) unsettled: bool,
    /// Payloads are copied into the peer's ring for now.
    pub(crate) copies: bool,
    /// [`QpEntry::epoch`].
    pub(crate) epoch: u32,
    /// What it saw of the peer's tables.
    pub(super) seen: Seen,
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
            route: None,
            backlog: Backlog::default(),
            stash: Stash::default(),
            frames: KeptFrames::default(),
            direct: false,
            waiting: (0, 0),
            handovers: (0, 0),
            pumped: Time::ZERO,
            peer: None,
            heard: false,
            long: false,
            shown: None,
            unsettled: false,
            copies: false,
            epoch: 0,
            seen: Seen::default(),
            faults,
            attached: None,
            rendezvous: VecDeque::new(),
        };
        QueuePair {
            number,
            qp_type,
            inner: Ranked::new(inner),
            timer_at: AtomicU64::new(u64::MAX),
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

impl QpInner {
    /// Peers on this host see it.
    pub(crate) fn is_shown(&self) -> bool {
        self.shown.is_some()
    }

    /// Its packets go through the rings of a peer from now on.
    pub(crate) fn meet(&mut self, peer: Arc<Peer>) {
        self.engine.leave_network(peer.mtu());
        self.long = true;
        self.peer = Some(peer);
    }

    /// Nothing of a peer is kept: neither its memory, nor what its tables said, which the next
    /// one's may number alike, nor packets that came before their receive.
    pub(crate) fn part(&mut self) {
        self.stash.clear();
        self.frames.clear();
        self.peer = None;
        self.heard = false;
        self.long = false;
        self.seen = Seen::default();
    }
}
