//! The path of arrived packets through the decorators.
use super::captured::Captured;
use super::faulty::Faulty;
use super::inlet::{Arrival, Fate, Inlet, ToQueuePair};
use super::state::{FaultProfile, Taps};
use crate::node::core::Node;
use crate::node::queue_pair::QpInner;
use crate::node::tx::Tx;

impl Taps {
    /// Handles an arrived packet. If there are packet faults, the packet
    /// contains its payload. `arrived_at`: `Batch::arrived_at`.
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
}

impl Node {
    /// The packet faults.
    #[inline]
    pub(in crate::node) fn packet_faults(&self) -> Option<&FaultProfile> {
        self.taps.as_ref()?.profile.as_ref()
    }
}
