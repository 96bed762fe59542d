//! The inlet, to which a carrier gives arrived packets.
use crate::host::Peer;
use crate::node::carriers::Near;
use crate::node::core::Node;
use crate::node::queue_pair::{AnyQp, QpInner};
use crate::node::tx::Tx;
use adverb_engine::Packet;
use adverb_link::faults::Fault;
use std::sync::Arc;

/// An arrived packet, with its locked queue pair.
pub(in crate::node) struct Arrival<'a> {
    pub(in crate::node) qp: &'a AnyQp,
    /// The sending process.
    pub(in crate::node) peer: &'a Arc<Peer>,
    pub(in crate::node) packet: &'a Packet<'a>,
    /// Where the payload is. `None`: in the packet, and packets may be lost on the way. Deadlines
    /// are then exact.
    pub(in crate::node) near: Option<Near<'a>>,
}

/// The treatment of an arrived packet.
pub(in crate::node) struct Fate {
    /// The fault on this packet.
    pub(super) fault: Fault,
    /// How often the packet reaches its queue pair now.
    pub(super) copies: usize,
    /// The packet was delayed, and is recorded already.
    pub(super) again: bool,
}

impl Default for Fate {
    /// The packet arrives, once.
    fn default() -> Self {
        Fate { fault: Fault::default(), copies: 1, again: false }
    }
}

/// Takes arrived packets.
pub(in crate::node) trait Inlet {
    fn take(&mut self, inner: &mut QpInner, arrival: &Arrival<'_>, fate: &Fate);
}

/// The last inlet: the engine of the queue pair.
pub(super) struct ToQueuePair<'a> {
    pub(super) node: &'a Node,
    pub(super) tx: &'a mut Tx,
}

impl Inlet for ToQueuePair<'_> {
    fn take(&mut self, inner: &mut QpInner, arrival: &Arrival<'_>, fate: &Fate) {
        for _ in 0..fate.copies {
            self.node.handle(self.tx, arrival.qp, inner, arrival.packet, arrival.near);
        }
    }
}
