//! perftest on the wire path and UCX over tcp, in turn, at places that this program makes: two
//! network namespaces with a cable, or a cgroup of half a processor.
//!
//! `places [--ms DURATION] [NAME...]` measures at the named places, or at all, and prints one line
//! `PLACE_TASK_SIDE value unit` for each figure. `places --check NAME...` only makes the places.
//! The program fails with the reason where the machine does not allow a place.
#![forbid(unsafe_code)]

mod cable;
mod half;

use std::process::ExitCode;
use std::time::Duration;

use adverb_bench::Result;
use adverb_bench::ends::Ends;
use adverb_bench::pair::{self, Chosen, Cpus};
use adverb_bench::places::{HALF, PLACES, SIDES, Side, TASKS, Task, name};
use adverb_bench::programs::{Figures, Perftest, iterations};
use adverb_bench::ucx::{TCP, Ucx};
use clap::Parser;
use half::HalfCpu;

/// Messages of the first run of a latency program, and of any later run at most.
const FIRST: usize = 1000;
const MOST: usize = 1_000_000;
/// Messages of the first run of a bandwidth program.
const FIRST_STREAM: usize = 100;

/// perftest over Adverb's wire and UCX over tcp at special places
#[derive(Parser)]
struct Options {
    #[command(flatten)]
    chosen: Chosen,
    /// Make the places, and measure nothing
    #[arg(long)]
    check: bool,
    /// Measure between the namespaces in which this copy of the program runs
    #[arg(long, hide = true)]
    inside: bool,
}

fn main() -> ExitCode {
    pair::ended("places", run(&Options::parse()))
}

fn run(options: &Options) -> Result<()> {
    let mut failed = Vec::new();
    for place in options.chosen.of(&PLACES)? {
        let result = match place {
            HALF => half_cpu(options),
            cable if options.inside => {
                cable::ends().and_then(|ends| measure(cable, &ends, options))
            }
            cable => cable::outside(cable, options.check, options.chosen.time()),
        };
        failed.extend(result.err().map(|why| format!("{place}: {why}")));
    }
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n")) }
}

fn half_cpu(options: &Options) -> Result<()> {
    let half = HalfCpu::new()?;
    if options.check {
        return Ok(());
    }
    measure(HALF, &half.ends()?, options)
}

/// Performs each task with both sides. A failure does not stop the other tasks.
fn measure(place: &str, ends: &Ends, options: &Options) -> Result<()> {
    // UCX is faster with each end on a processor. Adverb has two threads at each end.
    let pinned = ends.pinned(Cpus::allowed()?);
    let mut failed = Vec::new();
    for task in if options.check { &[][..] } else { &TASKS } {
        for side in SIDES {
            let found = filled(task, options.chosen.time(), |n| match side {
                Side::Adverb => perftest(task).run(ends, n),
                Side::Ucx => ucx(task).run(&pinned, n),
            });
            let name = name(place, task.name, side);
            match found {
                // Half a processor stops both ends most of the time. Only the mean shows this.
                Ok(Figures::Latency { mean, .. }) if place == HALF => println!("{name} {mean:e} s"),
                Ok(Figures::Latency { median, .. }) => println!("{name} {median:e} s"),
                Ok(Figures::Stream { bytes, .. }) => println!("{name} {bytes:e} B/s"),
                Err(why) => failed.push(format!("{name}: {why}")),
            }
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n")) }
}

fn perftest(task: &Task) -> Perftest<'_> {
    let Task { verbs: program, size, latency, .. } = *task;
    Perftest { program, size, latency, path: Some("wire"), private: false }
}

fn ucx(task: &Task) -> Ucx<'_> {
    let Task { ucx: test, size, latency, .. } = *task;
    Ucx { test, tls: TCP, over: false, size, latency }
}

/// Runs as many messages as fill the time, by the rate of a first run.
fn filled(task: &Task, time: Duration, run: impl Fn(usize) -> Result<Figures>) -> Result<Figures> {
    let first = if task.latency { FIRST } else { FIRST_STREAM };
    let found = run(first)?;
    match iterations(found.rate(), time, MOST) {
        n if n > first => run(n),
        _ => Ok(found),
    }
}
