//! Receiving: from the link to the queue pairs.
use super::clock::StepClock;
use super::placing::{Near, Placing};
use super::queue_pair::{AnyQp, QpInner};
use super::receives::Receives;
use crate::host::{Lanes, Peer, Rings};
use crate::node::{Node, Timed, Tx};
use adverb_engine::keys::PagedMemory;
use adverb_engine::qp::Env;
use adverb_engine::{Clock, Effects, Gid, Packet, Time};
use adverb_link::{MAD_QPN, MULTICAST_QPN, RxBuffers, RxFrom, RxPacket};
use adverb_memory::Guard;
use adverb_wire::{Headers, Operation};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Datagrams received with one call: each may be a run of 64 KiB.
const DATAGRAMS: usize = 8;

/// Packets handled before the queue pairs they touched may answer, so that acknowledgements
/// coalesce but a sender's window does not starve.
const BUDGET: usize = 64;

/// How long a process that ends waits for a thread that receives.
const EXIT_WAIT: Duration = Duration::from_millis(20);
/// A process that ends waits so long for others of this host to take what it has sent them over
/// transports that send nothing again.
const LAST_DELIVERY: Duration = Duration::from_millis(500);
/// Its pace of trying again.
const NAP: Duration = Duration::from_micros(50);

/// Empty looks at the sockets after which, with peers on this host, they are looked at less often.
const QUIET: u32 = 1024;
/// Namely every so many receives, or when the coarse clock moved since the last look, which is
/// looked at every few receives.
const LOOK_EVERY: u32 = 1024;
const CLOCK_EVERY: u32 = 16;
/// Rounds of [`BUDGET`] records after which a full ring is read, and more.
const FULL_RINGS: usize = 128;

/// Receives at most before a queue pair ends.
const ROUNDS: usize = 64;

/// Polls between two looks at the timers.
const TIMERS_EVERY: u64 = 16;

/// State of the one thread that receives at a time.
pub(super) struct Rx {
    buffers: RxBuffers,
    batch: Batch,
    /// What peers on this host write to.
    pub(super) rings: Rings,
    /// Receives in a row that found nothing on the sockets.
    quiet: u32,
    /// When they were looked at last.
    looked: Time,
}

/// What one batch of packets touched.
pub(super) struct Batch {
    pub(super) tx: Tx,
    pub(super) touched: Vec<Arc<AnyQp>>,
    /// Room for a payload fetched from another process.
    pub(super) scratch: Vec<u8>,
    /// Queue pairs whose plain ACK is held, so that it rides with what the program sends next.
    delayed: Vec<Arc<AnyQp>>,
    /// May ACKs be delayed now?
    delay: bool,
}

impl Rx {
    pub(super) fn new() -> Self {
        Rx {
            buffers: RxBuffers::new(DATAGRAMS),
            batch: Batch {
                tx: Tx::new(),
                touched: Vec::with_capacity(BUDGET),
                scratch: Vec::new(),
                delayed: Vec::new(),
                delay: false,
            },
            rings: Rings::default(),
            quiet: 0,
            looked: Time::ZERO,
        }
    }
}

impl Node {
    /// Receives what has arrived, answers it, and runs the timers that are due. `true` if there was
    /// anything. Never blocks: if another thread is at it, that is as good.
    pub fn progress(&self) -> bool {
        self.drive(RxFrom::All, false)
    }

    /// As [`Node::progress`], at every socket: for a thread that something has woken. In a spin
    /// they are looked at only now and then while peers on this host write.
    pub(crate) fn progress_after_sleep(&self) -> bool {
        self.drive(RxFrom::Every, false)
    }

    /// As [`Node::progress`], for a program that polls and so comes back soon: plain ACKs are held
    /// until it posts or polls again, so that they leave in one run with its answer and after it.
    /// The background thread, which is known to look again within a millisecond, sends them if the
    /// program does not come back.
    pub(crate) fn progress_polling(&self) -> bool {
        self.drive(RxFrom::All, self.program_polls())
    }

    /// Sends held ACKs and requests that wait for the next poll, without taking in anything new.
    pub(super) fn send_what_waits(&self) {
        self.pump_pending();
        if let Some(mut rx) = self.rx.try_lock_for(EXIT_WAIT) {
            let batch = &mut rx.batch;
            batch.delay = false;
            self.any_delayed.store(false, Ordering::Relaxed);
            batch.touched.append(&mut batch.delayed);
            self.answer(batch);
        }
    }

