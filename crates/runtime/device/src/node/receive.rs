//! The receive loop over the carriers, and the path from an arrived packet to its queue pair.
use super::batch::{Ask, Batch, DelayedAcks, Receiver, packet_of};
use super::carriers::{Ethernet, Handshake, Near, Placing, Relay, Rings, Udp};
use super::clock::StepClock;
use super::core::Node;
use super::held_keys::HeldKeys;
use super::inject;
use super::policy::LONGEST_AWAY;
use super::policy::yields::Yielded;
use super::pump::has_results;
use super::queue_pair::{AnyQp, QpInner, Receives};
use super::timers::NEVER;
use super::tx::Tx;
use adverb_engine::keys::PagedMemory;
use adverb_engine::qp::Env;
use adverb_engine::{Clock, CqRef, Effects, KeyTable, Packet, Time};
use adverb_link::{Proof, RxFrom, RxPacket, RxRun, dest_qpn};
use adverb_local::{MAD_QPN, MULTICAST_QPN};
use adverb_wire::{Headers, Operation, ParseError};
use nix::sys::resource::{UsageWho, getrusage};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Polls between two looks at the timers.
const TIMERS_EVERY: u64 = 16;
/// Longest wait for the receiving thread. It never takes so long, unless the machine stands still.
const PATIENCE: std::time::Duration = std::time::Duration::from_millis(20);

impl Node {
    /// Receives arrived packets, answers them, and runs due timers. `true` if there was anything to
    /// do. Never blocks: if another thread receives at the moment, this call leaves the work to
    /// that thread.
    pub fn progress(&self) -> bool {
        self.drive(RxFrom::All, false)
    }

    /// As [`Node::progress`], for a thread that waits and drives. Such a thread is known, and its
    /// looks do not count as polls. The background thread runs the timers meanwhile. Plain ACKs are
    /// deferred until the next call, or [`Node::before_sleep`]: if the packet brings an event, the
    /// program answers soon.
    pub(crate) fn progress_waiting(&self) -> bool {
        self.drive_waiting(RxFrom::All)
    }

    /// As [`Node::progress_waiting`], at every socket, for a thread after a wake-up. In a spin, the
    /// sockets are looked at only rarely while peers on this host write.
    pub(crate) fn progress_after_sleep(&self) -> bool {
        self.drive_waiting(RxFrom::Every)
    }

    fn drive_waiting(&self, from: RxFrom) -> bool {
        let hold = self.policy.thread_is_away() || self.policy.drivers.wakes_thread();
        !self.is_stale() && self.pump_pending() | self.receive(from, hold)
    }

    /// A thread that waits and drives is about to sleep. What was deferred leaves.
    pub(crate) fn before_sleep(&self) {
        if self.any_pending.load(Ordering::Acquire) || self.any_delayed.load(Ordering::Relaxed) {
            self.send_what_waits(PATIENCE);
        }
    }

    /// As [`Node::progress`], for a polling program, which comes back soon. Plain ACKs are deferred
    /// until the program posts or polls again ([`DelayedAcks`]). So an ACK leaves in one run with
    /// the program's answer, behind the answer. If the program does not come back, the background
    /// thread sends the ACK within two milliseconds.
    ///
    /// After a poll in vain, the call may yield the processor (`Yields`), and look again.
    pub(crate) fn progress_polling(&self) -> bool {
        let hold = self.policy.thread_is_away();
        self.drive(RxFrom::All, hold)
            || (self.policy.yields.is_due(self.policy.looks()) && self.yields(hold))
    }

    #[cold]
    fn yields(&self, hold: bool) -> bool {
        if self.is_stale() {
            return false;
        }
        let switches = || {
            getrusage(UsageWho::RUSAGE_THREAD)
                .map_or(0, |usage| usage.involuntary_context_switches())
        };
        let before = switches();
        let begun = self.now();
        std::thread::yield_now();
        let ended = self.now();
        let (switched, polls) = (switches() != before, self.policy.looks());
        self.policy.yields.yielded(Yielded { begun, ended, switched, polls });
        self.drive(RxFrom::All, hold)
    }

