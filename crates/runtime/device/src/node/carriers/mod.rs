//! What carries packets between queue pairs: one shape for every way out and in.
//!
//! A [`Carrier`] sends what a queue pair has, and takes what has arrived. Four exist:
//!
//! | carrier | between | its packets |
//! |---|---|---|
//! | [`udp`] | any two hosts | RoCEv2 on UDP port 4791 |
//! | [`relay`] | processes of one user on one host | the same packets, over connections that say when they are full |
//! | [`ring`] | the same, with shared memory | records in a ring, and one-sided requests without any packet |
//! | [`frames`] | raw packet queue pairs and an interface | Ethernet frames |
//!
//! Each has a folder or a file of its own with everything that it alone needs. What a queue pair
//! keeps for its carriers is [`Carried`].
use super::clock::StepClock;
use super::queue_pair::{AnyQp, QpInner};
use super::receive::{Ask, Receiver};
use super::{Node, Tx};
use adverb_engine::{AckOrder, Effects, KeyTable, MemoryFault, Output, Transmit};
use adverb_sync::RwLockReadGuard;
use std::os::fd::BorrowedFd;

pub(crate) mod frames;
pub(crate) mod relay;
pub(crate) mod ring;
pub(crate) mod udp;

/// What carries packets of queue pairs.
pub(super) trait Carrier {
    /// Sends what a queue pair has for this carrier.
    fn pump(&self, qp: &AnyQp, inner: &mut QpInner, tx: &mut Tx) -> Room;

    /// Takes what has arrived and gives it to the queue pairs. `true` if there was anything.
    fn receive(&self, rx: &mut Receiver, ask: &Ask) -> bool;

    /// Names the descriptors that are readable when something has arrived. The background thread
    /// waits on them.
    fn sources(&self, _each: &mut dyn FnMut(BorrowedFd<'_>)) {}

    /// Announces that a thread is about to sleep on the sources. `true`: something has arrived
    /// already, and the sleep is needless. [`Carrier::after_sleep`] takes the announcement back.
    fn before_sleep(&self) -> bool {
        false
    }

    /// The thread that was about to sleep is awake.
    fn after_sleep(&self) {}

    /// May what a queue pair misses still be on its way within this host? Then its silence does not
    /// mean that a packet was lost.
    fn is_behind(&self, inner: &QpInner) -> bool;

    /// The queue pair is in RESET, or ends: nothing of an earlier connection is kept.
    fn disconnect(&self, inner: &mut QpInner, end: End);
}

/// Why a queue pair is disconnected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It is in RESET, and may be connected again. What waits to be sent is dropped.
    Reset,
    /// It is destroyed. What waits to be sent is sent all the same.
    Destroyed,
}

/// What a queue pair keeps for its carriers.
#[derive(Debug, Default)]
pub(crate) struct Carried {
    pub(crate) udp: udp::Sending,
    pub(super) relay: relay::Waiting,
    pub(crate) ring: ring::Connected,
    pub(super) frames: frames::KeptFrames,
}

/// The sender of a carrier: it takes the packets of one queue pair.
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

/// Takes from a queue pair what it wants to send and gives it to a road.
#[inline]
pub(super) fn drain<'a, R: Road>(
    node: &'a Node,
    engine: &mut adverb_engine::Qp,
    road: &mut R,
    clock: &StepClock<'_>,
    effects: &mut Effects,
    mut keys: RwLockReadGuard<'a, KeyTable>,
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
