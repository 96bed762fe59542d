//! The send loop of a queue pair, for every carrier.
use crate::node::clock::StepClock;
use crate::node::core::Node;
use crate::ranks;
use adverb_engine::keys::PagedMemory;
use adverb_engine::packet::Data;
use adverb_engine::{AckOrder, Effects, KeyTable, Memory, MemoryFault, Output, Transmit};
use adverb_memory::HostMemory;
use adverb_sync::RankedReadGuard;

/// The sending part of a carrier, for the packets of one queue pair.
pub(in crate::node) trait Road {
    /// Position of a plain ACK that leaves together with a request.
    const ACK: AckOrder;
    /// Is there room for another packet? Asked before each packet.
    fn room(&mut self) -> Room;
    /// Takes a packet. The keys are locked so that the payload's memory stays registered during the
    /// copy.
    fn send(&mut self, t: &Transmit<'_>, keys: &KeyTable) -> Result<(), Unsent>;
    /// Sends the packets taken so far.
    fn flush(&mut self) -> Room;
}

/// The room of a road for the next packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::node) enum Room {
    Yes,
    /// The road is full. The queue pair is pumped again later.
    Later,
    /// The road is broken for good.
    Broken,
}

/// The reason for refusing a packet.
pub(in crate::node) enum Unsent {
    /// The payload cannot be read.
    Fault(MemoryFault),
    /// The road is broken for good.
    Broken,
}

/// Takes the packets of a queue pair and gives them to a road.
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

/// Copies a packet's payload. On a fault the packet is not sent and its request fails, so that the
/// peer gets no wrong bytes.
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