    /// As [`Node::progress`], for a thread that waits for MADs. Records in rings of peers are left
    /// to other threads.
    pub(super) fn drive_sockets(&self, from: RxFrom) -> bool {
        self.policy.drives();
        self.receive_as(Ask { from, hold: DelayedAcks::None, rings: false })
    }

    fn drive(&self, from: RxFrom, hold: bool) -> bool {
        let polls = self.policy.drives();
        if self.is_stale() {
            return false;
        }
        let any = self.pump_pending() | self.receive(from, hold);
        // Reading the clock costs as much as the rest of an empty poll. The background thread wakes
        // for a deadline by itself. For a polling program, a look every few polls is soon enough.
        let any = any | (polls.is_multiple_of(TIMERS_EVERY) && self.run_timers());
        if any {
            self.policy.yields.found(polls);
        }
        any
    }

    /// Receives arrived packets and answers them: see [`Ask`].
    pub(crate) fn receive(&self, from: RxFrom, hold: bool) -> bool {
        let hold = if hold { DelayedAcks::All } else { DelayedAcks::None };
        self.receive_as(Ask { from, hold, rings: true })
    }

    /// The receive loop. Each carrier gives arrived packets to their queue pairs. The queue pairs
    /// answer.
    pub(super) fn receive_as(&self, ask: Ask) -> bool {
        let rx = self.receiver.try_lock();
        rx.is_some_and(|mut rx| self.receive_with(&mut rx, ask))
    }

    /// Receives what has arrived before, even if another thread receives at this moment: that
    /// thread may have looked already, and may not look again.
    pub(super) fn receive_for_certain(&self) {
        if let Some(mut rx) = self.receiver.try_lock_for(PATIENCE) {
            let hold = DelayedAcks::Answered;
            self.receive_with(&mut rx, Ask { from: RxFrom::All, hold, rings: true });
        }
    }

    fn receive_with(&self, rx: &mut Receiver, mut ask: Ask) -> bool {
        rx.batch.hold = DelayedAcks::None;
        if rx.batch.take_delayed(|| self.now()) {
            self.any_delayed.store(rx.batch.is_delaying(), Ordering::Relaxed);
            self.answer(&mut rx.batch);
        }
        rx.batch.hold = ask.hold;
        Relay(self).receive(rx);
        let mut any = false;
        if ask.rings
            && let Some(rings) = Rings::with_peers(self)
        {
            any = rings.receive(rx);
            match rx.sockets.look(ask, || self.at_latest()) {
                Some(look) => ask = look,
                None => return any,
            }
        }
        if Udp(self).receive(rx, &ask) {
            rx.sockets.busy();
            any = true;
        }
        self.answer(&mut rx.batch);
        self.keep_delay_timer();
        Handshake(self).answer_handshakes() | Ethernet(self).receive() | any
    }

    /// Sends deferred ACKs and requests that wait for the next poll. Receives nothing new.
    pub(super) fn send_what_waits(&self, patience: std::time::Duration) {
        self.pump_pending();
        if let Some(mut rx) = self.receiver.try_lock_for(patience) {
            let batch = &mut rx.batch;
            batch.hold = DelayedAcks::None;
            self.any_delayed.store(false, Ordering::Relaxed);
            batch.take_delayed(|| Time(NEVER));
            self.answer(batch);
        }
    }

