//! The report, in Markdown that also reads well on a terminal.

use std::fmt::Write;

use adverb_bench::places::{CABLES, FOUR, HALF, ONE, PLACES, Side, TASKS, Task, sides};
use adverb_bench::report::{Bar, cell, number, size_name, table};
use adverb_bench::series::{Samples, Series};

use super::plan::{
    Armed, BANDWIDTH, BIG, CHAINS, IPERF, Key, LATENCY, LEAN, LIMITS, Places, SIZES, SMALL_MTU,
    UCX_BANDWIDTH, UCX_LATENCY, UDP_8, WAKES, WAYS,
};

/// A comparison: its name, the value, the divisor (the best of several), and the bar with its
/// direction.
struct Ratio {
    name: String,
    of: Key,
    to: Vec<Key>,
    bar: Option<Bar>,
    /// Whether the divisor is a limit of the machine.
    limit: bool,
}

impl Ratio {
    fn new(name: impl Into<String>, of: Key, to: Vec<Key>, bar: Option<Bar>) -> Self {
        // The device is built on GSO, so raw GSO is a limit. The lean program does less for the
        // same packets.
        let raw = |k: &Key| matches!(k, Key::Raw(name) if name.starts_with("udp_gso"));
        let limit = to.iter().any(|k| raw(k) || is_lean(k));
        Self { name: name.into(), of, to, bar, limit }
    }

    /// The ratio of each round. The divisor of a latency is the shortest, of others the largest.
    fn found(&self, samples: &Samples<Key>) -> Option<Series> {
        let better = if is_time(&self.of) { f64::min } else { f64::max };
        samples.ratio(&self.of, &self.to, better)
    }

    /// A row of a table. `missing` takes the place of the figures.
    fn row(&self, samples: &Samples<Key>, missing: Option<&str>) -> Vec<String> {
        let found = self.found(samples);
        let bar = self.bar.map_or(String::new(), Bar::words);
        let met =
            found.zip(self.bar).map_or("", |(s, bar)| bar.verdict(s, self.limit, samples.rounds));
        let figure = missing.map_or_else(|| cell(found, samples.rounds), str::to_string);
        vec![self.name.clone(), figure, bar, met.to_string()]
    }
}

fn is_lean(key: &Key) -> bool {
    matches!(key, Key::Lean(..) | Key::Place(.., Side::Lean))
}

/// Whether a value is a time, so that less is better.
fn is_time(key: &Key) -> bool {
    match key {
        Key::Latency(..) => true,
        Key::Place(_, name, _) => TASKS.iter().any(|task| task.name == *name && task.latency),
        _ => false,
    }
}

