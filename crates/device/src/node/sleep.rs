//! Going to sleep where peers on this host see it: they ring a bell then.
use crate::lanes::{Lanes, Peer};
use crate::node::Node;
use std::sync::Arc;

/// While it lives the thread counts as asleep.
pub(crate) struct Asleep<'a> {
    lanes: Option<&'a Lanes>,
    /// Something has come already.
    pub(crate) needless: bool,
}

impl Drop for Asleep<'_> {
    fn drop(&mut self) {
        if let Some(lanes) = self.lanes {
            lanes.awake();
        }
    }
}

impl Node {
    /// The thread is about to sleep on [`Node::packets_fd`].
    pub(crate) fn sleeps(&self) -> Asleep<'_> {
        let lanes = self.lanes.as_ref();
        let needless = lanes.is_some_and(|lanes| {
            lanes.sleeps();
            lanes.any() && self.rings_hold(lanes)
        });
        Asleep { lanes, needless }
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
}
