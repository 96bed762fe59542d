//! Completions: one for each signaled or failed request and one for each receive, in order, each
//! with a reason.
use super::responder::{Fatal, Received};
use super::{Check, Op, Violation, ensure};
use crate::world::{PD, QPN, World, XRC_SRQN};
use adverb_engine::{Access, Completion, CqRef, QpState, QpType, SendOp, WcOpcode, WcStatus};

impl World {
    /// A completion of the send queue.
    pub(crate) fn check_send_completion(&mut self, q: usize, c: &Completion) -> Check {
        let (reliable, state) = (self.ends[q].is_reliable(), self.ends[q].engine.state());
        let flow = &self.ends[q].flow;
        let Some(index) = flow.ops[..flow.committed].iter().position(|o| o.id == c.wr_id) else {
            return Err(Violation(format!(
                "a completion of request {}, which is not posted",
                c.wr_id
            )));
        };
        ensure!(index >= flow.head, "request {} completes again or out of order", c.wr_id);
        let op = &flow.ops[index];
        ensure!(
            c.opcode == op.opcode(),
            "request {} ({:?}) completes as {:?}",
            op.id,
            op.op,
            c.opcode
        );
        let flushed = c.status == WcStatus::WrFlushErr;
        for passed in &flow.ops[flow.head..index] {
            let silent = passed.is_silent() && passed.is_finished(reliable);
            let ok = silent && !flow.failed;
            ensure!(ok, "request {} completes, but {} before it did not", c.wr_id, passed.id);
        }
        if c.status == WcStatus::Success {
            ensure!(!flow.failed, "request {} succeeds after another failed", op.id);
            ensure!(!op.is_silent(), "request {} completes unasked", op.id);
            ensure!(op.is_finished(reliable), "request {} ({:?}) succeeds too early", op.id, op.op);
            let len = match c.opcode {
                WcOpcode::RdmaRead => op.len,
                WcOpcode::CompSwap | WcOpcode::FetchAdd => 8,
                _ => 0,
            };
            ensure!(u64::from(c.byte_len) == len, "request {}: length {} in it", op.id, c.byte_len);
        } else if flushed {
            let broken = matches!(state, QpState::Err | QpState::Sqe);
            ensure!(broken, "request {} is flushed in {state:?}", op.id);
        } else {
            ensure!(!flow.failed, "request {} fails by itself after another failed", op.id);
            self.explain(q, op, c.status)?;
        }
        let end = &mut self.ends[q];
        end.flow.head = index + 1;
        end.flow.failed |= c.status != WcStatus::Success;
        end.doomed |= !flushed && c.status != WcStatus::Success;
        Ok(())
    }

