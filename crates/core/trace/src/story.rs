//! The story of a run, built from all its parts.
//!
//! Records of all processes are handled in the order of their times. Each record becomes a node on
//! a track. Arrows lead to a node from its causes: post → packet sent → packet received →
//! completion → event → the call that takes the event → the poll that takes the completion.
use crate::names;
use crate::record::Name;
use std::collections::HashMap;

/// The value of an argument of a node.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Number(i64),
    Long(u64),
    Pointer(u64),
    Text(String),
}

pub type Arguments = Vec<(&'static str, Value)>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Begins at the time of the node, with this duration; `None`: up to the end of the trace.
    Slice(Option<u64>),
    Instant,
    Counter(i64),
}

/// An event of the run.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    pub track: usize,
    pub t: u64,
    pub kind: Kind,
    pub name: String,
    pub arguments: Arguments,
    /// The nodes with an arrow to this one.
    pub from: Vec<usize>,
}

/// A track of the display.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Track {
    /// A thread of the program, by its number.
    Thread(i32),
    /// Events of the device; nodes on such a track do not overlap.
    Named(String),
    /// Requests of a queue, which overlap and are spread over as many lines as needed.
    Spread(String),
    Counter(String),
}

/// A process of the run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    pub pid: u32,
    pub name: String,
    pub command: Vec<String>,
    /// Start of the process, in nanoseconds since 1970.
    pub wall: u64,
    /// Start of the process on the monotonic clock, in nanoseconds.
    pub began: u64,
    pub threads: Vec<(i32, String)>,
    /// The process recorded its normal end.
    pub ended: bool,
    /// Number of records without room, and of incomplete lines.
    pub dropped: u64,
    pub cut: u64,
}

/// The whole story.
#[derive(Clone, Debug, Default)]
pub struct Story {
    pub processes: Vec<Told>,
    /// Each track with its process.
    pub tracks: Vec<(usize, Track)>,
    /// In the order of creation, which is nearly the order of time.
    pub nodes: Vec<Node>,
    places: HashMap<(usize, Track), usize>,
    /// Packets in flight: the last sent packet for each identity.
    pub(crate) sent: HashMap<(String, String, u32, u32, u8), usize>,
}

impl Story {
    pub(crate) fn track(&mut self, process: usize, track: Track) -> usize {
        let tracks = &mut self.tracks;
        *self.places.entry((process, track)).or_insert_with_key(|key| {
            tracks.push(key.clone());
            tracks.len() - 1
        })
    }

    /// Adds a node without arrows.
    pub(crate) fn add(
        &mut self,
        track: usize,
        t: u64,
        kind: Kind,
        name: String,
        arguments: Arguments,
    ) -> usize {
        self.nodes.push(Node { track, t, kind, name, arguments, from: Vec::new() });
        self.nodes.len() - 1
    }

    /// Adds a call of the program. Its slice is never empty, so that the effects of the call lie
    /// within the slice.
    pub(crate) fn call(
        &mut self,
        process: usize,
        tid: i32,
        t: u64,
        d: u64,
        call: &Name,
        arguments: Arguments,
    ) -> usize {
        let track = self.track(process, Track::Thread(tid));
        self.add(track, t, Kind::Slice(Some(d.max(2))), call.to_string(), arguments)
    }

    pub(crate) fn instant(
        &mut self,
        track: usize,
        t: u64,
        name: String,
        arguments: Arguments,
    ) -> usize {
        self.add(track, t, Kind::Instant, name, arguments)
    }

    pub(crate) fn counter(&mut self, process: usize, name: String, t: u64, value: usize) {
        let track = self.track(process, Track::Counter(name));
        self.add(track, t, Kind::Counter(value as i64), String::new(), Vec::new());
    }

    /// All arrows, as pairs of nodes (from, to).
    pub fn arrows(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.nodes
            .iter()
            .enumerate()
            .flat_map(|(to, node)| node.from.iter().map(move |from| (*from, to)))
    }

    /// The end time of the last node.
    #[must_use]
    pub fn end(&self) -> u64 {
        let end = |node: &Node| match node.kind {
            Kind::Slice(Some(d)) => node.t + d,
            _ => node.t,
        };
        self.nodes.iter().map(end).max().unwrap_or(0)
    }
}

/// A number in the notation of keys and queue pairs.
pub(crate) fn hex(number: u32) -> Value {
    Value::Text(format!("{number:#x}"))
}

pub(crate) fn status(status: u32) -> Value {
    Value::Text(names::status(status).into())
}
