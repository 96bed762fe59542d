//! The path of arrived packets through the decorators.
use super::captured::Captured;
use super::faulty::Faulty;
use super::inlet::{Arrival, Fate, Inlet, ToQueuePair};
use super::state::Taps;
use crate::host::Peer;
use crate::node::batch::Batch;
use crate::node::core::Node;
use crate::node::queue_pair::QpInner;
use crate::node::tx::Tx;
use std::sync::Arc;

impl Taps {
    /// Handles an arrived packet. If packets may be delayed ([`Taps::is_lossy`]), the packet
    /// contains its payload. `arrived_at`: [`Batch::arrived_at`].
    #[cold]
    #[inline(never)]
    pub(in crate::node) fn arrive(
        &self,
        node: &Node,
        (tx, arrived_at): (&mut Tx, &mut Option<u64>),
        inner: &mut QpInner,
        arrival: &Arrival<'_>,
    ) {
        let to = ToQueuePair { node, tx };
        let fate = Fate::default();
        match (&self.profile, &self.tape) {
            (None, None) => { to }.take(inner, arrival, &fate),
            (None, Some(tape)) => {
                Captured::new(to, tape, node, arrived_at).take(inner, arrival, &fate)
            }
            (Some(profile), None) => Faulty::new(to, profile, node).take(inner, arrival, &fate),
            (Some(profile), Some(tape)) => {
                let inlet = Captured::new(to, tape, node, arrived_at);
                Faulty::new(inlet, profile, node).take(inner, arrival, &fate);
            }
        }
    }

    /// Gives packets to their queue pairs and continues one-sided requests, if their delay is over.
    /// `true` if there were any.
    pub(in crate::node) fn release(&self, node: &Node, batch: &mut Batch) -> bool {
        self.profile.as_ref().is_some_and(|profile| profile.release(node, batch))
    }

    /// A peer has ended: its delayed packets arrive now.
    pub(in crate::node) fn release_of(&self, node: &Node, batch: &mut Batch, peer: &Arc<Peer>) {
        if let Some(profile) = &self.profile {
            profile.release_of(node, batch, peer);
        }
    }
}
