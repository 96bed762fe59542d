//! Raw frames into receives.
use super::inbound::Active;
use super::state::Responder;
use crate::completion::{Completion, WcOpcode, WcStatus};
use crate::effects::{CountedOp, CqRef, Unfit};
use crate::memory::Memory;
use crate::qp::context::QpCtx;
use crate::qp::verdict::Verdict;
use crate::qp::{Counters, DropReason, Env, NoRecv, RecvSource};
use adverb_wire::NakCode;

impl Responder {
    /// Is a receive available?
    pub(in crate::qp) fn has_receive(&self) -> bool {
        self.active.is_some() || self.rq.len > 0
    }

    pub(in crate::qp) fn handle_frame<M: Memory + ?Sized, S: RecvSource + ?Sized>(
        &mut self,
        ctx: &QpCtx<'_>,
        env: &mut Env<'_, M, S>,
        frame: &[u8],
        counters: &mut Counters,
    ) -> Verdict {
        match &mut self.active {
            Some(active) => active.rewind(),
            None => {
                let taken = match ctx.config.uses_srq {
                    _ if self.receives_hidden => Err(NoRecv::Empty),
                    true => env.srq.pop(None),
                    false => self.rq.pop().ok_or(NoRecv::Empty),
                };
                self.active = taken.ok().map(|wqe| Active::new(wqe, None));
            }
        }
        let Some(active) = &mut self.active else {
            counters.drop(DropReason::NoReceive);
            return Verdict::Ok;
        };
        if active.room() < frame.len() as u64 {
            let (message, buffers) = (frame.len() as u64, active.capacity);
            env.effects.unfit = Some(Unfit { message, buffers });
            counters.drop(DropReason::RecvTooShort);
            return Verdict::Ok;
        }
        let placed = active
            .check(env.keys, frame.len())
            .and_then(|()| active.place(env.keys, env.memory, frame));
        if let Err(cause) = placed {
            counters.drop(DropReason::Buffers);
            let code = NakCode::RemoteOperational;
            return self.fail(ctx, env.effects, code, cause, WcStatus::LocProtErr);
        }
        let mut c = Completion::success(active.wqe.wr_id, ctx.config.qpn, WcOpcode::Recv);
        c.byte_len = frame.len() as u32;
        self.active = None;
        counters.executed = counters.executed.wrapping_add(1);
        if ctx.config.counted {
            env.effects.count(CountedOp::Recv, frame.len() as u64, true);
        }
        env.effects.completions.push((CqRef::Recv, c));
        Verdict::Ok
    }
}
