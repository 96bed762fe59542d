//! perftest on the wire path and UCX over tcp, in turn, at places that this program makes. A place
//! is two network namespaces with a cable, a cgroup of half a processor, one processor, or two
//! pairs at once. Over a cable the lean RoCEv2 program runs, too.
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
use adverb_bench::lean;
use adverb_bench::message_test::{Over, Test};
use adverb_bench::pair::{self, Chosen, Cpus};
use adverb_bench::places::{CABLES, FOUR, HALF, ONE, PLACES, Side, TASKS, Task, name, sides};
use adverb_bench::programs::{Figures, iterations};
use adverb_bench::ucx::TCP;
use adverb_foreign::device::loopback;
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
    let result = match pair::child_args().as_deref() {
        Some([cpu, _, args @ ..]) => child(cpu, args),
        Some(other) => Err(format!("no such child: {other:?}")),
        None => run(&Options::parse()),
    };
    pair::ended("places", result)
}

/// The receiver of the lean program.
fn child(cpu: &str, args: &[String]) -> Result<()> {
    pair::pin(cpu.parse().map_err(|e| format!("{cpu}: {e}"))?)?;
    lean::receiver(args)
}

fn run(options: &Options) -> Result<()> {
    let mut failed = Vec::new();
    for place in options.chosen.of(&PLACES)? {
        let result = match place {
            HALF => half_cpu(options),
            ONE | FOUR => loopback_pairs(place, options),
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

/// One pair on one processor, or two pairs on two.
fn loopback_pairs(place: &str, options: &Options) -> Result<()> {
    let Cpus { here, there } = Cpus::allowed()?;
    if place == FOUR && here == there {
        return Err("the machine has one processor".to_string());
    }
    let ends = Ends::loopback(&loopback()?);
    let one = Cpus { here, there: here };
    measure(place, &if place == ONE { ends.pinned(one) } else { ends }, options)
}

/// Performs each task with each side. A failure does not stop the other tasks.
fn measure(place: &str, ends: &Ends, options: &Options) -> Result<()> {
    let cpus = Cpus::allowed()?;
    // UCX is faster with each end on a processor. Adverb has two threads at each end.
    let pinned = if place == ONE { ends.clone() } else { ends.pinned(cpus) };
    let time = options.chosen.time();
    let mut failed = Vec::new();
    for task in if options.check { &[][..] } else { &TASKS } {
        for side in sides(place, task) {
            let side = *side;
            let on = if side == Side::Adverb { ends } else { &pinned };
            let run = |n| test(task, side).run(on, n);
            let found = match side {
                Side::Lean => lean_stream(place, ends, cpus, time),
                _ if place == FOUR => filled(task, time, |n| twice(|| run(n))),
                _ => filled(task, time, run),
            };
            let name = name(place, task.name, side);
            match found {
                // A shared processor stops both ends often. Only the mean shows this.
                Ok(Figures::Latency { mean, .. }) if [HALF, ONE, FOUR].contains(&place) => {
                    println!("{name} {mean:e} s")
                }
                Ok(Figures::Latency { median, .. }) => println!("{name} {median:e} s"),
                Ok(Figures::Stream { bytes, .. }) => println!("{name} {bytes:e} B/s"),
                Err(why) => failed.push(format!("{name}: {why}")),
            }
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n")) }
}

/// Two runs at once: the mean of their latencies, or the sum of their streams.
fn twice(run: impl Fn() -> Result<Figures> + Sync) -> Result<Figures> {
    let (one, two) = std::thread::scope(|scope| {
        let other = scope.spawn(&run);
        (run(), other.join())
    });
    match (one?, two.map_err(|_| "a run panicked")??) {
        (Figures::Latency { median: a, mean: b }, Figures::Latency { median: c, mean: d }) => {
            Ok(Figures::Latency { median: (a + c) / 2.0, mean: (b + d) / 2.0 })
        }
        (Figures::Stream { bytes: a, messages: b }, Figures::Stream { bytes: c, messages: d }) => {
            Ok(Figures::Stream { bytes: a + c, messages: b + d })
        }
        _ => Err("two runs of one program with different figures".to_string()),
    }
}

/// The lean program over a cable, from this namespace to the client's.
fn lean_stream(place: &str, ends: &Ends, cpus: Cpus, time: Duration) -> Result<Figures> {
    let cable = CABLES.iter().find(|(name, ..)| *name == place);
    let (.., payload) = *cable.ok_or_else(|| format!("no cable {place:?}"))?;
    let way = cable::way(&ends.client);
    // The sender keeps its thread on a processor. The programs after it start from another thread.
    let bytes =
        std::thread::scope(|scope| scope.spawn(|| lean::stream(way, cpus, payload, time)).join());
    Ok(Figures::Stream { bytes: bytes.map_err(|_| "the lean program panicked")??, messages: 0.0 })
}

/// The test of perftest, or of UCX, for a task.
fn test(task: &Task, side: Side) -> Test<'_> {
    let Task { verbs, ucx, size, latency, .. } = *task;
    match side {
        Side::Adverb => {
            let over = Over::Verbs { path: Some("wire"), private: false };
            Test { program: verbs, size, latency, over }
        }
        _ => Test { program: ucx, size, latency, over: Over::Ucx(TCP) },
    }
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
