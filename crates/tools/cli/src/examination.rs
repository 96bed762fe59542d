//! The causes of a failure, as the processes of a run report them.
//!
//! Each process writes its reports to one file: mistakes at once, and what an examination finds. A
//! process examines itself before it ends with a failure, and when it is asked. The question is a
//! file that appears, so it wakes no thread of the program.
use crate::results::source::{line_of, line_with_caller, source_of};
use adverb_check::{Told, Weight};
use std::collections::HashSet;
use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The longest wait for the answers of all processes.
const ANSWERS: Duration = Duration::from_millis(600);
/// Causes that are shown beside the first.
const MORE: usize = 1;
/// Places that are shown of a cause.
const PLACES: usize = 6;
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
        let bytes = fs::read(&self.reports).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
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
}

impl Drop for Examination {
    fn drop(&mut self) {
        for file in [&self.reports, &self.ask] {
            let _ = fs::remove_file(file);
        }
    }
}

fn lives(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

/// Reports that explain a failure.
pub fn causes(reports: &[Told]) -> impl Iterator<Item = &Told> {
    reports.iter().filter(|told| told.code.weight() < Weight::Risk)
}

/// Do the reports say more than what the threads wait for?
pub fn is_known(reports: &[Told]) -> bool {
    causes(reports).next().is_some_and(|told| told.code.weight() < Weight::State)
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
