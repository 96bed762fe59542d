//! The end of what is shared with a peer: a key, or all of it.
use super::Node;
use crate::host::{Peer, SETTLE};
use adverb_engine::Key;
use std::sync::Arc;

impl Node {
    /// Takes a key back from peers, and waits until nobody uses it.
    pub(crate) fn withdraw_key(&self, key: Key) {
        if let Some(lanes) = &self.lanes {
            lanes.remove_key(key);
        }
        self.settle();
    }

    /// After a change of what peers may do, which they have not yet seen: waits until nobody is at
    /// work by what was allowed before, however long it takes. The program has its memory back.
    pub(crate) fn settle(&self) {
        if let Some(lanes) = &self.lanes {
            lanes.settle(SETTLE, |peer, why| self.leave(peer, why));
        }
    }

    /// Leaves peers that have ended; rare, from the background thread.
    pub(super) fn look_for_ends(&self) {
        let Some(lanes) = self.lanes.as_ref().filter(|lanes| lanes.any()) else { return };
        lanes.ready().iter().filter(|peer| peer.has_ended()).for_each(|peer| self.see_end(peer));
    }

    /// Leaves a peer that has ended.
    pub(crate) fn see_end(&self, peer: &Arc<Peer>) {
        // What it wrote before it ended counts.
        self.receive_ring(peer);
        self.leave(peer, "has ended");
    }

    /// A peer is used no more: it has ended, or cannot be trusted. Its partners' requests fail.
    pub(crate) fn leave(&self, peer: &Arc<Peer>, why: &str) {
        if !peer.leave() {
            return;
        }
        log::info!("process {} {why}", peer.pid());
        if let Some(lanes) = &self.lanes {
            lanes.remove(peer);
        }
        for qp in peer.take_connected().into_iter().filter_map(|qpn| self.qp(qpn)) {
            self.pump_soon(&qp);
        }
        self.wake_thread();
    }
}
