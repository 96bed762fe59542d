//! Pumping queue pairs: packets leave, and the effects of a step reach completion queues, events
//! and timers.
use super::carriers::{DisconnectReason, Ethernet, Nowhere, Relay, Rings, Room, Udp};
use super::core::Node;
use super::queue_pair::{AnyQp, QpInner, Waiting};
use super::reach::no_way;
use super::rendezvous;
use super::timers::Timed;
use super::tx::Tx;
use crate::faults::OutageKind;
use adverb_engine::{Cause, Completion, Effects, QpEvent, QpState, WcStatus};
use std::sync::atomic::Ordering;

impl Node {
    /// Pumps the waiting queue pairs.
    #[inline]
    pub(crate) fn pump_pending(&self) -> bool {
        // In a child of `fork`, the waiting queue pairs belong to the parent.
        self.any_pending.load(Ordering::Acquire) && !self.is_stale() && self.pump_all_pending()
    }

    /// Does all pending work of a queue pair: sends its packets, performs its key operations,
    /// delivers its effects, and keeps its timer.
    pub(crate) fn pump(&self, qp: &AnyQp, inner: &mut QpInner, tx: &mut Tx) {
        inner.waiting = Waiting::default();
        if inner.outage == Some(OutageKind::DeviceFatal) {
            return self.deliver(qp, inner, &mut tx.effects);
        }
        if inner.kept {
            inner.engine.pause_requests(true);
        }
        let rings = if inner.carried.ring.is_near() { Rings::of(self) } else { None };
        let end = match &rings {
            _ if inner.outage.is_some() || inner.loses => Nowhere.pump(self, inner, tx),
            _ if qp.port.is_some() => Ethernet(self).pump(qp, inner, tx),
            Some(rings) => rings.pump(qp, inner, tx),
            None => Udp(self).pump(qp, inner, tx),
        };
        if end == Room::Later {
            self.pump_soon(qp);
        }
        self.deliver(qp, inner, &mut tx.effects);
        self.keep_timer(qp, inner);
        if end == Room::Broken
            && let Some(rings) = rings
        {
            rings.leave_broken(inner);
        }
    }

    /// The requests of a queue pair leave again, after `Qp::keep_requests`.
    pub fn let_requests_go(&self, qpn: u32) {
        let Some(qp) = self.qp(qpn).filter(|_| !self.is_stale()) else { return };
        self.with_tx(|tx| {
            let mut inner = qp.inner.lock();
            inner.kept = false;
            inner.engine.pause_requests(false);
            self.pump(&qp, &mut inner, tx);
        });
    }

    /// Drops the state of an earlier connection.
    pub(crate) fn disconnect(&self, inner: &mut QpInner, end: DisconnectReason) {
        Relay(self).disconnect(inner, end);
        Ethernet(self).disconnect(inner);
        if let Some(rings) = Rings::of(self) {
            rings.disconnect(inner);
        }
    }

    fn pump_all_pending(&self) -> bool {
        self.any_pending.store(false, Ordering::Release);
        let waiting = std::mem::take(&mut *self.pending.lock());
        for qp in &waiting {
            qp.pending.store(false, Ordering::Relaxed);
            self.with_tx(|tx| {
                let mut inner = qp.inner.lock();
                self.pump(qp, &mut inner, tx);
            });
        }
        !waiting.is_empty()
    }

    /// Moves completions to their queues and events to the context, in order. If a queue overflows,
    /// the queue pair fails.
    pub(crate) fn deliver(&self, qp: &AnyQp, inner: &mut QpInner, effects: &mut Effects) {
        Rings::publish_failure(self, qp, inner);
        while !effects.is_empty() {
            if let Some(op) = effects.key_op.take() {
                // The engine has checked the operation under the read lock. A race with another
                // invalidate of the same key has the same result for the peer.
                let _ = self.keys.write().apply(&op);
            }
            inner.rendezvous.extend(effects.rendezvous.drain(..));
            if let Some(unfit) = effects.unfit.take()
                && inner.unfit.is_none()
            {
                inner.unfit = Some(unfit);
                log::warn!("queue pair {:#08x}: {}", qp.number(), unfit.words(qp.qp_type()));
            }
            if let Some(attached) = &inner.attached {
                // Counted before the completion can be polled.
                attached.add(&effects.counted);
                effects.counted.clear();
            }
            let mut overflow = None;
            for (target, completion) in effects.completions.drain(..) {
                if let Some(cause) = &completion.cause {
                    log_failure(self, qp, inner, &completion, cause);
                }
                let added = qp.own.complete(target, completion);
                overflow = overflow.or(added.err());
            }
            for event in effects.events.drain(..) {
                if let QpEvent::Fatal(c) | QpEvent::ReqErr(c) | QpEvent::AccessErr(c) = &event {
                    log::warn!("queue pair {:#08x}: {c}", qp.number());
                }
                qp.own.raise(event);
            }
            if let Some(cause) = overflow
                && inner.engine.state() != QpState::Err
            {
                inner.engine.fail(cause, effects);
                Rings::publish_failure(self, qp, inner);
            }
            if !inner.rendezvous.is_empty() {
                rendezvous::begin(self, qp, inner, effects);
            }
        }
        // The send queue may get room without any effect.
        if !inner.rendezvous.is_empty() {
            rendezvous::begin(self, qp, inner, effects);
        }
    }

    /// Enters the queue pair's deadline, unless an earlier entry exists.
    pub(crate) fn keep_timer(&self, qp: &AnyQp, inner: &QpInner) {
        let Some(at) = inner.engine.poll_timeout() else { return };
        let old = qp.timer_at.load(Ordering::Relaxed);
        if at.0 < old {
            qp.timer_at.store(at.0, Ordering::Relaxed);
            self.enter_timer(at, Timed::Qp(qp.number()), old);
        }
    }
}

/// May [`Node::deliver`] have something to do? If not, a step of a run keeps the keys' lock.
#[inline]
pub(super) fn has_results(inner: &QpInner, effects: &Effects) -> bool {
    !effects.is_empty() || inner.engine.state() == QpState::Err || !inner.rendezvous.is_empty()
}

fn log_failure(node: &Node, qp: &AnyQp, inner: &QpInner, completion: &Completion, cause: &Cause) {
    // The packets may not have left this machine.
    let no_way = match cause {
        Cause::RetryExceeded { .. } => no_way(node, &inner.engine.attr().av),
        _ => None,
    };
    let no_way = no_way.map_or_else(String::new, |why| format!("; {why}"));
    let level = if completion.status == WcStatus::WrFlushErr {
        log::Level::Debug
    } else {
        log::Level::Warn
    };
    let reason = reason_of_peer(inner, cause).map(|reason| format!(": {reason}"));
    log::log!(
        level,
        "queue pair {:#08x}: {:?} completes with {:?} (wr_id {:#x}): {cause}{no_way}{}",
        qp.number(),
        completion.opcode,
        completion.status,
        completion.wr_id,
        reason.unwrap_or_default()
    );
}

/// Why the peer's queue pair refused a request, if the peer is on this host. A NAK has no room for
/// the reason.
fn reason_of_peer(inner: &QpInner, cause: &Cause) -> Option<Cause> {
    let Cause::RemoteNak { dest_qpn, .. } = *cause else { return None };
    inner.carried.ring.peer.as_ref()?.tables.failure(dest_qpn).and_then(Cause::from_words)
}
