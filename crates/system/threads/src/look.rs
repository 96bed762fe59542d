//! Whether processes still move: their threads at one look, compared with earlier looks.
use super::call::Line;
use super::task::{Process, Task};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{Pid, getpid, gettid};
use std::collections::BTreeMap;
use std::time::Duration;

/// A thread that has slept so often for a short time, without progress, polls for something.
const NAPS: u64 = 4;

/// What a thread does, whatever it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// Sleeps until another thread, a process or a signal wakes the thread.
    Sleeps,
    /// Sleeps for a time.
    Naps,
    /// Runs, waits for a processor, or is stopped.
    Runs,
    /// The kernel does not show what the thread does.
    Hidden,
}

/// A thread at one look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadLook {
    /// What the thread does.
    pub activity: Activity,
    /// How often the thread has left the processor so far.
    pub switches: u64,
    /// How long the thread has waited for a processor so far.
    pub waited: Duration,
    /// The thread belongs to the device. Such threads sleep and wake at any time.
    pub ours: bool,
}

/// Does a process still move by itself?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Movement {
    /// A thread works, has woken, has begun or has ended, or the kernel does not tell.
    Moves,
    /// Some threads wait for a change in a loop, and have looked for the change again and again.
    /// The other threads sleep without a limit.
    Polls,
    /// All threads of the program sleep without a limit, and none has woken.
    Still,
}

/// A process at one look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessLook {
    /// By number, without the looking thread.
    pub threads: BTreeMap<i32, ThreadLook>,
    /// Processor time of all threads.
    pub spent: Duration,
}

impl ThreadLook {
    fn of(task: Task) -> Option<ThreadLook> {
        let line = task.line();
        // Read after the call: a thread that has woken in between runs.
        let status = task.status()?;
        let activity = match (line, status.state) {
            (_, 'Z' | 'X') => return None,
            (Err(_), _) => Activity::Hidden,
            (Ok(Line::Blocked(call)), 'S') if call.sleeps_for_ever() => Activity::Sleeps,
            (Ok(Line::Blocked(_)), 'S' | 'D') => Activity::Naps,
            (Ok(_), _) => Activity::Runs,
        };
        let waited = task.times().map_or(Duration::ZERO, |[_, waited]| waited);
        let ours = task.is_ours(&status);
        Some(ThreadLook { activity, switches: status.switches, waited, ours })
    }
}

impl ProcessLook {
    /// Looks at a process. `None` if the kernel does not list its threads.
    #[must_use]
    pub fn of(process: Process) -> Option<ProcessLook> {
        let own = gettid().as_raw();
        let tasks = process.tasks()?.into_iter().filter(|task| task.id != own);
        let threads = tasks.filter_map(|task| Some((task.id, ThreadLook::of(task)?))).collect();
        Some(ProcessLook { threads, spent: spent(process).unwrap_or_default() })
    }

    /// The threads of the program.
    fn program(&self) -> impl Iterator<Item = (i32, &ThreadLook)> {
        self.threads.iter().filter(|(_, thread)| !thread.ours).map(|(id, thread)| (*id, thread))
    }

    /// Since the look `last`, has a thread of the program woken, begun or ended?
    #[must_use]
    pub fn has_moved(&self, last: &ProcessLook) -> bool {
        let switches = |look: &ProcessLook| -> Vec<(i32, u64)> {
            look.program().map(|(id, thread)| (id, thread.switches)).collect()
        };
        switches(self) != switches(last)
    }

    /// Does the process still move by itself? `first` is the first look of a time without progress,
    /// and `last` the look before this look. To make progress, a thread that runs gets the
    /// processor time `enough`.
    #[must_use]
    pub fn movement(&self, first: &Self, last: &Self, enough: Duration) -> Movement {
        let (mut running, mut napping) = (0, 0);
        if last.program().any(|(id, _)| !self.threads.contains_key(&id)) {
            return Movement::Moves;
        }
        for (id, now) in &self.threads {
            let then = first.threads.get(id);
            let goes_on = match now.activity {
                Activity::Runs => {
                    running += 1;
                    then.is_none()
                }
                _ if now.ours => false,
                Activity::Sleeps => {
                    last.threads.get(id).is_none_or(|last| last.switches != now.switches)
                }
                Activity::Naps => {
                    napping += 1;
                    then.is_none_or(|then| now.switches < then.switches + NAPS)
                }
                Activity::Hidden => true,
            };
            if goes_on {
                return Movement::Moves;
            }
        }
        match running + napping {
            _ if self.spent.saturating_sub(first.spent) < enough.saturating_mul(running) => {
                Movement::Moves
            }
            0 => Movement::Still,
            _ => Movement::Polls,
        }
    }

    /// How long threads have waited for a processor since an earlier look: the longest wait.
    fn waited_since(&self, last: &Self) -> Duration {
        let before = |id| last.threads.get(id).map_or(Duration::ZERO, |thread| thread.waited);
        let waits = self.threads.iter().map(|(id, now)| now.waited.saturating_sub(before(id)));
        waits.max().unwrap_or_default()
    }
}

/// Processor time of a process, without the calling thread.
fn spent(process: Process) -> Option<Duration> {
    let time = |clock| clock_gettime(clock).ok().map(Duration::from);
    let all = time(ClockId::pid_cpu_clock_id(Pid::from_raw(process.number())).ok()?)?;
    let is_own = process.number() == getpid().as_raw();
    let looker = if is_own { time(ClockId::CLOCK_THREAD_CPUTIME_ID)? } else { Duration::ZERO };
    Some(all.saturating_sub(looker))
}

/// For how long processes have stood still, from looks at them.
#[derive(Debug, Default)]
pub struct Stillness {
    last: BTreeMap<Process, ProcessLook>,
    still: Duration,
}

impl Stillness {
    /// Looks at the processes of a run. `passed` is the time since the look before. Answers how
    /// much of this time counts: without the longest time in which a thread waited for a processor.
    pub fn look(
        &mut self,
        processes: impl IntoIterator<Item = Process>,
        passed: Duration,
    ) -> Duration {
        let looks = processes.into_iter();
        self.add(looks.filter_map(|of| Some((of, ProcessLook::of(of)?))).collect(), passed)
    }

    /// Takes a look at all processes.
    pub fn add(&mut self, now: BTreeMap<Process, ProcessLook>, passed: Duration) -> Duration {
        let last = std::mem::replace(&mut self.last, now);
        let none = ProcessLook::default();
        let pairs = || self.last.iter().map(|(of, now)| (now, last.get(of).unwrap_or(&none)));
        let waited = pairs().map(|(now, last)| now.waited_since(last)).max().unwrap_or_default();
        let counts = passed.saturating_sub(waited);
        let is_still = self.threads() > 0
            && self.last.len() == last.len()
            && pairs()
                .all(|(now, last)| now.movement(last, last, Duration::MAX) == Movement::Still);
        self.still = if is_still { self.still + counts } else { Duration::ZERO };
        counts
    }

    /// The time begins anew.
    pub fn restart(&mut self) {
        self.still = Duration::ZERO;
    }

    /// How long all threads of the programs have slept without a limit, and none has woken.
    #[must_use]
    pub fn lasts(&self) -> Duration {
        self.still
    }

    /// The number of the programs' threads.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.last.values().map(|look| look.program().count()).sum()
    }
}
