//! Receiving: the one loop over the carriers, and from an arrival to its queue pair.
use super::carriers::Carrier;
use super::carriers::frames::Ethernet;
use super::carriers::relay::Relay;
use super::carriers::ring::{Handshake, Near, Placing, Rings};
use super::carriers::udp::Udp;
use super::clock::StepClock;
use super::queue_pair::{AnyQp, Owner, QpInner};
use crate::host;
use crate::node::{Node, Tx, inject};
use adverb_engine::keys::PagedMemory;
use adverb_engine::qp::{Env, NoRecv, RecvSource};
use adverb_engine::{Clock, Effects, Gid, Packet, PdId, RecvWqe, Time};
use adverb_link::{MAD_QPN, MULTICAST_QPN, Proof, RxBuffers, RxFrom, RxPacket};
use adverb_memory::Guard;
use adverb_wire::{Headers, Operation};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Datagrams received with one call: each may be a run of 64 KiB.
const DATAGRAMS: usize = 8;

/// Packets handled before the queue pairs they touched may answer, so that acknowledgements
/// coalesce but a sender's window does not starve.
pub(super) const BUDGET: usize = 64;

/// Empty looks at the sockets after which, with peers on this host, they are looked at less often.
const QUIET: u32 = 1024;
/// Namely every so many receives, or when the coarse clock moved since the last look, which is
/// looked at every few receives.
const LOOK_EVERY: u32 = 1024;
const CLOCK_EVERY: u32 = 16;

/// Polls between two looks at the timers.
const TIMERS_EVERY: u64 = 16;

/// What is to be received.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask {
    /// [`RxFrom::All`] in a spin, which looks at the socket that was busy last, and
    /// [`RxFrom::Every`] after a wake-up.
    pub(super) from: RxFrom,
    /// Plain ACKs are held until the program's next poll.
    pub(super) hold: bool,
    /// What peers on this host have written is received, too.
    pub(super) rings: bool,
}

/// State of the one thread that receives at a time.
pub(super) struct Receiver {
    pub(super) buffers: RxBuffers,
    pub(super) batch: Batch,
    /// What peers on this host write to.
    pub(super) rings: host::Rings,
    sockets: Sockets,
}

/// How often the sockets are looked at while peers on this host write to rings. A look at a socket
/// costs a system call, many times what a look at a ring does.
struct Sockets {
    /// Receives in a row that found nothing on them.
    quiet: u32,
    /// When they were looked at last.
    looked: Time,
}

/// What one batch of packets touched.
pub(super) struct Batch {
    pub(super) tx: Tx,
    touched: Vec<Arc<AnyQp>>,
    /// Room for a payload fetched from another process.
    pub(super) scratch: Vec<u8>,
    /// Queue pairs whose plain ACK is held, so that it rides with what the program sends next.
    delayed: Vec<Arc<AnyQp>>,
    /// May ACKs be delayed now?
    delay: bool,
}

impl Batch {
    /// The queue pair of the last packet, if it has this number: packets come in runs.
    #[inline]
    pub(super) fn last(&self, qpn: u32) -> Option<Arc<AnyQp>> {
        self.touched.last().filter(|last| last.number() == qpn).cloned()
    }

    /// A packet of the queue pair was handled: it answers at the end of the batch.
    #[inline]
    pub(super) fn touch(&mut self, qp: Arc<AnyQp>) {
        if !qp.touched.swap(true, Ordering::Relaxed) {
            self.touched.push(qp);
        }
    }

    /// No ACK is held from here on.
    pub(super) fn answer_at_once(&mut self) {
        self.delay = false;
    }

    /// All queue pairs that owe an answer.
    pub(super) fn take_owing(&mut self) -> impl Iterator<Item = Arc<AnyQp>> + use<> {
        std::mem::take(&mut self.delayed).into_iter().chain(std::mem::take(&mut self.touched))
    }
}

impl Receiver {
    pub(super) fn new() -> Self {
        Receiver {
            buffers: RxBuffers::new(DATAGRAMS),
            batch: Batch {
                tx: Tx::new(),
                touched: Vec::with_capacity(BUDGET),
                scratch: Vec::new(),
                delayed: Vec::new(),
                delay: false,
            },
            rings: host::Rings::default(),
            sockets: Sockets { quiet: 0, looked: Time::ZERO },
        }
    }
}

