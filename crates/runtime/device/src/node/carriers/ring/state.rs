//! The state of a queue pair for the ring carrier.
use crate::host::{Peer, Seen};
use crate::node::carriers::decorate::Hold;
use adverb_engine::keys::MappedRegion;
use adverb_shm::QpEntry;
use std::sync::Arc;

/// The state of a queue pair for the ring carrier.
#[derive(Debug, Default)]
pub(crate) struct Connected {
    /// The process of the queue pair's peer, if a ring leads there.
    pub(in crate::node) peer: Option<Arc<Peer>>,
    /// A packet of the peer arrived through a ring.
    pub(in crate::node) heard: bool,
    /// Messages are cut by the MTU of the ring.
    pub(in crate::node) long: bool,
    /// The published entry of this queue pair. While set, peers may perform one-sided operations on
    /// the queue pair and fetch payloads by reference.
    pub(in crate::node) shown: Option<QpEntry>,
    /// Peers on this host may be at work on this queue pair by an entry published since the last
    /// wait for peers.
    pub(in crate::node) unsettled: bool,
    /// Number of calls of [`Rings::take_offers_back`](super::Rings::take_offers_back) without their
    /// call of `offer_again` yet. The reason is the end of this queue pair, or another queue pair
    /// on the same shared receive queue. While the number is above 0, the queue pair offers no
    /// receives.
    pub(in crate::node) closing: u32,
    /// Payloads are copied into the peer's ring for now.
    pub(in crate::node) copies: bool,
    /// [`QpEntry::epoch`].
    pub(in crate::node) epoch: u32,
    /// Entries seen in the peer's tables.
    pub(in crate::node) seen: Seen,
    /// What the last one-sided request knew of this process's own memory.
    pub(in crate::node) local: Local,
    /// The offered receives: all with a number below the first value, in the key generation of the
    /// second.
    pub(in crate::node) offered: (u64, u64),
    /// What the queue pair knows of its messages to the peer.
    pub(in crate::node) sent: Sent,
    /// The delay of one-sided requests.
    pub(in crate::node) hold: Hold,
}

/// The memory region of a local key, as found last: see [`crate::host`].
#[derive(Debug, Default)]
pub(in crate::node) struct Local {
    pub(super) known: Option<MappedRegion>,
    /// [`HostConnections::own_keys`](crate::host::HostConnections::own_keys) at the time of the
    /// look-up. `known` is valid while the number is the same.
    pub(super) keys: u64,
}

/// What a queue pair knows of its messages (`message`).
#[derive(Debug, Default)]
pub(in crate::node) struct Sent {
    /// The number of the peer's next receive. `None`: read from the peer's offers first.
    pub(in crate::node) receive: Option<u64>,
    /// The ring position behind the last message to the peer. Later operations may become visible
    /// to the peer's program only after the peer has placed this message.
    pub(in crate::node) unread: Option<u64>,
}

impl Sent {
    /// Has the peer placed all messages?
    #[inline]
    pub(in crate::node) fn is_placed(&mut self, peer: &Peer) -> bool {
        if let Some(position) = self.unread
            && peer.tx_ring().is_some_and(|mut tx_ring| tx_ring.has_read(position))
        {
            self.unread = None;
        }
        self.unread.is_none()
    }
}

impl Connected {
    /// Do packets of this queue pair go through the rings of a peer?
    pub(crate) fn is_near(&self) -> bool {
        self.peer.is_some()
    }

    /// The peer, if the peer may fetch payloads from this process.
    pub(crate) fn fetching_peer(&self) -> Option<Arc<Peer>> {
        self.peer.clone().filter(|_| self.shown.is_some())
    }

    /// Packets go through the rings of `peer` from now on. `engine` learns the MTU of the peer.
    pub(crate) fn meet(&mut self, engine: &mut adverb_engine::Qp, peer: Arc<Peer>) {
        engine.leave_network(peer.mtu());
        self.long = true;
        self.peer = Some(peer);
    }
}
