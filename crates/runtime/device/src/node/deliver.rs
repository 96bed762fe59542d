//! From the engine's effects to the completion queues, the events and the timers.
use super::carriers::ring::Rings;
use super::queue_pair::{AnyQp, QpInner};
use super::rendezvous;
use crate::node::{Node, Timed};
use adverb_engine::{Cause, Completion, Effects, QpEvent, QpState, WcStatus};
use std::sync::atomic::Ordering;

impl Node {
    /// Moves completions to their queues and events to the context, in order. A queue that
    /// overflows fails the queue pair.
    pub(crate) fn deliver(&self, qp: &AnyQp, inner: &mut QpInner, effects: &mut Effects) {
        Rings::publish_failure(self, qp, inner);
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
            let mut overflow = None;
            for (target, completion) in effects.completions.drain(..) {
                if let Some(cause) = &completion.cause {
                    log_failure(qp, &completion, cause);
                }
                let added = qp.own.complete(target, completion);
                overflow = overflow.or(added.err());
            }
            for event in effects.events.drain(..) {
                if let QpEvent::Fatal(c) | QpEvent::ReqErr(c) | QpEvent::AccessErr(c) = &event {
                    log::info!("queue pair {:#08x}: {c}", qp.number());
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
        // Room in the send queue comes without any effect.
        if !inner.rendezvous.is_empty() {
            rendezvous::begin(self, qp, inner, effects);
        }
    }

    /// Enters the queue pair's deadline unless an earlier entry stands already.
    pub(crate) fn keep_timer(&self, qp: &AnyQp, inner: &QpInner) {
        let Some(at) = inner.engine.poll_timeout() else { return };
        let old = qp.timer_at.load(Ordering::Relaxed);
        if at.0 < old {
            qp.timer_at.store(at.0, Ordering::Relaxed);
            self.enter_timer(at, Timed::Qp(qp.number()), old);
        }
    }
}

fn log_failure(qp: &AnyQp, completion: &Completion, cause: &Cause) {
    let level = if completion.status == WcStatus::WrFlushErr { log::Level::Debug } else { log::Level::Warn };
    log::log!(
        level,
        "queue pair {:#08x}: {:?} completes with {:?} (wr_id {:#x}): {cause}",
        qp.number(),
        completion.opcode,
        completion.status,
        completion.wr_id
    );
}
