//! What a queue pair keeps on account of its peer's packets: for tests that send it anything at
//! all.
use super::Qp;
use crate::time::Time;
use adverb_wire::Psn;

/// A look inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inside {
    /// PSN of the next request.
    pub expected: Psn,
    /// Oldest PSN of its own requests that is not acknowledged, and the first not sent yet.
    pub unacknowledged: [Psn; 2],
    /// Answers that wait to be sent.
    pub answers: usize,
    /// Results of atomics kept for duplicates.
    pub saved: usize,
    /// Own reads and atomics on their way.
    pub reads: usize,
    /// Packets kept because they came early, requests and answers.
    pub kept: [usize; 2],
    /// When the peer is told of a gap in its requests.
    pub nak_at: Option<Time>,
}

impl Qp {
    /// A look inside.
    #[doc(hidden)]
    #[must_use]
    pub fn inside(&self) -> Inside {
        let (unacknowledged, reads) = self.requester.inside();
        let (expected, answers, saved) = self.responder.inside();
        let kept = [self.responder.reorder.len(), self.requester.reorder().len()];
        let nak_at = self.responder.reorder.due();
        Inside { expected, unacknowledged, answers, saved, reads, kept, nak_at }
    }
}
