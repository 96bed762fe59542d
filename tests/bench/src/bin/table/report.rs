//! The report, in Markdown that also reads well on a terminal.

use std::fmt::Write;

use adverb_bench::report::{Bar, cell, number, size_name, table};
use adverb_bench::series::{Samples, Series};

use super::plan::{Armed, BANDWIDTH, CHAINS, IPERF, Key, LATENCY, LIMITS, SIZES, SMALL_MTU, WAKES, WAYS};

/// A comparison: its name, the value, the divisor (the largest of several), and the bar with its
/// direction.
struct Ratio {
    name: &'static str,
    of: Key,
    to: &'static [&'static str],
    bar: Option<Bar>,
}

fn ratios() -> Vec<Ratio> {
    let big = 1 << 20;
    let bw = |name, program, size, to, bar| Ratio { name, of: Key::Bandwidth(program, size), to, bar };
    let lat = |name, program, to, bar| Ratio { name, of: Key::Latency(program, 8), to, bar };
    let wake = |name, program, to| Ratio { name, of: Key::Raw(program), to, bar: None };
    let gso: &[&str] = &["udp_gso_4156", "udp_gso_window_4156"];
    vec![
        lat("ib_send_lat -s 8 / UDP spinning", "ib_send_lat", &["udp_spin"], Some(Bar::AtMost(1.15))),
        lat("ib_write_lat -s 8 / UDP spinning", "ib_write_lat", &["udp_spin"], None),
        lat("ib_send_lat -e -s 8 / UDP blocking", "ib_send_lat -e", &["udp_block"], Some(Bar::AtMost(1.0))),
        lat("ib_send_lat -e -s 8 / eventfd wake", "ib_send_lat -e", &["eventfd_wake"], None),
        wake("completion event, in get-event / eventfd wake", "cq_wake", &["eventfd_wake"]),
        wake("completion event, in get-event / UDP blocking", "cq_wake", &["udp_block"]),
        wake("completion event, in epoll / eventfd in epoll", "cq_wake_epoll", &["eventfd_epoll"]),
        wake("completion event, in epoll / UDP in epoll", "cq_wake_epoll", &["udp_epoll"]),
        bw("ib_write_bw -s 1048576 / UDP GSO 4156", "ib_write_bw", big, gso, Some(Bar::AtLeast(0.7))),
        bw("ib_send_bw -s 1048576 / UDP GSO 4156", "ib_send_bw", big, gso, None),
        bw("ib_read_bw -s 1048576 / UDP GSO 4156", "ib_read_bw", big, gso, None),
        bw(
            "ib_write_bw -s 1048576 -m 1024 / UDP GSO 1060",
            SMALL_MTU,
            big,
            &["udp_gso_1060", "udp_gso_window_1060"],
            None,
        ),
        bw(
            "ib_write_bw -s 1048576 / iperf3 TCP",
            "ib_write_bw",
            big,
            &["iperf3_tcp"],
            Some(Bar::AtLeast(2.0)),
        ),
        bw("ib_write_bw -s 1048576 / iperf3 UDP", "ib_write_bw", big, &["iperf3_udp"], None),
        bw("ib_write_bw -s 1048576 / memcpy 1 MiB", "ib_write_bw", big, &["memcpy_1048576"], None),
    ]
}

fn raw_name(name: &str) -> &str {
    match name {
        "udp_spin" => "UDP ping-pong, spinning, half a round trip",
        "udp_block" => "UDP ping-pong, blocking, half a round trip",
        "udp_epoll" => "UDP ping-pong, in epoll, half a round trip",
        "eventfd_wake" => "eventfd wake, half a round trip",
        "eventfd_epoll" => "eventfd wake, in epoll, half a round trip",
        "cq_wake" => "completion event, asleep in get-event, half a round trip",
        "cq_wake_epoll" => "completion event, asleep in epoll, half a round trip",
        "udp_gso_4156" => "UDP GSO, 4156-byte segments, unthrottled, received",
        "udp_gso_window_4156" => "UDP GSO, 4156-byte segments, window of 1 MiB",
        "udp_gso_1060" => "UDP GSO, 1060-byte segments, unthrottled, received",
        "udp_gso_window_1060" => "UDP GSO, 1060-byte segments, window of 1 MiB",
        "udp_plain_4156" => "UDP, 4156 bytes, one a call",
        "memcpy_65536" => "memcpy, 64 KiB",
        "memcpy_1048576" => "memcpy, 1 MiB",
        "iperf3_tcp" => "iperf3 TCP",
        "iperf3_udp" => "iperf3 UDP, 4156 bytes, received",
        other => other,
    }
}

