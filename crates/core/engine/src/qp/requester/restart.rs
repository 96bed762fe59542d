//! Retransmission after a timeout, and the cursor's return to an earlier PSN.
use super::state::{Cursor, Requester, SgePosition};
use crate::cause::Cause;
use crate::completion::WcStatus;
use crate::qp::Counters;
use crate::qp::context::QpCtx;
use adverb_wire::{Psn, Time};

impl Requester {
    /// A deadline has come.
    pub(crate) fn handle_timeout(&mut self, ctx: &QpCtx<'_>, now: Time, counters: &mut Counters) {
        if self.peer_end.is_some() {
            return self.peer_ended(ctx, now);
        }
        if self.rnr_until.is_some_and(|t| t <= now) {
            self.rnr_until = None;
        }
        self.early_due(now, counters);
        self.window.release_more(self.flying(), self.mtu, now);
        if self.ack_deadline.is_none_or(|t| t > now) {
            return self.probe_if_due(now, counters);
        }
        counters.timeouts += 1;
        if self.retries >= u32::from(ctx.attr.retry_cnt) {
            let cause = Cause::RetryExceeded {
                peer: ctx.attr.av.dgid,
                dest_qpn: ctx.attr.dest_qpn,
                psn: Psn::new(self.una as u32).get(),
                attempts: self.retries + 1,
                last_heard: self.last_heard.map(|at| now.since(at)),
            };
            self.ack_deadline = None;
            self.probe.disarm();
            self.fail(self.sq.head, WcStatus::RetryExcErr, cause);
            return;
        }
        self.retries += 1;
        self.unheard(now);
        self.ack_deadline = self.timeout.map(|t| now + t);
    }

    /// Sends all unacknowledged packets again.
    pub(crate) fn send_again(&mut self) {
        self.go_back(self.una);
    }

    /// Sends again from `psn` on. Later READs and atomics count as never sent.
    pub(super) fn go_back(&mut self, psn: u64) {
        while let Some(read) = self.reads.pop_back_if(|r| r.end > psn) {
            self.ask_again(read);
        }
        self.since_ack_req = 0;
        self.reorder.told();
        self.seek(psn);
        self.window.release(self.flying(), 0, None);
    }

    /// Moves the cursor to an unwrapped PSN at or after the PSN of the head.
    pub(super) fn seek(&mut self, psn: u64) {
        let mut cur = Cursor { idx: self.sq.head, psn, ..Cursor::default() };
        while cur.idx < self.next_start {
            let wqe = self.sq.wqe(cur.idx);
            if wqe.op.is_local() {
                if !wqe.done {
                    break;
                }
            } else if psn < wqe.end() {
                cur.at = (psn - wqe.first) * self.mtu;
                cur.place = self.locate(cur.idx, cur.at);
                break;
            }
            cur.idx += 1;
        }
        self.cur = cur;
    }

    /// Position of byte `at` of a message in its scatter/gather list.
    pub(super) fn locate(&self, idx: u64, at: u64) -> SgePosition {
        let mut left = at;
        let sges = self.sq.sges(idx);
        for (sge, s) in sges.iter().enumerate() {
            if left < u64::from(s.length) {
                return SgePosition { sge, off: left as u32 };
            }
            left -= u64::from(s.length);
        }
        SgePosition { sge: sges.len(), off: 0 }
    }
}
