//! Decides whether a program can still make progress: from the state of its threads in `/proc`, and
//! from the progress that the device logs.
use adverb_device::asleep::call::sleeps_for_ever;
use adverb_device::asleep::{is_ours, switches_in};
use adverb_device::cq::hunt::WORDS;
use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// All threads have to sleep for this time without waking once. Within this time, a report of the
/// device has arrived.
const ASLEEP: Duration = Duration::from_millis(500);
/// The same while a queue pair waits for a timer: the longest RNR timer takes 0.66 s, and a request
/// is tried several times.
const ASLEEP_BEFORE_TIMER: Duration = Duration::from_secs(3);
/// A queue pair waits for a timer if the device has said so within this time.
const TIMER: Duration = Duration::from_millis(300);
/// The time between two checks counts up to this limit. If the machine stands still, so do the
/// programs: such a pause is neither sleep nor silence of the programs.
const MOST_BETWEEN: Duration = Duration::from_millis(100);

/// Checks process groups from time to time.
pub struct Watcher {
    groups: Vec<u32>,
    /// Processes that belong to no group. A process that belongs to a group was born in it, so the
    /// others need not be read again.
    others: HashSet<u32>,
    log: PathBuf,
    /// Number of bytes of the log that have been read. The device writes beats to the log while
    /// completions and posts go on.
    size: u64,
    looked: Instant,
    /// How long nothing has been posted or completed, as far as checks tell.
    silent: Duration,
    longest: Duration,
    /// The time since the device said that a queue pair waits for a timer.
    timer: Option<Duration>,
    /// The threads with the number of their context switches. `asleep` says for how long these
    /// numbers have not changed; `None` while a thread is awake.
    threads: HashMap<u32, u64>,
    asleep: Option<Duration>,
}

impl Watcher {
    pub fn new(log: PathBuf) -> Self {
        Watcher {
            groups: Vec::new(),
            others: HashSet::new(),
            log,
            size: 0,
            looked: Instant::now(),
            silent: Duration::ZERO,
            longest: Duration::ZERO,
            timer: None,
            threads: HashMap::new(),
            asleep: None,
        }
    }

    /// Adds a group that has started.
    pub fn add(&mut self, group: u32) {
        self.groups.push(group);
        self.others.clear();
    }

    /// Removes a group that has ended.
    pub fn remove(&mut self, group: u32) {
        self.groups.retain(|g| *g != group);
        self.asleep = None;
    }

    /// The threads of a group with the number of their context switches, and whether all of them
    /// sleep without a time limit. `None` unless the group's program has begun and every thread
    /// sleeps.
    pub fn sleepers_of(group: u32) -> Option<(HashMap<u32, u64>, bool)> {
        let for_ever = Cell::new(true);
        let such = |call: &str| {
            for_ever.set(for_ever.get() && sleeps_for_ever(call));
            true
        };
        let threads = sleepers(&[group], &mut HashSet::new(), such)?;
        let waits = !threads.is_empty() && Self::has_begun(group);
        waits.then_some((threads, for_ever.get()))
    }

    /// Has the program begun? Before, the leader runs `adverb run`, which is the executable of this
    /// process.
    fn has_begun(leader: u32) -> bool {
        let exe = |of: &str| std::fs::read_link(format!("/proc/{of}/exe")).ok();
        exe(&leader.to_string()).is_some_and(|theirs| exe("self") != Some(theirs))
    }

    pub fn look(&mut self) {
        let passed = self.looked.elapsed().min(MOST_BETWEEN);
        self.looked = Instant::now();
        self.silent += passed;
        let new = read_from(&self.log, self.size);
        self.size += new.len() as u64;
        self.longest = self.longest.max(self.silent);
        if new.lines().any(|line| line.starts_with("beat ")) {
            self.silent = Duration::ZERO;
        }
        self.timer = match new.lines().any(|line| line.starts_with("timer ")) {
            true => Some(Duration::ZERO),
            false => self.timer.map(|time| time + passed).filter(|time| *time < TIMER),
        };
        match sleepers(&self.groups, &mut self.others, sleeps_for_ever) {
            // The first line may be the hunt's own, and any line of the device is longer.
            Some(threads) if self.size > WORDS.len() as u64 && !threads.is_empty() => {
                self.asleep = match self.asleep {
                    Some(before) if threads == self.threads => Some(before + passed),
                    _ => Some(Duration::ZERO),
                };
                self.threads = threads;
            }
            _ => self.asleep = None,
        }
    }

