//! Departing answers.
use super::ends::fatal;
use super::responses::ReadFailed;
use super::state::Responder;
use crate::cause::Cause;
use crate::keys::KeyTable;
use crate::memory::MemoryFault;
use crate::packet::Transmit;
use crate::qp::context::QpCtx;
use crate::qp::verdict::Verdict;
use crate::types::QpState;
use adverb_wire::NakCode;
use alloc::sync::Arc;

impl Responder {
    /// Prepares the next answer for [`Responder::response`]. `false`: there is none.
    pub(crate) fn prepare_response(&mut self, ctx: &QpCtx<'_>, keys: &KeyTable) -> bool {
        // Two rounds at most, because a NAK takes the place of a failed READ.
        loop {
            match self.responses.prepare(ctx, keys) {
                Ok(ready) => return ready,
                Err(ReadFailed { psn, cause }) => {
                    let code = NakCode::RemoteAccess;
                    self.end_with(psn, code);
                    if ctx.attr.state != QpState::Err {
                        self.fatal = Some(fatal(code, Arc::new(cause)));
                    }
                }
            }
        }
    }

    /// The answer prepared last.
    pub(crate) fn response<'a>(&'a self, ctx: &QpCtx<'a>) -> Transmit<'a> {
        self.responses.transmit(ctx)
    }

    /// A failure found while an answer was prepared.
    pub(crate) fn take_fatal(&mut self) -> Option<Verdict> {
        self.fatal.take()
    }

    /// The host could not read the payload of the last answer and did not send the answer.
    pub(crate) fn transmit_failed(&mut self, fault: MemoryFault) -> Verdict {
        match self.responses.failed_read() {
            None => Verdict::Ok,
            Some((psn, true)) => {
                self.responses.refuse_repeated(psn, self.msn, NakCode::RemoteOperational);
                Verdict::Ok
            }
            Some((psn, false)) => {
                let code = NakCode::RemoteOperational;
                self.end_with(psn, code);
                fatal(code, Arc::new(Cause::Fault { addr: fault.addr }))
            }
        }
    }
}
