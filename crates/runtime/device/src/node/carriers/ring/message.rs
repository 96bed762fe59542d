//! Short SENDs without packets: see [`adverb_shm::Offers`].
//!
//! A WRITE with immediate data is a one-sided WRITE followed by a message without bytes. The
//! message carries the length of the WRITE.
//!
//! The sender's request is done when the record is in the ring. On a NIC, a request is done when
//! the receiving NIC has acknowledged the message. Irregular messages go as packets, with the
//! answers and errors of packets: no receive is offered, the message is too long for the receive,
//! or an earlier request is unanswered.
use super::record::MESSAGE;
use super::rings::Rings;
use super::state::Sent;
use crate::host::{Ends, Peer, Seen};
use crate::node::batch::Batch;
use crate::node::carriers::decorate::{Initiator, Recorded, Tape, Taps};
use crate::node::carriers::road::copy_payload;
use crate::node::clock::StepClock;
use crate::node::queue_pair::{AnyQp, QpInner};
use crate::node::receives::Receives;
use crate::node::shared_queue::SharedQueue;
use crate::ranks;
use adverb_engine::keys::PagedMemory;
use adverb_engine::packet::Data;
use adverb_engine::qp::Env;
use adverb_engine::{
    Cause, CqRef, Gid, KeyTable, Memory, Packet, Qp, QpState, QpType, Srq, WcOpcode,
};
use adverb_memory::HostMemory;
use adverb_shm::{Broken, LONGEST_OFFER, OFFERED, Offers, Pushed};
use adverb_sync::RankedGuard;
use adverb_wire::{Bth, Headers, ImmDt, Opcode, Operation, Psn, QPN_MASK, Transport};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The longest message copied into the record. The receiver fetches longer messages itself.
const LONGEST: usize = 4 << 10;
/// The head of a message: number of the queue pair (24 bits) and flags, low 32 bits of the
/// receive's number, immediate data. With this head, 44 bytes of payload share a cache line with
/// the record's header.
const HEAD: usize = 3 * 4;
const IMMEDIATE: u32 = 1 << 24;
const SOLICITED: u32 = 2 << 24;
/// The message ends a WRITE with immediate data. The payload is the WRITE's length, in 32 bits.
const WRITTEN: u32 = 4 << 24;
/// While a peer knows of this many receives, further offers wait.
const ENOUGH: u64 = OFFERED * 3 / 4;

/// The result of an attempt to send a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Passed {
    /// The record is in the ring.
    Done,
    /// The peer has unread messages, and offers more receives after reading these. The message
    /// waits.
    Later,
    /// The message has to go as packets.
    ByPackets,
}

/// A SEND, or the end of a WRITE with immediate data.
#[derive(Clone, Copy)]
pub(super) struct Message<'a> {
    pub(super) immediate: Option<u32>,
    pub(super) solicited: bool,
    /// Number of bytes that the WRITE has written. The payload is then empty.
    pub(super) written: Option<u32>,
    pub(super) payload: Data<'a>,
}

