//! Sending and receiving of the frame carrier: see the folder's page.
use crate::node::carriers::road::{Road, Room, Unsent, copy_payload, drain};
use crate::node::clock::StepClock;
use crate::node::core::Node;
use crate::node::queue_pair::{AnyQp, FramePort, QpInner, Receives};
use crate::node::tx::Tx;
use adverb_engine::keys::PagedMemory;
use adverb_engine::qp::Env;
use adverb_engine::{AckOrder, KeyTable, Time, Transmit};
use adverb_memory::HostMemory;
use std::sync::Weak;
use std::sync::atomic::Ordering;

/// The road to an interface's port.
struct Frames<'a> {
    node: &'a Node,
    port: &'a dyn FramePort,
    taken: Vec<Vec<u8>>,
}

impl Road for Frames<'_> {
    // There are no ACKs between frames.
    const ACK: AckOrder = AckOrder::Behind;

    fn room(&mut self) -> Room {
        Room::Yes
    }

    fn send(&mut self, t: &Transmit<'_>, keys: &KeyTable) -> Result<(), Unsent> {
        let mut frame = vec![0; t.payload.len()];
        copy_payload(t.payload, keys, &mut frame).map_err(Unsent::Fault)?;
        self.taken.push(frame);
        Ok(())
    }

    fn flush(&mut self) -> Room {
        if !self.taken.is_empty() {
            let heard = self.port.send(&self.node.link, std::mem::take(&mut self.taken));
            if heard {
                // The background thread may have looked for frames already, and be about to sleep.
                self.node.wake_thread();
            }
        }
        Room::Yes
    }
}

/// The carrier of frames.
#[derive(Clone, Copy)]
pub(crate) struct Ethernet<'a>(pub(crate) &'a Node);

impl Ethernet<'_> {
    /// Sends the frames of a queue pair.
    pub(in crate::node) fn pump(&self, qp: &AnyQp, inner: &mut QpInner, tx: &mut Tx) -> Room {
        let (node, Some(port)) = (self.0, &qp.port) else { return Room::Yes };
        let mut road = Frames { node, port: &**port, taken: Vec::new() };
        let clock = StepClock::new(&node.clocks, false);
        drain(node, &mut inner.engine, &mut road, &clock, &mut tx.effects, node.keys.read())
    }

    /// Gives arrived frames to the right queue pairs.
    pub(in crate::node) fn receive(&self) -> bool {
        let node = self.0;
        let frames = node.link.frames();
        for raw in &frames {
            let port = node.frame_ports.lock().get(&raw.interface).and_then(Weak::upgrade);
            let Some(port) = port else { continue };
            let takers = port.takers(raw);
            if takers.is_empty() {
                node.counters.frame_for_nobody.fetch_add(1, Ordering::Relaxed);
            }
            for qp in takers {
                node.with_tx(|tx| self.give(&qp, &raw.bytes, tx));
            }
        }
        !frames.is_empty()
    }

    /// Drops the state of an earlier connection.
    pub(in crate::node) fn disconnect(&self, inner: &mut QpInner) {
        inner.carried.frames.clear();
    }

    /// Puts a frame into a queue pair's next receive.
    pub(crate) fn give(&self, qp: &AnyQp, frame: &[u8], tx: &mut Tx) {
        let mut inner = qp.inner.lock();
        let kept = &mut inner.carried.frames;
        if !kept.is_empty() || inner.engine.lacks_receive() {
            inner.carried.frames.keep(frame, self.0.now());
            return;
        }
        self.place(qp, &mut inner, frame, tx);
    }

    /// Gives a queue pair with new receives the frames that arrived shortly before.
    pub(crate) fn give_kept(&self, qp: &AnyQp, inner: &mut QpInner, tx: &mut Tx) {
        while !inner.engine.lacks_receive()
            && let Some(frame) = inner.carried.frames.next(self.0.now())
        {
            self.place(qp, inner, &frame, tx);
        }
    }

    fn place(&self, qp: &AnyQp, inner: &mut QpInner, frame: &[u8], tx: &mut Tx) {
        if inner.outage.is_some() {
            return;
        }
        let node = self.0;
        {
            let keys = node.keys.read();
            let mut source = Receives(&qp.own);
            let memory = PagedMemory { keys: &keys, memory: HostMemory };
            let effects = &mut tx.effects;
            let mut env =
                Env { clock: &Time::ZERO, keys: &keys, memory: &memory, srq: &mut source, effects };
            inner.engine.take_frame(&mut env, frame);
        }
        node.deliver(qp, inner, &mut tx.effects);
    }
}
