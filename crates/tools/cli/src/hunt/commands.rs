//! Runs the commands of a hunt. Starts the commands, waits for their end or for evidence of a hang,
//! and ends every process of a run.
use super::attempt::{Attempt, LOST, Limits, Output, SILENCE, Verdict, Who, lost, parse};
use super::boxes::{Boxes, RunBox};
use super::stuck::Watcher;
use crate::examination::{self, Examination, text_of};
use crate::out::at;
use adverb_choice::Schedule;
use adverb_hunt as hunt;
use adverb_survivor::is_interrupted;
use adverb_threads::Stillness;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::AccessFlags;
use nix::unistd::Pid;
use std::ffi::OsString;
use std::fs::{DirBuilder, File};
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Interval between two checks whether a server waits for its client, and between two checks
/// whether a command has ended if the kernel does not report the end.
const LOOK: Duration = Duration::from_millis(2);
/// Interval between two checks of the commands' threads.
const LOOK_CLOSELY: Duration = Duration::from_millis(50);
/// A server that was never seen to listen counts as waiting for a client if every thread sleeps
/// without a time limit for this time.
const READY: Duration = Duration::from_secs(1);
/// A server that neither listens nor sleeps counts as ready after this time.
const READY_AT_LAST: Duration = Duration::from_secs(30);
/// Time after the first failure of a pair at which the other command is given up.
const AFTERMATH: Duration = Duration::from_secs(2);
/// Bytes of an output in which a report of the device is looked for during the run.
const OUTPUT: u64 = 64 << 10;
/// A run with a known mistake is given up after this time.
const ENOUGH: Duration = Duration::from_secs(3);
/// A server idle for this time after the end of the client is waiting for the next
/// client.
const STAYS: Duration = Duration::from_secs(2);

