//! The state that a queue pair keeps because of packets of its peer, for tests that send arbitrary
//! packets.
use super::Qp;
use adverb_wire::{Psn, Time};

/// Internal state of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inside {
    /// PSN of the next request.
    pub expected: Psn,
    /// Oldest unacknowledged PSN of the queue pair's own requests, and the first PSN not sent yet.
    pub unacknowledged: [Psn; 2],
    /// Answers waiting to be sent.
    pub answers: usize,
    /// Results of atomics kept for duplicates.
    pub saved: usize,
    /// Own reads and atomics on their way.
    pub reads: usize,
    /// Buffered early packets: requests and answers.
    pub kept: [usize; 2],
    /// When the NAK for a gap in the peer's requests is due.
    pub nak_at: Option<Time>,
}

impl Qp {
    /// The internal state.
    #[doc(hidden)]
    #[must_use]
    pub fn inside(&self) -> Inside {
        let (unacknowledged, reads) = self.requester.inside();
        let (expected, answers, saved) = self.responder.inside();
        let kept = [self.responder.reorder.len(), self.requester.reorder.len()];
        let nak_at = self.responder.reorder.due();
        Inside { expected, unacknowledged, answers, saved, reads, kept, nak_at }
    }
}
