//! The places of send queues as NICs count them, and the posts that were refused, as values.
use std::collections::{HashMap, VecDeque};

/// The number of posts that are refused although the queue has room.
const REFUSALS: u64 = 32;

/// The send queues of a hunted process.
#[derive(Debug, Default)]
pub(crate) struct Sends {
    /// By number of the queue pair.
    pub(crate) ledgers: HashMap<u32, Ledger>,
    pub(crate) refused: Refused,
}

impl Sends {
    /// The ledger of a queue pair.
    pub(crate) fn ledger(&mut self, qpn: u32) -> &mut Ledger {
        self.ledgers.entry(qpn).or_default()
    }

    /// A completion of a send queue was polled.
    pub(crate) fn polled(&mut self, qpn: u32, wr_id: u64, ok: bool) {
        self.refused.polled += 1;
        if let Some(ledger) = self.ledgers.get_mut(&qpn) {
            ledger.polled(wr_id, ok);
        }
    }
}

/// Requests of a send queue. A request takes its place as on a NIC: until its completion, or the
/// completion of a later request, was polled.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// The `wr_id` of each request, and whether the request is signaled.
    requests: VecDeque<(u64, bool)>,
    staged: usize,
    /// The queue is full as a NIC counts, whether completions are withheld or not.
    pub(crate) strict: bool,
}

impl Ledger {
    fn polled(&mut self, wr_id: u64, ok: bool) {
        let known = self.requests.len() - self.staged;
        // A successful completion belongs to the oldest signaled request with its number.
        let own = |(id, signaled): &(u64, bool)| *id == wr_id && (*signaled || !ok);
        if let Some(at) = self.requests.iter().take(known).position(own) {
            self.requests.drain(..=at);
        }
    }

    /// Is there room for a request in a queue of `depth` places with `staged` staged requests?
    /// `holds`: completions are withheld.
    pub(crate) fn has_room(&mut self, staged: usize, depth: u32, holds: bool) -> bool {
        // Requests that were staged and are no longer staged were dropped.
        let forgotten = self.staged.saturating_sub(staged);
        let kept = self.requests.len() - forgotten;
        self.requests.truncate(kept);
        self.staged -= forgotten;
        self.requests.len() < depth as usize || !(holds || self.strict)
    }

    pub(crate) fn stage(&mut self, wr_id: u64, signaled: bool) {
        self.requests.push_back((wr_id, signaled));
        self.staged += 1;
    }

    pub(crate) fn commit(&mut self) {
        self.staged = 0;
    }
}
/// Posts that were refused because the send queue was full. A program that was refused twice at a
/// place, without a completion in between, retries by itself. There a post may be refused although
/// the queue has room, as for lack of another resource. A program that waits for a completion
/// first, or counts its requests, meets only queues that are really full.
#[derive(Debug, Default)]
pub(crate) struct Refused {
    /// Polled completions of send queues.
    pub(crate) polled: u64,
    /// By place: how many completions were polled at the last refusal, and whether the program
    /// retries.
    places: HashMap<usize, (u64, bool)>,
    made: u64,
}

impl Refused {
    /// A post at `address` was refused because the queue was full.
    pub(crate) fn note(&mut self, address: usize) {
        let (polled, again) = self.places.entry(address).or_insert((u64::MAX, false));
        *again |= *polled == self.polled;
        *polled = self.polled;
    }

    /// Does the hunt refuse a post although there is room?
    pub(crate) fn again(&mut self, address: usize) -> bool {
        let refuses =
            self.made < REFUSALS && self.places.get(&address).is_some_and(|(_, again)| *again);
        self.made += u64::from(refuses);
        refuses
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// HUN-10: a completion frees its own request and all earlier ones, also if an earlier
    /// unsignaled request has the same number.
    #[test]
    fn a_completion_frees_the_signaled_request() {
        let new =
            || Ledger { requests: [(1, false), (1, true), (1, true)].into(), ..Ledger::default() };
        let mut ledger = new();
        ledger.polled(1, true);
        assert_eq!(ledger.requests, [(1, true)]);
        let mut ledger = new();
        ledger.polled(1, false);
        assert_eq!(ledger.requests.len(), 2, "a failed request completes in any case");
    }

    /// HUN-10: a post at a place with a retry and no completion in between is refused although
    /// there is room, up to `REFUSALS` times. No other place is refused, and none that waits for a
    /// completion.
    #[test]
    fn only_what_tries_again_is_refused_with_room() {
        let mut refused = Refused::default();
        assert!(!refused.again(1));
        refused.note(1);
        assert!(!refused.again(1), "it was refused once");
        refused.polled += 1;
        refused.note(1);
        assert!(!refused.again(1), "a completion was polled in between");
        refused.note(1);
        assert!(refused.again(1) && !refused.again(2));
        assert_eq!((0..100).filter(|_| refused.again(1)).count() as u64, REFUSALS - 1);
    }
}