fn ratios() -> Vec<Ratio> {
    let raws = |to: &[&'static str]| to.iter().map(|name| Key::Raw(name)).collect();
    let bw = |name, program, to: &[_], bar| {
        Ratio::new(name, Key::Bandwidth(program, BIG), raws(to), bar)
    };
    let lat = |name, program, to, bar| Ratio::new(name, Key::Latency(program, 8), raws(&[to]), bar);
    let wake = |name, program, to| Ratio::new(name, Key::Raw(program), raws(&[to]), None);
    let gso: &[&str] = &["udp_gso_4156", "udp_gso_window_4156"];
    let small: &[&str] = &["udp_gso_1060", "udp_gso_window_1060"];
    vec![
        lat("ib_send_lat -s 8 / UDP spinning", "ib_send_lat", "udp_spin", Some(Bar::AtMost(1.15))),
        lat("ib_write_lat -s 8 / UDP spinning", "ib_write_lat", "udp_spin", None),
        lat(
            "ib_send_lat -e -s 8 / UDP blocking",
            "ib_send_lat -e",
            "udp_block",
            Some(Bar::AtMost(1.0)),
        ),
        lat("ib_send_lat -e -s 8 / eventfd wake", "ib_send_lat -e", "eventfd_wake", None),
        wake("completion event, in get-event / eventfd wake", "cq_wake", "eventfd_wake"),
        wake("completion event, in get-event / UDP blocking", "cq_wake", "udp_block"),
        wake("completion event, in epoll / eventfd in epoll", "cq_wake_epoll", "eventfd_epoll"),
        wake("completion event, in epoll / UDP in epoll", "cq_wake_epoll", "udp_epoll"),
        bw("ib_write_bw -s 1048576 / UDP GSO 4156", "ib_write_bw", gso, Some(Bar::AtLeast(0.7))),
        bw("ib_send_bw -s 1048576 / UDP GSO 4156", "ib_send_bw", gso, None),
        bw("ib_read_bw -s 1048576 / UDP GSO 4156", "ib_read_bw", gso, None),
        bw("ib_write_bw -s 1048576 -m 1024 / UDP GSO 1060", SMALL_MTU, small, None),
        bw(
            "ib_write_bw -s 1048576 / iperf3 TCP",
            "ib_write_bw",
            &["iperf3_tcp"],
            Some(Bar::AtLeast(2.0)),
        ),
        bw("ib_write_bw -s 1048576 / iperf3 UDP", "ib_write_bw", &["iperf3_udp"], None),
        bw("ib_write_bw -s 1048576 / memcpy 1 MiB", "ib_write_bw", &["memcpy_1048576"], None),
    ]
}

/// The tests of UCX that may carry the messages of a program: its counterpart, and the tagged
/// messages, which UCX over tcp often carries faster than put and get.
fn ucx_ways(program: &str) -> Vec<&'static str> {
    let all = UCX_LATENCY.iter().chain(&UCX_BANDWIDTH);
    let own: Vec<_> = all.filter(|(_, beside)| *beside == program).map(|(test, _)| *test).collect();
    let tagged = if program.ends_with("_bw") { UCX_BANDWIDTH[0].0 } else { UCX_LATENCY[0].0 };
    // A READ's latency is a whole round trip, so it has no counterpart among the ping-pongs.
    if program == "ib_read_lat" || own.contains(&tagged) {
        own
    } else {
        [own, vec![tagged]].concat()
    }
}

/// The name of a place.
fn place_name(place: &str) -> String {
    match place {
        HALF => "half a processor".to_string(),
        ONE => "one processor".to_string(),
        FOUR => "two pairs at once".to_string(),
        cable => {
            let mtu = CABLES.iter().find(|(name, ..)| *name == cable).map_or(0, |(_, mtu, _)| *mtu);
            format!("veth, MTU {mtu}")
        }
    }
}

/// Whether the place has a cable.
fn has_cable(place: &str) -> bool {
    CABLES.iter().any(|(name, ..)| *name == place)
}

/// The ratio of a task at a place to the better way of UCX. Only bandwidth between the namespaces
/// has a bar.
fn task_ratio(place: &'static str, task: &Task) -> Ratio {
    let alike =
        TASKS.iter().filter(|other| (other.size, other.latency) == (task.size, task.latency));
    let ucx = alike.map(|other| Key::Place(place, other.name, Side::Ucx)).collect();
    let mean = if task.latency && !has_cable(place) { ", mean" } else { "" };
    let Task { verbs, size, .. } = task;
    let name = format!("{verbs} -s {size}, {}{mean} / UCX over tcp", place_name(place));
    let bar = (has_cable(place) && !task.latency).then_some(Bar::AtLeast(2.0));
    Ratio::new(name, Key::Place(place, task.name, Side::Adverb), ucx, bar)
}

/// The ratio of a task at a place to the lean program with the same payload.
fn lean_ratio(place: &'static str, task: &Task) -> Option<Ratio> {
    sides(place, task).contains(&Side::Lean).then(|| {
        let Task { verbs, size, .. } = task;
        let name = format!("{verbs} -s {size}, {} / the lean program", place_name(place));
        let key = |side| Key::Place(place, task.name, side);
        Ratio::new(name, key(Side::Adverb), vec![key(Side::Lean)], Some(Bar::AtLeast(0.85)))
    })
}

