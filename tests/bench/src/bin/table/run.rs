//! Programs that only these tables run, and their output.

use std::time::Duration;

use adverb_bench::items::Values;
use adverb_bench::programs::{LIMIT, PATH, number_after, own};
use adverb_bench::report::Key;
use adverb_bench::series::Samples;
use adverb_foreign::process::{Program, free_port, words};

use super::keys::{CHAINS, WAYS, chain_key, place_keys};

/// The path of these tables.
pub const WIRE: &str = "wire";
/// Time limit of the program `places` at one place. Each run inside has its own limit.
const PLACE_LIMIT: Duration = Duration::from_secs(240);

/// One of Adverb's own programs on the wire path.
pub fn on_wire(program: &str, args: &[&str]) -> Result<Program, String> {
    Ok(own(program, args)?.env(PATH, WIRE))
}

/// The figures of all chains, each measured for about the given time.
pub fn chains(time: Duration) -> Result<Values, String> {
    let out = on_wire("chains", &["--ms", &time.as_millis().to_string()])?.run_ok(LIMIT)?;
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
pub fn iperf(name: &str, time: Duration) -> Result<f64, String> {
    let port = free_port()?;
    let mut server =
        Program::new("iperf3", &words(format!("-s -1 -B 127.0.0.1 -p {port}"))).bare().start()?;
    server.wait_for_listener(port, LIMIT)?;
    let udp = if name == "iperf3_udp" { "-u -b 0 -l 4156" } else { "" };
    let seconds = time.as_secs_f64().ceil();
    let args = words(format!("-c 127.0.0.1 -p {port} -t {seconds} -f m {udp}"));
    let out = Program::new("iperf3", &args).bare().run_ok(LIMIT)?;
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

/// Whether a place can be made; the reason if not.
pub fn check(place: &str) -> Result<(), String> {
    let out = own("places", &["--check", place])?.run(PLACE_LIMIT)?;
    if out.ok() {
        return Ok(());
    }
    Err(out.text.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// All figures of a place. A failed task leaves out its own figures.
pub fn elsewhere(
    place: &'static str,
    time: Duration,
    round: usize,
    samples: &mut Samples<Key>,
) -> Result<Values, String> {
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
