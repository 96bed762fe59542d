//! Runs one item and reads what it prints.

use std::time::Duration;

use adverb_foreign::device::Loopback;
use adverb_foreign::pair::Pair;
use adverb_foreign::process::{Program, free_port, words};

use super::plan::{Armed, CHAINS, Item, Key, Plan, Samples, WAYS};

/// A run that takes longer hangs, or is too slow to be a figure.
const LIMIT: Duration = Duration::from_secs(10);

/// Runs an item and adds its values, or its failure.
pub fn run(item: &Item, round: usize, plan: &Plan, device: &Loopback, samples: &mut Samples) {
    let result = match *item {
        Item::Limit(name) => raw("limits", name, plan.time).map(|v| vec![(Key::Raw(name), v)]),
        Item::Wake(name) => raw("wake", name, plan.time).map(|v| vec![(Key::Raw(name), v)]),
        Item::Chains => chains(plan.time / 4),
        Item::Iperf(name) => iperf(name, plan.time).map(|v| vec![(Key::Raw(name), v)]),
        Item::Perftest(program, size, latency) => {
            let n = iterations(program, size, latency, plan.time, samples);
            perftest(program, size, n, latency, device)
        }
    };
    match result {
        Ok(values) => values.into_iter().for_each(|(key, value)| samples.add(key, round, value)),
        Err(why) => samples.failures.push(format!("round {}: {item:?}: {why}", round + 1)),
    }
}

/// One of our own programs, which stand beside this one and need no `adverb run`.
fn own(program: &str, args: &[&str]) -> Result<Program, String> {
    let exe = std::env::current_exe().map_err(|e| format!("own path: {e}"))?;
    Ok(Program::new(exe.with_file_name(program).display().to_string(), args).bare())
}

fn raw(program: &str, name: &str, time: Duration) -> Result<f64, String> {
    let out = own(program, &["--ms", &time.as_millis().to_string(), name])?.run(LIMIT)?;
    out.require_ok()?;
    number_after(&out.text, name).ok_or_else(|| out.describe())
}

/// The figures of all chains, each measured for about the given time.
fn chains(time: Duration) -> Result<Vec<(Key, f64)>, String> {
    let out = own("chains", &["--ms", &time.as_millis().to_string()])?.run(LIMIT)?;
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

/// So many armed notifications; a run that finds something wrong is a failure with figures.
pub fn armed(count: u64, limit: Duration, samples: &mut Samples) {
    let found = own("armed", &["--count", &count.to_string()]).and_then(|p| p.run(limit));
    match found {
        Ok(out) => {
            let number = |name| number_after(&out.text, name);
            let figures = (number("armed_events"), number("armed_rate"), number("armed_wire"));
            if let ((Some(events), Some(rate), Some(wire)), Some(wrong)) = (figures, number("armed_wrong")) {
                samples.armed = Some(Armed { events, rate, wire, wrong });
            }
            if !out.ok() {
                samples.failures.push(format!("armed: {}", out.describe()));
            }
        }
        Err(why) => samples.failures.push(format!("armed: {why}")),
    }
}

fn number_after(text: &str, name: &str) -> Option<f64> {
    text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(' ')?.split(' ').next()?.parse().ok())
}

/// Bytes a second that iperf3's receiver counts.
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

/// How many messages fill the time, by what earlier rounds showed; in the first round a guess on the low side.
fn iterations(program: &'static str, size: usize, latency: bool, time: Duration, samples: &Samples) -> usize {
    let known = if latency {
        // perftest quotes half of a round trip, but for READ the whole.
        let trips = if program.starts_with("ib_read") { 1.0 } else { 2.0 };
        samples.series(&Key::Latency(program, size)).map(|s| 1e6 / (s.median * trips))
    } else {
        samples.series(&Key::Rate(program, size)).map(|s| s.median)
    };
    let guess = match (latency, size) {
        (true, 0..=4096) => 5_000.0,
        (true, 4097..=65536) => 2_000.0,
        (true, _) => 200.0,
        (false, 0..=4096) => 50_000.0,
        (false, 4097..=65536) => 5_000.0,
        (false, _) => 500.0,
    };
    let n = known.map_or(guess, |rate| rate * time.as_secs_f64());
    (n as usize).clamp(100, 2_000_000)
}

fn perftest(
    program: &'static str,
    size: usize,
    n: usize,
    latency: bool,
    device: &Loopback,
) -> Result<Vec<(Key, f64)>, String> {
    let mut argv = words(program);
    let name = argv.remove(0);
    let more = if latency { "" } else { "-N" };
    argv.extend(words(format!("-F -d {} -x {} -s {size} -n {n} {more}", device.dev, device.gid)));
    let out = Pair::new(&name, &argv, LIMIT).run_ok()?;
    let row = row(&out.client.text, size).ok_or_else(|| out.describe())?;
    // Latency: min, max, typical ... in microseconds. Bandwidth: peak, average in MiB/s, messages in millions/s.
    match row[..] {
        [_, _, typical, ..] if latency => Ok(vec![(Key::Latency(program, size), typical)]),
        [_, average, rate] if !latency => Ok(vec![
            (Key::Bandwidth(program, size), average * 1_048_576.0),
            (Key::Rate(program, size), rate * 1e6),
        ]),
        _ => Err(out.describe()),
    }
}

/// The numbers of perftest's line for `size`, after the size and the iterations.
fn row(text: &str, size: usize) -> Option<Vec<f64>> {
    text.lines().find_map(|line| {
        let numbers = line.split_whitespace().map(|w| w.parse().ok()).collect::<Option<Vec<f64>>>()?;
        (numbers.len() >= 5 && numbers[0] == size as f64).then(|| numbers[2..].to_vec())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_perftest_are_read() {
        let bw = " #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]\n \
                  65536      1000             0.00               3210.50 \t\t   0.051368\n";
        assert_eq!(row(bw, 65536), Some(vec![0.0, 3210.5, 0.051368]));
        assert_eq!(row(bw, 8), None);
        let lat = " 8       1000          2.50           20.1         2.71     \t       2.80        \t0.10   3.10   9.00\n";
        assert_eq!(row(lat, 8).map(|r| r[2]), Some(2.71));
    }

    #[test]
    fn iperf_counts_what_the_receiver_got() {
        let text = "[  5]   0.00-1.00   sec  3.20 GBytes  27500 Mbits/sec    0             sender\n\
                    [  5]   0.00-1.00   sec  3.19 GBytes  27400 Mbits/sec                  receiver\n";
        assert_eq!(received_bits(text), Some(27.4e9));
        assert_eq!(received_bits("iperf3: error"), None);
    }

    #[test]
    fn limits_are_read_by_their_whole_name() {
        let text = "udp_gso_window_4156 2e9 B/s\nudp_gso_4156 1.5e9 B/s\n";
        assert_eq!(number_after(text, "udp_gso_4156"), Some(1.5e9));
        assert_eq!(number_after(text, "udp_gso"), None);
    }
}