fn by_size(
    title: &str,
    rounds: usize,
    programs: &[&'static str],
    get: impl Fn(&'static str, usize) -> Option<Series>,
) -> String {
    let mut rows = vec![vec!["size".to_string()]];
    rows[0].extend(programs.iter().map(|p| format!("`{p}`")));
    for size in SIZES {
        let mut row = vec![size_name(size)];
        row.extend(programs.iter().map(|p| cell(get(p, size), rounds)));
        rows.push(row);
    }
    format!("### {title}\n\n{}\n", table(&rows))
}

fn comparison(samples: &Samples<Key>) -> String {
    let words = ["in the same round", "ratio", "bar", "met"];
    let mut rows = vec![words.map(str::to_string).to_vec()];
    for r in ratios() {
        let to: Vec<Key> = r.to.iter().map(|n| Key::Raw(n)).collect();
        let found = samples.ratio(&r.of, &to, f64::max);
        let bar = r.bar.map_or(String::new(), Bar::words);
        // The device is built on GSO, so raw GSO is a limit.
        let limit = r.to.iter().any(|name| name.starts_with("udp_gso"));
        let met = found.zip(r.bar).map_or("", |(s, bar)| bar.verdict(s, limit, samples.rounds));
        rows.push(vec![r.name.to_string(), cell(found, samples.rounds), bar, met.to_string()]);
    }
    format!("### Ratios\n\n{}\n", table(&rows))
}

fn raw_table(title: &str, names: &[&'static str], samples: &Samples<Key>) -> String {
    let mut rows = vec![[title, "figure", "unit"].map(str::to_string).to_vec()];
    for name in names {
        let time = ["udp_spin", "udp_block", "udp_epoll", "eventfd_wake", "eventfd_epoll"].contains(name)
            || WAKES.contains(name);
        let (scale, unit) = if time { (1e6, "µs") } else { (1e-9, "GB/s") };
        let found = samples.series(&Key::Raw(name)).map(|s| s.scaled(scale));
        rows.push(vec![raw_name(name).to_string(), cell(found, samples.rounds), unit.to_string()]);
    }
    table(&rows)
}

fn raw(samples: &Samples<Key>) -> String {
    let names: Vec<&str> = LIMITS.iter().chain(&IPERF).copied().collect();
    format!("### The machine's limits\n\n{}\n", raw_table("limit", &names, samples))
}

/// Wake-ups, compared with the kernel's without RDMA, and the armed notifications.
fn notification(samples: &Samples<Key>, armed: Option<&Armed>) -> String {
    let names = ["cq_wake", "eventfd_wake", "udp_block", "cq_wake_epoll", "eventfd_epoll", "udp_epoll"];
    let mut text = format!("### Notification\n\n{}\n", raw_table("wake-up of a process", &names, samples));
    let line = match armed {
        None => "Armed notifications: failed.".to_string(),
        Some(a) => format!(
            "Armed notifications: {} events of 64 CQs over 4 channels read in 4 threads, {} thousand a second, \
             {} completions of them over the wire path: {}.",
            a.events,
            number(a.rate / 1e3),
            a.wire,
            match a.wrong {
                0.0 => "nothing lost, duplicated or out of order".to_string(),
                n => format!("**{n} lost, duplicated or out of order**"),
            }
        ),
    };
    let _ = writeln!(text, "{line}\n");
    text
}

/// Chains by length and by way of posting.
fn chains(samples: &Samples<Key>) -> String {
    let head = ["requests, posted", "ns a request", "of it posting", "hand-overs", "send calls", "packets"];
    let mut rows = vec![head.map(str::to_string).to_vec()];
    for length in CHAINS {
        for way in WAYS {
            let value = |what| cell(samples.series(&Key::Chain(length, way, what)), samples.rounds);
            let mut row = vec![format!("{length}, {way}")];
            row.extend(["ns", "post_ns", "handovers", "calls", "packets"].map(value));
            rows.push(row);
        }
    }
    let title =
        "Chains of 8-byte WRITEs, posted one by one and deferred (hand-overs, calls and packets of a chain)";
    format!("### {title}\n\n{}\n", table(&rows))
}

/// The whole report below the lines about machine and date.
pub fn text(where_and_when: &str, samples: &Samples<Key>, armed: Option<&Armed>) -> String {
    let mut text = format!("{where_and_when}\n");
    text += &comparison(samples);
    text += &raw(samples);
    text += &notification(samples, armed);
    text += &chains(samples);
    text += &by_size(
        "Latency in µs (typical; half a round trip, of `ib_read_lat` the whole)",
        samples.rounds,
        &LATENCY,
        |p, s| samples.series(&Key::Latency(p, s)).map(|v| v.scaled(1e6)),
    );
    text += &by_size("Bandwidth in GB/s", samples.rounds, &BANDWIDTH, |p, s| {
        samples.series(&Key::Bandwidth(p, s)).map(|v| v.scaled(1e-9))
    });
    text += &by_size("Messages, millions a second", samples.rounds, &BANDWIDTH, |p, s| {
        samples.series(&Key::Rate(p, s)).map(|v| v.scaled(1e-6))
    });
    if !samples.failures.is_empty() {
        let _ = writeln!(text, "{} runs failed or were left out.", samples.failures.len());
    }
    text.trim_end().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_value_is_shown_as_failed_and_meets_no_bar() {
        let text = text("where", &Samples::new(1), None);
        assert!(text.contains("failed") && !text.contains("yes"));
    }

    #[test]
    fn a_notification_that_went_wrong_is_shown() {
        let armed = |wrong| Armed { events: 100.0, rate: 2e5, wire: 40.0, wrong };
        let text = |wrong| notification(&Samples::new(1), Some(&armed(wrong)));
        assert!(text(0.0).contains("200 thousand a second") && text(0.0).contains("nothing lost"));
        assert!(text(2.0).contains("**2 lost"));
    }

    #[test]
    fn bars_are_judged_by_the_larger_limit_of_the_same_round() {
        let mut samples = Samples::new(1);
        samples.add(Key::Bandwidth("ib_write_bw", 1 << 20), 0, 6e9);
        samples.add(Key::Raw("udp_gso_4156"), 0, 8e9);
        samples.add(Key::Raw("udp_gso_window_4156"), 0, 10e9);
        let text = comparison(&samples);
        let line = text.lines().find(|l| l.contains("ib_write_bw -s 1048576 / UDP GSO 4156")).unwrap();
        assert!(line.contains("0.60") && line.contains("no"), "{line}");
    }
}