    /// Is there a reason for this status?
    fn explain(&self, q: usize, op: &Op, status: WcStatus) -> Check {
        let end = &self.ends[q];
        let link = &self.config.links[q / 2];
        let reason = match status {
            WcStatus::RetryExcErr => {
                let tries = op.tries > u32::from(link.retry_cnt) || op.packets > 1;
                tries && end.is_reliable() && self.may_time_out(q, op)
            }
            WcStatus::RnrRetryExcErr => {
                link.rnr_retry != 7 && end.flow.rnr_naks > u32::from(link.rnr_retry)
            }
            WcStatus::RemAccessErr | WcStatus::RemInvReqErr | WcStatus::RemOpErr => {
                op.refused == Some(status)
            }
            WcStatus::MwBindErr => op.key_result == Some(false),
            WcStatus::LocProtErr => {
                let reads = op.is_answered() && !matches!(op.op, SendOp::AtomicWrite(_));
                let need = if reads { Access::LOCAL_WRITE } else { Access::empty() };
                let keys = &self.devices[end.device].naive;
                let device = &self.devices[end.device];
                let open = |s: &adverb_engine::Sge| {
                    let pieces = keys.local(PD, s.lkey, need, s.addr, s.length);
                    pieces.is_some_and(|p| !device.faults(s.lkey, &p))
                };
                op.shaky || !op.inline && !op.sges.iter().all(open)
            }
            WcStatus::LocLenErr => match op.op {
                SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. } => op.len < 8,
                SendOp::AtomicWrite(_) => op.len != 8,
                _ => end.kind == QpType::Ud && op.len > end.mtu,
            },
            _ => false,
        };
        ensure!(reason, "request {} ({:?}) fails with {status:?} without a reason", op.id, op.op);
        let answered = op.is_answered() && !matches!(op.op, SendOp::AtomicWrite(_));
        // The answer to an executed request may be lost, or an RNR NAK of an earlier attempt may
        // come late.
        let unaware = matches!(status, WcStatus::RetryExcErr | WcStatus::RnrRetryExcErr);
        let harmless = unaware || answered && status == WcStatus::LocProtErr;
        ensure!(
            harmless || !op.executed || op.refused.is_some(),
            "request {} fails with {status:?} but was executed",
            op.id
        );
        Ok(())
    }

    /// May a requester fail to get an answer?
    fn may_time_out(&self, q: usize, op: &Op) -> bool {
        let peer = &self.ends[self.ends[q].peer];
        let f = &self.config.faults;
        let up = matches!(peer.engine.state(), QpState::Rtr | QpState::Rts | QpState::Sqd);
        if up && self.net.calm_since.is_some_and(|t| op.sent_at > t) {
            // The last try met no obstacle. But a repeated READ without a valid key gets no answer.
            return self.is_gone(self.ends[q].peer, op);
        }
        !up || self.net.harmed > 0 || !self.config.is_lossless() || f.jitter > 0 || f.duplicate > 0
            // A copy of a packet from before a reconnect may make the peer ask again without
            // success.
            || self.epoch_of(q) > 1
    }

    /// A completion of a receive. `received` and `fatal` are the expectations of the current
    /// packet.
    pub(crate) fn check_recv_completion(
        &mut self,
        q: usize,
        cq: CqRef,
        c: &Completion,
        received: &mut Option<Received>,
        fatal: &mut Option<Fatal>,
    ) -> Check {
        let end = &mut self.ends[q];
        let state = end.engine.state();
        let due = if end.kind == QpType::XrcRecv {
            CqRef::XrcSrq(XRC_SRQN + end.device as u32)
        } else {
            CqRef::Recv
        };
        ensure!(cq == due, "receive {} completes to {cq:?}, not {due:?}", c.wr_id);
        ensure!(
            c.qpn == QPN + q as u32,
            "receive {} completes for queue pair {:#x}",
            c.wr_id,
            c.qpn
        );
        let flushed = c.status == WcStatus::WrFlushErr;
        let recv = match end.rx.active.take() {
            Some(recv) => Some(recv),
            None if flushed => end.rx.recvs.pop_front(),
            None => None,
        };
        let Some(recv) = recv.filter(|r| r.id == c.wr_id) else {
            return Err(Violation(format!(
                "receive {} completes with {:?}, not its turn",
                c.wr_id, c.status
            )));
        };
        if flushed {
            ensure!(state == QpState::Err, "receive {} is flushed in {state:?}", recv.id);
            return Ok(());
        }
        if c.status != WcStatus::Success {
            let due = fatal.as_mut().and_then(|f| f.receive.take());
            ensure!(
                due == Some(c.status),
                "receive {} fails with {:?}, due is {due:?}",
                recv.id,
                c.status
            );
            return Ok(());
        }
        let Some(r) = received.take() else {
            return Err(Violation(format!("receive {} succeeds, but no message ended", recv.id)));
        };
        let got = (c.opcode, u64::from(c.byte_len), c.imm, c.flags, c.src_qpn, c.solicited);
        let due = (r.opcode, r.byte_len, r.imm, r.flags, r.src_qpn, r.solicited);
        ensure!(got == due, "receive {}: completion has {got:?}, due is {due:?}", recv.id);
        Ok(())
    }
}
