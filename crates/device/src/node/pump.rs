//! From the engine's output to the link, and from its effects to the completion queues.
use crate::cq::Cq;
use crate::interfaces::{ip_of, is_link_local};
use crate::node::local::Backlog;
use crate::node::{Node, Timed};
use crate::qp::{Qp, QpInner};
use crate::raw::Role;
use adverb_engine::keys::PagedMemory;
use adverb_engine::packet::Data;
use adverb_engine::{
    AddressVector, Cause, Completion, CqRef, Effects, KeyTable, Memory, MemoryFault, Output, QpEvent,
    QpState, Time, Transmit,
};
use adverb_link::{Route, TxBatch, slot_of_qpn};
use adverb_memory::HostMemory;
use adverb_wire::MAX_HEADER_LEN;
use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Scratch of a thread that drives queue pairs: the staging buffer of the link and a place for
/// effects.
pub(crate) struct Tx {
    batch: TxBatch,
    pub(crate) effects: Effects,
}

impl Tx {
    pub(crate) fn new() -> Self {
        Tx { batch: TxBatch::new(), effects: Effects::default() }
    }
}

/// Which packets to another process of this host go to it without the network.
#[derive(Clone, Copy)]
struct Direct {
    requests: bool,
    responses: bool,
}

thread_local! {
    static TX: RefCell<Tx> = RefCell::new(Tx::new());
}

impl Node {
    /// Lends the calling thread's scratch.
    pub(crate) fn with_tx<R>(&self, f: impl FnOnce(&mut Tx) -> R) -> R {
        let mut f = Some(f);
        let mut run = |tx: &mut Tx| f.take().map(|f| f(tx));
        match TX.try_with(|tx| tx.try_borrow_mut().ok().and_then(|mut tx| run(&mut tx))) {
            Ok(Some(result)) => result,
            // A process that exits has taken its thread's scratch down already when what was held
            // back is sent, or does so in a signal handler that interrupted its use.
            _ => run(&mut Tx::new()).expect("not run above"),
        }
    }

    /// Does everything a queue pair wants done: sends its packets, performs its key operations,
    /// delivers what came of it, and keeps its timer.
    pub(crate) fn pump(&self, qp: &Qp, inner: &mut QpInner, tx: &mut Tx) {
        if let Some(Role::Pair(port)) = &qp.raw {
            return self.pump_frames(qp, inner, tx, port);
        }
        if let Some(peer) = inner.peer.take() {
            self.pump_lane(qp, inner, tx, &peer);
            inner.peer.get_or_insert(peer);
            return;
        }
        let now = self.now();
        inner.waiting = (0, 0);
        inner.pumped = now;
        let Tx { batch, effects } = tx;
        let mut keys = self.keys.read();
        let mut sent = false;
        let mut paused = false;
        // Only reliable transports recover from a receiver that is outrun, or from packets gone
        // astray: see `local`.
        let reliable = qp.qp_type().is_reliable();
        let direct = Direct {
            requests: !reliable || inner.engine.is_retrying(),
            responses: !reliable || inner.direct,
        };
        loop {
            if !reliable && !self.has_room(qp, inner) {
                paused = true;
                break;
            }
            let (fault, key_op) = match inner.engine.poll_output(now, &keys, effects) {
                Output::Packet(t) => {
                    sent = true;
                    let QpInner { route, backlog, .. } = inner;
                    (self.transmit(direct, route, backlog, batch, &t, &keys).err(), None)
                }
                Output::Key(op) => (None, Some(op)),
                Output::Idle => {
                    // An ACK that was to be held rides with what went out.
                    if sent && inner.engine.only_ack_waits() {
                        inner.engine.hold_ack(false);
                        sent = false;
                        continue;
                    }
                    break;
                }
            };
            if let Some(fault) = fault {
                inner.engine.transmit_failed(fault, now, effects);
            } else if let Some(op) = key_op {
                drop(keys);
                let result = self.keys.write().apply(&op);
                inner.engine.key_op_done(result, now, effects);
                keys = self.keys.read();
            }
        }
        drop(keys);
        batch.flush(&self.link);
        if !inner.backlog.is_empty() && !self.flush_backlog(qp, inner) {
            if reliable {
                // Lost, as on a network: it will be sent again.
                inner.backlog.clear();
            } else {
                paused = true;
            }
        }
        if paused {
            self.pump_soon(qp);
        }
        self.deliver(qp, inner, effects);
        self.keep_timer(qp, inner);
    }

