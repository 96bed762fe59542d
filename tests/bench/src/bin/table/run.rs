//! Runs an item and parses the output.

use std::time::Duration;

use adverb_bench::programs::{Figures, LIMIT, PATH, Perftest, figure, iterations, number_after, own};
use adverb_bench::series::Samples;
use adverb_foreign::device::Loopback;
use adverb_foreign::process::{Finished, Program, free_port, words};

use super::plan::{Armed, CHAINS, Item, Key, Plan, WAYS};

/// The path of these tables.
const WIRE: &str = "wire";
/// Limit of messages in a run.
const MOST: usize = 2_000_000;

/// Runs an item and records the values, or the failure.
pub fn run(item: &Item, round: usize, plan: &Plan, device: &Loopback, samples: &mut Samples<Key>) {
    let result = match *item {
        Item::Limit(name) => figure("limits", name, plan.time, None).map(|v| vec![(Key::Raw(name), v)]),
        Item::Wake(name) => figure("wake", name, plan.time, Some(WIRE)).map(|v| vec![(Key::Raw(name), v)]),
        Item::Chains => chains(plan.time / 4),
        Item::Iperf(name) => iperf(name, plan.time).map(|v| vec![(Key::Raw(name), v)]),
        Item::Perftest(program, size, latency) => {
            let n = iterations(rate(program, size, latency, samples), plan.time, MOST);
            perftest(program, size, n, latency, device)
        }
    };
    match result {
        Ok(values) => values.into_iter().for_each(|(key, value)| samples.add(key, round, value)),
        Err(why) => samples.failures.push(format!("round {}: {item:?}: {why}", round + 1)),
    }
}

/// Runs one of Adverb's own programs on the wire path.
fn on_wire(program: &str, args: &[&str], limit: Duration) -> Result<Finished, String> {
    own(program, args)?.env(PATH, WIRE).run(limit)
}

/// The figures of all chains, each measured for about the given time.
fn chains(time: Duration) -> Result<Vec<(Key, f64)>, String> {
    let out = on_wire("chains", &["--ms", &time.as_millis().to_string()], LIMIT)?;
    out.require_ok()?;
    let mut values = Vec::new();
    for length in CHAINS {
        for way in WAYS {
            for what in ["ns", "post_ns", "handovers", "calls", "packets"] {
                let name = format!("chain_{length}_{way}_{what}");
                let value = number_after(&out.text, &name).ok_or_else(|| out.describe())?;
                values.push((Key::Chain(length, way, what), value));
            }
        }
    }
    Ok(values)
}

/// Runs `count` armed notifications. A run with violations is a failure with figures.
pub fn armed(count: u64, limit: Duration, failures: &mut Vec<String>) -> Option<Armed> {
    match on_wire("armed", &["--count", &count.to_string()], limit) {
        Ok(out) => {
            if !out.ok() {
                failures.push(format!("armed: {}", out.describe()));
            }
            let number = |name| number_after(&out.text, name);
            Some(Armed {
                events: number("armed_events")?,
                rate: number("armed_rate")?,
                wire: number("armed_wire")?,
                wrong: number("armed_wrong")?,
            })
        }
        Err(why) => {
            failures.push(format!("armed: {why}"));
            None
        }
    }
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
fn rate(program: &'static str, size: usize, latency: bool, samples: &Samples<Key>) -> f64 {
    let known = if latency {
        // perftest quotes half of a round trip, but the whole one for READ.
        let trips = if program.starts_with("ib_read") { 1.0 } else { 2.0 };
        samples.series(&Key::Latency(program, size)).map(|s| 1.0 / (s.median * trips))
    } else {
        samples.series(&Key::Rate(program, size)).map(|s| s.median)
    };
    known.unwrap_or(match (latency, size) {
        (true, 0..=4096) => 5_000.0,
        (true, 4097..=65536) => 2_000.0,
        (true, _) => 200.0,
        (false, 0..=4096) => 50_000.0,
        (false, 4097..=65536) => 5_000.0,
        (false, _) => 500.0,
    })
}

fn perftest(
    program: &'static str,
    size: usize,
    n: usize,
    latency: bool,
    device: &Loopback,
) -> Result<Vec<(Key, f64)>, String> {
    let found =
        Perftest { program, size, latency, pin: None, path: Some(WIRE), private: false }.run(device, n)?;
    Ok(match found {
        Figures::Latency(seconds) => vec![(Key::Latency(program, size), seconds)],
        Figures::Stream { bytes, messages } => {
            vec![(Key::Bandwidth(program, size), bytes), (Key::Rate(program, size), messages)]
        }
    })
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
