//! The end of requests: success when acknowledged or sent, failure, flush.
use super::state::{Cursor, Failure, Requester, SgePosition};
use crate::cause::Cause;
use crate::completion::{Completion, WcFlags, WcOpcode, WcStatus};
use crate::effects::{CqRef, Effects};
use crate::qp::context::QpCtx;
use crate::qp::{Counters, QpConfig};
use crate::wr::SendFlags;
use adverb_wire::Time;
use alloc::sync::Arc;
use core::time::Duration;

/// Longest wait of requests to an ended process before they fail. On a network they would wait for
/// all their retries. In this time a program polls earlier completions, and some programs exit
/// then: `ibv_srq_pingpong` leaves sends behind that its peer has no use for.
const FAREWELL: Duration = Duration::from_millis(100);

impl Requester {
    /// Marks request `idx` as failed. If several requests fail, the earliest counts.
    pub(in crate::qp) fn fail(&mut self, idx: u64, status: WcStatus, cause: Cause) {
        if self.failure.as_ref().is_none_or(|f| idx < f.idx) {
            self.failure = Some(Failure { idx, status, cause: Arc::new(cause) });
        }
    }

    /// The peer's process has ended. Nothing more is sent to the peer, and unanswered requests fail
    /// after [`FAREWELL`].
    pub(crate) fn peer_ended(&mut self, ctx: &QpCtx<'_>, now: Time) {
        let attempts = u32::from(ctx.attr.retry_cnt) + 1;
        let patience = self.timeout.map_or(FAREWELL, |timeout| FAREWELL.min(timeout * attempts));
        let until = *self.peer_end.get_or_insert(now + patience);
        if now >= until && self.has_requests() {
            let cause = Cause::PeerEnded { peer: ctx.attr.av.dgid, dest_qpn: ctx.attr.dest_qpn };
            self.fail(self.sq.head, WcStatus::RetryExcErr, cause);
        }
    }

    /// The host performed a key operation.
    pub(crate) fn key_op_done(
        &mut self,
        config: &QpConfig,
        result: Result<(), Cause>,
        effects: &mut Effects,
    ) {
        let Some(idx) = self.key_op.take() else { return };
        match result {
            Ok(()) => {
                self.sq.wqe_mut(idx).done = true;
                if self.cur.idx == idx {
                    self.cur.idx += 1;
                }
                self.retire(config, effects);
            }
            // IBTA calls this a "memory management operation error", for binds and invalidates
            // alike (11.6.2).
            Err(cause) => self.fail(idx, WcStatus::MwBindErr, cause),
        }
    }

    /// The packet just prepared was not sent, because its memory cannot be read.
    pub(crate) fn transmit_failed(&mut self, addr: u64) {
        if self.sq.head <= self.prepared_idx && self.prepared_idx < self.sq.posted {
            self.fail(self.prepared_idx, WcStatus::LocProtErr, Cause::Fault { addr });
        }
    }

    pub(super) fn fails_at(&self, idx: u64) -> bool {
        self.failure.as_ref().is_some_and(|f| f.idx == idx)
    }

    /// Completes the failed request if its turn has come, and answers the cause. The caller flushes
    /// the rest.
    pub(crate) fn take_failure(
        &mut self,
        config: &QpConfig,
        effects: &mut Effects,
    ) -> Option<Arc<Cause>> {
        let failure = self.failure.take_if(|f| f.idx == self.sq.head)?;
        self.complete_failed(config, failure.status, &failure.cause, effects);
        Some(failure.cause)
    }

    /// Completes the oldest request with a failure.
    fn complete_failed(
        &mut self,
        config: &QpConfig,
        status: WcStatus,
        cause: &Arc<Cause>,
        effects: &mut Effects,
    ) {
        let wqe = self.sq.wqe(self.sq.head);
        let (wr_id, opcode, cause) = (wqe.wr_id, wqe.wc_opcode(), Arc::clone(cause));
        if config.counted {
            effects.count_sent(opcode, wqe.len, false);
        }
        if let Some(cq) = wqe.failure_cq() {
            let completion = Completion::failure(wr_id, config.qpn, opcode, status, cause);
            effects.completions.push((cq, completion));
        }
        self.sq.head += 1;
    }

    /// Completes all requests that were committed with `IBV_WC_WR_FLUSH_ERR`, in order (IBTA
    /// 10.3.1.7). Staged requests stay for the commit.
    pub(crate) fn flush(
        &mut self,
        config: &QpConfig,
        cause: &Arc<Cause>,
        effects: &mut Effects,
        counters: &mut Counters,
    ) {
        while self.sq.head < self.sq.posted {
            self.complete_failed(config, WcStatus::WrFlushErr, cause, effects);
        }
        self.next_start = self.sq.posted;
        self.quiesce(counters);
    }

    /// Resets all state of requests in flight.
    pub(super) fn quiesce(&mut self, counters: &mut Counters) {
        self.reorder.discard(counters);
        self.una = self.high;
        self.pos_una = self.pos_next;
        self.cur = Cursor { idx: self.next_start, psn: self.high, ..Cursor::default() };
        self.reads.clear();
        self.asked.clear();
        self.recovering = None;
        self.failure = None;
        self.retries = 0;
        self.rnr_retries = 0;
        self.ack_deadline = None;
        self.probe.disarm();
        self.rnr_until = None;
        self.key_op = None;
        self.sink = (u64::MAX, 0, SgePosition::default());
    }

    /// Completes, from the head, the requests that are acknowledged or (UC, UD) sent.
    pub(super) fn retire(&mut self, config: &QpConfig, effects: &mut Effects) {
        while self.sq.head < self.next_start && !self.fails_at(self.sq.head) {
            let wqe = self.sq.wqe(self.sq.head);
            let is_done = if wqe.op.is_local() { wqe.done } else { wqe.end() <= self.una };
            if !is_done {
                break;
            }
            self.complete(config, self.sq.head, effects);
            self.sq.head += 1;
        }
        // The cursor may stand on a local request that was done before a loss and is now retired.
        // Another request will take its slot.
        self.cur.idx = self.cur.idx.max(self.sq.head);
    }

    /// Completes a request with success, if the request asked for a completion.
    pub(super) fn complete(&self, config: &QpConfig, idx: u64, effects: &mut Effects) {
        let wqe = self.sq.wqe(idx);
        if config.counted {
            effects.count_sent(wqe.wc_opcode(), wqe.len, true);
        }
        if wqe.flags.contains(SendFlags::SIGNALED) {
            let opcode = wqe.wc_opcode();
            let mut completion = Completion::success(wqe.wr_id, config.qpn, opcode);
            match opcode {
                WcOpcode::RdmaRead | WcOpcode::TmRecv => completion.byte_len = wqe.len as u32,
                WcOpcode::CompSwap | WcOpcode::FetchAdd => completion.byte_len = 8,
                _ => {}
            }
            if wqe.flags.contains(SendFlags::RENDEZVOUS) {
                completion.flags |= WcFlags::TM_DATA_VALID;
                effects.completions.push((CqRef::Recv, completion));
                return;
            }
            effects.completions.push((CqRef::Send, completion));
        }
    }
}
