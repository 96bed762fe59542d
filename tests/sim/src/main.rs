//! `adverb-sim`: runs seeds, and shows the events of a failing seed.
#![forbid(unsafe_code)]
mod connections;
mod nodes;

use adverb_sim::{Program, World};
use clap::Parser;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Runs the verbs engine in simulated worlds and checks everything it does.
#[derive(Parser, Debug)]
#[command(name = "adverb-sim", version)]
struct Args {
    /// Number of seeds to run.
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// First seed.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Threads.
    #[arg(long, default_value_t = 1)]
    jobs: u64,
    /// Stop after so many failures.
    #[arg(long, default_value_t = 5)]
    failures: usize,
    /// Run this seed alone.
    #[arg(long)]
    seed: Option<u64>,
    /// With --seed: print everything that happens.
    #[arg(long)]
    trace: bool,
    /// With --seed: write the packets to this file (pcapng).
    #[arg(long)]
    pcap: Option<PathBuf>,
    /// Print the table of goodput over loss and round trip, each figure from so many MiB.
    #[arg(long)]
    goodput: Option<u64>,
    /// Worlds of the connection manager: with --seed that one, with --trace what happens in it;
    /// else so many seeds more.
    #[arg(long, num_args = 0..=1, default_missing_value = "1")]
    connections: Option<u64>,
    /// Worlds of nodes: with --seed that one, with --trace what happens in it; else so many seeds
    /// more.
    #[arg(long, num_args = 0..=1, default_missing_value = "1")]
    nodes: Option<u64>,
    /// Do not make failing programs smaller.
    #[arg(long)]
    no_shrink: bool,
}

/// The outcome of a run: the hash and the number of packets, or the violation.
fn outcome(program: &Program) -> Result<(u64, u64), String> {
    let report = adverb_sim::run(program);
    match report.failure {
        None => Ok((report.hash, report.packets)),
        Some(failure) => Err(failure.to_string()),
    }
}

/// Prints a failure and the smallest failing program.
fn explain(seed: u64, why: &str, shrink: bool) {
    println!("seed {seed} FAILED: {why}");
    println!("  again: adverb-sim --seed {seed} --trace; its packets: --seed {seed} --pcap FILE");
    if !shrink {
        return;
    }
    let small = adverb_sim::shrink(&Program::draw(seed), |p| outcome(p).is_err());
    println!("  smallest program ({} actions):", small.actions.len());
    println!("    {:?}", small.config);
    for action in &small.actions {
        println!("    {action:?}");
    }
    if let Err(why) = outcome(&small) {
        println!("  it fails with: {why}");
    }
}

fn run_one(args: &Args, seed: u64) -> ExitCode {
    let program = Program::draw(seed);
    if args.trace {
        println!("{:#?}", program.config);
        for line in World::new(&program.config).traced().run(&program).trace {
            println!("{line}");
        }
    }
    if let Some(path) = &args.pcap
        && let Err(e) = adverb_sim::capture(seed, path)
    {
        eprintln!("{}: {e}", path.display());
        return ExitCode::FAILURE;
    }
    match outcome(&program) {
        Ok((hash, packets)) => {
            println!("seed {seed} passed: {packets} packets, trace hash {hash:016x}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            explain(seed, &why, !args.no_shrink);
            ExitCode::FAILURE
        }
    }
}

fn run_many(args: &Args) -> ExitCode {
    let (next, hash, packets) = (AtomicU64::new(args.from), AtomicU64::new(0), AtomicU64::new(0));
    let failed = Mutex::new(Vec::new());
    let begin = Instant::now();
    let end = args.from.saturating_add(args.seeds);
    std::thread::scope(|scope| {
        for _ in 0..args.jobs.max(1) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    let enough = failed.lock().is_ok_and(|f| f.len() >= args.failures);
                    if seed >= end || enough {
                        return;
                    }
                    match outcome(&Program::draw(seed)) {
                        Ok((one, sent)) => {
                            // The order of the threads does not matter, as the sum is the same.
                            hash.fetch_add(one.rotate_left((seed % 64) as u32), Ordering::Relaxed);
                            packets.fetch_add(sent, Ordering::Relaxed);
                        }
                        Err(why) => {
                            if let Ok(mut failed) = failed.lock() {
                                failed.push((seed, why));
                            }
                        }
                    }
                }
            });
        }
    });
    let seconds = begin.elapsed().as_secs_f64();
    let mut failed = failed.into_inner().unwrap_or_default();
    failed.sort();
    for (seed, why) in &failed {
        explain(*seed, why, !args.no_shrink);
    }
    let ran = next.into_inner().min(end) - args.from;
    println!(
        "{ran} seeds from {}, {} failed, {:.0} seeds/s, {:.0} packets/s, trace hash {:016x}",
        args.from,
        failed.len(),
        ran as f64 / seconds,
        packets.into_inner() as f64 / seconds,
        hash.into_inner()
    );
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn main() -> ExitCode {
    let args = Args::parse();
    if args.seed.is_none() || !args.trace {
        // A panic is a failure like any other: the seed is reported. A trace keeps the default
        // hook, which prints the place of the panic.
        std::panic::set_hook(Box::new(|_| {}));
    }
    if let Some(mib) = args.goodput {
        print!("{}", adverb_sim::goodput::table(mib << 20));
        return ExitCode::SUCCESS;
    }
    if let Some(seed) = args.seed {
        return match (args.connections, args.nodes) {
            (Some(_), _) => connections::run_one(seed, args.trace),
            (None, Some(_)) => nodes::run_one(seed, args.trace),
            (None, None) => run_one(&args, seed),
        };
    }
    let mut all = Vec::new();
    if args.seeds > 0 {
        all.push(run_many(&args));
    }
    all.extend(
        args.connections.map(|worlds| connections::run_many(args.from, worlds, args.failures)),
    );
    all.extend(
        args.nodes.map(|worlds| nodes::run_many(args.from, worlds, args.jobs, args.failures)),
    );
    all.into_iter().find(|one| *one != ExitCode::SUCCESS).unwrap_or(ExitCode::SUCCESS)
}
