//! Decides whether a program can still make progress: from the state of its threads in `/proc`, and
//! from the progress that the device logs.
use adverb_hunt::WORDS;
use adverb_threads::{Activity, Process, ProcessLook, Stillness};
use std::collections::HashSet;
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
/// A queue pair waits for a timer, or a process for an answer of the connection manager, if the
/// device has said so within this time.
const TIMER: Duration = Duration::from_millis(300);
/// The time between two checks counts up to this limit. If the machine stands still, so do the
/// programs: such a pause is neither sleep nor silence of the programs.
const MOST_BETWEEN: Duration = Duration::from_millis(100);

/// Checks process groups from time to time.
pub struct Watcher {
    groups: Vec<u32>,
    /// Processes that belong to no group. A process that belongs to a group was born in it, so the
    /// others need not be read again.
    others: HashSet<i32>,
    log: PathBuf,
    /// Number of bytes of the log that have been read. The device writes beats to the log while
    /// completions and posts go on.
    size: u64,
    looked: Instant,
    /// How long the run has taken, without the time in which a thread waited for a processor.
    pub ran: Duration,
    /// How long nothing has been posted or completed, as far as checks tell.
    silent: Duration,
    longest: Duration,
    /// The time since the device said that a queue pair waits for a timer.
    timer: Option<Duration>,
    /// The time since the device said that a process waits for an answer of the connection manager.
    /// The answer comes, or a timer ends the wait.
    exchange: Option<Duration>,
    /// Threads that poll an empty queue again and again, as the device said last.
    pollers: HashSet<i32>,
    /// How long all threads have slept.
    stillness: Stillness,
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
            silent: Duration::ZERO,
            longest: Duration::ZERO,
            timer: None,
            exchange: None,
            pollers: HashSet::new(),
            stillness: Stillness::default(),
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
        self.stillness.restart();
    }

    fn processes(group: u32) -> Vec<Process> {
        members(&[group], &mut HashSet::new())
    }

    /// Looks at the processes of a group, once its program has begun.
    pub fn look_at(group: u32, stillness: &mut Stillness, passed: Duration) {
        stillness.look(Self::processes(group), passed);
        if !Self::has_begun(group) {
            stillness.restart();
        }
    }

    /// Does a process of the group listen at a socket, or for connections of rdma_cm?
    pub fn listens(group: u32) -> bool {
        Self::processes(group).iter().any(|process| listens(Path::new(&process.to_string())))
    }

    /// Has the program begun? Before, the leader runs `adverb run`, which is the executable of this
    /// process.
    fn has_begun(leader: u32) -> bool {
        adverb_os::runs_own_executable(leader.cast_signed()) == Some(false)
    }

    pub fn look(&mut self) {
        let passed = self.looked.elapsed().min(MOST_BETWEEN);
        self.looked = Instant::now();
        let passed = self.stillness.look(members(&self.groups, &mut self.others), passed);
        self.ran += passed;
        // `adverb run` starts the program.
        let has_begun = self.groups.iter().all(|group| Self::has_begun(*group));
        let new = read_from(&self.log, self.size);
        self.size += new.len() as u64;
        let since = |kind: &str, before: Option<Duration>| match new
            .lines()
            .any(|line| line.starts_with(kind))
        {
            true => Some(Duration::ZERO),
            false => before.map(|time| time + passed).filter(|time| *time < TIMER),
        };
        self.timer = since("timer ", self.timer);
        self.exchange = since("exchange ", self.exchange);
        let said: HashSet<_> =
            new.lines().filter_map(|line| line.strip_prefix("polls ")).flat_map(numbers).collect();
        if !said.is_empty() {
            self.pollers = said;
        }
        if has_begun && self.exchange.is_none() {
            self.silent += passed;
        }
        self.longest = self.longest.max(self.silent);
        if new.lines().any(|line| line.starts_with("beat ")) {
            self.silent = Duration::ZERO;
        }
        // The first line may be the hunt's own, and any line of the device is longer.
        if !has_begun || self.exchange.is_some() || self.size <= WORDS.len() as u64 {
            self.stillness.restart();
        }
    }

    /// The reason, if the program will never make progress again.
    pub fn is_stuck(&self) -> Option<String> {
        let least = if self.timer.is_some() { ASLEEP_BEFORE_TIMER } else { ASLEEP };
        let asleep = self.stillness.lasts() >= least && self.silent >= least;
        asleep.then(|| match self.stillness.threads() {
            1 => "its thread sleeps without a time limit, and nothing is on its way".into(),
            n => format!("all {n} threads sleep without a time limit, and nothing is on its way"),
        })
    }

    /// Does a thread sleep for a time, other than to poll an empty queue? Such a thread goes on by
    /// itself. A thread that runs may wait for memory to change.
    pub fn naps(&self) -> bool {
        let naps = |look: ProcessLook| {
            look.threads.iter().any(|(id, thread)| {
                let naps = !thread.ours && thread.activity == Activity::Naps;
                naps && !self.pollers.contains(id)
            })
        };
        let members = members(&self.groups, &mut HashSet::new());
        members.into_iter().any(|process| ProcessLook::of(process).is_some_and(naps))
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

fn numbers(words: &str) -> impl Iterator<Item = i32> {
    words.split_whitespace().filter_map(|word| word.parse().ok())
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
fn members(groups: &[u32], others: &mut HashSet<i32>) -> Vec<Process> {
    let (mut all, mut still) = (Vec::new(), HashSet::new());
    for id in adverb_os::processes() {
        if others.contains(&id) || !is_of(id, groups) {
            still.insert(id);
        } else {
            all.push(Process::Number(id));
        }
    }
    *others = still;
    all
}

/// Is this the device's own listener, for packets or for a command's children? Its listeners for
/// connections of rdma_cm and NDK are the program's.
fn is_of_the_device(path: &str) -> bool {
    path.strip_prefix("@adverb")
        .is_some_and(|rest| !rest.contains("-cm-") && !rest.starts_with("-nd-"))
}

/// Does a process listen at a socket?
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
        if accepts && !is_of_the_device(path) {
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

fn is_of(pid: i32, groups: &[u32]) -> bool {
    adverb_os::ProcessStat::of(pid)
        .is_some_and(|stat| !stat.has_ended() && groups.contains(&stat.group.cast_unsigned()))
}

#[cfg(test)]
mod tests;
