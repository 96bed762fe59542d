//! `adverb-sim`: runs seeds, and shows the events of a failing seed.
#![forbid(unsafe_code)]

use adverb_sim::{CONNECTIONS, Kind, NODES, PROGRAMS, Program};
use clap::Parser;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
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

/// Prints a failure, and the smallest failing program.
fn explain(kind: Kind, seed: u64, why: &str, shrink: bool) {
    println!("seed {seed} of {} FAILED: {why}", kind.name);
    if kind.name != PROGRAMS.name {
        println!("  again: adverb-sim --{} --seed {seed} --trace", kind.name);
        return;
    }
    println!("  again: adverb-sim --seed {seed} --trace; its packets: --seed {seed} --pcap FILE");
    if !shrink {
        return;
    }
    let failure = |p: &Program| adverb_sim::run(p).failure;
    let small = adverb_sim::shrink(&Program::draw(seed), |p| failure(p).is_some());
    println!("  smallest program ({} actions):", small.actions.len());
    println!("    {:?}", small.config);
    for action in &small.actions {
        println!("    {action:?}");
    }
    if let Some(why) = failure(&small) {
        println!("  it fails with: {why}");
    }
}

/// Counts in words.
fn words<'a>(counts: impl IntoIterator<Item = (&'a &'static str, &'a u64)>) -> String {
    counts.into_iter().map(|(name, count)| format!("{count} {name}")).collect::<Vec<_>>().join(", ")
}

/// Runs one world and prints the result.
fn run_one(kind: Kind, args: &Args, seed: u64) -> ExitCode {
    if args.trace {
        for line in (kind.run)(seed, true).trace {
            println!("{line}");
        }
    }
    if let Some(path) = &args.pcap
        && let Err(e) = adverb_sim::capture(seed, path)
    {
        eprintln!("{}: {e}", path.display());
        return ExitCode::FAILURE;
    }
    let report = (kind.run)(seed, false);
    match report.failure {
        None => {
            let counts = words(report.counts.iter().map(|(name, count)| (name, count)));
            println!("seed {seed} passed: {counts}, trace hash {:016x}", report.hash);
            ExitCode::SUCCESS
        }
        Some(why) => {
            explain(kind, seed, &why, !args.no_shrink);
            ExitCode::FAILURE
        }
    }
}

/// What the threads of [`run_many`] have found.
#[derive(Default)]
struct Found {
    ran: u64,
    hash: u64,
    counts: BTreeMap<&'static str, u64>,
    failed: Vec<(u64, String)>,
}

/// Runs many worlds in several threads, until enough of them have failed.
fn run_many(kind: Kind, args: &Args, worlds: u64) -> ExitCode {
    let begin = Instant::now();
    let seeds = Mutex::new(args.from..args.from.saturating_add(worlds));
    let found = Mutex::new(Found::default());
    let next = || seeds.lock().ok()?.next();
    let enough = || found.lock().is_ok_and(|f| f.failed.len() >= args.failures);
    let work = || {
        while let Some(seed) = next().filter(|_| !enough()) {
            let report = (kind.run)(seed, false);
            let Ok(mut found) = found.lock() else { return };
            found.ran += 1;
            // The order of the threads does not matter, as the sums are the same.
            found.hash = found.hash.wrapping_add(report.hash.rotate_left((seed % 64) as u32));
            for (name, count) in report.counts {
                *found.counts.entry(name).or_default() += count;
            }
            found.failed.extend(report.failure.map(|why| (seed, why)));
        }
    };
    std::thread::scope(|scope| (0..args.jobs.max(1)).for_each(|_| drop(scope.spawn(work))));
    let mut found = found.into_inner().unwrap_or_default();
    found.failed.sort();
    for (seed, why) in &found.failed {
        explain(kind, *seed, why, !args.no_shrink);
    }
    println!(
        "{} seeds of {} from {}, {} failed, {:.0} seeds/s, {}, trace hash {:016x}",
        found.ran,
        kind.name,
        args.from,
        found.failed.len(),
        found.ran as f64 / begin.elapsed().as_secs_f64(),
        words(&found.counts),
        found.hash
    );
    if found.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
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
        let kind = match (args.connections, args.nodes) {
            (Some(_), _) => CONNECTIONS,
            (None, Some(_)) => NODES,
            (None, None) => PROGRAMS,
        };
        return run_one(kind, &args, seed);
    }
    let programs = Some(args.seeds).filter(|seeds| *seeds > 0);
    let kinds = [(PROGRAMS, programs), (CONNECTIONS, args.connections), (NODES, args.nodes)];
    let ends: Vec<ExitCode> = kinds
        .into_iter()
        .filter_map(|(kind, worlds)| Some(run_many(kind, &args, worlds?)))
        .collect();
    ends.into_iter().find(|end| *end != ExitCode::SUCCESS).unwrap_or(ExitCode::SUCCESS)
}