    /// The reason, if the program will never make progress again.
    pub fn is_stuck(&self) -> Option<String> {
        let least = if self.timer.is_some() { ASLEEP_BEFORE_TIMER } else { ASLEEP };
        let asleep = self.asleep.is_some_and(|time| time >= least) && self.silent >= least;
        let n = self.threads.len();
        asleep.then(|| match n {
            1 => "its thread sleeps without a time limit, and nothing is on its way".into(),
            n => format!("all {n} threads sleep without a time limit, and nothing is on its way"),
        })
    }

    /// How long nothing has been posted or completed, beyond the wait for a timer.
    pub fn silence(&self) -> Duration {
        let for_timer = self.timer.map_or(Duration::ZERO, |_| ASLEEP_BEFORE_TIMER);
        self.silent.saturating_sub(for_timer)
    }

    pub fn longest_silence(&self) -> Duration {
        self.longest.max(self.silent)
    }
}

/// Reads the whole lines of a file from an offset on.
fn read_from(path: &Path, from: u64) -> String {
    let mut text = Vec::new();
    if let Ok(mut file) = File::open(path)
        && file.seek(SeekFrom::Start(from)).is_ok()
    {
        let _ = file.read_to_end(&mut text);
    }
    text.truncate(text.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1));
    String::from_utf8(text).unwrap_or_default()
}

/// The program's threads with the number of their context switches, if every thread sleeps in a
/// call for which `such` is true. `others`: the processes of no group, as far as known.
fn sleepers(
    groups: &[u32],
    others: &mut HashSet<u32>,
    such: impl Fn(&str) -> bool,
) -> Option<HashMap<u32, u64>> {
    let mut all = HashMap::new();
    let (mut still, mut asleep) = (HashSet::new(), true);
    for entry in std::fs::read_dir("/proc").ok()?.flatten() {
        let name = entry.file_name();
        let Some(id) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        let process = entry.path();
        if others.contains(&id) || !is_of(&process, groups) {
            still.insert(id);
        } else if asleep {
            asleep = add_sleepers(&process, &such, &mut all).is_some();
        }
    }
    *others = still;
    asleep.then_some(all)
}

/// Adds the threads of a process. `None` if a thread does not sleep.
fn add_sleepers(
    process: &Path,
    such: &impl Fn(&str) -> bool,
    all: &mut HashMap<u32, u64>,
) -> Option<()> {
    for thread in std::fs::read_dir(process.join("task")).ok()?.flatten() {
        let (thread, id) = (thread.path(), thread.file_name().to_str()?.parse().ok()?);
        // The device's own threads sleep and wake at any time.
        if is_ours(std::fs::read_to_string(thread.join("comm")).ok()?.trim_end()) {
            continue;
        }
        all.insert(id, switches_asleep(&thread, such)?);
    }
    Some(())
}

fn is_of(process: &Path, groups: &[u32]) -> bool {
    let stat = std::fs::read_to_string(process.join("stat")).unwrap_or_default();
    // pid (comm) state ppid pgrp
    let Some((_, rest)) = stat.rsplit_once(") ") else { return false };
    let mut fields = rest.split(' ');
    fields.next() != Some("Z")
        && fields.nth(1).and_then(|n| n.parse().ok()).is_some_and(|n| groups.contains(&n))
}

/// The context switches of the thread so far, if the thread sleeps in a call for which `such` is
/// true.
fn switches_asleep(thread: &Path, such: &impl Fn(&str) -> bool) -> Option<u64> {
    let status = std::fs::read_to_string(thread.join("status")).ok()?;
    let state = status.lines().find_map(|l| l.strip_prefix("State:"))?;
    if !state.trim().starts_with('S') {
        return None;
    }
    if !such(&std::fs::read_to_string(thread.join("syscall")).ok()?) {
        return None;
    }
    switches_in(&status)
}
