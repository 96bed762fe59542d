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
    /// Payloads are copied into the peer's ring for now.
    pub(in crate::node) copies: bool,
    /// [`QpEntry::epoch`].
    pub(in crate::node) epoch: u32,
    /// Entries seen in the peer's tables.
    pub(in crate::node) seen: Seen,
    /// What the last one-sided request knew of this process's own memory.
    pub(in crate::node) local: Local,
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
        engine.leave_network(peer.mtu);
        self.long = true;
        self.peer = Some(peer);
    }
}
