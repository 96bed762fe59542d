//! What the threads of a peer are doing, according to the kernel.
use adverb_threads::call::Line;
use adverb_threads::{Process, Task};
use nix::libc;
use std::fs;
use std::io;
use std::time::Duration;

/// Limits for a thread with a standing hazard.
#[derive(Clone, Copy)]
pub(super) struct Bounds {
    /// Processor time that no copy of a piece takes, together with the check before the copy.
    pub(super) honest: Duration,
    /// Consecutive checks, a second apart, with the thread asleep in a call other than a copy.
    pub(super) asleep: u32,
}

pub(super) const BOUNDS: Bounds = Bounds { honest: Duration::from_secs(10), asleep: 20 };

/// What a thread was doing at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    /// The thread has ended.
    Ended,
    /// On a processor, or waiting for a processor.
    Runs,
    /// Off the processor, between two instructions of the program: stopped, frozen, or waiting for
    /// a page.
    Off,
    /// Off the processor, in a system call that copies nothing.
    Calls,
    /// Off the processor, in a system call that copies.
    Copies,
    /// The kernel hides the thread's calls from this process. The letter is the thread's state.
    Hidden(char),
}

impl Doing {
    pub(super) fn of(pid: i32, thread: u32) -> Self {
        let task = task(pid, thread);
        // The kernel shows a call only if the thread was switched out before and after the kernel
        // read the number. The state alone proves less, as the state changes while the thread is
        // still on the processor.
        match task.line() {
            Err(e) if is_no_more(&e) && shows_this_namespace() => Doing::Ended,
            Err(_) => Doing::Hidden(state(task)),
            Ok(Line::Running) => Doing::Runs,
            Ok(Line::Outside) => Doing::Off,
            Ok(Line::Blocked(call)) => match call.number {
                libc::SYS_process_vm_readv | libc::SYS_process_vm_writev => {
                    // A thread stops or freezes on the way back to the program, so the call is
                    // over.
                    let stopped = state(task) == 'T' || is_frozen(pid);
                    if stopped { Doing::Off } else { Doing::Copies }
                }
                _ => Doing::Calls,
            },
        }
    }

    /// Has the thread stopped using entries read before this moment? A thread stops only on its way
    /// back to the program.
    pub(super) fn is_out(self) -> bool {
        match self {
            Doing::Ended | Doing::Off | Doing::Calls | Doing::Hidden('T' | 't') => true,
            Doing::Runs | Doing::Copies | Doing::Hidden(_) => false,
        }
    }

    /// For the log.
    pub(super) fn words(self) -> &'static str {
        match self {
            Doing::Runs => ", and waits for a processor",
            _ => "",
        }
    }
}

/// The observations of a thread with a standing hazard.
pub(super) struct Thread {
    pub(super) number: u32,
    pid: i32,
    /// Processor time used by the thread before the first observation.
    used: Duration,
    asleep: u32,
}

impl Thread {
    pub(super) fn new(pid: i32, number: u32) -> Self {
        Thread { number, pid, used: used(pid, number), asleep: 0 }
    }

    /// Is the thread's hazard a lie? Called once a second for each thread, however many hazards
    /// name the thread.
    ///
    /// An honest thread sets the hazard, reads two words, copies a single piece, and reads again.
    /// So the hazard is a lie if the thread has used [`Bounds::honest`] of processor time
    /// meanwhile. A starved or stopped thread, or a thread waiting for a page, uses no processor
    /// time. The hazard is a lie as well if the kernel hides the thread's calls, and the thread was
    /// asleep at each of [`Bounds::asleep`] checks. A signal handler with a sleep of twenty
    /// seconds, in the middle of such a thread's copy, is misjudged.
    pub(super) fn lies(&mut self, doing: Doing, bounds: Bounds) -> bool {
        let sleeps = matches!(doing, Doing::Hidden('S'));
        self.asleep = if sleeps { self.asleep + 1 } else { 0 };
        self.asleep >= bounds.asleep
            || used(self.pid, self.number).saturating_sub(self.used) >= bounds.honest
    }
}

fn is_no_more(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
}

/// Is `/proc` there, with this process's PID namespace?
fn shows_this_namespace() -> bool {
    fs::read_link("/proc/self")
        .is_ok_and(|own| own.as_os_str() == std::process::id().to_string().as_str())
}

fn task(pid: i32, thread: u32) -> Task {
    Task { process: Process::Number(pid), id: thread.cast_signed() }
}

/// The processor time used by a thread.
fn used(pid: i32, thread: u32) -> Duration {
    task(pid, thread).times().map_or(Duration::ZERO, |[used, _]| used)
}

/// The letter of a thread's state. A blank if the kernel does not tell.
fn state(task: Task) -> char {
    task.status().map_or(' ', |status| status.state)
}

/// Is the process stopped or frozen?
pub(super) fn is_stopped(pid: i32) -> bool {
    let mut tasks = Process::Number(pid).tasks().into_iter().flatten();
    tasks.any(|task| matches!(state(task), 'T' | 't')) || is_frozen(pid)
}

/// Is the control group of the process frozen? In version 2, a thread's state does not show this.
fn is_frozen(pid: i32) -> bool {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let says = |file: String, line: &str| {
        fs::read_to_string(file).is_ok_and(|text| text.lines().any(|found| found == line))
    };
    groups.lines().any(|group| {
        if let Some(path) = group.strip_prefix("0::") {
            return ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"]
                .iter()
                .any(|root| says(format!("{root}{path}/cgroup.events"), "frozen 1"));
        }
        let (_, rest) = group.split_once(':').unwrap_or_default();
        rest.strip_prefix("freezer:").is_some_and(|path| {
            says(format!("/sys/fs/cgroup/freezer{path}/freezer.state"), "FROZEN")
        })
    })
}

#[cfg(test)]
mod tests;
