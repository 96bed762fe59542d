//! The way of packets out of a queue pair: one loop, whatever carries them.
use crate::node::clock::StepClock;
use crate::node::core::Node;
use crate::ranks;
use adverb_engine::keys::PagedMemory;
use adverb_engine::packet::Data;
use adverb_engine::{AckOrder, Effects, KeyTable, Memory, MemoryFault, Output, Transmit};
use adverb_memory::HostMemory;
use adverb_sync::RankedReadGuard;

/// The sender of a carrier: it takes the packets of one queue pair.
pub(in crate::node) trait Road {
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
pub(in crate::node) enum Room {
    Yes,
    /// It is full; somebody comes back to it.
    Later,
    /// Nothing leaves by it any more.
    Broken,
}

/// Why a packet was not taken.
pub(in crate::node) enum Unsent {
    /// Its payload cannot be read.
    Fault(MemoryFault),
    /// Nothing leaves by this road any more.
    Broken,
}

/// Takes from a queue pair what it wants to send and gives it to a road.
#[inline]
pub(in crate::node) fn drain<'a, R: Road>(
    node: &'a Node,
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
                let result = node.keys.write().apply(&op);
                engine.key_op_done(result, effects);
                keys = node.keys.read();
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

/// Copies a packet's payload. On a fault the packet is not sent: its request fails, and the peer is
/// not given bytes that were never there.
pub(crate) fn copy_payload(
    payload: Data<'_>,
    keys: &KeyTable,
    mut out: &mut [u8],
) -> Result<(), MemoryFault> {
    let memory = PagedMemory { keys, memory: HostMemory };
    match payload {
        Data::Bytes(b) => out.copy_from_slice(b),
        Data::Gather(ranges) => {
            for r in ranges {
                let (now, rest) = out.split_at_mut(r.len as usize);
                memory.read(*r, now)?;
                out = rest;
            }
        }
    }
    Ok(())
}