impl Sockets {
    /// How the sockets are looked at in this receive; `None`: not at all.
    #[inline]
    fn look(&mut self, ask: Ask, now: impl Fn() -> Time) -> Option<Ask> {
        self.quiet = self.quiet.checked_add(1).unwrap_or(QUIET + 1);
        if ask.from != RxFrom::All || self.quiet <= QUIET {
            return Some(ask);
        }
        let moved = self.quiet.is_multiple_of(CLOCK_EVERY) && now() != self.looked;
        if !moved && !self.quiet.is_multiple_of(LOOK_EVERY) {
            return None;
        }
        self.looked = now();
        // At all of them: the link counts its looks, too, and every so many of every so many would
        // be none.
        Some(Ask { from: RxFrom::Every, ..ask })
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
        self.drive(RxFrom::All, self.policy.thread_is_away())
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

    /// Receives what has arrived and answers it: see [`Ask`].
    pub(crate) fn receive(&self, from: RxFrom, hold: bool) -> bool {
        self.receive_as(Ask { from, hold, rings: true })
    }

    /// The receive loop: what has arrived by each carrier is given to its queue pairs, which answer.
    pub(super) fn receive_as(&self, mut ask: Ask) -> bool {
        let Some(mut rx) = self.receiver.try_lock() else { return false };
        let rx = &mut *rx;
        rx.batch.delay = false;
        if !rx.batch.delayed.is_empty() {
            self.any_delayed.store(false, Ordering::Relaxed);
            std::mem::swap(&mut rx.batch.delayed, &mut rx.batch.touched);
            self.answer(&mut rx.batch);
        }
        rx.batch.delay = ask.hold;
        Relay(self).receive(rx, &ask);
        let mut any = false;
        if ask.rings
            && let Some(rings) = Rings::with_peers(self)
        {
            any = rings.receive(rx, &ask);
            match rx.sockets.look(ask, || self.at_latest()) {
                Some(look) => ask = look,
                None => return any,
            }
        }
        if Udp(self).receive(rx, &ask) {
            rx.sockets.quiet = 0;
            any = true;
        }
        self.answer(&mut rx.batch);
        Udp(self).keep_held_timer();
        Handshake(self).take_greetings() | Ethernet(self).receive(rx, &ask) | any
    }

    /// Sends held ACKs and requests that wait for the next poll, without taking in anything new.
    pub(super) fn send_what_waits(&self, patience: std::time::Duration) {
        self.pump_pending();
        if let Some(mut rx) = self.receiver.try_lock_for(patience) {
            let batch = &mut rx.batch;
            batch.delay = false;
            self.any_delayed.store(false, Ordering::Relaxed);
            batch.touched.append(&mut batch.delayed);
            self.answer(batch);
        }
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
    pub(super) fn dispatch(&self, batch: &mut Batch, p: &RxPacket<'_>) {
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
            MAD_QPN => return self.mads.take(self, p, &headers, payload),
            MULTICAST_QPN => return self.groups.dispatch(self, batch, p, headers, payload),
            _ => {}
        }
        let Some(qp) = batch.last(qpn).or_else(|| self.qp(qpn)) else {
            self.counters.no_such_qp.fetch_add(1, Ordering::Relaxed);
            log::debug!("dropped a packet from {} for queue pair {qpn:#08x}: no such queue pair", p.src);
            return;
        };
        if p.proof.is_handed_on() && p.local.is_none() {
            // For an address that none of our queue pairs uses.
            self.counters.no_such_qp.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let mut inner = qp.inner.lock();
        if p.proof != Proof::Process && Rings::of(self).is_some_and(|rings| rings.has_both_lanes(&qp, &inner))
        {
            self.counters.not_from_lane.fetch_add(1, Ordering::Relaxed);
            log::debug!(
                "dropped a packet from {} for queue pair {qpn:#08x}: its peer is on this host",
                p.src
            );
            return;
        }
        if Relay(self).stash(&qp, &mut inner, p, headers.bth.opcode) {
            return;
        }
        inner.carried.relay.was_asked(p.proof.is_handed_on());
        self.handle(&mut batch.tx, &qp, &mut inner, &packet_of(p, headers, payload), None);
        drop(inner);
        batch.touch(qp);
    }

    /// Gives a packet to a queue pair; `near`: from a ring, where nothing but a receiver that is not
    /// ready has to be timed to the microsecond.
    pub(super) fn handle(
        &self,
        tx: &mut Tx,
        qp: &AnyQp,
        inner: &mut QpInner,
        packet: &Packet<'_>,
        near: Option<Near<'_>>,
    ) {
        if inner.faults.is_some() && inject::packet(self, qp, inner, &packet.headers, &mut tx.effects) {
            return self.deliver(qp, inner, &mut tx.effects);
        }
        let opcode = packet.headers.bth.opcode;
        if opcode.is_request() && inner.engine.owes_read() && opcode.operation() != Operation::ReadRequest {
            // What the peer reads it reads as it was before this request.
            self.pump(qp, inner, tx);
        }
        let guard = match near {
            Some(Near::Fetched(guard)) => Some(guard),
            _ => None,
        };
        self.step(qp, inner, &mut tx.effects, &StepClock::new(self, near.is_some()), packet, guard);
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

/// The shared receive queues that an object knows.
pub(super) struct Receives<'a>(pub(super) &'a dyn Owner);

impl RecvSource for Receives<'_> {
    fn pop(&mut self, xrc_srqn: Option<u32>) -> Result<RecvWqe, NoRecv> {
        self.0.take_receive(xrc_srqn)
    }

    fn pop_message(&mut self, first: &[u8]) -> Result<RecvWqe, NoRecv> {
        self.0.take_matching(first)
    }

    fn pd(&mut self, xrc_srqn: u32) -> Option<PdId> {
        self.0.xrc_pd(xrc_srqn)
    }
}
