//! Calls and completions that failed, as values.
use crate::report::CodeAddress;
use crate::values::Completed;

/// A call that failed.
#[derive(Clone, Debug)]
pub(crate) struct FailedCall {
    pub(crate) name: String,
    pub(crate) why: String,
    pub(crate) place: CodeAddress,
    /// Calls before this call.
    pub(crate) at: u64,
}

/// A polled completion that failed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FailedCompletion {
    pub(crate) done: Completed,
    pub(crate) polled: CodeAddress,
    /// The call that posted the request; 0 if unknown.
    pub(crate) posted: CodeAddress,
    /// The program had moved the queue pair to the error state.
    pub(crate) stopped: bool,
    /// The program has begun anew since: the program has created or reset a queue pair.
    pub(crate) overcome: bool,
}

impl FailedCompletion {
    /// Does this failure explain more than a later failure? A flush only follows a failure.
    pub(crate) fn leads(&self, later: Completed) -> bool {
        !self.overcome && (later.flushed || !self.done.flushed)
    }
}
