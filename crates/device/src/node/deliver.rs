//! From the engine's effects to the completion queues, the events and the timers.
use crate::cq::Cq;
use crate::node::{Node, Timed};
use crate::qp::{Qp, QpInner};
use adverb_engine::{Cause, Completion, CqRef, Effects, QpEvent, QpState, Time};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Node {
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

/// Adds a completion to a queue, if there is one.
fn push(cq: Option<&Arc<Cq>>, completion: Completion, now: impl FnOnce() -> Time) -> Result<(), Cause> {
    cq.map_or(Ok(()), |cq| cq.push(completion, now))
}