    /// Has a queue pair pumped by the next poll of the program, or by the background thread.
    pub(crate) fn pump_soon(&self, qp: &Qp) {
        if !qp.dirty.swap(true, Ordering::Relaxed) {
            self.dirty.lock().extend(qp.me());
            self.any_dirty.store(true, Ordering::Release);
            // Awake, the thread looks again by itself; asleep it may not know that there is
            // something to do.
            if self.thread_sleeps() && !self.program_polls() {
                self.wake_thread();
            }
        }
    }

    /// Pumps the queue pairs that wait for it.
    pub(crate) fn pump_dirty(&self) -> bool {
        // In a child of `fork` they are its parent's to pump.
        if !self.any_dirty.load(Ordering::Acquire) || self.is_stale() {
            return false;
        }
        self.any_dirty.store(false, Ordering::Release);
        let waiting = std::mem::take(&mut *self.dirty.lock());
        for qp in &waiting {
            qp.dirty.store(false, Ordering::Relaxed);
            self.with_tx(|tx| {
                let mut inner = qp.inner.lock();
                self.pump(qp, &mut inner, tx);
            });
        }
        !waiting.is_empty()
    }

    /// Stages one packet. The keys are held so that the payload's memory stays registered while it
    /// is copied.
    fn transmit(
        &self,
        direct: Direct,
        cached: &mut Option<(AddressVector, Route)>,
        backlog: &mut Backlog,
        batch: &mut TxBatch,
        t: &Transmit<'_>,
        keys: &KeyTable,
    ) -> Result<(), MemoryFault> {
        let route = match cached {
            Some((av, route)) if av == t.path => *route,
            _ => {
                let Some(route) = self.route(t.path) else { return Ok(()) };
                *cached = Some((*t.path, route));
                route
            }
        };
        let route = Route { traffic_class: t.traffic_class, ..route };
        let mut headers = [0; MAX_HEADER_LEN];
        let len = t.headers.emit(&mut headers);
        let mut fault = Ok(());
        let (size, pad) = (t.payload.len(), t.headers.bth.pad);
        let fill = |out: &mut [u8]| {
            fault = copy_payload(t.payload, keys, out);
            fault.is_ok()
        };
        let bth = &t.headers.bth;
        let direct = if bth.opcode.is_response() { direct.responses } else { direct.requests };
        let other_process = slot_of_qpn(bth.dest_qpn)
            .filter(|slot| direct && !self.link.owns(*slot) && self.link.is_own_address(route.dst.ip()));
        if self.is_looped(&route, t.path) {
            self.send_looped(&route, &headers[..len], size, pad, fill);
            return fault;
        }
        match other_process {
            Some(slot) => backlog.add(slot, &route, &headers[..len], size, pad, fill),
            None => batch.push(&self.link, &route, &headers[..len], size, pad, fill),
        }
        fault
    }

    /// Sends one packet that belongs to no queue pair.
    pub(super) fn send_packet(&self, route: &Route, headers: &[u8], payload: &[u8]) {
        self.with_tx(|tx| {
            let fill = |out: &mut [u8]| {
                out.copy_from_slice(payload);
                true
            };
            tx.batch.push(&self.link, route, headers, payload.len(), 0, fill);
            tx.batch.flush(&self.link);
        });
    }

