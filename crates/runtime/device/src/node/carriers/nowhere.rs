//! The carrier of a queue pair whose link is down on request: packets leave, and are lost.
use super::road::{Road, Room, Unsent, drain};
use crate::node::clock::StepClock;
use crate::node::core::Node;
use crate::node::queue_pair::QpInner;
use crate::node::tx::Tx;
use adverb_engine::{AckOrder, KeyTable, Transmit};

/// Loses every packet.
pub(in crate::node) struct Nowhere;

impl Nowhere {
    pub(in crate::node) fn pump(mut self, node: &Node, inner: &mut QpInner, tx: &mut Tx) -> Room {
        let clock = StepClock::new(&node.clocks, false);
        drain(node, &mut inner.engine, &mut self, &clock, &mut tx.effects, node.keys.read())
    }
}

impl Road for Nowhere {
    const ACK: AckOrder = AckOrder::Behind;

    fn room(&mut self) -> Room {
        Room::Yes
    }

    fn send(&mut self, _: &Transmit<'_>, _: &KeyTable) -> Result<(), Unsent> {
        Ok(())
    }

    fn flush(&mut self) -> Room {
        Room::Yes
    }
}
