//! Merges the parts of all processes in the order of their times.
use crate::queues::Process;
use crate::story::{Arguments, Told, Value};
use crate::{ProcessRecords, Record, Story, Track, calls};

/// The time at which a record takes effect: for calls that take something, the time of their
/// return.
fn known(record: &Record) -> u64 {
    match record {
        Record::Poll { t, d, .. } | Record::Taken { t, d, .. } => t + d,
        other => other.time(),
    }
}

impl Story {
    /// Merges the parts to a story.
    #[must_use]
    pub fn of(parts: &[ProcessRecords]) -> Story {
        let mut story = Story::default();
        let mut all = Vec::new();
        for (process, part) in parts.iter().enumerate() {
            story.processes.push(Told { cut: part.cut as u64, ..Told::default() });
            all.extend(part.records.iter().map(|record| (known(record), process, record)));
        }
        all.sort_by_key(|(t, ..)| *t);
        let mut processes: Vec<Process> = parts.iter().map(|_| Process::default()).collect();
        for (_, process, record) in all {
            processes[process].tell(&mut story, process, record);
            story.tell(process, record);
        }
        story
    }

    /// Handles records that need no state of queues.
    fn tell(&mut self, process: usize, record: &Record) {
        let told = &mut self.processes[process];
        match record {
            Record::Process { t, pid, name, command, wall } => {
                (told.pid, told.name, told.command) = (*pid, name.clone(), command.clone());
                (told.wall, told.began) = (*wall, *t);
            }
            Record::Thread { tid, name } => told.threads.push((*tid, name.clone())),
            Record::Dropped { t, records } => {
                told.dropped += records;
                let track = self.track(process, Track::Named("records that found no room".into()));
                let arguments = vec![("records", Value::Long(*records))];
                self.instant(track, *t, "records are missing".into(), arguments);
            }
            Record::Choice { t, tid, name, effect, rule, place } => {
                let text = |text: &str| Value::Text(text.to_owned());
                let arguments = vec![
                    ("effect", text(effect)),
                    ("rule", text(rule)),
                    ("place", text(place)),
                    ("thread", Value::Number((*tid).into())),
                ];
                let track = self.track(process, Track::Named("choices of the hunt".into()));
                self.instant(track, *t, name.clone(), arguments);
            }
            Record::End { .. } => told.ended = true,
            Record::Call { t, d, tid, call, args, result, errno } => {
                let arguments = arguments_of(call, args, *result, *errno);
                self.call(process, *tid, *t, *d, call, arguments);
            }
            _ => {}
        }
    }
}

fn word(word: u64, shown: calls::Shown) -> Option<Value> {
    Some(match shown {
        calls::Shown::Int => Value::Number(i64::from(word as i32)),
        calls::Shown::Long => Value::Long(word),
        calls::Shown::Hex => Value::Pointer(word),
        calls::Shown::Nothing => return None,
    })
}

/// Arguments and result of a call, with names if the call is known.
fn arguments_of(call: &str, args: &[u64; 6], result: u64, errno: i32) -> Arguments {
    const WORDS: [&str; 6] = ["word 1", "word 2", "word 3", "word 4", "word 5", "word 6"];
    let (names, returned) = calls::of(call)
        .unwrap_or_else(|| (WORDS.map(|w| (w, calls::Shown::Hex)).to_vec(), calls::Shown::Hex));
    let mut all: Arguments = names
        .iter()
        .zip(args)
        .filter_map(|((name, shown), arg)| Some((*name, word(*arg, *shown)?)))
        .collect();
    all.extend(word(result, returned).map(|value| ("result", value)));
    let failed = match returned {
        calls::Shown::Hex => result == 0,
        calls::Shown::Int => result as i32 != 0,
        _ => false,
    };
    if failed && errno != 0 {
        all.push(("errno", Value::Number(errno.into())));
    }
    all
}
