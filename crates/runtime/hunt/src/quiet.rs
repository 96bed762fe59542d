//! Decides whether a hunted run can still make progress by itself: from the threads of all its
//! processes, as the kernel shows them in `/proc`.
//!
//! Each process of a hunt writes its number to the log of the run (`process::Hunt`). A call
//! that waits, or a held completion, then need not wait for a fixed time of silence.
use adverb_device::asleep::call::{Line, parse, sleeps_for_ever};
use adverb_device::asleep::is_ours;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{Pid, gettid};
use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// The word before the number of a process in the log.
pub(crate) const PROCESS: &str = "process";
/// A thread that has slept so often for a short time, without progress, polls for something.
const NAPS: u64 = 4;
/// The most bytes read from the log at a time.
const PIECE: usize = 1 << 12;

/// What a thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    /// Sleeps until another thread, a process or a signal wakes the thread.
    Sleeps,
    /// Sleeps for a time.
    Naps,
    /// Runs, or wants to run.
    Runs,
}

/// A thread at one look: its activity, and how often the scheduler has run the thread so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ThreadLook {
    doing: Doing,
    slices: u64,
}

/// A process at one look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ProcessLook {
    /// By thread number, without the device's own threads that sleep.
    threads: HashMap<i32, ThreadLook>,
    /// Processor time of all threads.
    spent: Duration,
}

impl ProcessLook {
    /// Without a change from outside, does this process go on? `first` is the first look of the
    /// silent time, and `last` the look before this look. Threads that run are given the
    /// processor time `enough` to make progress.
    fn is_quiet(&self, first: &ProcessLook, last: &ProcessLook, enough: Duration) -> bool {
        let mut running = 0;
        for (id, now) in &self.threads {
            let still = match now.doing {
                Doing::Sleeps => last.threads.get(id) == Some(now),
                Doing::Naps => {
                    first.threads.get(id).is_some_and(|then| now.slices >= then.slices + NAPS)
                }
                Doing::Runs => {
                    running += 1;
                    first.threads.contains_key(id)
                }
            };
            if !still {
                return false;
            }
        }
        self.spent.saturating_sub(first.spent) >= enough * running
    }
}

/// Looks at the processes of a run again and again.
#[derive(Debug, Default)]
pub(crate) struct Looker {
    /// Bytes of the log read so far, and the last incomplete line.
    read: u64,
    rest: Vec<u8>,
    processes: BTreeSet<i32>,
    /// Does a thread belong to the device?
    ours: HashMap<i32, bool>,
    first: HashMap<i32, ProcessLook>,
    last: HashMap<i32, ProcessLook>,
}

impl Looker {
    /// Progress was made: the silent time begins again.
    pub(crate) fn restart(&mut self) {
        self.first.clear();
        self.last.clear();
    }

    /// Looks once. Since [`Looker::restart`], have all processes of the run come to rest? `false`
    /// as well if the kernel does not tell.
    pub(crate) fn is_quiet(&mut self, log: &File, enough: Duration) -> bool {
        self.read_log(log);
        let mut quiet = !self.processes.is_empty();
        for process in self.processes.clone() {
            if std::fs::read_link(format!("/proc/{process}/exe")).is_err() {
                // The process has ended.
                self.processes.remove(&process);
                continue;
            }
            let Some(now) = self.look(process) else { return false };
            let first = self.first.entry(process).or_insert_with(|| now.clone());
            let last = self.last.insert(process, now.clone());
            quiet &= last.is_some_and(|last| now.is_quiet(first, &last, enough));
        }
        quiet
    }

    fn read_log(&mut self, log: &File) {
        let mut bytes = [0; PIECE];
        while let Ok(n @ 1..) = log.read_at(&mut bytes, self.read) {
            self.read += n as u64;
            self.rest.extend(&bytes[..n]);
        }
        let Some(end) = self.rest.iter().rposition(|b| *b == b'\n') else { return };
        let whole: Vec<u8> = self.rest.drain(..=end).collect();
        for line in whole.split(|b| *b == b'\n') {
            if let Some((PROCESS, id)) =
                std::str::from_utf8(line).ok().and_then(|line| line.split_once(' '))
            {
                self.processes.extend(id.parse::<i32>());
            }
        }
    }

