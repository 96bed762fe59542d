//! What happened, put together from all parts of a run.
//!
//! Records of all processes are taken in the order of their times. Each becomes a node on a track,
//! and has arrows from the nodes that led to it: post → packet sent → packet received → completion
//! → event → the call that takes it → the poll that takes the completion.
use crate::names;
use crate::record::Name;
use std::collections::HashMap;

/// What is told of a node.
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
    /// From its time on so long; `None`: to the end of the trace.
    Slice(Option<u64>),
    Instant,
    Counter(i64),
}

/// Something that happened.
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

/// A line of the picture.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Track {
    /// A thread of the program, by its number.
    Thread(i32),
    /// Things of the device: nodes of these do not overlap.
    Named(String),
    /// Requests of a queue, which do: spread over as many lines as it takes.
    Spread(String),
    Counter(String),
}

/// A process of the run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    pub pid: u32,
    pub name: String,
    pub command: Vec<String>,
    /// Nanoseconds since 1970 at its beginning, and its beginning.
    pub wall: u64,
    pub began: u64,
    pub threads: Vec<(i32, String)>,
    /// It said that it ends.
    pub ended: bool,
    /// Records that found no room, and lines that were cut.
    pub dropped: u64,
    pub cut: u64,
}

/// All of it.
#[derive(Clone, Debug, Default)]
pub struct Story {
    pub processes: Vec<Told>,
    /// A track, and its process.
    pub tracks: Vec<(usize, Track)>,
    /// In the order in which they were found out, which is nearly that of their times.
    pub nodes: Vec<Node>,
    places: HashMap<(usize, Track), usize>,
    /// Packets on their way: the last one sent, by what identifies it.
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

    pub(crate) fn add(&mut self, node: Node) -> usize {
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    /// A call of the program. It has some length, so that what comes of it lies in it.
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
        let kind = Kind::Slice(Some(d.max(2)));
        self.add(Node { track, t, kind, name: call.to_string(), arguments, from: Vec::new() })
    }

    pub(crate) fn instant(&mut self, track: usize, t: u64, name: String, arguments: Arguments) -> usize {
        self.add(Node { track, t, kind: Kind::Instant, name, arguments, from: Vec::new() })
    }

    pub(crate) fn counter(&mut self, process: usize, name: String, t: u64, value: usize) {
        let track = self.track(process, Track::Counter(name));
        let kind = Kind::Counter(value as i64);
        self.add(Node { track, t, kind, name: String::new(), arguments: Vec::new(), from: Vec::new() });
    }

    /// Arrows, each as its two ends.
    pub fn arrows(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.nodes.iter().enumerate().flat_map(|(to, node)| node.from.iter().map(move |from| (*from, to)))
    }

    /// The end of the last thing.
    #[must_use]
    pub fn end(&self) -> u64 {
        let end = |node: &Node| match node.kind {
            Kind::Slice(Some(d)) => node.t + d,
            _ => node.t,
        };
        self.nodes.iter().map(end).max().unwrap_or(0)
    }

    /// Nodes whose name is this.
    pub fn named<'s>(&'s self, name: &'s str) -> impl Iterator<Item = (usize, &'s Node)> {
        self.nodes.iter().enumerate().filter(move |(_, node)| node.name == name)
    }
}

/// A number as keys and queue pairs are written.
pub(crate) fn hex(number: u32) -> Value {
    Value::Text(format!("{number:#x}"))
}

pub(crate) fn status(status: u32) -> Value {
    Value::Text(names::status(status).into())
}
