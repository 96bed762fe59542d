//! Programs started by a command end with the command, for every signal that ends the command.
//!
//! [`guard`] splits the command into three processes:
//!
//! 1. The *front* keeps the process id that the command's caller knows. The front forwards signals,
//!    and exits as the worker exited.
//! 2. The *reaper* has its own process group, so a signal to the command's group does not reach the
//!    reaper. The reaper is a child subreaper: every process without a parent becomes a child of
//!    the reaper, also after `setsid` and a double fork.
//! 3. The *worker* does the command's work in the front's process group, as the terminal expects.
//!
//! The reaper holds the read end of a pipe, and only the front has the write end. The kernel closes
//! the write end when the front ends in any way, including SIGKILL. The reaper then ends all
//! remaining processes. If the reaper is killed, the front is the next subreaper and does the same.
//! The worker has a parent-death signal, and so has every program prepared by
//! [`prepare`](crate::prepare).
//!
//! The survivor of a run ([`crate::leave_behind`]) is spared. The survivor ends by itself after the
//! programs have ended and the peers have been told.
use crate::apart::{SURVIVOR, copy, one_thread};
use adverb_os::ProcessStat;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl::{set_child_subreaper, set_pdeathsig};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal, kill, killpg, raise};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getpgrp, getpid, getppid, pipe2, setpgid};
use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, ExitCode, ExitStatus};
use std::time::{Duration, Instant};

/// Base of a shell's exit status for a signal.
const SIGNALLED: i32 = 128;
/// `si_code` of a signal from the kernel, such as a signal of the terminal to the whole group.
const BY_KERNEL: i32 = 0x80;
/// Time limit for a process that cannot be killed: a process of another user, or inside a driver.
const GIVE_UP: Duration = Duration::from_secs(10);
/// Pause between two searches for remaining processes.
const LOOK: Duration = Duration::from_millis(2);
/// Signals forwarded to the program.
const FORWARDED: [Signal; 7] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGCONT,
];
/// Forwarded signals that ask for the end.
const ENDS: [Signal; 4] = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM];

/// Actions at the end of a guarded command.
#[derive(Debug, Default)]
pub struct AtEnd {
    /// Processes left running by the programs stay, if the command exited by itself with a status.
    /// After a signal, no process stays.
    pub leave_running: bool,
    /// A directory of the command, removed when no process of the command runs any more.
    pub remove: Option<PathBuf>,
}

/// Guards this command from here on. Returns in the worker.
///
/// # Errors
/// The error of the kernel; the command then continues without a guard. `Unsupported` if the
/// process has more than one thread, because then a copy is not safe.
pub fn guard(at_end: AtEnd) -> io::Result<()> {
    one_thread()?;
    let (front_ended, held) = pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
    if let Some(reaper) = copy()? {
        drop(front_ended);
        be_front(reaper, at_end, &held);
    }
    drop(held);
    be_reaper(front_ended, at_end);
    Ok(())
}

/// The front: waits for the reaper, and exits as the reaper exited. `_held` is the write end, which
/// the kernel closes when this process ends, not before.
fn be_front(reaper: Pid, at_end: AtEnd, _held: &OwnedFd) -> ! {
    // Orphans come to this process if the reaper is killed.
    let _ = set_child_subreaper(true);
    let end = Ward { child: reaper, front_ended: None }.wait();
    // The reaper has already done this, unless it was killed.
    if end.status.is_none_or(|status| status.code().is_none()) {
        end_all(getpgrp());
        remove(at_end);
    }
    exit_as(end.status)
}

/// The reaper, which starts the worker. Returns in the worker only.
fn be_reaper(front_ended: OwnedFd, at_end: AtEnd) {
    let (reaper, group) = (getpid(), getpgrp());
    let _ = setpgid(Pid::from_raw(0), Pid::from_raw(0));
    let _ = set_child_subreaper(true);
    let worker = match copy() {
        Ok(Some(worker)) => worker,
        Ok(None) => return be_worker(reaper, group),
        Err(e) => {
            eprintln!("adverb: no process can be made: {e}");
            std::process::exit(1);
        }
    };
    let end = Ward { child: worker, front_ended: Some(front_ended) }.wait();
    let by_itself = !end.asked && end.status.is_some_and(|status| status.code().is_some());
    if !(at_end.leave_running && by_itself) {
        end_all(group);
    }
    remove(at_end);
    exit_as(end.status)
}

