//! The tables of BENCHMARKS.md: unmodified perftest on the wire path, completion events and
//! deferred chains, compared with the machine's limits and UCX over tcp in the same run; and ten
//! million armed notifications.
//!
//! `table [--quick] [--runs N] [--no-write] [FILE]`; `$ADVERB` names the command under test.
#![forbid(unsafe_code)]

mod keys;
mod plan;
mod report;
mod run;

use std::process::ExitCode;
use std::time::Duration;

use adverb_bench::Result;
use adverb_bench::ends::Ends;
use adverb_bench::pair::Cpus;
use adverb_bench::programs::Once;
use adverb_bench::rounds::{Options, fill, rounds};
use adverb_bench::series::Samples;
use adverb_foreign::device::loopback;
use plan::{Loopbacks, Places};

/// Number of armed notifications, full and quick, and their time limit.
const ARMED: [u64; 2] = [10_000_000, 300_000];
const ARMED_LIMIT: Duration = Duration::from_secs(300);
/// After this time the rest is left out, and the report says so: full and quick.
const BUDGET: [Duration; 2] = [Duration::from_secs(700), Duration::from_secs(230)];
/// Rounds of a full run.
const RUNS: usize = 3;

fn main() -> ExitCode {
    let commands = ["make bench", "scripts/bench --quick"];
    fill("table", commands, &["perftest", "ucx-utils"], measure)
}

/// Runs all rounds. Returns the report and the failures.
fn measure(options: &Options) -> Result<(String, Vec<String>)> {
    let ends = Ends::loopback(&loopback()?);
    let at = Loopbacks { pinned: ends.pinned(Cpus::allowed()?), ends };
    let places = Places::checked(run::check);
    let items = plan::items(&at, plan::time(options.quick), &places.there());
    let mut samples = Samples::new(options.runs(RUNS));
    rounds(&items, BUDGET[usize::from(options.quick)], &mut samples);
    eprint!("\rarmed notifications                 ");
    let count = ARMED[usize::from(options.quick)].to_string();
    let armed = run::on_wire("armed", &["--count", &count]);
    let armed = Once::run(armed, ARMED_LIMIT, &mut samples.failures);
    eprintln!();
    let text = format!("\n{}", report::text(&samples, &places, &armed));
    Ok((text, samples.failures))
}
