//! Events left in a descriptor while an edge-triggered `epoll` reports only new events.
use crate::state::Edge;
use crate::values::{Descriptor, Left, Reads};
use crate::{Code, CodeAddress, Ledger};

impl Ledger {
    fn edge(&mut self, of: Descriptor, reads: Reads) -> &mut Edge {
        let last = Left { of, reads, thread: 0, taken: 0 };
        let new = || Edge { last, left: false, settled: false, way: vec![] };
        let edge = self.edges.entry(of.number).or_insert_with(new);
        if edge.last.of.file != of.file {
            *edge = new();
        }
        edge
    }

    /// A thread took an event from a descriptor. `left`: more events are left in the descriptor.
    /// Returns whether the caller must report the call stack and watch the descriptor.
    pub fn taken_from(&mut self, of: Descriptor, reads: Reads, left: bool, thread: i32) -> bool {
        let edge = self.edge(of, reads);
        edge.last.taken += 1;
        (edge.left, edge.last.thread) = (left, thread);
        left && !edge.settled
    }

    /// The call stack that took the last event of a descriptor, innermost call first.
    pub fn taken_by(&mut self, of: Descriptor, way: Vec<CodeAddress>) {
        if let Some(edge) = self.edges.get_mut(&of.number).filter(|e| e.last.of.file == of.file) {
            edge.way = way;
        }
    }

    /// The program polled a non-blocking descriptor and found no event, so the program knows how to
    /// empty the descriptor.
    pub fn found_empty(&mut self, of: Descriptor, reads: Reads) {
        let edge = self.edge(of, reads);
        (edge.left, edge.settled) = (false, true);
    }

    /// Descriptors with events left in them.
    #[must_use]
    pub fn left(&self) -> Vec<Left> {
        let left = self.edges.values().filter(|edge| edge.left && !edge.settled);
        left.map(|edge| edge.last).collect()
    }

    /// A descriptor was closed.
    pub fn descriptor_closed(&mut self, of: Descriptor) {
        self.edges.retain(|number, edge| *number != of.number || edge.last.of.file != of.file);
    }

    /// The thread `left.thread` has been asleep for long in an `epoll` for new events only.
    pub fn overslept(&mut self, left: Left, epoll: i32) {
        if !self.left().contains(&left) {
            return;
        }
        let Some(edge) = self.edges.get_mut(&left.of.number) else { return };
        edge.settled = true;
        let label = |n: usize| if n == 0 { "last event taken" } else { "called" };
        let places: Vec<_> =
            edge.way.iter().enumerate().map(|(n, place)| (label(n), *place)).collect();
        let (reads, number) = (left.reads, left.of.number);
        self.reporter.say(Code::EdgeNotDrained, &places, || {
            format!(
                "{reads} are left in descriptor {number}, which the epoll with descriptor {epoll} \
                 watches edge-triggered, and the thread that took the last event sleeps there \
                 without a time limit: an edge reports only new events, so take events until none \
                 is left (EAGAIN) before the next epoll_wait"
            )
        });
    }
}
