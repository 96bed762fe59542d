//! The report, in Markdown that also reads well on a terminal.

use std::fmt::Write;

use adverb_bench::places::{CABLES, FOUR, HALF, ONE, PLACES, Side, TASKS, Task, sides};
use adverb_bench::programs::Once;
use adverb_bench::report::{
    self, BARS, Bar, Key, Ratio, What, cell, number, section, size_name, table, value,
};
use adverb_bench::series::Samples;

use super::keys::{CHAINS, WAYS, chain_key, lean_key, place_key, raw_key};
use super::plan::{
    BANDWIDTH, BIG, IPERF, LATENCY, LEAN, LIMITS, Places, SIZES, SMALL_MTU, UCX_BANDWIDTH,
    UCX_LATENCY, UDP_8, WAKES,
};

fn ratio(name: impl Into<String>, of: Key, to: Vec<Key>, bar: Option<Bar>) -> Ratio {
    // The device is built on GSO, so raw GSO is a limit. The lean program does less for the same
    // packets.
    let limit = to.iter().any(|key| {
        ["udp_gso", "lean_"].iter().any(|start| key.name.starts_with(start))
            || key.name.ends_with("_lean")
    });
    Ratio { name: name.into(), of, to, bar, limit }
}

fn latency(program: &str, size: usize) -> Key {
    Key::new(program, size, What::Latency)
}

fn bandwidth(program: &str, size: usize) -> Key {
    Key::new(program, size, What::Bytes)
}

