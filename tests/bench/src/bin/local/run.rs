//! Runs an item and parses the output.

use std::time::Duration;

use adverb_bench::cc;
use adverb_bench::ends::Ends;
use adverb_bench::pair::Cpus;
use adverb_bench::programs::{Figures, Once, Perftest, figure, iterations};
use adverb_bench::report::{Key, What};
use adverb_bench::series::Samples;
use adverb_bench::ucx::Ucx;
use adverb_foreign::device::DeviceArgs;
use adverb_foreign::process::Program;

use super::plan::{Item, ONE_CPU_SIZE, OVER_US, one_cpu_name, private_name, ucx_name};

/// Limit of messages in a run, for streams and for latencies. Latencies are listed one by one.
const MOST: [usize; 2] = [20_000_000, 300_000];
/// Messages of the first run, which determines the length of the next, and the limit of its bytes.
const FIRST: usize = 2000;
const FIRST_BYTES: usize = 1 << 30;

/// Environment of all runs.
pub struct RunSettings {
    /// The device.
    pub device: DeviceArgs,
    /// A processor for each end.
    pub cpus: Cpus,
    /// Length of a measurement.
    pub time: Duration,
}

/// Runs an item and records the values, or the failure.
pub fn run(item: &Item, round: usize, place: &RunSettings, samples: &mut Samples<Key>) {
    let ends = Ends::loopback(&place.device).pinned(place.cpus);
    let result = match *item {
        Item::Shared(what, size) => shared(what, size, place.time),
        Item::Own(program, name) => figure(program, name, place.time, None)
            .map(|seconds| vec![(Key::new(name, 0, What::Latency), seconds)]),
        Item::Verbs(program, size, latency) => {
            let perftest = Perftest { program, size, latency, path: None, private: false };
            measured(program, size, latency, place, samples, |n| perftest.run(&ends, n))
        }
        Item::Private(program, size) => {
            let perftest = Perftest { program, size, latency: false, path: None, private: true };
            let name = private_name(program);
            measured(&name, size, false, place, samples, |n| perftest.run(&ends, n))
        }
        Item::Ucx(test, tls, size, latency) => {
            let name = ucx_name(test, tls);
            let ucx = Ucx { test, tls, over: false, size, latency };
            measured(&name, size, latency, place, samples, |n| ucx.run(&ends, n))
        }
        Item::Over(test, size, latency) => {
            let ucx = Ucx { test, tls: OVER_US, over: true, size, latency };
            measured(&ucx_name(test, OVER_US), size, latency, place, samples, |n| ucx.run(&ends, n))
        }
        Item::OneCpu(program, path) => {
            let one = Cpus { there: place.cpus.here, ..place.cpus };
            let ends = Ends::loopback(&place.device).pinned(one);
            let (size, path_is) = (ONE_CPU_SIZE, Some(path));
            let perftest = Perftest { program, size, latency: true, path: path_is, private: false };
            let name = one_cpu_name(program, path);
            measured(&name, size, true, place, samples, |n| perftest.run(&ends, n))
        }
    };
    match result {
        Ok(values) => values.into_iter().for_each(|(key, value)| samples.add(key, round, value)),
        Err(why) => samples.failures.push(format!("round {}: {item:?}: {why}", round + 1)),
    }
}

/// Registrations by a verbs program in C under `adverb run`; `adopt` says whether peers map its
/// allocations.
pub fn registrations(place: &RunSettings, adopt: &str) -> Result<Program, String> {
    let path = cc::program("register")?.display().to_string();
    Ok(Program::new(path, &[place.device.dev.as_str()]).env("ADVERB_ADOPT", adopt))
}

/// A limit of shared memory in all units, for comparison with figures in any of them.
fn shared(what: &str, size: usize, time: Duration) -> Result<Vec<(Key, f64)>, String> {
    let name = if what == "shm_fadd" { what.to_string() } else { format!("{what}_{size}") };
    let seconds = figure("limits", &name, time, None)?;
    let key = |unit| Key::new(what, size, unit);
    Ok(vec![
        (key(What::Latency), seconds),
        (key(What::Bytes), size as f64 / seconds),
        (key(What::Messages), 1.0 / seconds),
    ])
}

/// Runs as many messages as fill the time, by the rate of earlier rounds or of a first run.
fn measured(
    name: &str,
    size: usize,
    latency: bool,
    place: &RunSettings,
    samples: &Samples<Key>,
    run: impl Fn(usize) -> Result<Figures, String>,
) -> Result<Vec<(Key, f64)>, String> {
    let what = if latency { What::Latency } else { What::Messages };
    let known = samples.series(&Key::new(name, size, what)).map(|s| s.median);
    let known = match known {
        Some(known) => known,
        None => match run(FIRST.min(FIRST_BYTES / size).max(100))? {
            Figures::Latency { median, .. } => median,
            Figures::Stream { messages, .. } => messages,
        },
    };
    // A ping-pong is quoted as half a round trip. Runs of the other latency programs become half as
    // long, without harm.
    let rate = if latency { 0.5 / known } else { known };
    let found = run(iterations(rate, place.time, MOST[usize::from(latency)]))?;
    Ok(found.values(name, size))
}

/// Measurements that run once.
pub struct Onces {
    /// Idle queue pairs.
    pub idle: Once,
    /// Many queue pairs and processes.
    pub scale: Once,
    /// Registrations of allocations mapped by peers, and of allocations not mapped by peers.
    pub mapped: Once,
    pub unmapped: Once,
}
