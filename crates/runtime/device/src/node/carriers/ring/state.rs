//! What a queue pair keeps for this carrier.
use crate::host::{Peer, Seen};
use crate::node::carriers::decorate::Hold;
use adverb_engine::keys::MappedRegion;
use adverb_shm::QpEntry;
use std::sync::Arc;

/// What a queue pair keeps for this carrier.
#[derive(Debug, Default)]
pub(crate) struct Connected {
    /// The process of its peer, if that needs no network.
    pub(in crate::node) peer: Option<Arc<Peer>>,
    /// A packet of its peer came through a ring.
    pub(in crate::node) heard: bool,
    /// Its messages are cut by the MTU of that ring.
    pub(in crate::node) long: bool,
    /// As what peers on this host see it; they may use it then, and payloads that it only points
    /// at.
    pub(in crate::node) shown: Option<QpEntry>,
    /// Peers on this host may be at work in it, by what they saw of it since the last wait for
    /// them.
    pub(in crate::node) unsettled: bool,
    /// Threads that have taken its offers back, for its end or for one that takes from the same
    /// queue, and are not done with it. It offers no receives meanwhile.
    pub(in crate::node) closing: u32,
    /// Payloads are copied into the peer's ring for now.
    pub(in crate::node) copies: bool,
    /// [`QpEntry::epoch`].
    pub(in crate::node) epoch: u32,
    /// What it saw of the peer's tables.
    pub(in crate::node) seen: Seen,
    /// What its last one-sided request knew of this process's own memory.
    pub(in crate::node) local: Local,
    /// Receives that it offers to the peer: those before this number, in this generation of keys.
    pub(in crate::node) offered: (u64, u64),
    /// What it knows of its messages to the peer.
    pub(in crate::node) sent: Sent,
    /// The delay of its one-sided requests.
    pub(in crate::node) hold: Hold,
}

/// What a local key opens, as a queue pair found it last: see [`crate::host`].
#[derive(Debug, Default)]
pub(in crate::node) struct Local {
    pub(super) known: Option<MappedRegion>,
    /// [`Lanes::own_keys`](crate::host::Lanes::own_keys) at the look-up. What is known holds while
    /// the number is the same.
    pub(super) keys: u64,
}

/// What a queue pair knows of its messages (`message`).
#[derive(Debug, Default)]
pub(in crate::node) struct Sent {
    /// The next receive of the peer's; `None`: the peer is to be asked.
    pub(in crate::node) receive: Option<u64>,
    /// Behind its last message in the ring to the peer. What comes after that message may be seen
    /// by the peer's program when the message has been placed, and not before.
    pub(in crate::node) unread: Option<u64>,
}

impl Sent {
    /// Has the peer placed all messages?
    #[inline]
    pub(in crate::node) fn is_placed(&mut self, peer: &Peer) -> bool {
        if let Some(position) = self.unread
            && peer.lane().is_some_and(|mut lane| lane.has_read(position))
        {
            self.unread = None;
        }
        self.unread.is_none()
    }
}

impl Connected {
    /// Do its packets go through the rings of a peer?
    pub(crate) fn is_near(&self) -> bool {
        self.peer.is_some()
    }

    /// The peer, if it may point at payloads in this process.
    pub(crate) fn fetching_peer(&self) -> Option<Arc<Peer>> {
        self.peer.clone().filter(|_| self.shown.is_some())
    }

    /// Packets go through the rings of a peer from now on, which `engine` is told.
    pub(crate) fn meet(&mut self, engine: &mut adverb_engine::Qp, peer: Arc<Peer>) {
        engine.leave_network(peer.mtu());
        self.long = true;
        self.peer = Some(peer);
    }
}