    /// As [`Node::send_what_waits`] when the process ends. It may do so in a signal handler that
    /// interrupted a call of ours: then nobody gives back the locks of that, and what they guard is
    /// left as it is.
    pub(super) fn send_at_last(&self) {
        if self.is_stale() || !self.keys_can_be_read() {
            return;
        }
        let waiting = self.pending.try_lock_for(EXIT_WAIT).map(|mut pending| std::mem::take(&mut *pending));
        let mut waiting = waiting.unwrap_or_default();
        let until = Instant::now() + LAST_DELIVERY;
        loop {
            waiting.retain(|qp| {
                qp.inner.try_lock_for(EXIT_WAIT).is_some_and(|mut inner| {
                    self.with_tx(|tx| self.pump(qp, &mut inner, tx));
                    !inner.backlog.is_empty()
                })
            });
            let leaves = self.send_leaving();
            if !leaves && waiting.is_empty() || Instant::now() >= until {
                break;
            }
            std::thread::sleep(NAP);
        }
        let Some(mut rx) = self.rx.try_lock_for(EXIT_WAIT) else { return };
        let batch = &mut rx.batch;
        let held = std::mem::take(&mut batch.delayed);
        for qp in held.into_iter().chain(std::mem::take(&mut batch.touched)) {
            if let Some(mut inner) = qp.inner.try_lock_for(EXIT_WAIT) {
                self.pump(&qp, &mut inner, &mut batch.tx);
            }
        }
    }

    /// Can the keys be read within [`EXIT_WAIT`]?
    fn keys_can_be_read(&self) -> bool {
        let until = Instant::now() + EXIT_WAIT;
        while self.keys.try_read().is_none() {
            if Instant::now() >= until {
                return false;
            }
            std::thread::sleep(NAP);
        }
        true
    }

    /// The program asked for an event, so it is about to sleep: what was held back for its next
    /// poll leaves now. A program that sleeps on the descriptor by itself (`epoll`) instead of in a
    /// get-event call needs the background thread at the sockets.
    pub(crate) fn about_to_sleep(&self) {
        if self.any_pending.load(Ordering::Acquire) || self.any_delayed.load(Ordering::Relaxed) {
            self.send_what_waits();
        }
        if self.policy.arms() {
            self.wake_thread();
        }
    }

    /// The program waits in a get-event call, which drives progress itself.
    pub(crate) fn waits_itself(&self) {
        self.policy.waits();
    }

    /// The program was given an event: it arms and polls next, and the background thread leaves the
    /// sockets to it for a moment.
    pub(crate) fn program_has_an_event(&self) {
        self.policy.given(self.now());
    }

    /// The program polls: what it does after an event has begun.
    #[inline]
    pub(crate) fn program_looks(&self) {
        self.policy.looks_at_queue(|| self.now());
    }

    /// A task of the program waits for an event without a thread of its own: only the background
    /// thread looks.
    pub(crate) fn sleeps_without_us(&self) {
        if self.policy.task_waits() {
            self.wake_thread();
        }
    }

    /// Does the program poll, so that the background thread stays away from the sockets?
    pub(crate) fn program_polls(&self) -> bool {
        self.policy.thread_is_away()
    }

    fn drive(&self, from: RxFrom, hold: bool) -> bool {
        let polls = self.policy.drives();
        if self.is_stale() {
            return false;
        }
        let any = self.pump_pending() | self.receive(from, hold);
        // Reading the clock costs as much as the rest of an empty poll. The background thread wakes
        // for a deadline by itself; a program that polls is in time with every few polls.
        any | (polls.is_multiple_of(TIMERS_EVERY) && self.run_timers())
    }

    /// Receives what has arrived and answers it. `from` is [`RxFrom::All`] in a spin, which looks
    /// at the socket that was busy last, and [`RxFrom::Every`] after a wake-up.
    pub(crate) fn receive(&self, from: RxFrom, hold: bool) -> bool {
        self.receive_all(from, hold, true)
    }

