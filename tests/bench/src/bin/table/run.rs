//! Runs an item and parses the output.

use std::time::Duration;

use adverb_bench::ends::Ends;
use adverb_bench::programs::{LIMIT, PATH, Perftest, figure, iterations, number_after, own};
use adverb_bench::report::{Key, What};
use adverb_bench::series::Samples;
use adverb_bench::ucx::{TCP, Ucx};
use adverb_foreign::process::{Program, free_port, words};

use super::plan::{CHAINS, Item, Plan, WAYS, chain_key, lean_key, place_keys, raw_key};

/// The path of these tables.
const WIRE: &str = "wire";
/// Limit of messages in a run.
const MOST: usize = 2_000_000;

/// Time limit of the program `places` at one place. Each run inside has its own limit.
const PLACE_LIMIT: Duration = Duration::from_secs(240);

/// Both ends on the loopback interface.
pub struct Loopbacks {
    /// For perftest.
    pub ends: Ends,
    /// For UCX, which is faster with each end on a processor.
    pub pinned: Ends,
}

/// Runs an item and records the values, or the failure.
pub fn run(item: &Item, round: usize, plan: &Plan, at: &Loopbacks, samples: &mut Samples<Key>) {
    let result = match *item {
        Item::Limit(name) => {
            figure("limits", name, plan.time, None).map(|v| vec![(raw_key(name), v)])
        }
        // The table of limits shows the last one of the round.
        Item::Lean(lean, program) => figure("limits", lean, plan.time, None)
            .map(|v| vec![(lean_key(lean, program), v), (raw_key(lean), v)]),
        Item::Wake(name) => {
            figure("wake", name, plan.time, Some(WIRE)).map(|v| vec![(raw_key(name), v)])
        }
        Item::Chains => chains(plan.time / 4),
        Item::Iperf(name) => iperf(name, plan.time).map(|v| vec![(raw_key(name), v)]),
        Item::Perftest(program, size, latency) => {
            let n = iterations(rate(program, size, latency, samples), plan.time, MOST);
            let perftest = Perftest { program, size, latency, path: Some(WIRE), private: false };
            perftest.run(&at.ends, n).map(|found| found.values(program, size))
        }
        Item::Ucx(test, size, latency) => {
            let n = iterations(rate(test, size, latency, samples), plan.time, MOST);
            let ucx = Ucx { test, tls: TCP, over: false, size, latency };
            ucx.run(&at.pinned, n).map(|found| found.values(test, size))
        }
        Item::Place(place) => elsewhere(place, plan.time, round, samples),
    };
    match result {
        Ok(values) => values.into_iter().for_each(|(key, value)| samples.add(key, round, value)),
        Err(why) => samples.failures.push(format!("round {}: {item:?}: {why}", round + 1)),
    }
}

/// One of Adverb's own programs on the wire path.
pub fn on_wire(program: &str, args: &[&str]) -> Result<Program, String> {
    Ok(own(program, args)?.env(PATH, WIRE))
}

/// The figures of all chains, each measured for about the given time.
fn chains(time: Duration) -> Result<Vec<(Key, f64)>, String> {
    let out = on_wire("chains", &["--ms", &time.as_millis().to_string()])?.run(LIMIT)?;
    out.require_ok()?;
    let mut values = Vec::new();
    for length in CHAINS {
        for way in WAYS {
            for what in ["ns", "post_ns", "handovers", "calls", "packets"] {
                let key = chain_key(length, way, what);
                let value = number_after(&out.text, &key.name).ok_or_else(|| out.describe())?;
                values.push((key, value));
            }
        }
    }
    Ok(values)
}

/// Bytes per second, as iperf3's receiver counts them.
fn iperf(name: &str, time: Duration) -> Result<f64, String> {
    let port = free_port()?;
    let mut server =
        Program::new("iperf3", &words(format!("-s -1 -B 127.0.0.1 -p {port}"))).bare().start()?;
    server.wait_for_listener(port, LIMIT)?;
    let udp = if name == "iperf3_udp" { "-u -b 0 -l 4156" } else { "" };
    let seconds = time.as_secs_f64().ceil();
    let args = words(format!("-c 127.0.0.1 -p {port} -t {seconds} -f m {udp}"));
    let out = Program::new("iperf3", &args).bare().run(LIMIT)?;
    out.require_ok()?;
    drop(server);
    received_bits(&out.text).map(|bits| bits / 8.0).ok_or_else(|| out.describe())
}

fn received_bits(text: &str) -> Option<f64> {
    let line = text.lines().find(|l| l.trim_end().ends_with("receiver"))?;
    let mut before = None;
    for word in line.split_whitespace() {
        if word == "Mbits/sec" {
            return before.and_then(|w: &str| w.parse::<f64>().ok()).map(|m| m * 1e6);
        }
        before = Some(word);
    }
    None
}

/// Messages per second, by earlier rounds; in the first round a low estimate.
fn rate(program: &str, size: usize, latency: bool, samples: &Samples<Key>) -> f64 {
    let known = if latency {
        // Half of a round trip is quoted, but the whole one for READ.
        let trips = if program.starts_with("ib_read") || program == "ucp_get" { 1.0 } else { 2.0 };
        samples.series(&Key::new(program, size, What::Latency)).map(|s| 1.0 / (s.median * trips))
    } else {
        samples.series(&Key::new(program, size, What::Messages)).map(|s| s.median)
    };
    // The server of UCX's get answers over tcp only about once a millisecond.
    known.unwrap_or(match (latency, size) {
        (true, _) if program == "ucp_get" => 300.0,
        (true, 0..=4096) => 5_000.0,
        (true, 4097..=65536) => 2_000.0,
        (true, _) => 200.0,
        (false, 0..=4096) => 50_000.0,
        (false, 4097..=65536) => 5_000.0,
        (false, _) => 500.0,
    })
}

/// Whether a place can be made; the reason if not.
pub fn check(place: &str) -> Result<(), String> {
    let out = own("places", &["--check", place])?.run(PLACE_LIMIT)?;
    if out.ok() {
        return Ok(());
    }
    Err(out.text.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// All figures of a place. A failed task leaves out its own figures.
fn elsewhere(
    place: &'static str,
    time: Duration,
    round: usize,
    samples: &mut Samples<Key>,
) -> Result<Vec<(Key, f64)>, String> {
    let out = own("places", &["--ms", &time.as_millis().to_string(), place])?.run(PLACE_LIMIT)?;
    if !out.ok() {
        samples.failures.push(format!("round {}: {place}: {}", round + 1, out.describe()));
    }
    let value = |key: Key| number_after(&out.text, &key.name).map(|value| (key, value));
    Ok(place_keys(place).filter_map(value).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iperf_counts_what_the_receiver_got() {
        let text = "[  5]   0.00-1.00   sec  3.20 GBytes  27500 Mbits/sec    0             sender\n\
                    [  5]   0.00-1.00   sec  3.19 GBytes  27400 Mbits/sec                  receiver\n";
        assert_eq!(received_bits(text), Some(27.4e9));
        assert_eq!(received_bits("iperf3: error"), None);
    }
}
