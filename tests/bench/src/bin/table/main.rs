//! The tables of BENCHMARKS.md: unmodified perftest on the wire path, completion events and
//! deferred chains, compared with the machine's limits and UCX over tcp in the same run; and ten
//! million armed notifications.
//!
//! `table [--quick] [--runs N] [--no-write] [FILE]`; `$ADVERB` names the command under test.
#![forbid(unsafe_code)]

mod plan;
mod report;
mod run;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use adverb_bench::ends::Ends;
use adverb_bench::machine;
use adverb_bench::pair::Cpus;
use adverb_bench::rounds::{Options, rounds};
use adverb_bench::series::Samples;
use adverb_foreign::device::loopback;
use clap::Parser;
use plan::{Places, Plan};

/// Number of armed notifications, full and quick, and their time limit.
const ARMED: [u64; 2] = [10_000_000, 300_000];
const ARMED_LIMIT: Duration = Duration::from_secs(300);
/// After this time the rest is left out, and the report says so: full and quick.
const BUDGET: [Duration; 2] = [Duration::from_secs(700), Duration::from_secs(230)];
/// Rounds of a full run.
const RUNS: usize = 3;

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
fn measure(options: &Options) -> Result<bool, String> {
    let start = Instant::now();
    // Read now, because a commit may happen during the run.
    let revision = machine::revision();
    let ends = Ends::loopback(&loopback()?);
    let loopbacks = run::Loopbacks { pinned: ends.pinned(Cpus::allowed()?), ends };
    let places = Places::checked(run::check);
    let plan = Plan::new(options.quick, &places.there());
    let mut samples = Samples::new(options.runs(RUNS));
    rounds(
        &plan.items,
        BUDGET[usize::from(options.quick)],
        &mut samples,
        |item, round, samples| {
            run::run(item, round, &plan, &loopbacks, samples);
        },
    );
    eprint!("\rarmed notifications                 ");
    let armed = run::armed(ARMED[usize::from(options.quick)], ARMED_LIMIT, &mut samples.failures);
    eprintln!();
    let command = if options.quick { "scripts/bench --quick" } else { "make bench" };
    let heading =
        machine::describe(&revision, command, &["perftest", "ucx-utils"], start.elapsed());
    let text = report::text(&heading, &samples, &places, armed.as_ref());
    options.finish("table", &text, &samples.failures)
}
