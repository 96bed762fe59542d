//! The tables of BENCHMARKS.md: unmodified perftest on the wire path, completion events and deferred chains, beside the
//! machine's own limits in the same run; and ten million armed notifications.
//!
//! `table [--quick] [--runs N] [--no-write] [FILE]`; `$ADVERB` names the command under test.
#![forbid(unsafe_code)]

mod machine;
mod plan;
mod report;
mod run;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use adverb_foreign::device::loopback;
use plan::{Plan, Samples};

/// Armed notifications that are read and accounted for, full and quick, and how long they may take.
const ARMED: [u64; 2] = [10_000_000, 300_000];
const ARMED_LIMIT: Duration = Duration::from_secs(300);
/// After this time the rest is left out, and said to be: full and quick.
const BUDGET: [Duration; 2] = [Duration::from_secs(440), Duration::from_secs(100)];

struct Options {
    quick: bool,
    runs: usize,
    write: bool,
    file: PathBuf,
}

fn options(args: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut found = Options { quick: false, runs: 0, write: true, file: PathBuf::from("BENCHMARKS.md") };
    let mut args = args;
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--quick" => found.quick = true,
            "--no-write" => found.write = false,
            "--runs" => {
                let n = args.next().unwrap_or_default();
                found.runs = n.parse().map_err(|e| format!("--runs {n}: {e}"))?;
            }
            file if !file.starts_with('-') => found.file = PathBuf::from(file),
            other => {
                return Err(format!(
                    "unknown option {other}; usage: [--quick] [--runs N] [--no-write] [FILE]"
                ));
            }
        }
    }
    if found.runs == 0 {
        found.runs = if found.quick { 1 } else { 3 };
    }
    Ok(found)
}

fn main() -> ExitCode {
    match options(std::env::args().skip(1)).and_then(|o| measure(&o)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("bench: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Runs all rounds, prints and writes the report; false when a program failed.
fn measure(options: &Options) -> Result<bool, String> {
    let start = Instant::now();
    let budget = BUDGET[usize::from(options.quick)];
    // Now, not at the end: somebody may commit while this runs.
    let revision = machine::revision();
    let device = loopback()?;
    let plan = Plan::new(options.quick);
    let mut samples = Samples::new(options.runs);
    for round in 0..options.runs {
        for (n, item) in plan.items.iter().enumerate() {
            if start.elapsed() > budget {
                samples.failures.push(format!("out of time in round {}: the rest was left out", round + 1));
                break;
            }
            eprint!("\rround {} of {}: {} of {}   ", round + 1, options.runs, n + 1, plan.items.len());
            run::run(item, round, &plan, &device, &mut samples);
        }
        if start.elapsed() > budget {
            break;
        }
    }
    eprint!("\rarmed notifications                 ");
    run::armed(ARMED[usize::from(options.quick)], ARMED_LIMIT, &mut samples);
    eprintln!();
    let text = report::text(&machine::describe(&revision, options.quick, start.elapsed()), &samples);
    println!("{text}");
    for failure in &samples.failures {
        eprintln!("bench: {failure}");
    }
    if options.write {
        report::write(&options.file, &text)?;
        println!("written to {}", options.file.display());
    }
    Ok(samples.failures.is_empty())
}
