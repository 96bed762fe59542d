//! Writes a story as a Perfetto trace: protocol buffers of track events, for ui.perfetto.dev.
//!
//! The field numbers are those of perfetto/protos: `trace_packet.proto`, `track_event.proto`,
//! `track_descriptor.proto` and their imports.
use crate::proto::Message;
use crate::story::{Told, Value};
use crate::{Kind, Story, Track};
use std::collections::HashMap;
use std::io::{self, Write};

mod field {
    pub const TRACE_PACKET: u32 = 1;
    pub mod packet {
        pub const TIMESTAMP: u32 = 8;
        pub const SEQUENCE: u32 = 10;
        pub const TRACK_EVENT: u32 = 11;
        pub const SEQUENCE_FLAGS: u32 = 13;
        pub const TRACK_DESCRIPTOR: u32 = 60;
        pub const FOR_TESTING: u32 = 900;
    }
    pub mod testing {
        pub const TEXT: u32 = 1;
    }
    pub mod descriptor {
        pub const UUID: u32 = 1;
        pub const NAME: u32 = 2;
        pub const PROCESS: u32 = 3;
        pub const THREAD: u32 = 4;
        pub const PARENT: u32 = 5;
        pub const COUNTER: u32 = 8;
    }
    pub mod process {
        pub const PID: u32 = 1;
        pub const COMMAND: u32 = 2;
        pub const NAME: u32 = 6;
    }
    pub mod thread {
        pub const PID: u32 = 1;
        pub const TID: u32 = 2;
        pub const NAME: u32 = 5;
    }
    pub mod event {
        pub const ANNOTATION: u32 = 4;
        pub const TYPE: u32 = 9;
        pub const TRACK: u32 = 11;
        pub const CATEGORY: u32 = 22;
        pub const NAME: u32 = 23;
        pub const COUNTER: u32 = 30;
        pub const FLOW: u32 = 47;
        pub const LAST_OF_FLOW: u32 = 48;
    }
    pub mod annotation {
        pub const UINT: u32 = 3;
        pub const INT: u32 = 4;
        pub const TEXT: u32 = 6;
        pub const POINTER: u32 = 7;
        pub const NAME: u32 = 10;
    }
}

const BEGIN: u64 = 1;
const END: u64 = 2;
const INSTANT: u64 = 3;
const COUNTER: u64 = 4;
/// Flag of the first packet of the sequence, which depends on no earlier packet.
const CLEARED: u64 = 1;
/// The whole trace is one sequence.
const SEQUENCE: u64 = 1;

/// An event to be written.
struct Item {
    t: u64,
    /// Order at equal times: ends come first, and nested events come after the begin of their
    /// slice.
    rank: u8,
    node: usize,
    kind: u64,
    line: u64,
}

/// The beginning of our traces: a packet with our name, of a kind that readers skip.
#[must_use]
pub fn marker() -> Vec<u8> {
    let mut trace = Message::default();
    trace.message(field::TRACE_PACKET, |packet| {
        packet.message(field::packet::FOR_TESTING, |of| {
            of.bytes(field::testing::TEXT, b"trace of adverb run");
        });
    });
    trace.0
}

/// Writes the trace after the [`marker`].
///
/// # Errors
/// The error of the operating system.
pub fn write(story: &Story, out: &mut impl Write) -> io::Result<()> {
    let mut writer = Writer { out, first: true };
    let lines = Lines::of(story);
    for (process, told) in story.processes.iter().enumerate() {
        writer.process(process, told)?;
    }
    for (line, track, parent) in &lines.all {
        writer.track(story, *line, &story.tracks[*track], *parent)?;
    }
    let mut arrows_from: HashMap<usize, Vec<u64>> = HashMap::new();
    let mut arrows_to: HashMap<usize, Vec<u64>> = HashMap::new();
    for (arrow, (from, to)) in story.arrows().enumerate() {
        arrows_from.entry(from).or_default().push(arrow as u64 + 1);
        arrows_to.entry(to).or_default().push(arrow as u64 + 1);
    }
    let none = Vec::new();
    for item in items(story, &lines) {
        let node = &story.nodes[item.node];
        writer.packet(|packet| {
            packet.number(field::packet::TIMESTAMP, item.t);
            packet.message(field::packet::TRACK_EVENT, |event| {
                event.number(field::event::TYPE, item.kind).number(field::event::TRACK, item.line);
                match (item.kind, node.kind) {
                    (END, _) => return,
                    (_, Kind::Counter(value)) => {
                        event.number(field::event::COUNTER, value as u64);
                        return;
                    }
                    _ => {}
                }
                event
                    .bytes(field::event::CATEGORY, b"verbs")
                    .bytes(field::event::NAME, node.name.as_bytes());
                node.arguments.iter().for_each(|(name, value)| annotate(event, name, value));
                for arrow in arrows_from.get(&item.node).unwrap_or(&none) {
                    event.fixed(field::event::FLOW, *arrow);
                }
                for arrow in arrows_to.get(&item.node).unwrap_or(&none) {
                    event.fixed(field::event::LAST_OF_FLOW, *arrow);
                }
            });
        })?;
    }
    Ok(())
}

