//! Frames of raw packet queue pairs: from their requests to the port, and from the port into their
//! receives.
use super::clock::StepClock;
use super::network::copy_payload;
use super::road::{Road, Room, Unsent};
use super::{Node, Tx};
use crate::qp::{Qp, QpInner};
use crate::raw::Port;
use crate::srq::SrqSource;
use adverb_engine::keys::PagedMemory;
use adverb_engine::qp::Env;
use adverb_engine::{Effects, KeyTable, Time, Transmit};
use adverb_memory::HostMemory;
use std::collections::VecDeque;
use std::time::Duration;

/// Frames that wait for a receive, at most, and for how long. A NIC drops them; but it does not
/// give a program so many at once, either.
const MOST_KEPT: usize = 4096;
const KEPT_FOR: Duration = Duration::from_millis(100);

/// Frames that came before their receive, each with the time.
#[derive(Debug, Default)]
pub(crate) struct KeptFrames(VecDeque<(Time, Vec<u8>)>);

impl KeptFrames {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// Keeps one; the oldest, and those that waited too long, make room.
    fn keep(&mut self, frame: &[u8], now: Time) {
        while self.0.len() >= MOST_KEPT || self.0.front().is_some_and(|(at, _)| now.since(*at) > KEPT_FOR) {
            self.0.pop_front();
        }
        self.0.push_back((now, frame.to_vec()));
    }
    fn next(&mut self, now: Time) -> Option<Vec<u8>> {
        loop {
            let (at, frame) = self.0.pop_front()?;
            if now.since(at) <= KEPT_FOR {
                return Some(frame);
            }
        }
    }
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

/// The road to an interface's port.
struct Frames<'a> {
    node: &'a Node,
    port: &'a Port,
    taken: Vec<Vec<u8>>,
}

impl Road for Frames<'_> {
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
    pub(super) fn pump_frames(&self, inner: &mut QpInner, effects: &mut Effects, port: &Port) -> Room {
        let mut road = Frames { node: self, port, taken: Vec::new() };
        self.drain(&mut inner.engine, &mut road, &StepClock::new(self, false), effects, self.keys.read())
    }

    /// Puts a frame into a queue pair's next receive.
    pub(crate) fn give_frame(&self, qp: &Qp, frame: &[u8], tx: &mut Tx) {
        let mut inner = qp.inner.lock();
        if !inner.frames.is_empty() || inner.engine.lacks_receive() {
            inner.frames.keep(frame, self.now());
            return;
        }
        self.place_frame(qp, &mut inner, frame, tx);
    }

    /// Gives a queue pair, which has a receive now, frames that came shortly before.
    pub(crate) fn give_kept_frames(&self, qp: &Qp, inner: &mut QpInner, tx: &mut Tx) {
        while !inner.engine.lacks_receive()
            && let Some(frame) = inner.frames.next(self.now())
        {
            self.place_frame(qp, inner, &frame, tx);
        }
    }

    fn place_frame(&self, qp: &Qp, inner: &mut QpInner, frame: &[u8], tx: &mut Tx) {
        {
            let keys = self.keys.read();
            let mut source = SrqSource { node: self, qp };
            let memory = PagedMemory { keys: &keys, memory: HostMemory };
            let effects = &mut tx.effects;
            let mut env = Env { clock: &Time::ZERO, keys: &keys, memory: &memory, srq: &mut source, effects };
            inner.engine.take_frame(&mut env, frame);
        }
        self.deliver(qp, inner, &mut tx.effects);
    }
}