/// The worker: joins the front's process group, and dies with its parent.
fn be_worker(reaper: Pid, group: Pid) {
    let set = setpgid(Pid::from_raw(0), group).and_then(|()| set_pdeathsig(Signal::SIGKILL));
    // The signal covers only later ends, and the reaper may have ended before the call.
    if set.is_err() || getppid() != reaper {
        std::process::exit(1);
    }
}

fn remove(at_end: AtEnd) {
    if let Some(directory) = at_end.remove {
        let _ = std::fs::remove_dir_all(directory);
    }
}

/// A child, and for the reaper the pipe that reports the end of the front.
struct Ward {
    child: Pid,
    front_ended: Option<OwnedFd>,
}

/// How the child ended.
struct ChildEnd {
    /// `None`: the front ended first.
    status: Option<ExitStatus>,
    /// A signal has asked for the end of the command.
    asked: bool,
}

impl Ward {
    /// Reaps every child and forwards signals, until the child or the front has ended.
    fn wait(&self) -> ChildEnd {
        let mut signals: SigSet = FORWARDED.into_iter().collect();
        signals.add(Signal::SIGCHLD);
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        // From here on, signals are queued for this reader. An earlier signal would have ended this
        // process.
        let opened = signals.thread_block().and_then(|()| SignalFd::with_flags(&signals, flags));
        let mut asked = false;
        let Ok(opened) = opened else {
            let status = waitpid(self.child, None).ok().and_then(status_of);
            return ChildEnd { status, asked };
        };
        loop {
            if let Some(status) = reap(self.child) {
                return ChildEnd { status: Some(status), asked };
            }
            let fds = [opened.as_fd()].into_iter().chain(self.front_ended.iter().map(AsFd::as_fd));
            let mut fds: Vec<_> = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
            let _ = poll(&mut fds, PollTimeout::NONE);
            // No process writes to the pipe, so an event means the end of the front.
            if fds.get(1).and_then(PollFd::any) == Some(true) {
                return ChildEnd { status: None, asked };
            }
            while let Ok(Some(got)) = opened.read_signal() {
                let Ok(signal) = Signal::try_from(got.ssi_signo.cast_signed()) else { continue };
                asked |= ENDS.contains(&signal);
                // The terminal sends its signals to the whole process group.
                if signal != Signal::SIGCHLD && got.ssi_code != BY_KERNEL {
                    let _ = kill(self.child, signal);
                }
            }
        }
    }
}

/// Waits for a child of this process, and forwards signals to it meanwhile. The process must have
/// no other child.
///
/// # Errors
/// The child has already been waited for.
pub fn wait(child: &Child) -> io::Result<ExitStatus> {
    let end = Ward { child: Pid::from_raw(child.id().cast_signed()), front_ended: None }.wait();
    end.status.ok_or_else(|| Errno::ECHILD.into())
}

fn status_of(status: WaitStatus) -> Option<ExitStatus> {
    match status {
        WaitStatus::Exited(_, code) => Some(ExitStatus::from_raw((code & 0xff) << 8)),
        WaitStatus::Signaled(_, signal, _) => Some(ExitStatus::from_raw(signal as i32)),
        _ => None,
    }
}

/// Reaps all children that have ended. Returns the status of `child` if it has ended.
fn reap(child: Pid) -> Option<ExitStatus> {
    let mut of_child = None;
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) => return of_child,
            Ok(status) if status.pid() == Some(child) => of_child = of_child.or(status_of(status)),
            Ok(_) | Err(Errno::EINTR) => {}
            // No child is left.
            Err(_) => return of_child,
        }
    }
}

