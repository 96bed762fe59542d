//! The causes of a failure, as the processes of a run report them.
//!
//! Each process writes its reports to one file: mistakes at once, and what an examination finds. A
//! process examines itself before it ends with a failure, and when it is asked. The question is a
//! file that appears, so it wakes no thread of the program.
use crate::results::source::{line_of, line_with_caller, source_of};
use adverb_check::{Told, ToldCall, Weight};
use adverb_os::ProcessStat;
use std::collections::HashSet;
use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The device logs this prefix if completions lie in a queue and no event will announce them
/// (EXT-4).
pub const LOST: &str = "lost wake-up: ";
/// The longest wait for the answers of all processes.
const ANSWERS: Duration = Duration::from_millis(600);
/// Causes that are shown beside the first.
const MORE: usize = 1;
/// Places that are shown of a cause, with the callers.
const PLACES: usize = 12;
/// Newest calls that are shown before a failure.
const CALLS: usize = 24;
/// Risks that are shown.
const RISKS: usize = 5;

/// The files of a run with examinations.
pub struct Examination {
    reports: PathBuf,
    ask: PathBuf,
}

impl Examination {
    /// Makes the file for the reports. Neither file exists yet.
    pub fn begin(reports: PathBuf, ask: PathBuf) -> std::io::Result<Examination> {
        fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&reports)?;
        Ok(Examination { reports, ask })
    }

    /// The variables for the programs of the run.
    pub fn variables(&self) -> [(&'static str, &Path); 3] {
        [
            ("ADVERB_CHECK", Path::new("1")),
            ("ADVERB_CHECK_REPORTS", &self.reports),
            ("ADVERB_CHECK_ASK", &self.ask),
        ]
    }

    /// Asks all processes, and waits until the living ones have answered. Each question has a
    /// higher number than the last.
    pub fn ask(&self, number: u64) {
        let new = self.ask.with_extension("new");
        let asked = fs::File::create(&new)
            .and_then(|mut file| writeln!(file, "{number}"))
            .and_then(|()| fs::rename(&new, &self.ask));
        let end = Instant::now() + ANSWERS;
        while asked.is_ok() && !self.have_answered(number) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn have_answered(&self, number: u64) -> bool {
        let text = self.text();
        let answered = |pid: &str| text.lines().any(|l| l == format!("examined {pid} {number}"));
        text.lines()
            .filter_map(|line| line.strip_prefix("examiner "))
            .all(|pid| answered(pid) || !lives(pid))
    }

    /// Has the run a single process that uses the device, and has this process answered the first
    /// question?
    pub fn has_one_process(&self) -> bool {
        let text = self.text();
        let known: HashSet<_> =
            text.lines().filter_map(|line| line.strip_prefix("examiner ")).collect();
        let answered = |pid: &&str| text.lines().any(|line| line == format!("examined {pid} 1"));
        known.len() == 1 && known.iter().all(answered)
    }

    fn text(&self) -> String {
        text_of(&self.reports)
    }

    /// Has a process reported a mistake?
    pub fn has_mistake(&self) -> bool {
        self.reports().first().is_some_and(|told| told.code.weight() == Weight::Mistake)
    }

    /// The reports so far, the most telling first.
    pub fn reports(&self) -> Vec<Told> {
        let mut all: Vec<Told> = self.text().lines().filter_map(|line| line.parse().ok()).collect();
        all.sort_by_key(|told| told.code.rank());
        all
    }

    /// The last calls of each thread and on each queue of all processes, in the order of time.
    pub fn picture(&self) -> Vec<ToldCall> {
        let mut all: Vec<ToldCall> = Vec::new();
        for line in self.text().lines() {
            // A process writes its calls anew at each examination.
            if let Some(process) = line.strip_prefix("calls ") {
                all.retain(|call| call.process.to_string() != process);
            }
            all.extend(line.parse::<ToldCall>());
        }
        all.sort_by_key(|call| call.at);
        all
    }
}

impl Drop for Examination {
    fn drop(&mut self) {
        for file in [&self.reports, &self.ask] {
            let _ = fs::remove_file(file);
        }
    }
}

/// The text of a file; empty if the file cannot be read.
pub fn text_of(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

fn lives(pid: &str) -> bool {
    ProcessStat::of(pid).is_some_and(|stat| !stat.has_ended())
}

/// Reports that explain a failure.
pub fn causes(reports: &[Told]) -> impl Iterator<Item = &Told> {
    reports.iter().filter(|told| told.code.weight() < Weight::Risk)
}

/// Do the reports say more than what the threads wait for?
pub fn is_known(reports: &[Told]) -> bool {
    causes(reports).next().is_some_and(|told| told.code.weight() < Weight::State)
}

/// Do the reports name a mistake that no other host or run beside this run can cause?
pub fn is_own(reports: &[Told]) -> bool {
    let own = |told: &Told| told.code.weight() == Weight::Mistake || told.code.is_of_a_wake_up();
    causes(reports).next().is_some_and(own)
}

/// Do the reports say what this line of the device's log says?
pub fn have_said(reports: &[Told], line: &str) -> bool {
    let mut causes = causes(reports).filter(|told| told.code.weight() < Weight::State);
    causes
        .any(|told| line.contains(&told.text) || told.code.is_of_a_wake_up() && line.contains(LOST))
}

/// The first causes with their lines, as lines of a report. Empty without a cause.
pub fn shown(label: &str, reports: &[Told]) -> Vec<String> {
    let Some(first) = causes(reports).next() else { return Vec::new() };
    let several = reports.iter().any(|told| told.process != first.process);
    let mut lines = one(label, first, several);
    // A state says little beside a cause. The state of another process may be the other half.
    let more = causes(reports)
        .skip(1)
        .filter(|told| told.process != first.process || told.code.weight() < Weight::State);
    for told in more.take(MORE) {
        lines.extend(one("and:", told, several));
    }
    lines
}

/// The places to show of a report. The callers of `main` belong to the C library.
pub fn places(told: &Told) -> impl Iterator<Item = &(String, String)> {
    told.places
        .iter()
        .take(PLACES)
        .filter(|(what, at)| what != "from" || source_of(at).is_some() && !at.starts_with("libc"))
}

fn one(label: &str, told: &Told, with_process: bool) -> Vec<String> {
    let process = if with_process { format!("process {}: ", told.process) } else { String::new() };
    let mut lines = vec![format!("{label:8} {process}{}", told.text)];
    for (what, at) in places(told) {
        let label = if lines.len() == 1 { "at:" } else { "" };
        lines.push(match what.as_str() {
            "from" => format!("{label:8}   from {}", line_of(at)),
            _ => format!("{label:8} {} ({what})", line_with_caller(at)),
        });
    }
    lines
}

/// What may fail another time, each kind and place once.
pub fn risks<'a>(reports: impl Iterator<Item = &'a Told>) -> Vec<String> {
    let (mut known, mut lines) = (HashSet::new(), Vec::new());
    for told in reports.filter(|told| told.code.weight() == Weight::Risk) {
        let place = told.places.first().map(|(_, at)| line_of(at));
        if known.len() < RISKS && known.insert((told.code, place)) {
            lines.extend(one("note:", told, false));
        }
    }
    lines
}

/// The last calls before a failure, as lines of a report. Times are counted back from the last
/// call.
pub fn picture(calls: &[ToldCall]) -> Vec<String> {
    let Some(last) = calls.last() else { return Vec::new() };
    // The last call of each thread, and the newest calls.
    let newest = calls.len().saturating_sub(CALLS);
    let is_last = |n: usize| {
        let of = |call: &ToldCall| (call.process, call.thread.clone());
        calls[n + 1..].iter().all(|later| of(later) != of(&calls[n]))
    };
    let several = calls.iter().any(|call| call.process != last.process);
    let shown = calls.iter().enumerate().filter(|(n, _)| *n >= newest || is_last(*n));
    let rows: Vec<_> = shown
        .map(|(_, call)| {
            let ms = (last.at - call.at) as f64 / 1e6;
            let part = |is_shown: bool, text: String| if is_shown { text } else { String::new() };
            let process = part(several, format!("{} ", call.process));
            let queue = part(!call.queue.is_empty(), format!(" {}", call.queue));
            let result = part(!call.result.is_empty(), format!(": {}", call.result));
            let times = part(call.times != 1, format!(", {} times", call.times));
            [
                format!("-{ms:.3} ms"),
                format!("{process}{}", call.thread),
                line_of(&call.place),
                format!("{}{queue}{result}{times}", call.call),
            ]
        })
        .collect();
    let width = |n: usize| rows.iter().map(|row| row[n].chars().count()).max().unwrap_or(0);
    let [time, thread, line] = [0, 1, 2].map(width);
    let mut label = "before:";
    rows.iter()
        .map(|[at, of, place, what]| {
            let label = std::mem::take(&mut label);
            format!("{label:8} {at:>time$}  {of:thread$}  {place:line$}  {what}")
        })
        .collect()
}
