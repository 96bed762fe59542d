//! Parts of the ledger's state: open events of rdma_cm, descriptors with events, calls and
//! completions that failed.
use crate::CodeAddress;
use crate::values::{Completed, Left};

/// An event that the program has taken and not acknowledged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenEvent {
    /// The program's address of the event.
    pub(crate) event: usize,
    /// The id or the membership that the event counts for.
    pub(crate) owner: usize,
    pub(crate) kind: u32,
    pub(crate) place: CodeAddress,
}

/// State of a descriptor.
#[derive(Debug)]
pub(crate) struct Edge {
    /// The last event taken.
    pub(crate) last: Left,
    pub(crate) left: bool,
    /// The program polls until there is no event, or the descriptor was reported.
    pub(crate) settled: bool,
    /// The call stack that took the last event.
    pub(crate) way: Vec<CodeAddress>,
}

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
