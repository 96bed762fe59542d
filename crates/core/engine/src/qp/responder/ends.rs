//! The end of the connection at the responder: the last answer, the event, the flush.
use super::state::Responder;
use crate::cause::Cause;
use crate::completion::{Completion, WcOpcode, WcStatus};
use crate::effects::{CountedOp, CqRef, Effects, QpEvent};
use crate::qp::verdict::Verdict;
use crate::qp::{Counters, QpConfig};
use adverb_wire::{NakCode, Psn};
use alloc::sync::Arc;

impl Responder {
    /// Drops the waiting answers and ends the connection with a NAK.
    pub(super) fn end_with(&mut self, psn: Psn, code: NakCode) {
        self.last_answer = Some((psn, self.msn, Some(code)));
        self.responses.end_with(psn, self.msn, Some(code));
    }

    /// Did the connection end with an answer to the request with this PSN, or to a later request?
    pub(crate) fn ended_at_or_after(&self, psn: Psn) -> bool {
        self.last_answer.is_some_and(|(at, ..)| !at.precedes(psn))
    }

    /// Flushes all receives of the queue pair, in order. Drops the waiting answers, except the
    /// answer that ends the connection and the answers before it.
    pub(crate) fn flush(
        &mut self,
        config: &QpConfig,
        cause: &Arc<Cause>,
        effects: &mut Effects,
        counters: &mut Counters,
    ) {
        self.message = None;
        self.reorder.discard(counters);
        self.responses.clear_unless_final();
        self.complete_failed(config, effects, WcStatus::WrFlushErr, cause);
        while let Some(wr_id) = self.rq.pop_id() {
            let status = WcStatus::WrFlushErr;
            let c = Completion::failure(wr_id, config.qpn, WcOpcode::Recv, status, cause.clone());
            if config.counted {
                effects.count(CountedOp::Recv, 0, false);
            }
            effects.completions.push((CqRef::Recv, c));
        }
    }
}

/// The end of the connection when no receive reports the error: an event does (IBTA 9.9.3).
pub(super) fn fatal(code: NakCode, cause: Arc<Cause>) -> Verdict {
    let event = match code {
        NakCode::RemoteAccess => QpEvent::AccessErr(cause.clone()),
        NakCode::RemoteOperational => QpEvent::Fatal(cause.clone()),
        _ => QpEvent::ReqErr(cause.clone()),
    };
    Verdict::Fatal { cause, event: Some(event) }
}
