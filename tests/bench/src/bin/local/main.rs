//! The same-host table of BENCHMARKS.md: unmodified perftest between two processes of one host,
//! compared in the same run with shared memory and UCX. The report also has completion events, the
//! cost of a thousand idle queue pairs, and scaling.
//!
//! `local [--quick] [--runs N] [--no-write] [FILE]`; `$ADVERB` names the command under test, and
//! `$ADVERB_PATH` its path.
#![forbid(unsafe_code)]

mod plan;
mod report;
mod run;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use adverb_bench::pair::Cpus;
use adverb_bench::programs::PATH;
use adverb_bench::rounds::{Options, rounds};
use adverb_bench::series::Samples;
use adverb_bench::{Result, machine};
use adverb_foreign::device::loopback;
use clap::Parser;
use run::{Once, Onces, RunSettings};

/// Rounds of a full run.
const RUNS: usize = 5;
/// After this time the rest is left out, and the report says so: full and quick.
const BUDGET: [Duration; 2] = [Duration::from_secs(1200), Duration::from_secs(240)];
/// Time limit of `idle` and of `scale`.
const ONCE: Duration = Duration::from_secs(300);

fn main() -> ExitCode {
    match measure(&Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("bench: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Runs all rounds, prints and writes the report; `false` if a program failed.
fn measure(options: &Options) -> Result<bool> {
    let start = Instant::now();
    // Read now, because a commit may happen during the run.
    let revision = machine::revision();
    let place = RunSettings {
        device: loopback()?,
        cpus: Cpus::allowed()?,
        time: plan::time(options.quick),
    };
    let mut samples = Samples::new(options.runs(RUNS));
    rounds(
        &plan::items(),
        BUDGET[usize::from(options.quick)],
        &mut samples,
        |item, round, samples| {
            run::run(item, round, &place, samples);
        },
    );
    eprint!("\rregistrations, idle and many queue pairs           ");
    let mapped = Once::register(&place, "on", ONCE, &mut samples.failures);
    let unmapped = Once::register(&place, "off", ONCE, &mut samples.failures);
    let (idle, scale): (&[&str], &[&str]) =
        if options.quick { (&["--seconds", "10"], &["--short"]) } else { (&[], &[]) };
    let idle = Once::run("idle", idle, ONCE, &mut samples.failures);
    let scale = Once::run("scale", scale, ONCE, &mut samples.failures);
    eprintln!();
    let command = if options.quick { "scripts/bench local --quick" } else { "make bench-local" };
    let mut heading =
        machine::describe(&revision, command, &["perftest", "ucx-utils"], start.elapsed());
    let path = std::env::var(PATH).map_or("not set".to_string(), |p| format!("`{p}`"));
    heading += &format!("- `{PATH}`: {path}\n");
    let once = Onces { idle, scale, mapped, unmapped };
    let text = report::text(&heading, &samples, &once);
    options.finish("local", &text, &samples.failures)
}
