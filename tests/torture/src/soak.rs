//! MEM-5: processes register, connect, fork and exit, and one in three is killed in the middle.
//! Afterwards all shared memory must be free, and no process and no socket may be left.
#![forbid(unsafe_code)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use adverb_foreign::alone::{be_alone, is_alone, others};
use adverb_foreign::process::start;
use adverb_torture::run::adverb;
use adverb_torture::{Dice, PATHS, programs};
use clap::Parser;

/// How long remains may take to disappear.
const HANG_LIMIT: Duration = Duration::from_secs(60);
/// Margin for other programs of the machine, which count if there are no cgroup and namespaces.
const TOLERANCE: u64 = 64 << 20;

/// What is left behind by processes that use shared memory.
#[derive(Debug, Parser)]
struct Options {
    /// How long to start processes, in seconds.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// How many of them live at once.
    #[arg(long, default_value_t = 3)]
    jobs: usize,
    /// The seed that decides which process is killed, and when.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// A memory cgroup of this test, removed at the end.
struct Group(PathBuf);

impl Group {
    /// Creates a cgroup of version 1 or 2, at the first possible place.
    fn new() -> Option<Self> {
        let name = format!("adverb-soak-{}", std::process::id());
        ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"].iter().find_map(|root| {
            let dir = Path::new(root).join(&name);
            fs::create_dir(&dir).ok()?;
            let group = Self(dir);
            group.shmem().map(|_| group)
        })
    }

    fn shmem(&self) -> Option<u64> {
        let stat = fs::read_to_string(self.0.join("memory.stat")).ok()?;
        stat.lines().find_map(|l| l.strip_prefix("shmem ")?.trim().parse().ok())
    }

    fn processes(&self) -> usize {
        fs::read_to_string(self.0.join("cgroup.procs")).map_or(0, |t| t.lines().count())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// `Shmem:` of the machine, in bytes.
fn machine_shmem() -> Result<u64, String> {
    let text = fs::read_to_string("/proc/meminfo").map_err(|e| format!("/proc/meminfo: {e}"))?;
    text.lines()
        .find_map(|l| {
            l.strip_prefix("Shmem:")?.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()
        })
        .map(|kib| kib << 10)
        .ok_or_else(|| "/proc/meminfo has no Shmem".to_string())
}

/// Sockets of this network namespace: Unix sockets with a name of Adverb, and UDP sockets of
/// port 4791.
fn sockets() -> usize {
    let lines = |file: &str, with: &str| {
        fs::read_to_string(file).unwrap_or_default().lines().filter(|l| l.contains(with)).count()
    };
    lines("/proc/net/unix", "@adverb")
        + lines("/proc/net/udp", ":12B7")
        + lines("/proc/net/udp6", ":12B7")
}

struct Soak {
    options: Options,
    program: PathBuf,
    adverb: PathBuf,
    group: Option<Group>,
}

impl Soak {
    /// Runs one process after the other until the time is over. Returns the numbers of all and of
    /// killed processes, or the failure.
    fn work(&self, worker: usize, end: Instant) -> Result<(u64, u64), String> {
        let mut dice = Dice(self.options.seed * 1000 + worker as u64);
        let (mut all, mut killed) = (0, 0);
        while Instant::now() < end {
            let mut command = Command::new("sh");
            let procs =
                self.group.as_ref().map_or("/dev/null".into(), |g| g.0.join("cgroup.procs"));
            command.args(["-c", "echo $$ >\"$0\" && exec \"$@\""]).arg(procs).arg(&self.adverb);
            command.args(["run", "--"]).arg(&self.program).args(["--scenario", "cycle"]);
            command.env("ADVERB_PATH", PATHS[usize::from(all % 4 == 3)]);
            let mut running =
                start(command, format!("{} --scenario cycle", self.program.display()))?;
            all += 1;
            if dice.roll(3) == 0 {
                std::thread::sleep(Duration::from_millis(dice.roll(1500)));
                running.kill_hard();
                killed += 1;
            } else {
                running.wait(Duration::from_secs(120)).require_ok()?;
            }
        }
        Ok((all, killed))
    }

    /// The remains, in words.
    fn left(&self, before: (u64, usize)) -> Result<Vec<String>, String> {
        let mut left = Vec::new();
        match &self.group {
            Some(group) => {
                let (shmem, processes) = (group.shmem().unwrap_or(u64::MAX), group.processes());
                if shmem > 0 {
                    left.push(format!("{shmem} bytes of shared memory in the cgroup"));
                }
                if processes > 0 {
                    left.push(format!("{processes} processes in the cgroup"));
                }
            }
            // Memory without a name exists as long as a process with this memory.
            None if is_alone() => {
                let others = others();
                if !others.is_empty() {
                    left.push(format!("processes {others:?}"));
                }
            }
            None => {
                let now = machine_shmem()?;
                if now > before.0 + TOLERANCE {
                    left.push(format!(
                        "{} bytes more of shared memory in the machine",
                        now - before.0
                    ));
                }
            }
        }
        let now = sockets();
        // Without a separate namespace other programs open and close sockets, too.
        if is_alone() && now != before.1 {
            left.push(format!("{now} sockets where there were {}", before.1));
        }
        Ok(left)
    }

    fn go(&self) -> Result<(u64, u64, Vec<String>), String> {
        let before = (machine_shmem()?, sockets());
        let end = Instant::now() + Duration::from_secs(self.options.seconds);
        let (mut all, mut killed) = (0, 0);
        let results: Vec<_> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..self.options.jobs.max(1))
                .map(|w| scope.spawn(move || self.work(w, end)))
                .collect();
            workers
                .into_iter()
                .map(|w| w.join().unwrap_or_else(|_| Err("a worker panicked".to_string())))
                .collect()
        });
        for result in results {
            let (a, k) = result?;
            all += a;
            killed += k;
        }
        let patience = Instant::now() + HANG_LIMIT;
        let mut left = self.left(before)?;
        while !left.is_empty() && Instant::now() < patience {
            std::thread::sleep(Duration::from_millis(200));
            left = self.left(before)?;
        }
        Ok((all, killed, left))
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    be_alone();
    // This run creates the files that `adverb run` keeps for later programs. So the files exist
    // before the first count.
    let warm = adverb().map(|a| Command::new(a).args(["run", "--", "true"]).status());
    if !matches!(warm, Ok(Ok(status)) if status.success()) {
        println!("soak: `adverb run -- true` fails: {warm:?}");
        return ExitCode::FAILURE;
    }
    let group = Group::new();
    if group.is_none() && !is_alone() {
        println!(
            "soak: no cgroup of our own: the machine's Shmem counts, within {} MiB",
            TOLERANCE >> 20
        );
    }
    let result = programs::compile()
        .and_then(|p| Ok(Soak { options, program: p.torture, adverb: adverb()?, group }))
        .and_then(|soak| soak.go());
    match result {
        Ok((all, killed, left)) => {
            for what in &left {
                println!("left behind: {what}");
            }
            println!("soak: {all} processes, {killed} killed, {} things left behind", left.len());
            if left.is_empty() && all > killed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(why) => {
            println!("soak: {why}");
            ExitCode::FAILURE
        }
    }
}