    /// How packets to an address leave; `None` (a drop) if the local address could not be opened.
    pub(crate) fn route(&self, av: &AddressVector) -> Option<Route> {
        let local = self.open_address(ip_of(&av.sgid), scope_of(&av.sgid, av.scope_id)).ok()?;
        let port = self.link.port();
        let dst = match ip_of(&av.dgid) {
            group if group.is_multicast() => self.link.group_address(group, av.scope_id),
            IpAddr::V4(a) => SocketAddr::from((a, port)),
            IpAddr::V6(a) => SocketAddr::V6(SocketAddrV6::new(a, port, 0, scope_of(&av.dgid, av.scope_id))),
        };
        Some(Route { local, dst, traffic_class: av.traffic_class, hop_limit: av.hop_limit })
    }

    /// Moves completions to their queues and events to the context, in order. A queue that
    /// overflows fails the queue pair.
    pub(crate) fn deliver(&self, qp: &Qp, inner: &mut QpInner, effects: &mut Effects) {
        qp.publish_failure(inner);
        while !effects.is_empty() {
            if let Some(op) = effects.key_op.take() {
                // Checked by the engine under the read lock; a race with another invalidate of the
                // same key is the same outcome for the peer.
                let _ = self.keys.write().apply(&op);
            }
            inner.rendezvous.extend(effects.rendezvous.drain(..));
            if let Some(attached) = &inner.attached {
                // Counted before its completion can be polled.
                attached.add(&effects.counted);
                effects.counted.clear();
            }
            let now = || self.now();
            let mut overflow = None;
            for (target, completion) in effects.completions.drain(..) {
                if let Some(cause) = &completion.cause {
                    qp.log_failure(&completion, cause);
                }
                let pushed = match target {
                    CqRef::Send => push(qp.send_cq.as_ref(), completion, now),
                    CqRef::Recv => push(qp.recv_cq.as_ref(), completion, now),
                    CqRef::XrcSrq(number) => {
                        let srq = self.srq(number);
                        push(srq.as_ref().and_then(|s| s.xrc_cq()), completion, now)
                    }
                };
                overflow = overflow.or(pushed.err());
            }
            for event in effects.events.drain(..) {
                if let QpEvent::Fatal(c) | QpEvent::ReqErr(c) | QpEvent::AccessErr(c) = &event {
                    log::info!("queue pair {:#08x}: {c}", qp.number());
                }
                qp.raise(event);
            }
            if let Some(cause) = overflow
                && inner.engine.state() != QpState::Err
            {
                inner.engine.fail(cause, effects);
                qp.publish_failure(inner);
            }
            if !inner.rendezvous.is_empty() {
                self.begin_rendezvous(qp, inner, effects);
            }
        }
        // Room in the send queue comes without any effect.
        if !inner.rendezvous.is_empty() {
            self.begin_rendezvous(qp, inner, effects);
        }
    }

    /// Enters the queue pair's deadline unless an earlier entry stands already.
    pub(crate) fn keep_timer(&self, qp: &Qp, inner: &QpInner) {
        let Some(at) = inner.engine.poll_timeout() else { return };
        let old = qp.timer_at.load(Ordering::Relaxed);
        if at.0 < old {
            qp.timer_at.store(at.0, Ordering::Relaxed);
            self.enter_timer(at, Timed::Qp(qp.number()), old);
        }
    }
}

/// Copies a packet's payload. On a fault the packet is not sent: its request fails, and the peer is
/// not given bytes that were never there.
pub(super) fn copy_payload(
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

/// Adds a completion to a queue, if there is one.
fn push(cq: Option<&Arc<Cq>>, completion: Completion, now: impl FnOnce() -> Time) -> Result<(), Cause> {
    cq.map_or(Ok(()), |cq| cq.push(completion, now))
}

/// The scope of an address: the interface of a link-local one, else 0.
pub(crate) fn scope_of(gid: &adverb_engine::Gid, scope_id: u32) -> u32 {
    match ip_of(gid) {
        IpAddr::V6(a) if is_link_local(&a) => scope_id,
        _ => 0,
    }
}