/// Ends all descendants of this process except survivors. `spared` is a process group that also has
/// other members.
///
/// Only direct children are killed. Their process ids cannot be reused, because only this process
/// reaps them. The children of a killed child become children of this process.
fn end_all(spared: Pid) {
    let (begun, me) = (Instant::now(), getpid().as_raw());
    let mut empty = 0;
    // `/proc` is not a snapshot: a process forked during the search may be missing.
    while empty < 2 && begun.elapsed() < GIVE_UP {
        let all = all_processes();
        let ours = descendants(&all);
        let is_ours =
            |p: &ProcessStat| ours.contains(&p.pid) && (p.has_ended() || !is_survivor(p.pid));
        let left: Vec<_> = all.iter().filter(|p| !p.has_ended() && is_ours(p)).collect();
        empty = if left.is_empty() { empty + 1 } else { 0 };
        for process in left.into_iter().filter(|p| p.parent == me) {
            let group = process.group;
            // A signal to a group also reaches a process in the middle of a fork.
            if group != spared.as_raw() && all.iter().all(|p| p.group != group || is_ours(p)) {
                let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
            }
            let _ = kill(Pid::from_raw(process.pid), Signal::SIGKILL);
        }
        std::thread::sleep(LOOK);
        reap(Pid::from_raw(0));
    }
}

/// The children of a process with one thread. `None`: the kernel does not list them.
fn children(parent: i32) -> Option<Vec<ProcessStat>> {
    let list = || std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
    // The kernel may leave out a child while another child ends, so the list is read twice.
    let texts = [list().ok()?, list().ok()?];
    let ids = texts.iter().flat_map(|text| text.split_ascii_whitespace());
    let all: HashSet<i32> = ids.filter_map(|id| id.parse().ok()).collect();
    Some(all.into_iter().filter_map(ProcessStat::of).collect())
}

fn all_processes() -> Vec<ProcessStat> {
    adverb_os::processes().filter_map(ProcessStat::of).collect()
}

fn descendants(all: &[ProcessStat]) -> HashSet<i32> {
    let mut known = HashSet::from([getpid().as_raw()]);
    loop {
        let before = known.len();
        let children = all.iter().filter(|p| known.contains(&p.parent));
        known.extend(children.map(|p| p.pid).collect::<Vec<_>>());
        if known.len() == before {
            known.remove(&getpid().as_raw());
            return known;
        }
    }
}

/// A survivor runs the same executable and has set this name. No other program does both.
fn is_survivor(pid: i32) -> bool {
    let name = std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.trim_ascii_end() == SURVIVOR.to_bytes()
        && adverb_os::runs_own_executable(pid) == Some(true)
}

/// Ends all orphaned processes that were started with this value of an environment variable. The
/// worker of a guarded command calls this function: such processes are children of the worker's
/// parent.
pub fn end_orphans(variable: &str, value: &[u8]) {
    let wanted = [variable.as_bytes(), b"=", value].concat();
    let (begun, me, reaper) = (Instant::now(), getpid().as_raw(), getppid().as_raw());
    let is_marked = |p: &ProcessStat| {
        let environment = std::fs::read(format!("/proc/{}/environ", p.pid)).unwrap_or_default();
        environment.split(|b| *b == 0).any(|entry| entry == wanted) && !is_survivor(p.pid)
    };
    while begun.elapsed() < GIVE_UP {
        let all = children(reaper).unwrap_or_else(all_processes);
        let orphans = all.iter().filter(|p| p.parent == reaper && p.pid != me && !p.has_ended());
        let marked: Vec<_> = orphans.filter(|p| is_marked(p)).collect();
        if marked.is_empty() {
            return;
        }
        for process in marked {
            let _ = kill(Pid::from_raw(process.pid), Signal::SIGKILL);
        }
        std::thread::sleep(LOOK);
    }
}

/// Ends this process as another process ended: by the same signal, or with the returned status.
#[must_use]
pub fn end_as(status: ExitStatus) -> ExitCode {
    if let Some(code) = status.code() {
        return ExitCode::from(code as u8);
    }
    let signal = status.signal().unwrap_or(0);
    if let Ok(signal) = Signal::try_from(signal) {
        // Avoids a second core file: the core of the other process is enough.
        if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_CORE) {
            let _ = setrlimit(Resource::RLIMIT_CORE, 0, hard);
        }
        let mut one = SigSet::empty();
        one.add(signal);
        let _ = one.thread_unblock();
        let _ = raise(signal);
    }
    ExitCode::from((SIGNALLED + signal) as u8)
}

/// The same for a process that does not return to its `main`.
fn exit_as(status: Option<ExitStatus>) -> ! {
    let status = status.unwrap_or(ExitStatus::from_raw(Signal::SIGKILL as i32));
    let _ = end_as(status);
    std::process::exit(status.code().unwrap_or(SIGNALLED))
}
