//! Deadlines of queue pairs and of moderated or watched completion queues.
//!
//! The queue keeps at most one entry a queue pair that matters, and lets it fire early: an entry whose queue pair has
//! moved its deadline on is put back. So a data path that restarts its timer with every acknowledgement costs
//! one atomic load.
use adverb_engine::Time;
use adverb_sync::Mutex;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicU64, Ordering};

/// Whose deadline it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timed {
    /// A queue pair, by number.
    Qp(u32),
    /// A moderated or watched completion queue, by its number.
    Cq(u32),
    /// Packets that a fault holds.
    Held,
}

/// No deadline.
pub(super) const NEVER: u64 = u64::MAX;

pub(super) struct Timers {
    heap: Mutex<BinaryHeap<Reverse<(u64, Timed)>>>,
    /// Earliest entry, [`NEVER`] without one. SeqCst: the adder stores here and then reads how long the thread sleeps,
    /// the thread does the reverse, and neither may miss the other.
    next: AtomicU64,
}

impl Timers {
    pub(super) fn new() -> Self {
        Timers { heap: Mutex::default(), next: AtomicU64::new(NEVER) }
    }

    /// Earliest deadline.
    pub(super) fn next(&self) -> u64 {
        self.next.load(Ordering::SeqCst)
    }

    /// Enters a deadline; `true` if it is now the earliest.
    pub(super) fn add(&self, at: Time, who: Timed) -> bool {
        let mut heap = self.heap.lock();
        heap.push(Reverse((at.0, who)));
        let earliest = at.0 < self.next.load(Ordering::SeqCst);
        if earliest {
            self.next.store(at.0, Ordering::SeqCst);
        }
        earliest
    }

    /// Takes an entry that is due.
    pub(super) fn pop_due(&self, now: Time) -> Option<Timed> {
        if self.next() > now.0 {
            return None;
        }
        let mut heap = self.heap.lock();
        let due = match heap.peek() {
            Some(Reverse((at, who))) if *at <= now.0 => Some(*who),
            _ => None,
        };
        if due.is_some() {
            heap.pop();
        }
        self.next.store(heap.peek().map_or(NEVER, |Reverse((at, _))| *at), Ordering::SeqCst);
        due
    }
}
