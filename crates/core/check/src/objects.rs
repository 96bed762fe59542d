//! Created and destroyed objects.
use crate::CodeAddress;
use std::collections::HashMap;
use std::fmt;

/// A kind of object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Kind {
    Region,
    QueuePair,
    Cq,
    Srq,
    Domain,
    AddressHandle,
    Channel,
}

impl Kind {
    const fn words(self) -> (&'static str, &'static str) {
        match self {
            Kind::Region => ("memory region", "deregistered"),
            Kind::QueuePair => ("queue pair", "destroyed"),
            Kind::Cq => ("completion queue", "destroyed"),
            Kind::Srq => ("shared receive queue", "destroyed"),
            Kind::Domain => ("protection domain", "deallocated"),
            Kind::AddressHandle => ("address handle", "destroyed"),
            Kind::Channel => ("completion channel", "destroyed"),
        }
    }

    /// The verb for the end of such an object.
    #[must_use]
    pub const fn ended(self) -> &'static str {
        self.words().1
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words().0)
    }
}

/// The origin of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Made {
    /// The call.
    pub place: CodeAddress,
    /// Hash of the call stack. Objects with the same call stack are treated alike.
    pub way: u64,
}

#[derive(Clone, Copy, Debug)]
struct Live {
    made: Made,
    /// Ordinal number among objects of the same kind and call stack.
    number: u64,
}

/// Counts for a kind and call stack.
#[derive(Clone, Copy, Debug, Default)]
struct ObjectCounts {
    made: u64,
    /// Ordinal number of the latest destroyed object.
    latest: u64,
}

/// Left objects of one kind and place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Left {
    pub(crate) kind: Kind,
    pub(crate) place: CodeAddress,
    pub(crate) left: u64,
    pub(crate) made: u64,
}

/// The objects of a process, by kind and the program's handle.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    live: HashMap<(Kind, usize), Live>,
    ways: HashMap<(Kind, u64), ObjectCounts>,
}

impl Objects {
    /// An object was created. `handle` is the program's handle.
    pub(crate) fn add(&mut self, kind: Kind, handle: usize, made: Made) {
        let way = self.ways.entry((kind, made.way)).or_default();
        way.made += 1;
        self.live.insert((kind, handle), Live { made, number: way.made });
    }

    /// An object was destroyed.
    pub(crate) fn remove(&mut self, kind: Kind, handle: usize) {
        let Some(live) = self.live.remove(&(kind, handle)) else { return };
        if let Some(way) = self.ways.get_mut(&(kind, live.made.way)) {
            way.latest = way.latest.max(live.number);
        }
    }

    /// Objects left although later objects of the same kind and call stack were
    /// destroyed. If a program destroys no object of a kind, or the object is still in use at the
    /// end, there is no mistake.
    pub(crate) fn passed_over(&self) -> Vec<Left> {
        let mut all: HashMap<(Kind, u64), Left> = HashMap::new();
        for ((kind, _), live) in &self.live {
            let at = (*kind, live.made.way);
            let Some(way) = self.ways.get(&at).filter(|way| way.latest > live.number) else {
                continue;
            };
            let place = live.made.place;
            let left =
                all.entry(at).or_insert(Left { kind: *kind, place, left: 0, made: way.made });
            left.left += 1;
        }
        let mut all: Vec<_> = all.into_values().collect();
        all.sort_by_key(|left| (left.place, left.made));
        all
    }
}
