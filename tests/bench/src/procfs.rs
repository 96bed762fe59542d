//! Resources of a process: memory, descriptors, processor time.

use std::time::Duration;

use nix::time::clock_getcpuclockid;
use nix::unistd::Pid;

use crate::Result;

/// Ticks per second in `/proc/PID/stat`. The value is part of the kernel's interface and
/// independent of the kernel's own clock.
const TICKS: u64 = 100;

fn read(pid: u32, what: &str) -> Result<String> {
    let path = format!("/proc/{pid}/{what}");
    std::fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))
}

/// Memory of a process in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Resident pages.
    pub rss: u64,
    /// Resident pages, with shared pages divided among their processes.
    pub pss: u64,
}

impl Memory {
    /// The present memory of a process.
    ///
    /// # Errors
    /// `/proc` cannot be read.
    pub fn of(pid: u32) -> Result<Self> {
        let text = read(pid, "smaps_rollup")?;
        Self::parse(&text).ok_or_else(|| format!("/proc/{pid}/smaps_rollup: {text}"))
    }

    fn parse(text: &str) -> Option<Self> {
        let field = |name| {
            let line = text.lines().find_map(|l| l.strip_prefix(name)?.strip_suffix("kB"))?;
            line.trim().parse::<u64>().ok().map(|kib| kib * 1024)
        };
        Some(Self { rss: field("Rss:")?, pss: field("Pss:")? })
    }

    /// The growth since `before`.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self { rss: self.rss.saturating_sub(before.rss), pss: self.pss.saturating_sub(before.pss) }
    }
}

/// Open descriptors of a process.
///
/// # Errors
/// `/proc` cannot be read.
pub fn descriptors(pid: u32) -> Result<usize> {
    let path = format!("/proc/{pid}/fd");
    Ok(std::fs::read_dir(&path).map_err(|e| format!("{path}: {e}"))?.count())
}

/// Processor use of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// CPU-time clock.
    pub time: Duration,
    /// utime and stime of `/proc/PID/stat`, in hundredths of a second.
    pub ticks: u64,
    /// How often threads of the process went to sleep.
    pub sleeps: u64,
}

impl Cpu {
    /// The processor use of a process so far.
    ///
    /// # Errors
    /// The kernel gives no answer.
    pub fn of(pid: u32) -> Result<Self> {
        let clock = i32::try_from(pid).map_err(|e| e.to_string()).and_then(|pid| {
            clock_getcpuclockid(Pid::from_raw(pid)).and_then(|c| c.now()).map_err(|e| e.to_string())
        });
        let time = clock.map_err(|e| format!("processor time of {pid}: {e}"))?;
        let stat = read(pid, "stat")?;
        let ticks = ticks(&stat).ok_or_else(|| format!("/proc/{pid}/stat: {stat}"))?;
        let tasks = format!("/proc/{pid}/task");
        let mut sleeps = 0;
        for task in std::fs::read_dir(&tasks).map_err(|e| format!("{tasks}: {e}"))?.flatten() {
            // A thread that has ended meanwhile does not count.
            let status = std::fs::read_to_string(task.path().join("status")).unwrap_or_default();
            let line = status.lines().find_map(|l| l.strip_prefix("voluntary_ctxt_switches:"));
            sleeps += line.and_then(|l| l.trim().parse::<u64>().ok()).unwrap_or(0);
        }
        Ok(Self { time: time.into(), ticks, sleeps })
    }

    /// Seconds of `/proc/PID/stat` since `before`.
    #[must_use]
    pub fn seconds_since(self, before: Self) -> f64 {
        self.ticks.saturating_sub(before.ticks) as f64 / TICKS as f64
    }
}

/// utime and stime, the 14th and 15th field. The second field is a name, and may contain blanks and
/// parentheses.
fn ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(") ")?.1.split(' ').skip(11);
    let mut next = || fields.next()?.parse::<u64>().ok();
    Some(next()? + next()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_name_and_place() {
        let rollup = "55-7f ---p 0 00:00 0  [rollup]\nRss:     1756 kB\nPss:      387 kB\nPss_Dirty:  112 kB\n";
        let memory = Memory::parse(rollup).unwrap();
        assert_eq!(memory, Memory { rss: 1756 << 10, pss: 387 << 10 });
        assert_eq!(
            memory.since(Memory { rss: 1 << 10, pss: 400 << 10 }),
            Memory { rss: 1755 << 10, pss: 0 }
        );
        assert_eq!(Memory::parse("Rss: 1 kB\n"), None);
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 100 0 1 0 21 34 5 6 20 0 1 0 99 1000 1";
        assert_eq!(ticks(stat), Some(55));
    }

    #[test]
    fn a_process_that_works_uses_time() {
        let me = std::process::id();
        let before = Cpu::of(me).unwrap();
        let mut word = 1u64;
        let time = Duration::from_millis(10);
        // Several threads may use three ticks in less time.
        let enough = |now: Cpu| now.ticks >= before.ticks + 3 && now.time - before.time >= time;
        while !enough(Cpu::of(me).unwrap()) {
            word = (0..100_000).fold(std::hint::black_box(word), |w, n| w.rotate_left(5) ^ n);
        }
        let after = Cpu::of(me).unwrap();
        assert!(after.seconds_since(before) >= 0.03, "{after:?} {before:?} {word}");
        assert!(after.time - before.time >= time, "{after:?} {before:?}");
        assert!(Memory::of(me).unwrap().pss > 0 && descriptors(me).unwrap() >= 3);
    }
}