fn ratios() -> Vec<Ratio> {
    let bw = |name: &str, program, to: &[&str], bar| {
        ratio(name, bandwidth(program, BIG), to.iter().map(|to| raw_key(to)).collect(), bar)
    };
    let lat =
        |name: &str, program, to, bar| ratio(name, latency(program, 8), vec![raw_key(to)], bar);
    let wake = |name: &str, program, to| ratio(name, raw_key(program), vec![raw_key(to)], None);
    let gso: &[&str] = &["udp_gso_4156", "udp_gso_window_4156"];
    let small: &[&str] = &["udp_gso_1060", "udp_gso_window_1060"];
    let (least, most) = (|bar| Some(Bar::AtLeast(bar)), |bar| Some(Bar::AtMost(bar)));
    vec![
        lat("ib_send_lat -s 8 / UDP spinning", "ib_send_lat", "udp_spin", most(1.15)),
        lat("ib_write_lat -s 8 / UDP spinning", "ib_write_lat", "udp_spin", None),
        lat("ib_send_lat -e -s 8 / UDP blocking", "ib_send_lat -e", "udp_block", most(1.0)),
        lat("ib_send_lat -e -s 8 / eventfd wake", "ib_send_lat -e", "eventfd_wake", None),
        wake("completion event, in get-event / eventfd wake", "cq_wake", "eventfd_wake"),
        wake("completion event, in get-event / UDP blocking", "cq_wake", "udp_block"),
        wake("completion event, in epoll / eventfd in epoll", "cq_wake_epoll", "eventfd_epoll"),
        wake("completion event, in epoll / UDP in epoll", "cq_wake_epoll", "udp_epoll"),
        bw("ib_write_bw -s 1048576 / UDP GSO 4156", "ib_write_bw", gso, least(0.7)),
        bw("ib_send_bw -s 1048576 / UDP GSO 4156", "ib_send_bw", gso, None),
        bw("ib_read_bw -s 1048576 / UDP GSO 4156", "ib_read_bw", gso, None),
        bw("ib_write_bw -s 1048576 -m 1024 / UDP GSO 1060", SMALL_MTU, small, None),
        bw("ib_write_bw -s 1048576 / iperf3 TCP", "ib_write_bw", &["iperf3_tcp"], least(2.0)),
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
    let ucx = alike.map(|other| place_key(place, other, Side::Ucx)).collect();
    let mean = if task.latency && !has_cable(place) { ", mean" } else { "" };
    let Task { verbs, size, .. } = task;
    let name = format!("{verbs} -s {size}, {}{mean} / UCX over tcp", place_name(place));
    let bar = (has_cable(place) && !task.latency).then_some(Bar::AtLeast(2.0));
    ratio(name, place_key(place, task, Side::Adverb), ucx, bar)
}

/// The ratio of a task at a place to the lean program with the same payload.
fn lean_ratio(place: &'static str, task: &Task) -> Option<Ratio> {
    sides(place, task).contains(&Side::Lean).then(|| {
        let Task { verbs, size, .. } = task;
        let name = format!("{verbs} -s {size}, {} / the lean program", place_name(place));
        let key = |side| place_key(place, task, side);
        ratio(name, key(Side::Adverb), vec![key(Side::Lean)], Some(Bar::AtLeast(0.85)))
    })
}

/// The goals of the wire path.
fn wire_ratios() -> Vec<Ratio> {
    let quick = |program, size, name: &str, to, most| {
        let name = format!("{program} -s {size} / {name}");
        ratio(name, latency(program, size), to, Some(Bar::AtMost(most)))
    };
    let mut all = Vec::new();
    for program in BANDWIDTH {
        let of = || bandwidth(program, BIG);
        let name = |to: &str| format!("{program} -s {BIG} / {to}");
        for (lean, packets) in LEAN.iter().zip(["4", "1"]) {
            let to = vec![lean_key(lean, program)];
            let name = name(&format!("the lean RoCEv2 program, packets of {packets} KiB"));
            all.push(ratio(name, of(), to, Some(Bar::AtLeast(0.85))));
        }
        let ucx = ucx_ways(program).into_iter().map(|test| bandwidth(test, BIG)).collect();
        all.push(ratio(name("UCX over tcp"), of(), ucx, Some(Bar::AtLeast(1.0))));
    }
    let ucx = ucx_ways("ib_send_lat").into_iter().map(|test| latency(test, 8)).collect();
    all.push(quick("ib_send_lat", 8, "UCX over tcp", ucx, 1.0));
    all.push(quick("ib_send_lat", 8, "UDP ping-pong, 8 bytes", vec![raw_key(UDP_8)], 1.5));
    for size in [8, 4096, 65536] {
        let to = vec![latency("ib_send_lat", size)];
        all.push(quick("ib_write_lat", size, "ib_send_lat of the size", to, 1.5));
    }
    all
}

fn by_size(
    title: &str,
    programs: &[&'static str],
    cell: impl Fn(&'static str, usize) -> String,
) -> String {
    let mut head = vec!["size".to_string()];
    head.extend(programs.iter().map(|p| format!("`{p}`")));
    let rows = SIZES.map(|size| {
        [size_name(size)].into_iter().chain(programs.iter().map(|p| cell(p, size))).collect()
    });
    section(title, &head, rows)
}

fn comparison(samples: &Samples<Key>) -> String {
    section("Ratios", &BARS, ratios().iter().map(|r| r.row(samples)))
}

/// The figure of a place that the machine does not allow.
const NOT_POSSIBLE: &str = "not possible here";

/// The goals of the wire path, and whether each is met.
fn wire(samples: &Samples<Key>, places: &Places) -> String {
    let mut rows: Vec<_> = wire_ratios().iter().map(|r| r.row(samples)).collect();
    for (place, task) in PLACES.iter().flat_map(|p| TASKS.iter().map(move |t| (*p, t))) {
        for ratio in [task_ratio(place, task)].into_iter().chain(lean_ratio(place, task)) {
            let mut row = ratio.row(samples);
            if places.missing(place).is_some() {
                row[1] = NOT_POSSIBLE.to_string();
            }
            rows.push(row);
        }
    }
    section("The wire: bars", &BARS, rows)
}

/// perftest by size, compared with UCX over tcp.
fn beside_ucx(samples: &Samples<Key>) -> String {
    let shown = LATENCY.iter().filter(|program| !program.contains(" -e"));
    let programs: Vec<&'static str> = shown.chain(&BANDWIDTH).copied().collect();
    by_size("Ratios to UCX over tcp, to the better of its ways", &programs, |program, size| {
        let key = |name| match program.ends_with("_bw") {
            true => bandwidth(name, size),
            false => latency(name, size),
        };
        let to: Vec<Key> = ucx_ways(program).into_iter().map(key).collect();
        cell(report::ratio(samples, &key(program), &to), samples.rounds)
    })
}

/// The figures of the places.
fn at_places(samples: &Samples<Key>, places: &Places) -> String {
    let head = ["place", "task", "Adverb", "UCX over tcp", "lean RoCEv2", "unit"];
    let (mut rows, mut notes) = (Vec::new(), String::new());
    for place in PLACES {
        let missing = places.missing(place);
        if let Some(why) = missing {
            let _ = writeln!(notes, "- {}: not possible here: {why}", place_name(place));
        }
        for task in &TASKS {
            let (scale, unit) = place_key(place, task, Side::Adverb).unit();
            let figure = |side| match missing {
                _ if !sides(place, task).contains(&side) => String::new(),
                Some(_) => NOT_POSSIBLE.to_string(),
                None => value(samples, &place_key(place, task, side), scale),
            };
            let name = format!("`{} -s {}`, `{}`", task.verbs, task.size, task.ucx);
            let figures = [Side::Adverb, Side::Ucx, Side::Lean].map(figure);
            rows.push(
                [place_name(place), name]
                    .into_iter()
                    .chain(figures)
                    .chain([unit.to_string()])
                    .collect(),
            );
        }
    }
    let notes = if notes.is_empty() { notes } else { notes + "\n" };
    section("Between two namespaces, and where processors are scarce", &head, rows) + &notes
}

/// A table of limits or events with these names in the program that measures them.
fn raw_table(title: &str, names: &[&str], samples: &Samples<Key>) -> String {
    let all = LIMITS.iter().chain(&IPERF).chain(&WAKES);
    let rows = names.iter().filter_map(|name| all.clone().find(|(n, _)| n == name));
    let rows = rows.map(|(name, words)| {
        let key = raw_key(name);
        let (scale, unit) = key.unit();
        vec![words.to_string(), value(samples, &key, scale), unit.to_string()]
    });
    table(&[title, "figure", "unit"], rows)
}

fn raw(samples: &Samples<Key>) -> String {
    let names: Vec<&str> = LIMITS.iter().chain(&IPERF).map(|(name, _)| *name).collect();
    format!("### The machine's limits\n\n{}\n", raw_table("limit", &names, samples))
}

/// Wake-ups, compared with the kernel's without RDMA, and the armed notifications.
fn notification(samples: &Samples<Key>, armed: &Once) -> String {
    let names =
        ["cq_wake", "eventfd_wake", "udp_block", "cq_wake_epoll", "eventfd_epoll", "udp_epoll"];
    let mut text =
        format!("### Notification\n\n{}\n", raw_table("wake-up of a process", &names, samples));
    let line = match ["events", "rate", "wire", "wrong"].map(|f| armed.get(&format!("armed_{f}"))) {
        [Some(events), Some(rate), Some(wire), Some(wrong)] => format!(
            "Armed notifications: {events} events of 64 CQs over 4 channels read in 4 threads, {} thousand a second, \
             {wire} completions of them over the wire path: {}.",
            number(rate / 1e3),
            match wrong {
                0.0 => "nothing lost, duplicated or out of order".to_string(),
                n => format!("**{n} lost, duplicated or out of order**"),
            }
        ),
        _ => "Armed notifications: failed.".to_string(),
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
    let rows = CHAINS.iter().flat_map(|length| WAYS.map(|way| (*length, way)));
    let rows = rows.map(|(length, way)| {
        let figure = |what| value(samples, &chain_key(length, way, what), 1.0);
        let mut row = vec![format!("{length}, {way}")];
        row.extend(["ns", "post_ns", "handovers", "calls", "packets"].map(figure));
        row
    });
    let title = "Chains of 8-byte WRITEs, posted one by one and deferred (hand-overs, calls and packets of a chain)";
    section(title, &head, rows)
}

/// The whole report below the lines about machine and date.
pub fn text(samples: &Samples<Key>, places: &Places, armed: &Once) -> String {
    let with_ucx = |programs: &[&'static str], ucx: &[(&'static str, &'static str)]| {
        programs.iter().copied().chain(ucx.iter().map(|(test, _)| *test)).collect::<Vec<_>>()
    };
    let mut text = wire(samples, places);
    text += &comparison(samples);
    text += &raw(samples);
    text += &notification(samples, armed);
    text += &chains(samples);
    text += &by_size(
        "Latency in µs (typical; half a round trip, of `ib_read_lat` and `ucp_get` the whole), UCX over tcp last",
        &with_ucx(&LATENCY, &UCX_LATENCY),
        |p, s| value(samples, &latency(p, s), 1e6),
    );
    text += &by_size(
        "Bandwidth in GB/s, UCX over tcp last",
        &with_ucx(&BANDWIDTH, &UCX_BANDWIDTH),
        |p, s| value(samples, &bandwidth(p, s), 1e-9),
    );
    text += &by_size("Messages, millions a second", &BANDWIDTH, |p, s| {
        value(samples, &Key::new(p, s, What::Messages), 1e-6)
    });
    text += &beside_ucx(samples);
    text + &at_places(samples, places)
}

#[cfg(test)]
mod tests;
