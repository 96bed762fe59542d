//! Runs the memory torture: all scenarios, then one seed after the other over allocators and paths
//! until the time is over.
#![forbid(unsafe_code)]

use std::process::{Command, ExitCode};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use adverb_torture::PATHS;
use adverb_torture::allocators::{self, Allocator};
use adverb_torture::programs::{self, Programs};
use adverb_torture::run::{self, Run};
use clap::Parser;

/// Time limit of short runs, on a machine with other work.
const LIMIT: Duration = Duration::from_secs(120);

/// Random steps on memory, registered or not, compared byte for byte with a model.
#[derive(Debug, Parser)]
struct Options {
    /// How long to go through seeds, in seconds.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// How many programs run at once.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Allocators, in turn.
    #[arg(long, default_value = "glibc,jemalloc,tcmalloc,mimalloc")]
    allocators: String,
    /// local, wire or both.
    #[arg(long, default_value = "both", value_parser = ["local", "wire", "both"])]
    path: String,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How long each seed runs, in seconds.
    #[arg(long, default_value_t = 4)]
    each: u64,
    /// Makes a third of all calls on mappings by an instruction of the program's own.
    #[arg(long)]
    asm: bool,
    /// Threads of the program; by default the seed says.
    #[arg(long)]
    threads: Option<u32>,
    /// This scenario alone, or `none`.
    #[arg(long)]
    scenario: Option<String>,
}

struct Driver {
    options: Options,
    programs: Programs,
    adverb: std::path::PathBuf,
    allocators: Vec<Allocator>,
    paths: Vec<&'static str>,
    runs: AtomicU64,
    failed: Mutex<Vec<String>>,
}

impl Driver {
    fn new(options: Options) -> Result<Self, String> {
        let allocators = allocators::parse(&options.allocators)?;
        if allocators.is_empty() {
            return Err("no allocators".to_string());
        }
        let paths =
            PATHS.into_iter().filter(|p| options.path == "both" || options.path == *p).collect();
        Ok(Self {
            programs: programs::compile()?,
            adverb: run::adverb()?,
            allocators,
            paths,
            options,
            runs: AtomicU64::new(0),
            failed: Mutex::default(),
        })
    }

    fn judge(&self, run: &Run) {
        let name =
            format!("{} {} {}", run.name, run.allocator.name, run.path.unwrap_or("without Adverb"));
        self.runs.fetch_add(1, Ordering::Relaxed);
        match run.judge(&self.adverb) {
            Ok(()) => println!("ok {name}"),
            Err(why) => {
                println!("FAILED {name}\n{why}");
                self.failed.lock().unwrap_or_else(|e| e.into_inner()).push(name);
            }
        }
    }

    /// Takes runs from a source until the source is empty, several at a time.
    fn all(&self, next: impl Fn(usize) -> Option<Run> + Sync) {
        let taken = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..self.options.jobs.max(1) {
                scope.spawn(|| {
                    while let Some(run) = next(taken.fetch_add(1, Ordering::Relaxed) as usize) {
                        self.judge(&run);
                    }
                });
            }
        });
    }

    /// The scenarios of `c/scenarios.c`, as listed by the program.
    fn scenarios(&self) -> Result<Vec<Run>, String> {
        let out = Command::new(&self.programs.torture)
            .arg("--list")
            .output()
            .map_err(|e| format!("{}: {e}", self.programs.torture.display()))?;
        let wanted = self.options.scenario.as_deref();
        let mut runs = Vec::new();
        for line in String::from_utf8_lossy(&out.stdout).lines() {
            let (id, name) =
                line.split_once(' ').ok_or_else(|| format!("--list printed {line:?}"))?;
            if wanted.is_some_and(|w| w != name) {
                continue;
            }
            for path in &self.paths {
                runs.push(self.scenario(id, name, path, &self.allocators[0]));
                // Then requests of 64 KiB and more have their own mappings.
                if name == "grow_blocks" {
                    let mut low = self.scenario(id, name, path, &self.allocators[0]);
                    low.name += " with a low mmap threshold";
                    low.env.push(("MALLOC_MMAP_THRESHOLD_".to_string(), "65536".to_string()));
                    runs.push(low);
                }
            }
            if id == "MEM-1" {
                let others = self.allocators[1..].iter();
                runs.extend(others.map(|a| self.scenario(id, name, self.paths[0], a)));
            }
        }
        match wanted {
            Some(w) if runs.is_empty() && w != "none" => Err(format!("no scenario {w:?}")),
            _ => Ok(runs),
        }
    }

    fn scenario(&self, id: &str, name: &str, path: &'static str, allocator: &Allocator) -> Run {
        let program = if name == "hooked" { &self.programs.hooks } else { &self.programs.torture };
        Run {
            name: format!("{id}/{name}"),
            argv: vec![program.display().to_string(), "--scenario".to_string(), name.to_string()],
            allocator: allocator.clone(),
            path: Some(path),
            env: Vec::new(),
            limit: LIMIT,
        }
    }

    /// The run of the n-th seed. The allocator changes with each seed, the path after a round of
    /// all allocators.
    fn seed(&self, n: usize, verbs: bool) -> Run {
        let seed = self.options.seed + n as u64;
        let allocator = self.allocators[n % self.allocators.len()].clone();
        let path = self.paths[n / self.allocators.len() % self.paths.len()];
        // A seed in eight has hooks on the calls that map memory.
        let program = if seed % 8 == 5 { &self.programs.hooks } else { &self.programs.torture };
        let mut line =
            format!("{} --seed {seed} --seconds {}", program.display(), self.options.each);
        if let Some(threads) = self.options.threads {
            line += &format!(" --threads {threads}");
        }
        if self.options.asm {
            line += " --asm";
        }
        if !verbs {
            line += " --no-verbs";
        }
        Run {
            name: format!("seed {seed}"),
            argv: line.split_whitespace().map(str::to_string).collect(),
            allocator,
            path: verbs.then_some(path),
            env: Vec::new(),
            limit: LIMIT + Duration::from_secs(self.options.each),
        }
    }

    fn go(&self) -> Result<(), String> {
        let scenarios = self.scenarios()?;
        self.all(|n| scenarios.get(n).cloned());
        if self.options.scenario.as_deref().is_some_and(|s| s != "none") {
            return Ok(());
        }
        // Checks the model itself: without Adverb no byte may differ.
        self.all(|n| (n < self.allocators.len()).then(|| self.seed(n, false)));
        let end = Instant::now() + Duration::from_secs(self.options.seconds);
        self.all(|n| (Instant::now() < end).then(|| self.seed(n, true)));
        Ok(())
    }
}

fn main() -> ExitCode {
    let driver = match Driver::new(Options::parse()).and_then(|d| d.go().map(|()| d)) {
        Ok(driver) => driver,
        Err(why) => {
            eprintln!("torture: {why}");
            return ExitCode::FAILURE;
        }
    };
    let failed = driver.failed.lock().unwrap_or_else(|e| e.into_inner());
    for name in failed.iter() {
        println!("failed: {name}");
    }
    println!("torture: {} runs, {} failed", driver.runs.load(Ordering::Relaxed), failed.len());
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
