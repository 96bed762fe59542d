//! The way of packets out of a queue pair: one loop, whatever carries them.
//!
//! Three roads exist: the [network](super::network), which is UDP and, between processes of one
//! host, the hand-over connections; the [ring](super::ring) of a peer on this host; and the port of
//! a [raw packet](super::frames) queue pair.
use super::queue_pair::{AnyQp, QpInner};
use super::{Node, Tx};
use crate::node::clock::StepClock;
use crate::ranks;
use adverb_engine::{AckOrder, Effects, KeyTable, MemoryFault, Output, Transmit};
use adverb_sync::RankedReadGuard;

/// What carries packets of a queue pair.
pub(super) trait Road {
    /// Where a plain ACK goes that leaves together with a request.
    const ACK: AckOrder;
    /// Is there room for one more packet? Asked before each.
    fn room(&mut self) -> Room;
    /// Takes a packet. The keys are held so that the payload's memory stays registered while it is
    /// copied.
    fn send(&mut self, t: &Transmit<'_>, keys: &KeyTable) -> Result<(), Unsent>;
    /// Sends off what it has taken.
    fn flush(&mut self) -> Room;
}

/// What a road has for the next packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    Yes,
    /// It is full; somebody comes back to it.
    Later,
    /// Nothing leaves by it any more.
    Broken,
}

/// Why a packet was not taken.
pub(super) enum Unsent {
    /// Its payload cannot be read.
    Fault(MemoryFault),
    /// Nothing leaves by this road any more.
    Broken,
}

impl Node {
    /// Does everything a queue pair wants done: sends its packets, performs its key operations,
    /// delivers what came of it, and keeps its timer.
    pub(crate) fn pump(&self, qp: &AnyQp, inner: &mut QpInner, tx: &mut Tx) {
        inner.waiting = (0, 0);
        let peer = inner.peer.take();
        let end = match (&qp.port, &peer) {
            (Some(port), _) => self.pump_frames(inner, &mut tx.effects, &**port),
            (_, Some(peer)) => self.pump_ring(qp, inner, &mut tx.effects, peer),
            _ => self.pump_network(qp, inner, tx),
        };
        if end == Room::Later {
            self.pump_soon(qp);
        }
        let broken = if end == Room::Broken { peer.clone() } else { None };
        if let Some(peer) = peer {
            inner.peer.get_or_insert(peer);
        }
        self.deliver(qp, inner, &mut tx.effects);
        self.keep_timer(qp, inner);
        if let Some(peer) = broken {
            self.leave(&peer, "broke its ring");
        }
    }

    /// Takes from a queue pair what it wants to send and gives it to a road.
    #[inline]
    pub(super) fn drain<'a, R: Road>(
        &'a self,
        engine: &mut adverb_engine::Qp,
        road: &mut R,
        clock: &StepClock<'_>,
        effects: &mut Effects,
        mut keys: RankedReadGuard<'a, KeyTable, ranks::Keys>,
    ) -> Room {
        let mut end = Room::Yes;
        engine.set_ack_order(R::ACK);
        while end == Room::Yes && engine.wants_output() {
            end = road.room();
            if end != Room::Yes {
                break;
            }
            match engine.poll_output(clock, &keys, effects) {
                Output::Packet(t) => match road.send(&t, &keys) {
                    Ok(()) => {}
                    Err(Unsent::Fault(fault)) => engine.transmit_failed(fault, effects),
                    Err(Unsent::Broken) => end = Room::Broken,
                },
                Output::Key(op) => {
                    drop(keys);
                    let result = self.keys.write().apply(&op);
                    engine.key_op_done(result, effects);
                    keys = self.keys.read();
                }
                Output::Idle => break,
            }
        }
        drop(keys);
        match road.flush() {
            Room::Yes => end,
            other => other,
        }
    }
}
