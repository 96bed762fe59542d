//! Frames of raw packet queue pairs: from their requests to the port, and from the port into their
//! receives.
use super::clock::StepClock;
use super::network::copy_payload;
use super::queue_pair::{AnyQp, FramePort, QpInner};
use super::receives::Receives;
use super::road::{Road, Room, Unsent};
use super::{Node, Tx};
use adverb_engine::keys::PagedMemory;
use adverb_engine::qp::Env;
use adverb_engine::{AckOrder, Effects, KeyTable, Time, Transmit};
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
    // Frames have none.
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
            self.port.send(self.node, std::mem::take(&mut self.taken));
        }
        Room::Yes
    }
}

impl Node {
    /// Sends what a raw packet queue pair has.
    pub(super) fn pump_frames(
        &self,
        inner: &mut QpInner,
        effects: &mut Effects,
        port: &dyn FramePort,
    ) -> Room {
        let mut road = Frames { node: self, port, taken: Vec::new() };
        self.drain(&mut inner.engine, &mut road, &StepClock::new(self, false), effects, self.keys.read())
    }

    /// Puts a frame into a queue pair's next receive.
    pub(crate) fn give_frame(&self, qp: &AnyQp, frame: &[u8], tx: &mut Tx) {
        let mut inner = qp.inner.lock();
        if !inner.frames.is_empty() || inner.engine.lacks_receive() {
            inner.frames.keep(frame, self.now());
            return;
        }
        self.place_frame(qp, &mut inner, frame, tx);
    }

    /// Gives a queue pair, which has a receive now, frames that came shortly before.
    pub(crate) fn give_kept_frames(&self, qp: &AnyQp, inner: &mut QpInner, tx: &mut Tx) {
        while !inner.engine.lacks_receive()
            && let Some(frame) = inner.frames.next(self.now())
        {
            self.place_frame(qp, inner, &frame, tx);
        }
    }

    fn place_frame(&self, qp: &AnyQp, inner: &mut QpInner, frame: &[u8], tx: &mut Tx) {
        {
            let keys = self.keys.read();
            let mut source = Receives(&qp.own);
            let memory = PagedMemory { keys: &keys, memory: HostMemory };
            let effects = &mut tx.effects;
            let mut env = Env { clock: &Time::ZERO, keys: &keys, memory: &memory, srq: &mut source, effects };
            inner.engine.take_frame(&mut env, frame);
        }
        self.deliver(qp, inner, &mut tx.effects);
    }

    /// Gives frames that came to the queue pairs that are to have them.
    pub(super) fn take_frames(&self) -> bool {
        let frames = self.link().frames();
        for raw in &frames {
            let port = self.frame_ports.lock().get(&raw.interface).and_then(Weak::upgrade);
            let Some(port) = port else { continue };
            let takers = port.takers(raw);
            if takers.is_empty() {
                self.counters.frame_for_nobody.fetch_add(1, Ordering::Relaxed);
            }
            for qp in takers {
                self.with_tx(|tx| self.give_frame(&qp, &raw.bytes, tx));
            }
        }
        !frames.is_empty()
    }
}
