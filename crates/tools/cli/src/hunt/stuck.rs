//! Decides whether a program can still make progress: from the state of its threads in `/proc`, and
//! from the progress that the device logs.
use adverb_device::asleep::call::sleeps_for_ever;
use adverb_device::asleep::{is_ours, switches_in};
use adverb_hunt::WORDS;
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
    /// How long the run has taken, without the time in which a thread waited for a processor.
    ran: Duration,
    /// How long each thread has waited for a processor so far.
    waited: HashMap<u32, Duration>,
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
            ran: Duration::ZERO,
            waited: HashMap::new(),
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

    /// The threads of a group with the number of their context switches. `None` unless the group's
    /// program has begun and every thread sleeps without a time limit.
    pub fn sleepers_of(group: u32) -> Option<HashMap<u32, u64>> {
        let threads = sleepers(&members(&[group], &mut HashSet::new()))?;
        (!threads.is_empty() && Self::has_begun(group)).then_some(threads)
    }

    /// Does a process of the group listen at a socket, or for connections of rdma_cm?
    pub fn listens(group: u32) -> bool {
        members(&[group], &mut HashSet::new()).iter().any(|process| listens(process))
    }

    /// Has the program begun? Before, the leader runs `adverb run`, which is the executable of this
    /// process.
    fn has_begun(leader: u32) -> bool {
        let exe = |of: &str| std::fs::read_link(format!("/proc/{of}/exe")).ok();
        exe(&leader.to_string()).is_some_and(|theirs| exe("self") != Some(theirs))
    }

    pub fn look(&mut self) {
        let mut passed = self.looked.elapsed().min(MOST_BETWEEN);
        self.looked = Instant::now();
        let members = members(&self.groups, &mut self.others);
        passed = passed.saturating_sub(self.new_waits(&members));
        self.ran += passed;
        // `adverb run` starts the program.
        let has_begun = self.groups.iter().all(|group| Self::has_begun(*group));
        if has_begun {
            self.silent += passed;
        }
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
        match sleepers(&members).filter(|_| has_begun) {
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

    /// How long a thread has waited for a processor since the last look.
    fn new_waits(&mut self, members: &[PathBuf]) -> Duration {
        let mut most = Duration::ZERO;
        let mut now = HashMap::new();
        for thread in members.iter().flat_map(|process| threads(process)) {
            let Some((id, waited)) = waited_for_processor(&thread) else { continue };
            let before = self.waited.get(&id).copied().unwrap_or_default();
            most = most.max(waited.saturating_sub(before));
            now.insert(id, waited);
        }
        self.waited = now;
        most
    }

    /// How long the run has taken, without the time in which a thread waited for a processor.
    pub fn ran(&self) -> Duration {
        self.ran
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

/// The processes of groups. `others`: the processes of no group, as far as known.
fn members(groups: &[u32], others: &mut HashSet<u32>) -> Vec<PathBuf> {
    let (mut all, mut still) = (Vec::new(), HashSet::new());
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(id) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        let process = entry.path();
        if others.contains(&id) || !is_of(&process, groups) {
            still.insert(id);
        } else {
            all.push(process);
        }
    }
    *others = still;
    all
}

/// The threads of processes with the number of their context switches, if every thread sleeps
/// without a time limit.
fn sleepers(processes: &[PathBuf]) -> Option<HashMap<u32, u64>> {
    let mut all = HashMap::new();
    for process in processes {
        for thread in threads(process) {
            let id = thread.file_name()?.to_str()?.parse().ok()?;
            // The device's own threads sleep and wake at any time. None of them is the first.
            let is_first = thread.file_name() == process.file_name();
            let name = std::fs::read_to_string(thread.join("comm")).ok()?;
            if is_first || !is_ours(name.trim_end()) {
                all.insert(id, switches_asleep(&thread)?);
            }
        }
    }
    Some(all)
}

/// The directories of a process's threads.
fn threads(process: &Path) -> Vec<PathBuf> {
    let tasks = std::fs::read_dir(process.join("task")).into_iter().flatten().flatten();
    tasks.map(|thread| thread.path()).collect()
}

/// How long a thread has waited for a processor so far (the second number of `schedstat`, in ns).
fn waited_for_processor(thread: &Path) -> Option<(u32, Duration)> {
    let id = thread.file_name()?.to_str()?.parse().ok()?;
    let text = std::fs::read_to_string(thread.join("schedstat")).ok()?;
    let waited = text.split(' ').nth(1)?.parse().ok()?;
    Some((id, Duration::from_nanos(waited)))
}

/// Does a process listen at a socket? The device's listener for rdma_cm counts, and its listener
/// for packets does not.
fn listens(process: &Path) -> bool {
    let table = |name: &str| {
        let text = std::fs::read_to_string(process.join("net").join(name)).unwrap_or_default();
        text.lines().skip(1).map(|l| l.split_whitespace().map(str::to_owned).collect()).collect()
    };
    let mut listening = HashSet::new();
    for fields in ["tcp", "tcp6"].iter().flat_map(|name| -> Vec<Vec<String>> { table(name) }) {
        // sl, local address, remote address, state (0A: listens), …, inode
        if fields.get(3).is_some_and(|state| state == "0A") {
            listening.extend(fields.get(9).cloned());
        }
    }
    for fields in table("unix") {
        let fields: Vec<String> = fields;
        // Num, RefCount, Protocol, Flags (00010000: accepts connections), Type, St, Inode, Path
        let accepts = fields.get(3).is_some_and(|flags| flags == "00010000");
        let path = fields.get(7).map_or("", String::as_str);
        if accepts && (!path.starts_with("@adverb-") || path.contains("-cm-")) {
            listening.extend(fields.get(6).cloned());
        }
    }
    let fds = std::fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    fds.filter_map(|fd| std::fs::read_link(fd.path()).ok()).any(|target| {
        let target = target.to_string_lossy();
        let inode = target.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']'));
        inode.is_some_and(|inode| listening.contains(inode))
    })
}

