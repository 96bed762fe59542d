//! Whether a program can still move: its threads, as the kernel shows them, and what the device
//! says of its progress.
use adverb_device::asleep::call::sleeps_for_ever;
use adverb_device::asleep::{is_ours, switches_in};
use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// All threads have to sleep for so long without waking once, so that a report of the device has
/// come.
const ASLEEP: Duration = Duration::from_millis(500);
/// Time between two looks counts up to this. On a machine that stands still the programs stand
/// still as well: that is neither sleep nor silence of theirs.
const MOST_BETWEEN: Duration = Duration::from_millis(100);

/// Looks at process groups now and then.
pub struct Watcher {
    groups: Vec<u32>,
    log: PathBuf,
    /// So much of the log was read. The device writes beats to it while completions and posts go
    /// on.
    size: u64,
    looked: Instant,
    /// How long nothing has been posted or completed, as far as it was looked at.
    silent: Duration,
    longest: Duration,
    /// Threads with the number of their switches, and for how long these have not changed; no time
    /// while a thread is awake.
    threads: HashMap<u32, u64>,
    asleep: Option<Duration>,
}

impl Watcher {
    pub fn new(log: PathBuf) -> Self {
        Watcher {
            groups: Vec::new(),
            log,
            size: 0,
            looked: Instant::now(),
            silent: Duration::ZERO,
            longest: Duration::ZERO,
            threads: HashMap::new(),
            asleep: None,
        }
    }

    /// One more group has begun.
    pub fn add(&mut self, group: u32) {
        self.groups.push(group);
    }

    /// A group has ended.
    pub fn remove(&mut self, group: u32) {
        self.groups.retain(|g| *g != group);
        self.asleep = None;
    }

    /// The threads of a group with the number of their context switches, if its program has begun
    /// and every one of them sleeps.
    pub fn sleepers_of(group: u32) -> Option<HashMap<u32, u64>> {
        sleepers(&[group], |_| true).filter(|threads| !threads.is_empty() && Self::has_begun(group))
    }

    /// The leader is no longer `adverb run`, which is this very file.
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
        match sleepers(&self.groups, sleeps_for_ever) {
            Some(threads) if self.size > 0 && !threads.is_empty() => {
                self.asleep = match self.asleep {
                    Some(before) if threads == self.threads => Some(before + passed),
                    _ => Some(Duration::ZERO),
                };
                self.threads = threads;
            }
            _ => self.asleep = None,
        }
    }

    /// Why it will never move again, if that is so.
    pub fn is_stuck(&self) -> Option<String> {
        let asleep = self.asleep.is_some_and(|time| time >= ASLEEP) && self.silent >= ASLEEP;
        let n = self.threads.len();
        asleep.then(|| match n {
            1 => "its thread sleeps without a time limit, and nothing is on its way".into(),
            n => format!("all {n} threads sleep without a time limit, and nothing is on its way"),
        })
    }

    /// How long nothing has been posted or completed.
    pub fn silence(&self) -> Duration {
        self.silent
    }

    pub fn longest_silence(&self) -> Duration {
        self.longest.max(self.silent)
    }
}

/// Whole lines of a file from a place on.
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

/// The program's threads with the number of their context switches, if every one of them sleeps in
/// such a call.
fn sleepers(groups: &[u32], such: impl Fn(&str) -> bool) -> Option<HashMap<u32, u64>> {
    let mut all = HashMap::new();
    for entry in std::fs::read_dir("/proc").ok()?.flatten() {
        let process = entry.path();
        if !process.file_name()?.to_str()?.bytes().all(|b| b.is_ascii_digit()) || !is_of(&process, groups) {
            continue;
        }
        for thread in std::fs::read_dir(process.join("task")).ok()?.flatten() {
            let (thread, id) = (thread.path(), thread.file_name().to_str()?.parse().ok()?);
            // The device's own threads sleep and wake as they like.
            if is_ours(std::fs::read_to_string(thread.join("comm")).ok()?.trim_end()) {
                continue;
            }
            all.insert(id, switches_asleep(&thread, &such)?);
        }
    }
    Some(all)
}

fn is_of(process: &Path, groups: &[u32]) -> bool {
    let stat = std::fs::read_to_string(process.join("stat")).unwrap_or_default();
    // pid (comm) state ppid pgrp
    let Some((_, rest)) = stat.rsplit_once(") ") else { return false };
    let mut fields = rest.split(' ');
    fields.next() != Some("Z")
        && fields.nth(1).and_then(|n| n.parse().ok()).is_some_and(|n| groups.contains(&n))
}

/// Its context switches so far, if it sleeps in such a call.
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
