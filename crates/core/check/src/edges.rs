//! Events left in a descriptor while an edge-triggered `epoll` reports only new events.
use crate::report::Reporter;
use crate::{Code, CodeAddress};
use std::collections::HashMap;
use std::fmt;

/// Kind of the events of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// Completion events, of a channel.
    Completions,
    /// Asynchronous events, of a context.
    Asynchronous,
}

impl fmt::Display for Reads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reads::Completions => "completion events",
            Reads::Asynchronous => "asynchronous events",
        })
    }
}

/// A descriptor from which a program takes events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// Descriptor number.
    pub number: i32,
    /// Identity of the file, because another file may get the same number later.
    pub file: u64,
    /// The program's handle of the channel or context.
    pub handle: usize,
}

/// A thread took an event and left more events, and no thread has taken them yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// The descriptor.
    pub of: Descriptor,
    /// Kind of the events.
    pub reads: Reads,
    /// The thread that took the last event.
    pub thread: i32,
    /// Number of events taken so far.
    pub taken: u64,
}

/// State of a descriptor.
#[derive(Debug)]
struct Edge {
    file: u64,
    handle: usize,
    reads: Reads,
    thread: i32,
    taken: u64,
    left: bool,
    /// The program polls until there is no event, or the descriptor was reported.
    settled: bool,
    /// The call stack that took the last event.
    way: Vec<CodeAddress>,
}

/// State of all descriptors, by number.
#[derive(Debug, Default)]
pub(crate) struct Edges {
    by_number: HashMap<i32, Edge>,
}

impl Edges {
    fn of(&mut self, d: Descriptor, reads: Reads) -> &mut Edge {
        let new = || Edge {
            file: d.file,
            handle: d.handle,
            reads,
            thread: 0,
            taken: 0,
            left: false,
            settled: false,
            way: vec![],
        };
        let edge = self.by_number.entry(d.number).or_insert_with(new);
        if edge.file != d.file {
            *edge = new();
        }
        edge
    }

    /// Returns whether the caller must watch the descriptor.
    pub(crate) fn taken(&mut self, d: Descriptor, reads: Reads, left: bool, thread: i32) -> bool {
        let edge = self.of(d, reads);
        edge.taken += 1;
        (edge.left, edge.thread) = (left, thread);
        left && !edge.settled
    }

    pub(crate) fn taken_by(&mut self, d: Descriptor, way: Vec<CodeAddress>) {
        if let Some(edge) = self.by_number.get_mut(&d.number).filter(|edge| edge.file == d.file) {
            edge.way = way;
        }
    }

    pub(crate) fn found_empty(&mut self, d: Descriptor, reads: Reads) {
        let edge = self.of(d, reads);
        (edge.left, edge.settled) = (false, true);
    }

    pub(crate) fn left(&self) -> Vec<Left> {
        let all = self.by_number.iter().filter(|(_, edge)| edge.left && !edge.settled);
        let left = |(number, edge): (&i32, &Edge)| {
            let of = Descriptor { number: *number, file: edge.file, handle: edge.handle };
            Left { of, reads: edge.reads, thread: edge.thread, taken: edge.taken }
        };
        all.map(left).collect()
    }

    pub(crate) fn closed(&mut self, d: Descriptor) {
        self.by_number.retain(|number, edge| *number != d.number || edge.file != d.file);
    }

    pub(crate) fn overslept(&mut self, left: Left, epoll: i32, reporter: &mut Reporter) {
        if !self.left().contains(&left) {
            return;
        }
        let Some(edge) = self.by_number.get_mut(&left.of.number) else { return };
        edge.settled = true;
        let label = |n: usize| if n == 0 { "last event taken" } else { "called" };
        let places: Vec<_> =
            edge.way.iter().enumerate().map(|(n, place)| (label(n), *place)).collect();
        let (reads, number) = (edge.reads, left.of.number);
        reporter.say(Code::EdgeNotDrained, &places, || {
            format!(
                "{reads} are left in descriptor {number}, which the epoll with descriptor {epoll} \
                 watches edge-triggered, and the thread that took the last event sleeps there \
                 without a time limit: an edge reports only new events, so take events until none \
                 is left (EAGAIN) before the next epoll_wait"
            )
        });
    }
}