/// The commands of a hunt, and a directory for their output.
pub struct HuntCommands {
    /// A single command, or a server and a client.
    commands: Vec<Vec<OsString>>,
    /// The variable with the file of unwanted reports.
    suppression: Option<(&'static str, PathBuf)>,
    boxes: Boxes,
    exe: PathBuf,
    directory: PathBuf,
    next: AtomicUsize,
    /// The server of the pair has listened in a run, so its client waits for this in every run.
    listens: AtomicBool,
}

/// A running command, in a separate process group.
struct Side {
    who: Who,
    child: Child,
    /// Readable once the command has ended. `None` if the kernel does not report the end.
    end: Option<OwnedFd>,
    out: PathBuf,
}

/// How the commands of a run have ended so far.
#[derive(Default)]
struct Ends {
    /// In the order of their ends.
    of: Vec<(Who, Verdict)>,
    /// Set if the run was given up. Says why the run counts as a hang.
    hang: Option<String>,
    stayed: bool,
    /// The server began to listen after the start of its client.
    was_early: bool,
    /// The time of the hunt was over.
    given_up: bool,
}

/// The path of a directory for the output of a hunt's commands. The directory is not made yet. It
/// is in the first place where this user may make files.
pub fn directory() -> PathBuf {
    let name =
        format!("adverb-hunt-{}-{:08x}", std::process::id(), getrandom::u32().unwrap_or_default());
    let first = std::env::temp_dir();
    let places = [first.clone(), "/var/tmp".into(), "/dev/shm".into()];
    let of_user = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let mut all = places.into_iter().chain(of_user);
    all.find(|place| is_writable(place)).unwrap_or(first).join(name)
}

fn is_writable(place: &Path) -> bool {
    // A file system that is mounted for reading has no writable files.
    nix::unistd::access(place, AccessFlags::W_OK | AccessFlags::X_OK).is_ok()
}

impl HuntCommands {
    /// Makes the directory, which must not exist yet.
    pub fn new(
        directory: PathBuf,
        commands: Vec<Vec<OsString>>,
        suppression: Option<(&'static str, PathBuf)>,
        before: Option<&OsString>,
    ) -> Result<Self, String> {
        let exe = crate::run::own_path()?;
        DirBuilder::new().mode(0o700).create(&directory).map_err(at(&directory))?;
        let boxes = Boxes::new(&exe, &directory, before);
        let next = AtomicUsize::new(0);
        let listens = AtomicBool::new(false);
        Ok(HuntCommands { commands, suppression, boxes, exe, directory, next, listens })
    }

    /// The first run. If the program fails in a box twice, and works without a box, the runs have
    /// no box: perhaps the program needs another host. Then the answer says how the program failed.
    /// A program that has not ended in half of the time is tried without a box only.
    pub fn first(&self, limits: &Limits) -> Result<(Attempt, Option<String>), String> {
        let limits = Limits { whole: limits.whole / 2, ..*limits };
        let run = || self.attempt(&Schedule::default(), &limits);
        let first = run()?;
        let is_over = first.verdict == Verdict::GivenUp;
        let is_own = first.verdict == Verdict::Fine || examination::is_own(&first.reports);
        if is_own || !self.boxes.are_used() || limits.are_over() {
            return Ok((first, None));
        }
        self.boxes.use_them(false);
        if !self.boxes.are_used() {
            let outside = run()?;
            self.boxes.use_them(true);
            if outside.verdict == Verdict::Fine && (is_over || run()?.verdict != Verdict::Fine) {
                self.boxes.use_them(false);
                return Ok((outside, Some(first.what())));
            }
        }
        Ok((first, None))
    }

    /// Runs the commands once.
    pub fn attempt(&self, schedule: &Schedule, limits: &Limits) -> Result<Attempt, String> {
        let n = self.next.fetch_add(1, Ordering::Relaxed);
        let [plan, log, reports, ask] = ["schedule", "log", "reports", "ask"]
            .map(|kind| self.directory.join(format!("{n}.{kind}")));
        std::fs::write(&plan, schedule.to_string())
            .and_then(|()| std::fs::write(&log, if limits.words { hunt::WORDS } else { "" }))
            .map_err(at(&self.directory))?;
        let examination = Examination::begin(reports, ask).map_err(at(&self.directory))?;
        let begun = Instant::now();
        let is_over = || limits.are_over() || begun.elapsed() > limits.whole;
        let mark = (hunt::SCHEDULE, &*plan);
        let Some(run_box) = self.boxes.make(n, mark, is_over)? else {
            return Ok(Attempt { verdict: Verdict::GivenUp, ..Attempt::default() });
        };
        let begun = Instant::now();
        let mut watcher = Watcher::new(log.clone());
        let mut sides = Vec::new();
        let variables = [mark, (hunt::LOG, &*log)];
        let variables = variables.into_iter().chain(examination.variables());
        // A child does not inherit pages mapped by peers, so that forks can be judged in one run.
        let is_first = limits.stays.is_none();
        let private = is_first.then_some(("ADVERB_ADOPT", Path::new("off")));
        let suppression = self.suppression.as_ref().map(|(name, file)| (*name, &**file));
        let variables = variables.chain(private).chain(suppression);
        let variables: Vec<_> = variables.collect();
        let ended =
            self.run(n, (&variables, &examination, &run_box), limits, &mut watcher, &mut sides);
        if ended.as_ref().is_ok_and(|ends| ends.have_failed(sides.len())) {
            examination.ask(1);
        }
        let outputs = sides.into_iter().map(Side::end).collect::<Result<Vec<_>, _>>();
        // Ends processes outside the process groups.
        adverb_survivor::end_orphans(hunt::SCHEDULE, plan.as_os_str().as_bytes());
        let log_text = text_of(&log);
        for file in [plan, log] {
            let _ = std::fs::remove_file(file);
        }
        let (ends, outputs) = (ended?, outputs?);
        if ends.was_early && ends.have_failed(outputs.len()) && !limits.are_over() {
            // A client may fail because its server does not listen yet.
            return self.attempt(schedule, limits);
        }
        let (reports, picture) = (examination.reports(), examination.picture());
        let (who, verdict) = match ends.given_up {
            true => (Who::Program, Verdict::GivenUp),
            false => ends.verdict(&outputs, limits.stays == Some(true)),
        };
        let hangs_alone = examination.has_one_process();
        let attempt = Attempt {
            verdict,
            who,
            outputs,
            reports,
            picture,
            took: begun.elapsed(),
            silence: watcher.longest_silence(),
            stayed: ends.stayed,
            ..parse(&log_text)
        };
        let mut attempt = attempt.excused(hangs_alone);
        (attempt.path.made, attempt.path.took) = (attempt.made.len(), attempt.took);
        attempt.verdict = attempt.verdict.with(&attempt.reports);
        Ok(attempt)
    }

    /// Starts the commands and waits for their ends. A client starts when the server waits for a
    /// client.
    fn run(
        &self,
        n: usize,
        (variables, examination, run_box): (&[(&str, &Path)], &Examination, &RunBox),
        limits: &Limits,
        watcher: &mut Watcher,
        sides: &mut Vec<Side>,
    ) -> Result<Ends, String> {
        let names = if self.commands.len() == 1 {
            &[Who::Program][..]
        } else {
            &[Who::Server, Who::Client]
        };
        let mut early = false;
        for (words, who) in self.commands.iter().zip(names) {
            if let Some(server) = sides.first() {
                let is_known = self.listens.load(Ordering::Relaxed);
                early = !self.until_ready(server) && !is_known;
            }
            let out = self.directory.join(format!("{n}.out{}", sides.len()));
            let output = File::options().append(true).create(true).open(&out);
            let output = output.map_err(at(&self.directory))?;
            let mut command = Command::new(&self.exe);
            command.arg("run").args(run_box.arguments()).arg("--").args(words);
            command.envs(variables.iter().copied());
            let errors = output.try_clone().map_err(at(&self.directory))?;
            command.stdin(Stdio::null()).stdout(output).stderr(errors).process_group(0);
            adverb_survivor::prepare(&mut command);
            let child = command.spawn().map_err(at(&self.exe))?;
            watcher.add(child.id());
            let end = adverb_os::process_end(pid_of(&child).as_raw()).ok();
            sides.push(Side { who: *who, child, end, out });
        }
        let has_mistake = || examination.has_mistake() || sides.iter().any(Side::has_lost);
        let listens = || early && Watcher::listens(sides[0].child.id());
        let ends = wait(sides, watcher, limits, (&has_mistake, &listens));
        self.listens.fetch_or(ends.was_early, Ordering::Relaxed);
        Ok(ends)
    }

    /// Waits until a server listens at a socket or for rdma_cm. Until it has listened once, a
    /// server that sleeps without a time limit counts as well. Answers whether the server listens.
    fn until_ready(&self, server: &Side) -> bool {
        let begun = Instant::now();
        let group = server.child.id();
        // Counted in intervals between checks and not by the clock: while the machine stands still,
        // so does the server.
        let mut stillness = Stillness::default();
        while begun.elapsed() < READY_AT_LAST && server.ended().is_none() && !is_interrupted() {
            Watcher::look_at(group, &mut stillness, LOOK);
            if Watcher::listens(group) {
                self.listens.store(true, Ordering::Relaxed);
                return true;
            }
            if stillness.lasts() >= READY && !self.listens.load(Ordering::Relaxed) {
                return false;
            }
            std::thread::sleep(LOOK);
        }
        false
    }
}

impl Drop for HuntCommands {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn pid_of(child: &Child) -> Pid {
    Pid::from_raw(child.id().cast_signed())
}

impl Side {
    /// Has the device reported a lost wake-up? Only the beginning of a long output is read.
    fn has_lost(&self) -> bool {
        let mut text = Vec::new();
        let read = File::open(&self.out).and_then(|file| file.take(OUTPUT).read_to_end(&mut text));
        read.is_ok() && String::from_utf8_lossy(&text).contains(LOST)
    }

