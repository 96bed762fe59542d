//! The same-host table of BENCHMARKS.md: unmodified perftest between two processes of one host,
//! compared in the same run with shared memory and UCX. The report also has completion events, the
//! cost of a thousand idle queue pairs, and scaling.
//!
//! `local [--quick] [--runs N] [--no-write] [FILE]`; `$ADVERB` names the command under test, and
//! `$ADVERB_PATH` its path.
#![forbid(unsafe_code)]

mod plan;
mod report;

use std::process::ExitCode;
use std::time::Duration;

use adverb_bench::pair::Cpus;
use adverb_bench::programs::{Once, PATH, own};
use adverb_bench::rounds::{Options, fill, rounds};
use adverb_bench::series::Samples;
use adverb_bench::{Result, cc};
use adverb_foreign::device::loopback;
use adverb_foreign::process::Program;

/// Rounds of a full run.
const RUNS: usize = 5;
/// After this time the rest is left out, and the report says so: full and quick.
const BUDGET: [Duration; 2] = [Duration::from_secs(1200), Duration::from_secs(240)];
/// Time limit of `idle` and of `scale`.
const ONCE: Duration = Duration::from_secs(300);

fn main() -> ExitCode {
    let commands = ["make bench-local", "scripts/bench local --quick"];
    fill("local", commands, &["perftest", "ucx-utils"], measure)
}

/// Runs all rounds. Returns the report and the failures.
fn measure(options: &Options) -> Result<(String, Vec<String>)> {
    let device = loopback()?;
    let items = plan::items(&device, Cpus::allowed()?, plan::time(options.quick));
    let mut samples = Samples::new(options.runs(RUNS));
    rounds(&items, BUDGET[usize::from(options.quick)], &mut samples);
    eprint!("\rregistrations, idle and many queue pairs           ");
    let mut once = |program| Once::run(program, ONCE, &mut samples.failures);
    let mapped = once(registrations(&device.dev, "on"));
    let unmapped = once(registrations(&device.dev, "off"));
    let (idle, scale): (&[&str], &[&str]) =
        if options.quick { (&["--seconds", "10"], &["--short"]) } else { (&[], &[]) };
    let (idle, scale) = (once(own("idle", idle)), once(own("scale", scale)));
    eprintln!();
    let path = std::env::var(PATH).map_or("not set".to_string(), |p| format!("`{p}`"));
    let text = report::text(&samples, &report::Onces { idle, scale, mapped, unmapped });
    Ok((format!("- `{PATH}`: {path}\n\n{text}"), samples.failures))
}

/// Registrations by a verbs program in C under `adverb run`; `adopt` says whether peers map its
/// allocations.
fn registrations(device: &str, adopt: &str) -> Result<Program> {
    Ok(Program::of_file(&cc::program("register")?).arg(device).env("ADVERB_ADOPT", adopt))
}