fn is_of(process: &Path, groups: &[u32]) -> bool {
    let stat = std::fs::read_to_string(process.join("stat")).unwrap_or_default();
    // pid (comm) state ppid pgrp
    let Some((_, rest)) = stat.rsplit_once(") ") else { return false };
    let mut fields = rest.split(' ');
    fields.next() != Some("Z")
        && fields.nth(1).and_then(|n| n.parse().ok()).is_some_and(|n| groups.contains(&n))
}

/// The context switches of the thread so far, if the thread sleeps without a time limit.
fn switches_asleep(thread: &Path) -> Option<u64> {
    let status = std::fs::read_to_string(thread.join("status")).ok()?;
    let state = status.lines().find_map(|l| l.strip_prefix("State:"))?;
    if !state.trim().starts_with('S') {
        return None;
    }
    if !sleeps_for_ever(&std::fs::read_to_string(thread.join("syscall")).ok()?) {
        return None;
    }
    switches_in(&status)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;

    /// HUN-7: a server is ready when it listens.
    #[test]
    fn a_listening_socket_is_seen() {
        // The threads of other tests share this process, so another process listens.
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let other = PathBuf::from(format!("/proc/{}", child.id()));
        assert!(!listens(&other));
        let own = Path::new("/proc/self");
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(listens(own));
        drop(tcp);
        let path = std::env::temp_dir().join(format!("adverb-listens-{}", std::process::id()));
        let unix = UnixListener::bind(&path).unwrap();
        assert!(listens(own));
        drop(unix);
        let _ = std::fs::remove_file(path);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// HUN-4: a thread's time without a processor is known.
    #[test]
    fn waits_for_a_processor_are_read() {
        let threads = threads(Path::new("/proc/self"));
        assert!(threads.iter().all(|thread| waited_for_processor(thread).is_some()));
    }
}