    fn look(&mut self, process: i32) -> Option<ProcessLook> {
        let own = gettid().as_raw();
        let mut look = ProcessLook { spent: spent(process)?, ..ProcessLook::default() };
        for entry in std::fs::read_dir(format!("/proc/{process}/task")).ok()?.flatten() {
            let id: i32 = entry.file_name().to_str()?.parse().ok()?;
            if id == own {
                continue;
            }
            let text = |name: &str| std::fs::read_to_string(entry.path().join(name));
            // A thread may end between two of these calls.
            let (Ok(call), Ok(stat)) = (text("syscall"), text("schedstat")) else { continue };
            let doing = match parse(&call)? {
                Line::Running => Doing::Runs,
                Line::Blocked(_) if sleeps_for_ever(&call) => Doing::Sleeps,
                Line::Blocked(_) => Doing::Naps,
            };
            let is_ours = *self.ours.entry(id).or_insert_with(|| {
                // The program's first thread may have any name.
                id != process && text("comm").is_ok_and(|name| is_ours(name.trim_end()))
            });
            if is_ours && doing != Doing::Runs {
                continue;
            }
            let slices = stat.split_ascii_whitespace().nth(2)?.parse().ok()?;
            look.threads.insert(id, ThreadLook { doing, slices });
        }
        Some(look)
    }
}

/// Processor time of a process, without the calling thread.
fn spent(process: i32) -> Option<Duration> {
    let time = |clock| clock_gettime(clock).ok().map(Duration::from);
    let all = time(ClockId::pid_cpu_clock_id(Pid::from_raw(process)).ok()?)?;
    let is_own = process == std::process::id().cast_signed();
    let looker = if is_own { time(ClockId::CLOCK_THREAD_CPUTIME_ID)? } else { Duration::ZERO };
    Some(all.saturating_sub(looker))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENOUGH: Duration = Duration::from_micros(400);

    fn at(threads: &[(i32, Doing, u64)], spent_us: u64) -> ProcessLook {
        let look = |&(id, doing, slices)| (id, ThreadLook { doing, slices });
        ProcessLook {
            threads: threads.iter().map(look).collect(),
            spent: Duration::from_micros(spent_us),
        }
    }

    /// A sleeping thread is at rest if it did not wake between two looks.
    #[test]
    fn a_thread_that_woke_is_not_at_rest() {
        let then = at(&[(1, Doing::Sleeps, 5)], 0);
        assert!(then.is_quiet(&then, &then, ENOUGH));
        let woke = at(&[(1, Doing::Sleeps, 6)], 0);
        assert!(!woke.is_quiet(&then, &then, ENOUGH));
        assert!(woke.is_quiet(&then, &woke, ENOUGH));
        let new = at(&[(1, Doing::Sleeps, 5), (2, Doing::Sleeps, 1)], 0);
        assert!(!new.is_quiet(&then, &then, ENOUGH));
    }

    /// Running threads have had the processor for long enough, each, and a napping thread
    /// has looked several times.
    #[test]
    fn a_thread_that_runs_gets_time() {
        let then = at(&[(1, Doing::Runs, 5), (2, Doing::Runs, 1)], 1000);
        assert!(
            !at(&[(1, Doing::Runs, 9), (2, Doing::Runs, 3)], 1799).is_quiet(&then, &then, ENOUGH)
        );
        assert!(
            at(&[(1, Doing::Runs, 9), (2, Doing::Runs, 3)], 1800).is_quiet(&then, &then, ENOUGH)
        );
        // A thread that went to sleep needs no more time, but a second look.
        let slept = at(&[(1, Doing::Runs, 9), (2, Doing::Sleeps, 3)], 1400);
        assert!(!slept.is_quiet(&then, &then, ENOUGH));
        assert!(slept.is_quiet(&then, &slept, ENOUGH));
        let naps = at(&[(1, Doing::Naps, 5)], 0);
        assert!(!at(&[(1, Doing::Naps, 8)], 0).is_quiet(&naps, &naps, ENOUGH));
        assert!(at(&[(1, Doing::Naps, 9)], 0).is_quiet(&naps, &naps, ENOUGH));
    }

    /// A process that is not named in the log is not looked at, and without a process
    /// nothing is known.
    #[test]
    fn the_log_names_the_processes() {
        let path = std::env::temp_dir().join(format!("adverb-quiet-{}", std::process::id()));
        let log = File::options().read(true).append(true).create(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let mut looker = Looker::default();
        assert!(!looker.is_quiet(&log, ENOUGH));
        let mut say = &log;
        let own = std::process::id().cast_signed();
        std::io::Write::write_all(&mut say, format!("beat 1 2\nprocess {own}\nproc").as_bytes())
            .unwrap();
        looker.read_log(&log);
        assert_eq!(looker.processes, BTreeSet::from([own]));
        std::io::Write::write_all(&mut say, b"ess 7\n").unwrap();
        looker.read_log(&log);
        assert_eq!(looker.processes, BTreeSet::from([7, own]));
    }
}
