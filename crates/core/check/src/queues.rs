//! The queues of a queue pair, from the program's view: a place is free after the program has
//! polled the completion for this place.
use crate::report::CodeAddress;
use crate::values::{Piece, QueuePair};
use std::collections::{HashSet, VecDeque};

/// Polled completions of a send queue whose numbers of freed places are kept.
const FREED: usize = 4;

/// A request as the program posts it.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Request {
    /// The program's number of the request.
    pub wr_id: u64,
    /// Address of the program's request structure; 0 if there is none.
    pub at: usize,
    /// The request generates a completion.
    pub signaled: bool,
    /// The memory to send or to receive.
    pub pieces: Vec<Piece>,
    /// The device writes to the memory: a receive, a read, or an atomic.
    pub writes: bool,
    /// The request waits for earlier reads and atomics (`IBV_SEND_FENCE`).
    pub fenced: bool,
    /// XRC: the number of the peer's shared receive queue; 0 for none.
    pub srq: u32,
    /// Checksum of the bytes at the post, if computed.
    pub sum: Option<u64>,
    /// The call that posts the request.
    pub place: CodeAddress,
}

impl Request {
    /// Does the request name memory by this key?
    pub(crate) fn uses(&self, lkey: u32) -> bool {
        self.pieces.iter().any(|p| p.lkey == lkey && p.length > 0)
    }
}

/// A queue pair and its posted requests.
#[derive(Debug, Default)]
pub(crate) struct Qp {
    pub(crate) of: QueuePair,
    pub(crate) sends: SendQueue,
    pub(crate) receives: VecDeque<Request>,
    /// The accepted part of the last post, which found the queue full.
    pub(crate) taken: Vec<Request>,
    /// Requests refused because the queue was full, and the number of posts since.
    pub(crate) refused: Vec<(Request, usize)>,
    /// The `wr_id` values used before.
    pub(crate) numbers: HashSet<u64>,
    /// The call that set the longest RNR timer.
    pub(crate) longest_timer: Option<CodeAddress>,
    /// The send queue was full, and nothing has been posted since.
    pub(crate) full: Option<Full>,
    /// The program moved the queue pair to the error state.
    pub(crate) stopped: bool,
    /// The program has polled a completion with an error.
    pub(crate) told: bool,
    /// Posts in the error state since then.
    pub(crate) in_error: usize,
    /// Receives posted so far.
    pub(crate) received: Posts,
    /// Sends posted so far.
    pub(crate) sent: Posts,
    /// Requests that a reset discarded, and the call of the reset.
    pub(crate) discarded: Option<(usize, CodeAddress)>,
    /// The call that made the queue pair, or that last changed its state.
    pub(crate) moved: CodeAddress,
}

/// A completion queue.
#[derive(Debug, Default)]
pub(crate) struct Cq {
    pub(crate) entries: usize,
    /// Completions in the queue, and possible further completions.
    pub(crate) expected: usize,
    pub(crate) made: CodeAddress,
    /// The call that polled the last completion.
    pub(crate) polled: CodeAddress,
    /// The last call that found the queue empty.
    pub(crate) found_empty: CodeAddress,
    /// Completions polled, and later calls of `ibv_poll_cq`, which found none.
    pub(crate) completions: u64,
    pub(crate) empty_polls: u64,
    /// The `wr_id` values of the last `ibv_poll_cq` that found completions, unless
    /// another call has polled a completion since.
    pub(crate) batch: Vec<u64>,
    /// The last arm.
    pub(crate) arm: Option<Arm>,
}

/// An arm of a completion queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arm {
    pub(crate) place: CodeAddress,
    /// Completions polled before the arm.
    pub(crate) after: u64,
    /// A poll has found the queue empty since the arm.
    pub(crate) emptied: bool,
}

/// A shared receive queue.
#[derive(Debug, Default)]
pub(crate) struct Srq {
    /// Receives posted so far.
    pub(crate) received: Posts,
    /// Posted receives without a known completion.
    pub(crate) receives: VecDeque<Request>,
}

/// Removes the oldest receive with this `wr_id`.
pub(crate) fn take_receive(receives: &mut VecDeque<Request>, wr_id: u64) -> Option<Request> {
    let own = receives.iter().position(|r| r.wr_id == wr_id)?;
    receives.remove(own)
}

/// Requests posted so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Posts {
    pub(crate) count: u64,
    /// The call that posted the last request.
    pub(crate) place: CodeAddress,
}

impl Posts {
    pub(crate) fn add(&mut self, requests: &[Request]) {
        self.count += requests.len() as u64;
        self.place = requests.last().map_or(self.place, |request| request.place);
    }
}

/// The state of a full send queue.
#[derive(Clone, Debug)]
pub(crate) struct Full {
    pub(crate) place: CodeAddress,
    /// The call that posted the last signaled request.
    pub(crate) signaled: CodeAddress,
    /// As in [`SendQueue`].
    pub(crate) freed: VecDeque<usize>,
}

/// Posted requests without a known completion.
#[derive(Debug, Default)]
pub(crate) struct SendQueue {
    pub(crate) posted: VecDeque<Request>,
    /// How many places each of the last polled completions has freed.
    pub(crate) freed: VecDeque<usize>,
}

impl SendQueue {
    /// The requests freed by a polled completion: its own request and all earlier requests.
    ///
    /// A successful completion belongs to the oldest signaled request with its `wr_id`. A failed or
    /// flushed completion belongs to the oldest request with its `wr_id`.
    pub(crate) fn polled(&mut self, wr_id: u64, ok: bool) -> Vec<Request> {
        let own = self.posted.iter().position(|r| r.wr_id == wr_id && (r.signaled || !ok));
        let places = own.map_or(0, |own| own + 1);
        self.freed.extend(own.map(|_| places));
        self.freed.drain(..self.freed.len().saturating_sub(FREED));
        self.posted.drain(..places).collect()
    }

    /// Number of possible further completions.
    pub(crate) fn signaled(&self) -> usize {
        self.posted.iter().filter(|r| r.signaled).count()
    }

    /// A request with this key, to be reported by a later completion.
    pub(crate) fn user_of(&self, lkey: u32) -> Option<&Request> {
        let told = self.posted.iter().rposition(|r| r.signaled)?;
        self.posted.iter().take(told + 1).find(|r| r.uses(lkey))
    }
}
