//! One run of the program under a schedule, and how it ended.
use super::stuck::Watcher;
use adverb_choice::{Entry, Schedule, Site};
use adverb_device::cq::hunt;
use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use std::collections::HashMap;
use std::ffi::OsString;
use std::fmt;
use std::fs::{DirBuilder, File};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Pace of looking whether the program has ended, and whether it moves.
const LOOK: Duration = Duration::from_millis(2);
const LOOK_CLOSELY: Duration = Duration::from_millis(50);
/// Nothing has to move for so long before it counts.
const SILENCE: Duration = Duration::from_secs(1);
/// At least so long may a run take.
const WHOLE: Duration = Duration::from_secs(8);
/// Said by the device when completions lie in a queue that no event will speak of (EXT-4).
pub const LOST: &str = "lost wake-up: ";

/// How long a run may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Without a completion or a post.
    silence: Duration,
    /// In all.
    whole: Duration,
}

impl Limits {
    /// Of a program of which nothing is known.
    pub fn of_first(time: Duration) -> Self {
        Limits { silence: time, whole: time }
    }

    /// By how it ran when nothing was chosen.
    pub fn after(first: &Attempt) -> Self {
        Limits { silence: first.silence * 4 + SILENCE, whole: first.took * 10 + WHOLE }
    }
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// As it should.
    Fine,
    /// The program, or what was to start it, could not be run.
    NotStarted(i32),
    /// With another exit status than 0.
    Status(i32),
    /// By a signal.
    Crash(i32),
    /// Not at all, and why that is known.
    Hang(String),
    /// As it should, but the device has reported a mistake.
    Report(String),
}

impl Verdict {
    pub fn is_failure(&self) -> bool {
        !matches!(self, Verdict::Fine | Verdict::NotStarted(_))
    }

    fn of(status: ExitStatus, output: &str) -> Self {
        let report = output.lines().find_map(|line| line.find(LOST).map(|at| line[at..].to_owned()));
        match (status.code(), status.signal(), report) {
            (Some(0), _, Some(report)) => Verdict::Report(report),
            (Some(0), ..) => Verdict::Fine,
            (Some(code @ 125..=127), ..) => Verdict::NotStarted(code),
            (Some(code), ..) => Verdict::Status(code),
            (None, signal, _) => Verdict::Crash(signal.unwrap_or_default()),
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Fine => f.write_str("the program ends as it should"),
            Verdict::NotStarted(status) => write!(f, "the program cannot be run (status {status})"),
            Verdict::Status(status) => write!(f, "the program ends with status {status}"),
            Verdict::Crash(signal) => match Signal::try_from(*signal) {
                Ok(name) => write!(f, "the program dies of {name}"),
                Err(_) => write!(f, "the program dies of signal {signal}"),
            },
            Verdict::Hang(why) => write!(f, "the program hangs: {why}"),
            Verdict::Report(text) => write!(f, "the program goes on, by luck: {text}"),
        }
    }
}

/// A place at which there is a choice, as a run met it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Met {
    pub site: Site,
    pub object: u64,
    /// The place in words.
    pub words: String,
}

/// A run that has ended.
#[derive(Clone, Debug)]
pub struct Attempt {
    pub verdict: Verdict,
    pub sites: Vec<Met>,
    /// What was chosen, in this order.
    pub made: Vec<Entry>,
    pub output: String,
    pub took: Duration,
    /// The longest time without a completion or a post.
    pub silence: Duration,
}

/// Where runs take place: the command, and a directory for what they write.
pub struct Place {
    command: Vec<OsString>,
    exe: PathBuf,
    directory: PathBuf,
    next: AtomicUsize,
}

impl Place {
    pub fn new(command: &[OsString]) -> Result<Self, String> {
        let exe = std::env::current_exe().map_err(|e| format!("the path of this command: {e}"))?;
        let name = format!("adverb-hunt-{}-{:08x}", std::process::id(), getrandom::u32().unwrap_or_default());
        let directory = std::env::temp_dir().join(name);
        DirBuilder::new()
            .mode(0o700)
            .create(&directory)
            .map_err(|e| format!("{}: {e}", directory.display()))?;
        Ok(Place { command: command.to_vec(), exe, directory, next: AtomicUsize::new(0) })
    }