    /// How the command has ended, if it has ended. The process is not reaped, so the status stays
    /// available.
    fn ended(&self) -> Option<Verdict> {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        match waitid(Id::Pid(pid_of(&self.child)), flags) {
            Ok(WaitStatus::StillAlive) | Err(Errno::EINTR) => None,
            Ok(status) => Some(Verdict::of(status)),
            Err(_) => Some(Verdict::Status(-1)),
        }
    }

    /// Kills the command's process group and takes the command's output.
    fn end(mut self) -> Result<Output, String> {
        // The process is not reaped yet, so the process id cannot belong to another process.
        let _ = killpg(pid_of(&self.child), Signal::SIGKILL);
        self.child
            .wait()
            .map_err(|e| format!("the end of the process cannot be waited for: {e}"))?;
        let text = text_of(&self.out);
        let _ = std::fs::remove_file(&self.out);
        Ok(Output { who: self.who, text })
    }
}

/// Waits until another command has ended, for `limit` at most.
fn until_end(sides: &[Side], ends: &Ends, limit: Duration) {
    let left: Vec<_> = sides.iter().filter(|side| !ends.has(side.who)).collect();
    let fds: Vec<_> = left.iter().filter_map(|side| side.end.as_ref()).collect();
    if fds.len() < left.len() {
        return std::thread::sleep(LOOK.min(limit));
    }
    let mut fds: Vec<_> =
        fds.into_iter().map(|fd| PollFd::new(fd.as_fd(), PollFlags::POLLIN)).collect();
    // Rounded up, so that the rest of a millisecond is not spent in a loop.
    let limit = u16::try_from(limit.as_millis()).unwrap_or(u16::MAX).saturating_add(1);
    let _ = poll(&mut fds, limit);
}

/// Waits until all commands have ended, or until the run counts as a hang.
fn wait(
    sides: &[Side],
    watcher: &mut Watcher,
    limits: &Limits,
    (has_mistake, listens): (&dyn Fn() -> bool, &dyn Fn() -> bool),
) -> Ends {
    let begun = Instant::now();
    let (mut looked, mut failed) = (begun, None);
    let mut ends = Ends::default();
    loop {
        for side in sides {
            if !ends.has(side.who)
                && let Some(verdict) = side.ended()
            {
                if verdict != Verdict::Fine {
                    failed.get_or_insert_with(Instant::now);
                }
                ends.of.push((side.who, verdict));
                watcher.remove(side.child.id());
            }
        }
        if ends.of.len() == sides.len() || failed.is_some_and(|at| at.elapsed() >= AFTERMATH) {
            return ends;
        }
        let client_went = ends.of.iter().any(|(who, _)| *who == Who::Client) && failed.is_none();
        if client_went && limits.stays == Some(true) {
            ends.stayed = true;
            return ends;
        }
        if let Some(left) = LOOK_CLOSELY.checked_sub(looked.elapsed()).filter(|t| !t.is_zero()) {
            until_end(sides, &ends, left);
            continue;
        }
        looked = Instant::now();
        watcher.look();
        if !ends.was_early && listens() {
            ends.was_early = true;
        }
        if limits.are_over() {
            ends.given_up = true;
            return ends;
        }
        let stuck = watcher.is_stuck();
        if client_went && limits.stays.is_none() && (stuck.is_some() || watcher.silence() >= STAYS)
        {
            ends.stayed = true;
            return ends;
        }
        let silence = watcher.silence();
        // Nothing is known of the times of a program in its first run.
        let is_first = limits.stays.is_none();
        let is_silent = silence > limits.silence && !(is_first && watcher.naps());
        let ran = if is_first { begun.elapsed() } else { watcher.ran };
        let is_over = ran > limits.whole;
        ends.hang = stuck.or_else(|| {
            // With a known mistake no proof is needed that the program never continues.
            if is_silent || silence > SILENCE && has_mistake() {
                return Some(format!("nothing was posted or completed for {silence:.1?}"));
            }
            (is_over && !is_first).then(|| format!("no end after {:.0?}", begun.elapsed()))
        });
        if ends.hang.is_none() && is_over {
            ends.given_up = true;
            return ends;
        }
        let enough = begun.elapsed() > ENOUGH && has_mistake();
        if ends.hang.is_some() || enough {
            return ends;
        }
    }
}

impl Ends {
    /// Has the run failed, as far as the commands tell? `n`: the number of commands.
    fn have_failed(&self, n: usize) -> bool {
        let failed = self.of.iter().any(|(_, verdict)| *verdict != Verdict::Fine);
        failed || self.of.len() < n && !self.stayed
    }