/// The goals of the wire path.
fn wire_ratios() -> Vec<Ratio> {
    let latency = |program, size, name: &str, to, most| {
        let name = format!("{program} -s {size} / {name}");
        Ratio::new(name, Key::Latency(program, size), to, Some(Bar::AtMost(most)))
    };
    let mut all = Vec::new();
    for program in BANDWIDTH {
        let of = || Key::Bandwidth(program, BIG);
        let name = |to: &str| format!("{program} -s {BIG} / {to}");
        for (lean, packets) in LEAN.iter().zip(["4", "1"]) {
            let to = vec![Key::Lean(lean, program)];
            let name = name(&format!("the lean RoCEv2 program, packets of {packets} KiB"));
            all.push(Ratio::new(name, of(), to, Some(Bar::AtLeast(0.85))));
        }
        let ucx = ucx_ways(program).into_iter().map(|test| Key::Bandwidth(test, BIG)).collect();
        all.push(Ratio::new(name("UCX over tcp"), of(), ucx, Some(Bar::AtLeast(1.0))));
    }
    let ucx = ucx_ways("ib_send_lat").into_iter().map(|test| Key::Latency(test, 8)).collect();
    all.push(latency("ib_send_lat", 8, "UCX over tcp", ucx, 1.0));
    all.push(latency("ib_send_lat", 8, "UDP ping-pong, 8 bytes", vec![Key::Raw(UDP_8)], 1.5));
    for size in [8, 4096, 65536] {
        let to = vec![Key::Latency("ib_send_lat", size)];
        all.push(latency("ib_write_lat", size, "ib_send_lat of the size", to, 1.5));
    }
    all
}

fn raw_name(name: &str) -> &str {
    match name {
        "udp_spin" => "UDP ping-pong, spinning, half a round trip",
        UDP_8 => "UDP ping-pong of 8 bytes, spinning, half a round trip",
        "stream_spin_8" => "TCP ping-pong of 8 bytes and a header, spinning, half a round trip",
        "lean_stream" => {
            "lean stream: messages of 1 MiB over TCP, one copy a side by the kernel, 4 outstanding"
        }
        "lean_roce" => {
            "lean RoCEv2: 4 KiB packets in GSO runs, ICRC, one copy a side, window of 1 MiB"
        }
        "lean_roce_1024" => "lean RoCEv2 with 1 KiB packets",
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
    rows.extend(ratios().iter().map(|r| r.row(samples, None)));
    format!("### Ratios\n\n{}\n", table(&rows))
}

/// The goals of the wire path, and whether each is met.
fn wire(samples: &Samples<Key>, places: &Places) -> String {
    let words = ["in the same round", "ratio", "bar", "met"];
    let mut rows = vec![words.map(str::to_string).to_vec()];
    rows.extend(wire_ratios().iter().map(|r| r.row(samples, None)));
    for place in PLACES {
        let missing = places.missing(place).map(|_| "not possible here");
        for task in &TASKS {
            rows.push(task_ratio(place, task).row(samples, missing));
            rows.extend(lean_ratio(place, task).map(|ratio| ratio.row(samples, missing)));
        }
    }
    format!("### The wire: bars\n\n{}\n", table(&rows))
}

/// perftest by size, compared with UCX over tcp.
fn beside_ucx(samples: &Samples<Key>) -> String {
    let mut rows = vec![vec!["size".to_string()]];
    let latency = LATENCY.iter().filter(|program| !program.contains(" -e"));
    let programs: Vec<&'static str> = latency.chain(&BANDWIDTH).copied().collect();
    rows[0].extend(programs.iter().map(|program| format!("`{program}`")));
    for size in SIZES {
        let ratio = |program: &&'static str| {
            let key = |name| match program.ends_with("_bw") {
                true => Key::Bandwidth(name, size),
                false => Key::Latency(name, size),
            };
            let to = ucx_ways(program).into_iter().map(key).collect();
            cell(Ratio::new(*program, key(program), to, None).found(samples), samples.rounds)
        };
        rows.push([size_name(size)].into_iter().chain(programs.iter().map(ratio)).collect());
    }
    format!("### Ratios to UCX over tcp, to the better of its ways\n\n{}\n", table(&rows))
}

