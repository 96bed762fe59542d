//! What a step of the responder does to the queue pair as a whole.
use crate::cause::Cause;
use crate::effects::QpEvent;
use alloc::sync::Arc;

/// What a packet or a response did to the queue pair as a whole.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// It goes on.
    Ok,
    /// It goes to ERR. The receive at fault is completed already and a NAK, if due, is queued in
    /// the responder, which is polled for it in ERR too. The frame flushes the rest and raises
    /// `event`.
    Fatal { cause: Arc<Cause>, event: Option<QpEvent> },
}