    fn has(&self, who: Who) -> bool {
        self.of.iter().any(|(of, _)| *of == who)
    }

    /// Which command is to blame, as far as can be told. A failed command comes first. If the
    /// run hangs, the command with the lost wake-up is to blame, or else the only command that has
    /// not ended. If both have not ended and the server always stays, the client is to blame.
    fn verdict(&self, outputs: &[Output], stays: bool) -> (Who, Verdict) {
        let all = if outputs.len() == 1 { Who::Program } else { Who::Both };
        // The peer of a program that crashes fails as well, maybe before the crash is over.
        let crashed = self.of.iter().find(|(_, verdict)| matches!(verdict, Verdict::Crash(_)));
        let failed = || self.of.iter().find(|(_, verdict)| *verdict != Verdict::Fine);
        if let Some(failed) = crashed.or_else(failed) {
            return failed.clone();
        }
        let lost = lost(outputs);
        let Some(why) = &self.hang else {
            return lost.map_or((all, Verdict::Fine), |(who, text)| {
                (who, Verdict::Report(text.to_owned()))
            });
        };
        let left: Vec<_> = outputs.iter().map(|o| o.who).filter(|who| !self.has(*who)).collect();
        let who = match (lost, &left[..]) {
            (Some((who, _)), _) => who,
            (None, [one]) => *one,
            _ if stays => Who::Client,
            _ => all,
        };
        (who, Verdict::Hang(why.clone()))
    }
}

#[cfg(test)]
mod tests;