    /// As [`Node::receive`]; what peers on this host have written only `with_rings`.
    pub(super) fn receive_all(&self, mut from: RxFrom, hold: bool, with_rings: bool) -> bool {
        let Some(mut rx) = self.rx.try_lock() else { return false };
        let Rx { buffers, batch, rings, quiet, looked } = &mut *rx;
        batch.delay = false;
        if !batch.delayed.is_empty() {
            self.any_delayed.store(false, Ordering::Relaxed);
            std::mem::swap(&mut batch.delayed, &mut batch.touched);
            self.answer(batch);
        }
        batch.delay = hold;
        self.unstash(|qp, inner, p| {
            if let Ok((headers, payload)) = Headers::parse(p.bytes) {
                inner.direct = true;
                self.handle(&mut batch.tx, qp, inner, &packet_of(p, headers, payload), Near::No);
            }
        });
        let mut any = false;
        if let Some(lanes) = self.lanes.as_ref().filter(|lanes| with_rings && lanes.any()) {
            lanes.refresh(rings);
            any = self.receive_lanes(&mut rings.list, batch);
            // A look at the sockets costs a system call, many times what a look at the lanes does.
            *quiet = quiet.checked_add(1).unwrap_or(QUIET + 1);
            if from == RxFrom::All && *quiet > QUIET {
                let moved = quiet.is_multiple_of(CLOCK_EVERY) && self.at_latest() != *looked;
                if !moved && !quiet.is_multiple_of(LOOK_EVERY) {
                    return any;
                }
                *looked = self.at_latest();
                // At all of them: the link counts its looks, too, and every so many of every so
                // many would be none.
                from = RxFrom::Every;
            }
        }
        let n = self.link.recv(from, buffers, BUDGET, &mut |p| self.dispatch(batch, &p));
        if n > 0 {
            *quiet = 0;
        }
        self.answer(batch);
        self.keep_held_timer();
        self.take_greetings() | self.take_frames() | any | (n > 0)
    }

    /// Takes everything that a peer has written.
    pub(super) fn receive_ring(&self, peer: &Arc<Peer>) {
        let mut rx = self.rx.lock();
        let Rx { batch, rings, .. } = &mut *rx;
        batch.delay = false;
        if let Some(lanes) = &self.lanes {
            lanes.refresh(rings);
        }
        for ring in rings.list.iter_mut().filter(|(p, _)| Arc::ptr_eq(p, peer)) {
            // A ring holds so much and no more; who goes on writing to that of a process that has
            // ended is not heard.
            for _ in 0..FULL_RINGS {
                if !self.receive_lanes(std::slice::from_mut(ring), batch) {
                    break;
                }
            }
        }
    }

    /// Takes what peers on this host had written by now, as far as that ends.
    pub(crate) fn take_what_came(&self) {
        if self.lanes.as_ref().is_some_and(Lanes::any) {
            (0..ROUNDS).take_while(|_| self.receive(RxFrom::All, false)).for_each(drop);
        }
    }

    /// Does some peer's ring hold a record? Waits for who receives, as what that one has seen may
    /// be old.
    pub(super) fn rings_hold(&self, lanes: &Lanes) -> bool {
        let mut rx = self.rx.lock();
        lanes.refresh(&mut rx.rings);
        !rx.rings.are_empty()
    }

    /// Enters when the first packet is due that a fault holds, unless an earlier entry stands
    /// already.
    pub(super) fn keep_held_timer(&self) {
        let Some(left) = self.link.held_for() else { return };
        let at = self.now() + left;
        let old = self.held_at.fetch_min(at.0, Ordering::Relaxed);
        if at.0 < old {
            self.enter_timer(at, Timed::Held, old);
        }
    }

    /// Link upkeep (steering); rare, from the background thread.
    pub(super) fn maintain(&self) {
        if !self.link.maintenance_due() {
            return;
        }
        self.link.maintain(&mut || {
            self.receive(RxFrom::Every, false);
        });
    }