/// All events, in the order of time.
fn items(story: &Story, lines: &Lines) -> Vec<Item> {
    let end = story.end();
    let mut items = Vec::with_capacity(story.nodes.len() * 2);
    for (node, what) in story.nodes.iter().enumerate() {
        let line = lines.of_node[node];
        let mut item = |t, rank, kind| items.push(Item { t, rank, node, kind, line });
        match what.kind {
            Kind::Slice(d) => {
                item(what.t, 1, BEGIN);
                item(d.map_or(end, |d| what.t + d).max(what.t + 1), 0, END);
            }
            Kind::Instant => item(what.t, 2, INSTANT),
            Kind::Counter(_) => item(what.t, 2, COUNTER),
        }
    }
    items.sort_by_key(|item| (item.t, item.rank));
    items
}

fn annotate(event: &mut Message, name: &str, value: &Value) {
    event.message(field::event::ANNOTATION, |annotation| {
        annotation.bytes(field::annotation::NAME, name.as_bytes());
        match value {
            Value::Number(n) => annotation.number(field::annotation::INT, *n as u64),
            Value::Long(n) => annotation.number(field::annotation::UINT, *n),
            Value::Pointer(n) => annotation.number(field::annotation::POINTER, *n),
            Value::Text(text) => annotation.bytes(field::annotation::TEXT, text.as_bytes()),
        };
    });
}

/// First number of processes. The numbers of lines begin at 1.
const PROCESSES: u64 = 1 << 32;

/// Lines of the display: one per track, or several if the slices of a track overlap.
struct Lines {
    /// Number, track, and number of the parent.
    all: Vec<(u64, usize, u64)>,
    of_node: Vec<u64>,
}

impl Lines {
    fn of(story: &Story) -> Lines {
        let mut lines = Lines { all: Vec::new(), of_node: vec![0; story.nodes.len()] };
        // The first line of each track.
        for (track, (process, _)) in story.tracks.iter().enumerate() {
            lines.all.push((track as u64 + 1, track, PROCESSES + *process as u64));
        }
        let (end, count) = (story.end(), story.tracks.len());
        // For the lines of each spread track: the end of the last slice.
        let mut ends: Vec<Vec<(u64, u64)>> = vec![Vec::new(); count];
        let mut order: Vec<usize> = (0..story.nodes.len()).collect();
        order.sort_by_key(|node| story.nodes[*node].t);
        for at in order {
            let node = &story.nodes[at];
            let track = node.track;
            lines.of_node[at] = track as u64 + 1;
            let (Track::Spread(_), Kind::Slice(d)) = (&story.tracks[track].1, node.kind) else {
                continue;
            };
            let until = d.map_or(end, |d| node.t + d).max(node.t + 1);
            let free = ends[track].iter_mut().find(|(_, busy)| *busy <= node.t);
            lines.of_node[at] = match free {
                Some((line, busy)) => {
                    *busy = until;
                    *line
                }
                None => {
                    let line = match ends[track].len() {
                        0 => track as u64 + 1,
                        _ => {
                            let line = lines.all.len() as u64 + 1;
                            lines.all.push((line, track, PROCESSES + story.tracks[track].0 as u64));
                            line
                        }
                    };
                    ends[track].push((line, until));
                    line
                }
            };
        }
        lines
    }
}

struct Writer<'a, W> {
    out: &'a mut W,
    first: bool,
}

impl<W: Write> Writer<'_, W> {
    fn packet(&mut self, fill: impl FnOnce(&mut Message)) -> io::Result<()> {
        let mut trace = Message::default();
        trace.message(field::TRACE_PACKET, |packet| {
            packet.number(field::packet::SEQUENCE, SEQUENCE);
            if std::mem::take(&mut self.first) {
                packet.number(field::packet::SEQUENCE_FLAGS, CLEARED);
            }
            fill(packet);
        });
        self.out.write_all(&trace.0)
    }

    fn descriptor(&mut self, fill: impl FnOnce(&mut Message)) -> io::Result<()> {
        self.packet(|packet| {
            packet.message(field::packet::TRACK_DESCRIPTOR, fill);
        })
    }

    fn process(&mut self, process: usize, told: &Told) -> io::Result<()> {
        self.descriptor(|track| {
            track.number(field::descriptor::UUID, PROCESSES + process as u64);
            track.message(field::descriptor::PROCESS, |of| {
                of.number(field::process::PID, told.pid.into());
                told.command.iter().for_each(|word| {
                    of.bytes(field::process::COMMAND, word.as_bytes());
                });
                of.bytes(field::process::NAME, told.name.as_bytes());
            });
        })
    }

    fn track(
        &mut self,
        story: &Story,
        line: u64,
        (process, track): &(usize, Track),
        parent: u64,
    ) -> io::Result<()> {
        let told = &story.processes[*process];
        self.descriptor(|descriptor| {
            descriptor
                .number(field::descriptor::UUID, line)
                .number(field::descriptor::PARENT, parent);
            match track {
                Track::Thread(tid) => {
                    let name =
                        told.threads.iter().find(|(of, _)| of == tid).map_or("", |(_, name)| name);
                    descriptor.message(field::descriptor::THREAD, |of| {
                        of.number(field::thread::PID, told.pid.into());
                        of.number(field::thread::TID, u64::from(tid.unsigned_abs()));
                        of.bytes(field::thread::NAME, name.as_bytes());
                    });
                }
                Track::Named(name) | Track::Spread(name) => {
                    descriptor.bytes(field::descriptor::NAME, name.as_bytes());
                }
                Track::Counter(name) => {
                    descriptor.bytes(field::descriptor::NAME, name.as_bytes());
                    descriptor.message(field::descriptor::COUNTER, |_| {});
                }
            }
        })
    }
}
