//! The queues of a queue pair, as the program may know them: a place is free when a completion that
//! frees it was polled.
use crate::report::Place;
use crate::values::{Piece, QueuePair};
use std::collections::{HashSet, VecDeque};

/// A request as the program posts it.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Request {
    /// The program's number.
    pub wr_id: u64,
    /// Where the program has the request itself; 0 where it has none.
    pub at: usize,
    /// It makes a completion.
    pub signaled: bool,
    /// What it sends or receives.
    pub pieces: Vec<Piece>,
    /// The device writes there: a receive, a read, an atomic.
    pub writes: bool,
    /// What the bytes were when it was posted, as far as that was looked at.
    pub sum: Option<u64>,
    /// The call that posts it.
    pub place: Place,
}

/// A queue pair and what is posted to it.
#[derive(Debug, Default)]
pub(crate) struct Qp {
    pub(crate) of: QueuePair,
    pub(crate) sends: SendQueue,
    pub(crate) receives: VecDeque<Request>,
    /// What the last post took before it found the queue full.
    pub(crate) taken: Vec<Request>,
    /// Requests refused for want of a place, and how many were posted since.
    pub(crate) refused: Vec<(Request, usize)>,
    /// Numbers that were used before.
    pub(crate) numbers: HashSet<u64>,
    /// Where it was given the longest RNR timer.
    pub(crate) longest_timer: Option<Place>,
    /// Its send queue was full, and nothing was posted since.
    pub(crate) full: Option<Full>,
    /// The program put it into the error state.
    pub(crate) stopped: bool,
    /// A completion with an error was polled.
    pub(crate) told: bool,
    /// Posts since then, in the error state.
    pub(crate) in_error: usize,
}

/// How a send queue was found full.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Full {
    pub(crate) place: Place,
    /// Where the last request that makes a completion was posted.
    pub(crate) signaled: Place,
    pub(crate) cq: Option<u32>,
    /// The places that the next completion frees.
    pub(crate) frees: usize,
}

/// Requests posted and not known to be done.
#[derive(Debug, Default)]
pub(crate) struct SendQueue {
    pub(crate) posted: VecDeque<Request>,
}

impl SendQueue {
    /// The requests that a polled completion frees: its own, and those before it.
    ///
    /// Of a request that worked the completion is that of the oldest signaled one of its number; of
    /// one that failed, or was flushed, of the oldest of its number at all.
    pub(crate) fn polled(&mut self, wr_id: u64, ok: bool) -> Vec<Request> {
        let own = self.posted.iter().position(|r| r.wr_id == wr_id && (r.signaled || !ok));
        own.map_or_else(Vec::new, |own| self.posted.drain(..=own).collect())
    }

    /// Completions that may come.
    pub(crate) fn signaled(&self) -> usize {
        self.posted.iter().filter(|r| r.signaled).count()
    }

    /// A request with this key, of which a completion tells.
    pub(crate) fn user_of(&self, lkey: u32) -> Option<&Request> {
        let told = self.posted.iter().rposition(|r| r.signaled)?;
        self.posted.iter().take(told + 1).find(|r| r.pieces.iter().any(|p| p.lkey == lkey && p.length > 0))
    }
}