    /// Lets the queue pairs that a batch touched send their answers.
    pub(super) fn answer(&self, batch: &mut Batch) {
        while let Some(qp) = batch.touched.pop() {
            qp.touched.store(false, Ordering::Relaxed);
            let mut inner = qp.inner.lock();
            inner.engine.delay_ack(batch.delay);
            // What has nothing but an ACK that waits is done.
            if !inner.engine.delays_ack() || inner.engine.wants_output() {
                self.pump(&qp, &mut inner, &mut batch.tx);
            }
            let delayed = inner.engine.delays_ack();
            inner.engine.delay_ack(false);
            drop(inner);
            if delayed {
                batch.delayed.push(qp);
                self.any_delayed.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Gives one packet to its queue pair.
    fn dispatch(&self, batch: &mut Batch, p: &RxPacket<'_>) {
        let (headers, payload) = match Headers::parse(p.bytes) {
            Ok(parsed) => parsed,
            Err(e) => {
                self.counters.malformed.fetch_add(1, Ordering::Relaxed);
                log::debug!("dropped a packet from {}: {e}", p.src);
                return;
            }
        };
        let qpn = headers.bth.dest_qpn;
        match qpn {
            MAD_QPN => return self.take_mad(p, &headers, payload),
            MULTICAST_QPN => return self.dispatch_group(batch, p, headers, payload),
            _ => {}
        }
        // Packets come in runs: the queue pair of the last one is the likely owner of this one.
        let qp = match batch.touched.last() {
            Some(last) if last.number() == qpn => last.clone(),
            _ => match self.qp(qpn) {
                Some(qp) => qp,
                None => {
                    self.counters.no_such_qp.fetch_add(1, Ordering::Relaxed);
                    log::debug!(
                        "dropped a packet from {} for queue pair {qpn:#08x}: no such queue pair",
                        p.src
                    );
                    return;
                }
            },
        };
        if p.handed_on && p.local.is_none() {
            // For an address that none of our queue pairs uses.
            self.counters.no_such_qp.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let mut inner = qp.inner.lock();
        if !p.direct && self.has_both_lanes(&qp, &inner) {
            self.counters.not_from_lane.fetch_add(1, Ordering::Relaxed);
            log::debug!(
                "dropped a packet from {} for queue pair {qpn:#08x}: its peer is on this host",
                p.src
            );
            return;
        }
        if self.stash(&qp, &mut inner, p, headers.bth.opcode) {
            return;
        }
        inner.direct = p.handed_on;
        self.handle(&mut batch.tx, &qp, &mut inner, &packet_of(p, headers, payload), Near::No);
        drop(inner);
        if !qp.touched.swap(true, Ordering::Relaxed) {
            batch.touched.push(qp);
        }
    }

    /// Gives a packet to a queue pair; `near`: from a lane, where nothing but a receiver that is
    /// not ready has to be timed to the microsecond.
    pub(super) fn handle(
        &self,
        tx: &mut Tx,
        qp: &AnyQp,
        inner: &mut QpInner,
        packet: &Packet<'_>,
        near: Near<'_>,
    ) {
        if inner.faults.is_some() && self.inject(qp, inner, &packet.headers, &mut tx.effects) {
            return self.deliver(qp, inner, &mut tx.effects);
        }
        let opcode = packet.headers.bth.opcode;
        if opcode.is_request() && inner.engine.owes_read() && opcode.operation() != Operation::ReadRequest {
            // What the peer reads it reads as it was before this request.
            self.pump(qp, inner, tx);
        }
        let (is_near, guard) = match near {
            Near::No => (false, None),
            Near::Yes => (true, None),
            Near::Fetched(guard) => (true, Some(guard)),
        };
        self.step(qp, inner, &mut tx.effects, &StepClock::new(self, is_near), packet, guard);
        self.deliver(qp, inner, &mut tx.effects);
        if inner.engine.has_kept() {
            self.handle_kept(tx, qp, inner);
        }
    }

    /// One step of a queue pair's engine.
    #[inline]
    fn step(
        &self,
        qp: &AnyQp,
        inner: &mut QpInner,
        effects: &mut Effects,
        clock: &dyn Clock,
        packet: &Packet<'_>,
        guard: Option<&Guard<'_>>,
    ) {
        let keys = self.keys.read();
        let mut source = Receives(&qp.own);
        let memory = PagedMemory { keys: &keys, memory: Placing(guard) };
        let mut env = Env { clock, keys: &keys, memory: &memory, srq: &mut source, effects };
        inner.engine.handle_packet(&mut env, packet);
    }

    /// Gives a queue pair the packets that came early and whose turn it is.
    #[cold]
    fn handle_kept(&self, tx: &mut Tx, qp: &AnyQp, inner: &mut QpInner) {
        let now = self.now();
        while let Some(kept) = inner.engine.take_turn(now) {
            self.step(qp, inner, &mut tx.effects, &now, &kept.packet(), None);
            self.deliver(qp, inner, &mut tx.effects);
        }
    }
}

pub(super) fn packet_of<'a>(p: &RxPacket<'_>, headers: Headers, payload: &'a [u8]) -> Packet<'a> {
    Packet {
        src: gid_of(p.src.ip()),
        dst: gid_of(p.dst),
        traffic_class: p.traffic_class,
        hop_limit: p.hop_limit,
        mtu: None,
        headers,
        payload,
    }
}

fn gid_of(ip: IpAddr) -> Gid {
    crate::interfaces::gid_of(&ip)
}
