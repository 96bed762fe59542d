//! Failures of a request and of the whole queue pair, and their flushes.
use super::Qp;
use super::verdict::Verdict;
use crate::cause::Cause;
use crate::completion::WcStatus;
use crate::effects::{Effects, QpEvent};
use crate::types::QpState;
use alloc::sync::Arc;

impl Qp {
    /// Fails the queue pair from outside (its CQ overflowed, its SRQ failed): moves to ERR,
    /// flushes, raises QP_FATAL.
    pub fn fail(&mut self, cause: Cause, effects: &mut Effects) {
        if matches!(self.attr.state, QpState::Reset | QpState::Err) {
            return;
        }
        let cause = Arc::new(cause);
        self.enter_error(Some(Arc::clone(&cause)), Some(QpEvent::Fatal(cause)), effects);
    }

    /// Fails the oldest send request with a status, and so the queue pair, like a NAK or the
    /// silence of the peer. Without a request under way, works like [`Qp::fail`].
    pub fn fail_oldest_send(&mut self, status: WcStatus, cause: Cause, effects: &mut Effects) {
        if !self.requester.has_requests()
            || matches!(self.attr.state, QpState::Reset | QpState::Err)
        {
            return self.fail(cause, effects);
        }
        self.requester.fail(self.requester.sq.head, status, cause);
        self.settle(effects);
    }

    /// Runs after a step of the requester. A failed request flushes the send queue, and a drained
    /// send queue is reported.
    pub(super) fn settle(&mut self, effects: &mut Effects) {
        if let Some(cause) = self.requester.take_failure(&self.config, effects) {
            if self.config.qp_type.is_reliable() {
                self.enter_error(Some(cause), None, effects);
            } else {
                // UC and UD keep receiving (IBTA 10.3.1.6).
                self.attr.state = QpState::Sqe;
                self.attr.sq_draining = false;
                self.first_error = Some(cause);
                let cause = self.flush_cause();
                self.requester.flush(&self.config, &cause, effects, &mut self.counters);
            }
        }
        if self.attr.sq_draining && self.requester.is_drained() {
            self.attr.sq_draining = false;
            if self.attr.en_sqd_async_notify {
                effects.events.push(QpEvent::SqDrained);
            }
        }
    }

    pub(super) fn apply(&mut self, verdict: Verdict, effects: &mut Effects) {
        match verdict {
            Verdict::Ok => {}
            Verdict::Fatal { cause, event } => self.enter_error(Some(cause), event, effects),
        }
    }

    /// Moves to ERR and flushes both queues in order. A cause of `None` means that the consumer
    /// asked for ERR.
    pub(super) fn enter_error(
        &mut self,
        cause: Option<Arc<Cause>>,
        event: Option<QpEvent>,
        effects: &mut Effects,
    ) {
        if self.attr.state == QpState::Err {
            return;
        }
        self.attr.state = QpState::Err;
        self.attr.sq_draining = false;
        self.first_error = cause;
        let cause = self.flush_cause();
        self.requester.flush(&self.config, &cause, effects, &mut self.counters);
        self.responder.flush(&self.config, &cause, effects, &mut self.counters);
        effects.events.extend(event);
        if self.config.uses_srq {
            // The queue pair takes no more receives from the SRQ. Its active receive was completed
            // above (IBTA 11.6.3.1.3).
            effects.events.push(QpEvent::LastWqeReached);
        }
    }

    pub(super) fn flush_cause(&self) -> Arc<Cause> {
        Arc::new(Cause::Flushed { first: self.first_error.clone() })
    }
}
