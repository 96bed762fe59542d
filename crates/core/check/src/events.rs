//! Taken and acknowledged events.
use crate::CodeAddress;
use std::collections::HashMap;
use std::fmt;

/// The source of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// A completion event of a CQ.
    Completion(u32),
    /// An asynchronous event of a CQ.
    Cq(u32),
    /// An asynchronous event of a queue pair.
    QueuePair(u32),
    /// An asynchronous event of a shared receive queue.
    Srq(u32),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Completion(n) | Source::Cq(n) => write!(f, "CQ {n}"),
            Source::QueuePair(n) => write!(f, "queue pair {n:#x}"),
            Source::Srq(n) => write!(f, "shared receive queue {n}"),
        }
    }
}

impl Source {
    pub(crate) fn call(self) -> &'static str {
        match self {
            Source::Completion(_) => "ibv_ack_cq_events",
            _ => "ibv_ack_async_event",
        }
    }
}

/// Counts for a source.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Taken {
    pub(crate) waiting: u64,
    pub(crate) acknowledged: u64,
    /// The call that took the last event.
    pub(crate) place: CodeAddress,
}

/// Counts for all sources.
#[derive(Debug, Default)]
pub(crate) struct Events {
    by_source: HashMap<Source, Taken>,
}

impl Events {
    pub(crate) fn take(&mut self, source: Source, place: CodeAddress) {
        let taken = self.by_source.entry(source).or_default();
        taken.waiting += 1;
        taken.place = place;
    }

    /// Acknowledges events. Returns how many of the `n` events had not been taken.
    pub(crate) fn acknowledge(&mut self, source: Source, n: u64) -> u64 {
        let taken = self.by_source.entry(source).or_default();
        let too_many = n.saturating_sub(taken.waiting);
        taken.waiting = taken.waiting.saturating_sub(n);
        taken.acknowledged += n;
        too_many
    }

    pub(crate) fn of(&self, source: Source) -> Taken {
        self.by_source.get(&source).copied().unwrap_or_default()
    }

    /// Another source of the same kind with waiting events.
    pub(crate) fn other(&self, than: Source) -> Option<(Source, Taken)> {
        let alike =
            |s: &Source| *s != than && std::mem::discriminant(s) == std::mem::discriminant(&than);
        self.by_source.iter().find(|(s, t)| alike(s) && t.waiting > 0).map(|(s, t)| (*s, *t))
    }

    pub(crate) fn forget(&mut self, source: Source) {
        self.by_source.remove(&source);
    }
}
