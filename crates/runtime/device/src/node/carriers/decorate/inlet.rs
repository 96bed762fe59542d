//! Where a carrier gives what has arrived.
use crate::host::Peer;
use crate::node::carriers::Near;
use crate::node::core::Node;
use crate::node::queue_pair::{AnyQp, QpInner};
use crate::node::tx::Tx;
use adverb_engine::Packet;
use adverb_link::faults::Fault;
use std::sync::Arc;

/// A packet that has come, for a queue pair that is locked.
pub(in crate::node) struct Arrival<'a> {
    pub(in crate::node) qp: &'a AnyQp,
    /// The process that sent it.
    pub(in crate::node) peer: &'a Arc<Peer>,
    pub(in crate::node) packet: &'a Packet<'a>,
    /// Where its payload is; `None`: at hand, and packets may be lost on the way, so that deadlines
    /// are exact.
    pub(in crate::node) near: Option<Near<'a>>,
}

/// What becomes of an arrival.
pub(in crate::node) struct Fate {
    /// What befalls it.
    pub(super) fault: Fault,
    /// How often it reaches its queue pair now.
    pub(super) copies: usize,
    /// It was held, and is recorded already.
    pub(super) again: bool,
}

impl Default for Fate {
    /// It arrives, once.
    fn default() -> Self {
        Fate { fault: Fault::default(), copies: 1, again: false }
    }
}

/// Takes what has arrived.
pub(in crate::node) trait Inlet {
    fn take(&mut self, inner: &mut QpInner, arrival: &Arrival<'_>, fate: &Fate);
}

/// The inlet behind all others: the engine of the queue pair.
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