/// The figures of the places.
fn at_places(samples: &Samples<Key>, places: &Places) -> String {
    let head = ["place", "task", "Adverb", "UCX over tcp", "lean RoCEv2", "unit"];
    let mut rows = vec![head.map(str::to_string).to_vec()];
    let mut notes = String::new();
    for place in PLACES {
        let missing = places.missing(place);
        if let Some(why) = missing {
            let _ = writeln!(notes, "- {}: not possible here: {why}", place_name(place));
        }
        for task in &TASKS {
            let (scale, unit) = if task.latency { (1e6, "µs") } else { (1e-9, "GB/s") };
            let value = |side| match missing {
                Some(_) => "not possible here".to_string(),
                None => {
                    let found = samples.series(&Key::Place(place, task.name, side));
                    cell(found.map(|s| s.scaled(scale)), samples.rounds)
                }
            };
            let name = format!("`{} -s {}`, `{}`", task.verbs, task.size, task.ucx);
            let has_lean = sides(place, task).contains(&Side::Lean);
            let lean = if has_lean { value(Side::Lean) } else { String::new() };
            let unit = unit.to_string();
            rows.push(vec![
                place_name(place),
                name,
                value(Side::Adverb),
                value(Side::Ucx),
                lean,
                unit,
            ]);
        }
    }
    let notes = if notes.is_empty() { notes } else { notes + "\n" };
    format!(
        "### Between two namespaces, and where processors are scarce\n\n{}\n{notes}",
        table(&rows)
    )
}

fn raw_table(title: &str, names: &[&'static str], samples: &Samples<Key>) -> String {
    let mut rows = vec![[title, "figure", "unit"].map(str::to_string).to_vec()];
    for name in names {
        let time = [
            "udp_spin",
            UDP_8,
            "stream_spin_8",
            "udp_block",
            "udp_epoll",
            "eventfd_wake",
            "eventfd_epoll",
        ]
        .contains(name)
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
    let names =
        ["cq_wake", "eventfd_wake", "udp_block", "cq_wake_epoll", "eventfd_epoll", "udp_epoll"];
    let mut text =
        format!("### Notification\n\n{}\n", raw_table("wake-up of a process", &names, samples));
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
    let head = [
        "requests, posted",
        "ns a request",
        "of it posting",
        "hand-overs",
        "send calls",
        "packets",
    ];
    let mut rows = vec![head.map(str::to_string).to_vec()];
    for length in CHAINS {
        for way in WAYS {
            let value = |what| cell(samples.series(&Key::Chain(length, way, what)), samples.rounds);
            let mut row = vec![format!("{length}, {way}")];
            row.extend(["ns", "post_ns", "handovers", "calls", "packets"].map(value));
            rows.push(row);
        }
    }
    let title = "Chains of 8-byte WRITEs, posted one by one and deferred (hand-overs, calls and packets of a chain)";
    format!("### {title}\n\n{}\n", table(&rows))
}

/// The whole report below the lines about machine and date.
pub fn text(
    where_and_when: &str,
    samples: &Samples<Key>,
    places: &Places,
    armed: Option<&Armed>,
) -> String {
    let with_ucx = |programs: &[&'static str], ucx: &[(&'static str, &'static str)]| {
        programs.iter().copied().chain(ucx.iter().map(|(test, _)| *test)).collect::<Vec<_>>()
    };
    let mut text = format!("{where_and_when}\n");
    text += &wire(samples, places);
    text += &comparison(samples);
    text += &raw(samples);
    text += &notification(samples, armed);
    text += &chains(samples);
    text += &by_size(
        "Latency in µs (typical; half a round trip, of `ib_read_lat` and `ucp_get` the whole), UCX over tcp last",
        samples.rounds,
        &with_ucx(&LATENCY, &UCX_LATENCY),
        |p, s| samples.series(&Key::Latency(p, s)).map(|v| v.scaled(1e6)),
    );
    text += &by_size(
        "Bandwidth in GB/s, UCX over tcp last",
        samples.rounds,
        &with_ucx(&BANDWIDTH, &UCX_BANDWIDTH),
        |p, s| samples.series(&Key::Bandwidth(p, s)).map(|v| v.scaled(1e-9)),
    );
    text += &by_size("Messages, millions a second", samples.rounds, &BANDWIDTH, |p, s| {
        samples.series(&Key::Rate(p, s)).map(|v| v.scaled(1e-6))
    });
    text += &beside_ucx(samples);
    text += &at_places(samples, places);
    if !samples.failures.is_empty() {
        let _ = writeln!(text, "{} runs failed or were left out.", samples.failures.len());
    }
    text.trim_end().to_string()
}

#[cfg(test)]
mod tests;
