//! Writes a story as lines of JSON: first a marker, then the processes, then the nodes in the order
//! of time.
use crate::story::Value;
use crate::{Kind, Story, Track};
use serde_json::{Map, json};
use std::io::{self, Write};

/// The first line of our files.
pub const MARKER: &str = "{\"adverb\":\"trace\"}\n";

/// Writes the lines after the [`MARKER`].
///
/// # Errors
/// The error of the operating system.
pub fn write(story: &Story, out: &mut impl Write) -> io::Result<()> {
    for told in &story.processes {
        let threads: Map<_, _> =
            told.threads.iter().map(|(tid, name)| (tid.to_string(), json!(name))).collect();
        let line = json!({
            "process": told.pid, "name": told.name, "command": told.command, "t": told.began, "wall": told.wall,
            "threads": threads, "ended": told.ended, "dropped": told.dropped, "cut": told.cut,
        });
        writeln!(out, "{line}")?;
    }
    let mut order: Vec<usize> = (0..story.nodes.len()).collect();
    order.sort_by_key(|node| story.nodes[*node].t);
    for id in order {
        let node = &story.nodes[id];
        let (process, track) = &story.tracks[node.track];
        let mut line = Map::new();
        line.insert("id".into(), json!(id));
        line.insert("t".into(), json!(node.t));
        match node.kind {
            Kind::Slice(d) => drop(line.insert("d".into(), json!(d))),
            Kind::Instant => {}
            Kind::Counter(value) => drop(line.insert("value".into(), json!(value))),
        }
        line.insert("process".into(), json!(story.processes[*process].pid));
        match track {
            Track::Thread(tid) => line.insert("thread".into(), json!(tid)),
            Track::Named(name) | Track::Spread(name) | Track::Counter(name) => {
                line.insert("track".into(), json!(name))
            }
        };
        if !node.name.is_empty() {
            line.insert("name".into(), json!(node.name));
        }
        if !node.arguments.is_empty() {
            let all: Map<_, _> = node
                .arguments
                .iter()
                .map(|(name, value)| {
                    let value = match value {
                        Value::Number(n) => json!(n),
                        Value::Long(n) => json!(n),
                        Value::Pointer(n) => json!(format!("{n:#x}")),
                        Value::Text(text) => json!(text),
                    };
                    ((*name).to_owned(), value)
                })
                .collect();
            line.insert("args".into(), all.into());
        }
        if !node.from.is_empty() {
            line.insert("from".into(), json!(node.from));
        }
        serde_json::to_writer(&mut *out, &line)?;
        out.write_all(b"\n")?;
    }
    Ok(())
}