    /// Runs the program once.
    pub fn attempt(&self, schedule: &Schedule, limits: &Limits) -> Result<Attempt, String> {
        let n = self.next.fetch_add(1, Ordering::Relaxed);
        let [plan, log, out] =
            ["schedule", "log", "out"].map(|kind| self.directory.join(format!("{n}.{kind}")));
        let at = |e| format!("{}: {e}", self.directory.display());
        std::fs::write(&plan, schedule.to_string()).map_err(at)?;
        let output = File::options().append(true).create(true).open(&out).map_err(at)?;
        let mut command = Command::new(&self.exe);
        command.arg("run").arg("--").args(&self.command).env(hunt::SCHEDULE, &plan).env(hunt::LOG, &log);
        command.stdin(Stdio::null()).stdout(output.try_clone().map_err(at)?).stderr(output).process_group(0);
        let mut child = command.spawn().map_err(|e| format!("{}: {e}", self.exe.display()))?;
        let begun = Instant::now();
        let mut watcher = Watcher::new(child.id(), log.clone());
        let end = wait(&child, &mut watcher, limits, begun);
        // What it has started ends with it. Its number is still its own: it has not been waited
        // for.
        let _ = killpg(pid_of(&child), Signal::SIGKILL);
        let status = child.wait().map_err(|e| format!("its end cannot be waited for: {e}"))?;
        let (text, log_text) = (read(&out), read(&log));
        let verdict = match end {
            Ok(()) => Verdict::of(status, &text),
            Err(why) => Verdict::Hang(why),
        };
        for file in [plan, log, out] {
            let _ = std::fs::remove_file(file);
        }
        let (sites, made) = parse(&log_text);
        let silence = watcher.longest_silence();
        Ok(Attempt { verdict, sites, made, output: text, took: begun.elapsed(), silence })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn read(path: &PathBuf) -> String {
    std::fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

fn pid_of(child: &Child) -> Pid {
    Pid::from_raw(child.id().cast_signed())
}

/// Has it ended? Its status stays to be asked for.
fn has_ended(child: &Child) -> bool {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    !matches!(waitid(Id::Pid(pid_of(child)), flags), Ok(WaitStatus::StillAlive) | Err(Errno::EINTR))
}

/// Waits until the program ends, or it is known that it will not.
fn wait(child: &Child, watcher: &mut Watcher, limits: &Limits, begun: Instant) -> Result<(), String> {
    let mut looked = begun;
    loop {
        if has_ended(child) {
            return Ok(());
        }
        std::thread::sleep(LOOK);
        if looked.elapsed() < LOOK_CLOSELY {
            continue;
        }
        looked = Instant::now();
        watcher.look();
        if let Some(why) = watcher.is_stuck() {
            return Err(why);
        }
        if watcher.silence() > limits.silence {
            return Err(format!("nothing was posted or completed for {:.1?}", watcher.silence()));
        }
        if begun.elapsed() > limits.whole {
            return Err(format!("it still runs after {:.0?}", begun.elapsed()));
        }
    }
}

/// What the device wrote: the places met, and what was chosen.
pub fn parse(log: &str) -> (Vec<Met>, Vec<Entry>) {
    let (mut sites, mut made) = (Vec::new(), Vec::new());
    let mut known = HashMap::new();
    for line in log.lines() {
        match line.split_once(' ') {
            Some(("made", entry)) => made.extend(entry.parse::<Entry>()),
            Some(("site", rest)) => {
                let mut words = rest.splitn(3, ' ');
                let site = words.next().and_then(|s| s.parse::<Site>().ok());
                let object = words.next().and_then(|n| n.parse::<u64>().ok());
                let (Some(site), Some(object)) = (site, object) else { continue };
                if known.insert((site.clone(), object), ()).is_none() {
                    let words = words.next().unwrap_or(&site.place).to_owned();
                    sites.push(Met { site, object, words });
                }
            }
            _ => {}
        }
    }
    (sites, made)
}
