//! The effect of a responder's step on the whole queue pair.
use crate::cause::Cause;
use crate::effects::QpEvent;
use alloc::sync::Arc;

/// The effect of a packet or a response on the whole queue pair.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// The queue pair goes on.
    Ok,
    /// The queue pair goes to ERR. The receive at fault is already completed. A NAK, if due, is
    /// queued in the responder, which is polled in ERR too. The caller flushes all other requests
    /// and raises `event`.
    Fatal { cause: Arc<Cause>, event: Option<QpEvent> },
}