    /// Lets the queue pairs in a batch send their answers.
    pub(super) fn answer(&self, batch: &mut Batch) {
        while let Some(qp) = batch.next_touched() {
            qp.touched.store(false, Ordering::Relaxed);
            let mut inner = qp.inner.lock();
            let answered = inner.traffic.is_answered();
            let hold = match batch.hold {
                DelayedAcks::None => false,
                DelayedAcks::Answered => answered,
                DelayedAcks::All => true,
            };
            // A program that waits drives again before it sleeps, or posts its answer before.
            let in_turns = inner.traffic.is_in_turns() && self.policy.drivers.are_known();
            inner.engine.delay_ack(hold);
            // A queue pair with nothing but a deferred ACK is done.
            if !inner.engine.delays_ack() || inner.engine.wants_output() {
                self.pump(&qp, &mut inner, &mut batch.tx);
            }
            let delayed = inner.engine.delays_ack();
            inner.engine.delay_ack(false);
            drop(inner);
            if delayed {
                let until =
                    if answered || in_turns { self.now() + LONGEST_AWAY } else { Time::ZERO };
                batch.delay(qp, until);
                self.any_delayed.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Gives the packets of a run to their queue pairs.
    pub(super) fn dispatch(&self, batch: &mut Batch, mut run: RxRun<'_, '_>) {
        let mut next = run.packets.next();
        while let Some(bytes) = next {
            next = match self.addressee(batch, &run, bytes) {
                Some(qp) => {
                    let next = self.dispatch_to(&mut batch.tx, &qp, bytes, &mut run);
                    batch.touch(qp);
                    next
                }
                None => run.packets.next(),
            };
        }
    }

    /// The queue pair of a packet. `None`: the packet is done.
    fn addressee<'p>(
        &self,
        batch: &mut Batch,
        run: &RxRun<'_, 'p>,
        bytes: &'p [u8],
    ) -> Option<Arc<AnyQp>> {
        let (qpn, head) = (dest_qpn(bytes), &run.head);
        if matches!(qpn, MAD_QPN | MULTICAST_QPN) {
            let p = &run.packet(bytes);
            match Headers::parse(bytes) {
                Ok((headers, payload)) if qpn == MAD_QPN => {
                    self.mads.take(self, p, &headers, payload);
                }
                Ok((headers, payload)) => self.groups.dispatch(self, batch, p, headers, payload),
                Err(why) => self.malformed(p, why),
            }
            return None;
        }
        let Some(qp) = batch.queue_pair(&self.registry.qps, qpn) else {
            self.counters.no_such_qp.fetch_add(1, Ordering::Relaxed);
            log::debug!(
                "dropped a packet from {} for queue pair {qpn:#08x}: no such queue pair",
                head.src
            );
            return None;
        };
        if head.proof.is_forwarded() && head.local.is_none() {
            // The packet is for an address that no queue pair of this process uses.
            self.counters.no_such_qp.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(qp)
    }

    #[cold]
    fn malformed(&self, p: &RxPacket<'_>, why: ParseError) {
        self.counters.malformed.fetch_add(1, Ordering::Relaxed);
        log::debug!("dropped a packet from {}: {why}", p.src);
    }

    #[cold]
    fn not_from_ring(&self, qp: &AnyQp, p: &RxPacket<'_>) {
        self.counters.not_from_ring.fetch_add(1, Ordering::Relaxed);
        log::debug!(
            "dropped a packet from {} for queue pair {:#08x}: the peer of the queue pair is on \
             this host",
            p.src,
            qp.number()
        );
    }

    /// Gives a packet, and the packets behind it in the run, to their queue pair, under one lock.
    /// Returns the first packet for another queue pair.
    fn dispatch_to<'p>(
        &self,
        tx: &mut Tx,
        qp: &Arc<AnyQp>,
        mut bytes: &'p [u8],
        run: &mut RxRun<'_, 'p>,
    ) -> Option<&'p [u8]> {
        let mut inner = qp.inner.lock();
        let mut keys = HeldKeys::of(self);
        let head = run.head;
        let forwarded = head.proof.is_forwarded();
        let is_near = head.proof != Proof::Process
            && Rings::of(self).is_some_and(|rings| rings.has_both_rings(qp, &inner));
        let mut packet = packet_of(&head, Headers::EMPTY, &[]);
        let mut before: &[u8] = &[];
        loop {
            let parsed = packet.headers.parse_after(before, bytes);
            if parsed.is_ok() {
                before = bytes;
            }
            match parsed {
                Ok(payload) if !is_near => {
                    packet.payload = payload;
                    let opcode = packet.headers.bth.opcode;
                    if forwarded {
                        keys.release();
                    }
                    if !Relay(self).pending(qp, &mut inner, &run.packet(bytes), opcode) {
                        inner.carried.relay.answers_directly = forwarded;
                        self.handle_in(tx, qp, &mut inner, &mut keys, &packet, None);
                    }
                }
                Ok(_) => self.not_from_ring(qp, &head),
                Err(why) => self.malformed(&head, why),
            }
            match run.packets.next() {
                Some(next) if dest_qpn(next) == qp.number() => bytes = next,
                next => return next,
            }
        }
    }

    /// Gives a packet to a queue pair. `near`: the packet arrived from a ring. Then only the wait
    /// for a receiver that is not ready needs an exact clock.
    #[inline]
    pub(super) fn handle(
        &self,
        tx: &mut Tx,
        qp: &AnyQp,
        inner: &mut QpInner,
        packet: &Packet<'_>,
        near: Option<Near<'_>>,
    ) {
        self.handle_in(tx, qp, inner, &mut HeldKeys::of(self), packet, near);
    }

    /// As [`Node::handle`], for a packet of a run.
    #[inline]
    fn handle_in(
        &self,
        tx: &mut Tx,
        qp: &AnyQp,
        inner: &mut QpInner,
        keys: &mut HeldKeys<'_>,
        packet: &Packet<'_>,
        near: Option<Near<'_>>,
    ) {
        if inner.outage.is_some() {
            return;
        }
        if inner.faults.is_some()
            && inject::packet(self, qp, inner, &packet.headers, &mut tx.effects)
        {
            keys.release();
            return self.deliver(qp, inner, &mut tx.effects);
        }
        let opcode = packet.headers.bth.opcode;
        if opcode.is_request()
            && inner.engine.owes_read()
            && opcode.operation() != Operation::ReadRequest
        {
            // An earlier READ of the peer reads the memory as it was before this request.
            keys.release();
            self.pump(qp, inner, tx);
        }
        let clock = StepClock::new(&self.clocks, near.is_some());
        self.step(qp, inner, &mut tx.effects, &clock, keys.get(), packet, near);
        if has_results(inner, &tx.effects) {
            keys.release();
            self.deliver(qp, inner, &mut tx.effects);
        }
        if inner.engine.has_kept() {
            keys.release();
            self.handle_kept(tx, qp, inner);
        }
    }

    /// One step of a queue pair's engine.
    #[inline]
    #[allow(clippy::too_many_arguments, reason = "the parts of `Env`")]
    fn step(
        &self,
        qp: &AnyQp,
        inner: &mut QpInner,
        effects: &mut Effects,
        clock: &dyn Clock,
        keys: &KeyTable,
        packet: &Packet<'_>,
        near: Option<Near<'_>>,
    ) {
        let mut source = Receives(&qp.own);
        let wire = near.is_none();
        let memory = PagedMemory { keys, memory: Placing(near) };
        let mut env = Env { clock, keys, memory: &memory, srq: &mut source, effects };
        let executed = inner.engine.counters().executed;
        inner.engine.handle_packet(&mut env, packet);
        if inner.engine.counters().executed != executed {
            let ends = packet.headers.bth.opcode.ends_message();
            inner.traffic.executed(ends, packet.payload.len());
            if wire && ends {
                let receives = effects.completions.iter().any(|(to, _)| *to != CqRef::Send);
                inner.traffic.ended(!receives, inner.commits.requests);
            }
        }
    }

    /// Gives a queue pair the packets that arrived early, when their turn has come.
    #[cold]
    fn handle_kept(&self, tx: &mut Tx, qp: &AnyQp, inner: &mut QpInner) {
        let now = self.now();
        while let Some(kept) = inner.engine.take_turn(now) {
            let keys = self.keys.read();
            self.step(qp, inner, &mut tx.effects, &now, &keys, &kept.packet(), None);
            drop(keys);
            self.deliver(qp, inner, &mut tx.effects);
        }
    }
}