impl Rings<'_> {
    /// Sends a message of a queue pair with no request under way. Unless the result is
    /// [`Passed::Done`], nothing has happened. `keys` may be `None` for a payload of bytes without
    /// a capture.
    #[inline]
    pub(super) fn send_message(
        &self,
        peer: &Peer,
        (seen, sent): (&mut Seen, &mut Sent),
        ends: Ends,
        near: Option<&Initiator>,
        keys: Option<&KeyTable>,
        message: &Message<'_>,
    ) -> Passed {
        let written = message.written.map(u32::to_le_bytes);
        let payload = written.as_ref().map_or(message.payload, |written| Data::Bytes(written));
        let len = payload.len();
        if !self.sends_messages(peer, message) {
            return Passed::ByPackets;
        }
        let Some((offers, _busy)) = self.host.offers(peer, seen, ends) else {
            return Passed::ByPackets;
        };
        let (next, room) = match room(offers, peer, sent) {
            Ok(found) => found,
            Err(passed) => return passed,
        };
        if message.written.is_none() && len > room as usize {
            return Passed::ByPackets;
        }
        let taps = self.node.taps.as_ref();
        let tape = taps.and_then(Taps::tape);
        let time = tape.map_or(0, |_| Tape::now());
        let Some(mut tx_ring) = peer.tx_ring() else { return Passed::Later };
        let flags = if message.immediate.is_some() { IMMEDIATE } else { 0 }
            | if message.solicited { SOLICITED } else { 0 }
            | if message.written.is_some() { WRITTEN } else { 0 };
        let pushed = tx_ring.push(MESSAGE, HEAD + len, |out| {
            let (head, bytes) = out.split_at_mut(HEAD);
            head[..4].copy_from_slice(&(ends.dest_qpn & QPN_MASK | flags).to_le_bytes());
            head[4..8].copy_from_slice(&(next as u32).to_le_bytes());
            head[8..].copy_from_slice(&message.immediate.unwrap_or(0).to_le_bytes());
            match (payload, keys) {
                (Data::Bytes(payload), _) => {
                    bytes.copy_from_slice(payload);
                    true
                }
                (_, Some(keys)) => copy_payload(payload, keys, bytes).is_ok(),
                (_, None) => false,
            }
        });
        let position = tx_ring.position();
        drop(tx_ring);
        match pushed {
            Ok(Pushed::Done) => {}
            Ok(Pushed::Full) => return Passed::Later,
            // If the ring is broken or the memory cannot be read, the packets report the error.
            Ok(Pushed::Refused) | Err(Broken) => return Passed::ByPackets,
        }
        *sent = Sent { receive: Some(next + 1), unread: Some(position) };
        if let (Some(tape), Some(near), Some(keys)) = (tape, near, keys) {
            let Message { immediate, solicited, .. } = *message;
            let dest_qpn = ends.dest_qpn;
            let left = Recorded {
                time,
                sent: true,
                receive: next,
                dest_qpn,
                immediate,
                solicited,
                payload,
            };
            tape.message(self.node, near, &left, keys);
        }
        self.node.counters.ring_sent.fetch_add(1, Ordering::Relaxed);
        peer.ring_doorbell();
        Passed::Done
    }

    /// Can such messages go without packets?
    #[inline]
    fn sends_messages(&self, peer: &Peer, message: &Message<'_>) -> bool {
        let passes = match &self.node.taps {
            None => true,
            // A capture records a WRITE with immediate data as packets.
            Some(taps) => message.written.is_none() && taps.lets_messages_pass(),
        };
        // Within one process, the program could see the send completion, and look for the receive
        // completion before the record is taken.
        message.payload.len() <= LONGEST && !peer.is_own() && passes
    }

    /// Will `message`, the end of a WRITE with immediate data, find a receive? The caller asks
    /// before the WRITE is performed. [`Passed::Done`] also means: the peer has placed all earlier
    /// messages. So a program that sees the bytes of the WRITE also finds the bytes of earlier
    /// messages.
    pub(super) fn may_write(
        &self,
        peer: &Peer,
        (seen, sent): (&mut Seen, &mut Sent),
        ends: Ends,
        message: &Message<'_>,
    ) -> Passed {
        if !self.sends_messages(peer, message) {
            return Passed::ByPackets;
        }
        let Some(offers) = self.host.offers_now(peer, seen, ends) else { return Passed::ByPackets };
        match room(offers, peer, sent) {
            Ok(_) if sent.is_placed(peer) => Passed::Done,
            Ok(_) => Passed::Later,
            Err(passed) => passed,
        }
    }

    /// Takes a message from a ring.
    #[inline]
    pub(super) fn take_message(&self, batch: &mut Batch, peer: &Arc<Peer>, body: &[u8]) {
        let Some(([to, receive, immediate], payload)) = parse(body) else {
            self.node.counters.malformed.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let (qpn, flags) = (to & QPN_MASK, to & !QPN_MASK);
        let Some(qp) = batch.queue_pair(&self.node.registry.qps, qpn) else {
            self.node.counters.no_such_qp.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let mut inner = qp.inner.lock();
        let theirs = self.is_from(peer, &qp, &mut inner);
        inner.carried.ring.heard |= theirs;
        if !theirs {
            self.node.counters.not_from_ring.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.node.counters.ring_received();
        let written = (flags & WRITTEN != 0)
            .then(|| payload.first_chunk().copied().map_or(0, u32::from_le_bytes));
        let message = Message {
            immediate: (flags & IMMEDIATE != 0).then_some(immediate),
            solicited: flags & SOLICITED != 0,
            written,
            payload: Data::Bytes(if written.is_some() { &[] } else { payload }),
        };
        if let Some(tape) = self.node.taps.as_ref().and_then(Taps::tape) {
            let time = *batch.arrived_at.get_or_insert_with(Tape::now);
            let Message { immediate, solicited, payload, .. } = message;
            let receive = receive.into();
            let arrived_at = Recorded {
                time,
                sent: false,
                receive,
                dest_qpn: qpn,
                immediate,
                solicited,
                payload,
            };
            tape.message(
                self.node,
                &Initiator::of(&inner.engine),
                &arrived_at,
                &self.node.keys.read(),
            );
        }
        if inner.faults.is_some()
            || inner.attached.is_some()
            || !self.land(batch, &qp, &mut inner, receive, &message)
        {
            self.take_whole(batch, &qp, &mut inner, receive, &message);
        }
        self.offer_in_time(&qp, &mut inner);
    }

    /// Places a message and completes the receive, if message and receive are ordinary. `false`:
    /// nothing has happened.
    #[inline]
    fn land(
        &self,
        batch: &mut Batch,
        qp: &AnyQp,
        inner: &mut QpInner,
        receive: u32,
        message: &Message<'_>,
    ) -> bool {
        let Data::Bytes(payload) = message.payload else { return false };
        let taken = {
            // The memory stays registered while the keys are locked.
            let keys = self.node.keys.read();
            let mut shared = shared(qp, &inner.engine);
            let to = inner.engine.landing(shared.as_deref(), &keys, receive, payload.len());
            let Some(to) = to else { return false };
            if !payload.is_empty() && HostMemory.write(to, payload).is_err() {
                return false;
            }
            match &mut shared {
                None => inner.engine.take_landed().map(|id| (id, false)),
                Some(srq) => {
                    srq.pop().map(|(receive, limit_reached)| (receive.wr_id, limit_reached))
                }
            }
        };
        let Some((id, limit_reached)) = taken else { return false };
        if limit_reached {
            qp.own.limit_reached();
        }
        let what = match message.written {
            None => (WcOpcode::Recv, payload.len() as u32),
            Some(len) => (WcOpcode::RecvRdmaWithImm, len),
        };
        inner.traffic.arrived(payload.len());
        let completion = inner.engine.landed(id, what, message.immediate, message.solicited);
        if let Err(cause) = qp.own.complete(CqRef::Recv, completion) {
            let effects = &mut batch.tx.effects;
            if inner.engine.state() != QpState::Err {
                inner.engine.fail(cause, effects);
            }
            self.node.deliver(qp, inner, effects);
        }
        true
    }

    /// Gives a message to the engine as a packet.
    #[cold]
    #[inline(never)]
    fn take_whole(
        &self,
        batch: &mut Batch,
        qp: &AnyQp,
        inner: &mut QpInner,
        receive: u32,
        message: &Message<'_>,
    ) {
        let Message { immediate, solicited, written, payload: Data::Bytes(payload) } = *message
        else {
            return;
        };
        if written.is_some() {
            return self.take_written(batch, qp, inner, receive, message);
        }
        let operation =
            if immediate.is_some() { Operation::SendOnlyImm } else { Operation::SendOnly };
        let Some(opcode) = Opcode::new(Transport::Rc, operation) else { return };
        let bth = Bth { solicited, ..Bth::new(opcode, qp.number(), Psn::ZERO) };
        let packet = Packet {
            src: Gid::default(),
            dst: Gid::default(),
            traffic_class: 0,
            hop_limit: 0,
            mtu: None,
            headers: Headers { imm: immediate.map(ImmDt), ..Headers::new(bth) },
            payload,
        };
        let effects = &mut batch.tx.effects;
        let next = next_receive(qp, inner);
        {
            let keys = self.node.keys.read();
            let clock = StepClock::new(&self.node.clocks, true);
            let memory = PagedMemory { keys: &keys, memory: HostMemory };
            let mut env = Env {
                clock: &clock,
                keys: &keys,
                memory: &memory,
                srq: &mut Receives(&qp.own),
                effects,
            };
            if inner.engine.take_message(&mut env, (receive, next), &packet) {
                inner.traffic.arrived(payload.len());
            }
        }
        self.node.deliver(qp, inner, effects);
    }

    /// Takes the end of a WRITE with immediate data, if the receive cannot complete at once.
    fn take_written(
        &self,
        batch: &mut Batch,
        qp: &AnyQp,
        inner: &mut QpInner,
        receive: u32,
        message: &Message<'_>,
    ) {
        let next = next_receive(qp, inner);
        let expected = inner.engine.expects((receive, next), &mut batch.tx.effects);
        self.node.deliver(qp, inner, &mut batch.tx.effects);
        if expected && !self.land(batch, qp, inner, receive, message) {
            // The peer was promised a receive, and the peer's request has succeeded.
            let cause = Cause::ProtocolViolation { what: "a message that was not to come", psn: 0 };
            inner.engine.fail(cause, &mut batch.tx.effects);
            self.node.deliver(qp, inner, &mut batch.tx.effects);
        }
    }

    /// As [`Rings::offer`], unless the peer knows of enough receives. Each written word costs the
    /// peer a cache miss, so offers are written in groups.
    #[inline]
    pub(crate) fn offer_in_time(&self, qp: &AnyQp, inner: &mut QpInner) {
        if inner.carried.ring.shown.as_ref().is_none_or(|shown| shown.offers == 0) {
            return;
        }
        let (end, _) = inner.carried.ring.offered;
        if end < next_receive(qp, inner) + ENOUGH {
            self.offer(qp, inner);
        }
    }

    /// May a queue pair offer its receives, once the queue pair is published to peers?
    pub(super) fn may_offer(&self, qp: &AnyQp, inner: &QpInner) -> bool {
        qp.qp_type() == QpType::Rc
            && inner.faults.is_none()
            && self.node.taps.as_ref().is_none_or(Taps::lets_messages_pass)
            && qp.own.shared().is_none_or(SharedQueue::has_one_taker)
    }

    /// Publishes to the peer the newly posted receives and the number of receives taken.
    pub(crate) fn offer(&self, qp: &AnyQp, inner: &mut QpInner) {
        let QpInner { engine, carried, .. } = inner;
        let ring = &mut carried.ring;
        let place = ring.shown.map_or(0, |shown| shown.offers);
        let Some(offers) = self.host.published.offers(place) else { return };
        let generation = self.host.published.generation();
        let keys = self.node.keys.read();
        let shared = shared(qp, engine);
        let shared = shared.as_deref();
        let taken = engine.receives_taken(shared);
        let end = taken + (engine.receives_waiting(shared) as u64).min(OFFERED);
        let (before, of) = ring.offered;
        let from = if of == generation { before.max(taken) } else { taken };
        for receive in from..end {
            let room = engine
                .certain_receive(shared, &keys, receive)
                .filter(|room| *room <= LONGEST_OFFER);
            offers.set(receive, generation, room);
        }
        if from < end {
            ring.offered = (end, generation);
        }
        // Stored after the offers. So a sender that reads the new count also finds the new offers.
        offers.set_taken(taken);
    }
}

/// Locks the shared queue of a queue pair, if the receives come from a shared queue.
#[inline]
fn shared<'a>(qp: &'a AnyQp, engine: &Qp) -> Option<RankedGuard<'a, Srq, ranks::SharedReceives>> {
    let shared = if engine.config().uses_srq { qp.own.shared() } else { None };
    shared.map(|shared| shared.receives.lock())
}

/// The number of the oldest receive open to a queue pair.
#[inline]
fn next_receive(qp: &AnyQp, inner: &QpInner) -> u64 {
    inner.engine.receives_taken(shared(qp, &inner.engine).as_deref())
}

/// The number of the peer's next receive and its size, or how the message is handled otherwise.
#[inline]
fn room(offers: &Offers, peer: &Peer, sent: &mut Sent) -> Result<(u64, u32), Passed> {
    let next = *sent.receive.get_or_insert_with(|| offers.taken());
    let generation = peer.tables.generation();
    if let Some(room) = offers.get(next, generation) {
        return Ok((next, room));
    }
    if offers.taken() != next && !sent.is_placed(peer) {
        return Err(Passed::Later);
    }
    // The peer writes new offers before it stores the count of taken receives. So a second look
    // finds every offer.
    offers.get(next, generation).map(|room| (next, room)).ok_or(Passed::ByPackets)
}

#[inline]
fn parse(body: &[u8]) -> Option<([u32; 3], &[u8])> {
    let (head, payload) = body.split_first_chunk::<HEAD>()?;
    let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    Some(([word(0), word(4), word(8)], payload))
}
