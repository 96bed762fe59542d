//! The report.

use adverb_bench::programs::Once;
use adverb_bench::report::{
    BARS, Bar, Key, Ratio, What, bar_row, cell, number, ratio, section, size_name, table, value,
};
use adverb_bench::series::{Samples, Series};

use super::plan::{
    BY_KERNEL, COMPARED, Compared, EVENTFDS, EVENTS, ONE_CPU, ONE_CPU_SIZE, OVER, OVER_US, PATHS,
    PRIVATE, PRIVATE_SIZES, TRANSPORTS, WAKES, one_cpu_name, private_name, ucx_keys, ucx_name,
};

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

/// Up to this size messages per second are shown, and beyond it bytes per second.
const SMALL: usize = 4096;
/// Limit of the memory of a connected queue pair, in bytes.
const QP_BYTES: f64 = 8192.0;

/// The comparisons with a bar, and a few without.
fn ratios() -> Vec<Ratio> {
    let (latency, bytes, messages, big) = (What::Latency, What::Bytes, What::Messages, 1 << 20);
    let (least, most) = (Bar::AtLeast, Bar::AtMost);
    let ratio =
        |name: &str, of: Key, to, bar| Ratio { name: name.to_string(), of, to, bar, limit: false };
    let raw = |name, program, size, what, raw, bar| {
        let to = vec![Key::new(raw, size, what)];
        Ratio { limit: true, ..ratio(name, Key::new(program, size, what), to, Some(bar)) }
    };
    let ucx = |name, program, size, what, test, bar| {
        let of = Key::new(program, size, what);
        ratio(name, of, ucx_keys(&[test], size, what), Some(bar))
    };
    let wake = |name, (of, size), to, bar| {
        ratio(name, Key::new(of, size, latency), vec![Key::new(to, 0, latency)], bar)
    };
    let by_kernel = ucx_name(BY_KERNEL.0, BY_KERNEL.1);
    let private = [65536, big].map(|size| {
        let name = format!("ib_send_bw -s {size}, private memory / UCX {by_kernel}");
        let key = |name| Key::new(name, size, bytes);
        let of = key(private_name("ib_send_bw"));
        ratio(&name, of, vec![key(by_kernel.clone())], Some(least(1.0)))
    });
    let over = OVER.map(|(test, size, is_latency)| {
        let what = if is_latency { latency } else { bytes };
        let name = format!("UCX {test} -s {size} over {OVER_US} / over its own shared memory");
        let of = Key::new(ucx_name(test, OVER_US), size, what);
        ratio(&name, of, ucx_keys(&[test], size, what), is_latency.then_some(most(1.2)))
    });
    let (send, write, read) = ("ib_send_bw", "ib_write_bw", "ib_read_bw");
    let compared = [
        raw("ib_write_lat -s 8 / memory spin", "ib_write_lat", 8, latency, "shm_spin", most(1.5)),
        ucx(
            "ib_send_lat -s 8 / UCX active message",
            "ib_send_lat",
            8,
            latency,
            "ucp_am_lat",
            most(1.0),
        ),
        raw("ib_write_bw -s 1048576 / memcpy", write, big, bytes, "shm_put", least(0.9)),
        raw("ib_read_bw -s 1048576 / memcpy", read, big, bytes, "shm_get", least(0.9)),
        ucx("ib_send_bw -s 8, messages / UCX tag", send, 8, messages, "tag_bw", least(1.0)),
        ucx("ib_send_bw -s 65536 / UCX tag", send, 65536, bytes, "tag_bw", least(1.0)),
        ucx("ib_send_bw -s 1048576 / UCX tag", send, big, bytes, "tag_bw", least(1.0)),
        ucx("ib_send_bw -s 8388608 / UCX tag", send, 8 << 20, bytes, "tag_bw", least(1.0)),
        ucx("ib_write_bw -s 8, messages / UCX put", write, 8, messages, "ucp_put_bw", least(1.0)),
        wake("ib_send_lat -e -s 8 / eventfd wake", EVENTS, "eventfd_wake", Some(most(1.0))),
        wake("completion event, in get-event / eventfd wake", ("cq_wake", 0), "eventfd_wake", None),
        wake(
            "completion event, in epoll / eventfd in epoll",
            ("cq_wake_epoll", 0),
            "eventfd_epoll",
            Some(most(1.1)),
        ),
    ];
    compared.into_iter().chain(private).chain(over).collect()
}

/// Figures with a bar of their own: name, value, factor for its unit, and the bar.
fn absolutes() -> Vec<(String, Key, f64, Bar)> {
    let read = Key::new("ib_read_lat", 8, What::Latency);
    let stream = Key::new(ucx_name("tag_bw", OVER_US), 65536, What::Bytes);
    let mut rows = vec![
        ("ib_read_lat -s 8, ns".to_string(), read, 1e9, Bar::AtMost(60.0)),
        (format!("UCX tag_bw -s 65536 over {OVER_US}, GB/s"), stream, 1e-9, Bar::AtLeast(9.0)),
    ];
    for (program, most) in ONE_CPU.into_iter().zip([20.0, 200.0]) {
        for path in PATHS {
            let key = Key::new(one_cpu_name(program, path), ONE_CPU_SIZE, What::Latency);
            let name = format!("{program} -s {ONE_CPU_SIZE}, {path}, one processor for both, µs");
            rows.push((name, key, 1e6, Bar::AtMost(most)));
        }
    }
    rows
}

fn comparison(samples: &Samples<Key>, idle: &Once, scale: &Once) -> String {
    let mut rows: Vec<_> = ratios().iter().map(|r| r.row(samples)).collect();
    rows.extend(absolutes().into_iter().map(|(name, key, scale, bar)| {
        let found = samples.series(&key).map(|s| s.scaled(scale));
        bar_row(&name, found, Some(bar), false, samples.rounds)
    }));
    // These figures are measured once.
    let mut once = |name: &str, value: Option<f64>, most| {
        let found = Series::of(value.into_iter());
        rows.push(bar_row(name, found, Some(Bar::AtMost(most)), false, 1));
    };
    let qp = scale.get("pair_qp_pss_0").zip(scale.get("pair_qp_pss_1")).map(|(a, b)| a.max(b));
    let qp = qp.zip(scale.get("pair_cq_pss")).map(|(qp, cq)| qp + cq);
    let qps = scale.get("pair_qps").unwrap_or(0.0);
    once(&format!("bytes of each of {qps} connected queue pairs"), qp, QP_BYTES);
    for (kind, what, most) in [("send", "SEND", 1.2), ("write", "WRITE", 1.3)] {
        let name = format!("{what} over {qps} queue pairs in turn / over one");
        once(&name, scale.get(&format!("pair_{kind}_ratio_{qps}")), most);
    }
    let (count, seconds) =
        (idle.get("idle_qps").unwrap_or(0.0), idle.get("idle_time").unwrap_or(0.0));
    let name = format!("CPU seconds of {count} idle queue pairs in {seconds} s");
    once(&name, idle.get("idle_cpu"), 0.0);
    section("Same host: bars", &BARS, rows)
}

/// A unit, its scale, and its name.
type Unit = (What, f64, &'static str);

/// A program by message size, compared with a limit and UCX.
fn by_size(c: &Compared, (what, scale, unit): Unit, samples: &Samples<Key>) -> String {
    let tests: Vec<(&str, &str)> =
        c.ucx.iter().flat_map(|test| TRANSPORTS.map(|tls| (*test, tls))).collect();
    let mut head = vec![unit.to_string(), format!("`{}`", c.program), raw_name(c.raw).to_string()];
    head.extend(tests.iter().map(|(test, tls)| format!("`{test}`, {tls}")));
    head.extend(["to the limit", "to the best of UCX"].map(str::to_string));
    let sizes = c.sizes.iter().filter(|size| what != What::Messages || **size <= SMALL);
    let rows = sizes.map(|&size| {
        let key = |name: &str| Key::new(name, size, what);
        let figure = |name: &str| value(samples, &key(name), scale);
        let ratio = |to: &[Key]| cell(ratio(samples, &key(c.program), to), samples.rounds);
        let mut row = vec![size_name(size), figure(c.program), figure(c.raw)];
        row.extend(tests.iter().map(|(test, tls)| figure(&ucx_name(test, tls))));
        row.extend([ratio(&[key(c.raw)]), ratio(&ucx_keys(c.ucx, size, what))]);
        row
    });
    table(&head, rows) + "\n"
}

fn raw_name(raw: &str) -> &str {
    match raw {
        "shm_spin" => "memory spin",
        "shm_put" | "shm_get" => "memcpy",
        "shm_fadd" => "fetch-and-add",
        other => other,
    }
}

/// Wake-ups of a sleeping process.
fn events(samples: &Samples<Key>) -> String {
    let names = WAKES.iter().chain(&EVENTFDS).map(|name| (*name, 0));
    let words = [
        "completion event, asleep in get-event",
        "completion event, asleep in epoll",
        "eventfd wake",
        "eventfd wake, in epoll",
    ];
    let all = [(EVENTS, "`ib_send_lat -e -s 8`")].into_iter().chain(names.zip(words));
    let rows = all.map(|((name, size), words)| {
        vec![words.to_string(), value(samples, &Key::new(name, size, What::Latency), 1e6)]
    });
    section("Same host: events", &["wake-up of a process, half a round trip", "µs"], rows)
}

/// Memory that peers reach by `process_vm_*`, compared with mapped memory and with UCX's copies by
/// the kernel.
fn private(samples: &Samples<Key>) -> String {
    let (test, tls) = BY_KERNEL;
    let ucx = ucx_name(test, tls);
    let head = [
        "GB/s",
        "bytes",
        "private memory",
        "mapped memory",
        &format!("UCX `{test}`, {tls}"),
        "private to UCX",
    ];
    let all = PRIVATE.iter().flat_map(|program| PRIVATE_SIZES.map(|size| (program, size)));
    let rows = all.map(|(program, size)| {
        let key = |name: &str| Key::new(name, size, What::Bytes);
        let figure = |name: &str| value(samples, &key(name), 1e-9);
        let own = private_name(program);
        let ratio = cell(ratio(samples, &key(&own), &[key(&ucx)]), samples.rounds);
        let cells = [figure(&own), figure(program), figure(&ucx), ratio];
        [format!("`{program}`"), size_name(size)].into_iter().chain(cells).collect()
    });
    section("Same host: memory that peers do not map", &head, rows)
}

/// A figure in another unit.
fn shown(value: Option<f64>, by: f64, unit: &str) -> String {
    value.map_or("failed".to_string(), |v| format!("{}{unit}", number(v * by)))
}

/// Durations of `ibv_reg_mr` and `ibv_dereg_mr` for memory written by the program before.
fn registering(mapped: &Once, unmapped: &Once) -> String {
    let head =
        ["of the program's own memory", "`ADVERB_ADOPT`", "`ibv_reg_mr`", "", "`ibv_dereg_mr`", ""];
    let mut rows = Vec::new();
    let sizes = [
        ("a page of 500, a page apart", "4096", 4096.0),
        ("a page of 500, side by side", "again_4096", 4096.0),
        ("64 KiB of 200", "65536", 65536.0),
        ("256 MiB", "268435456", 268_435_456.0),
    ];
    for (what, name, bytes) in sizes {
        for (once, adopt) in [(mapped, "on"), (unmapped, "off")] {
            let cells = ["reg", "dereg"].map(|call| {
                let seconds = once.get(&format!("{call}_{name}"));
                let rate = seconds.map(|seconds| bytes / seconds);
                [shown(seconds, 1e6, " µs"), shown(rate, 1e-9, " GB/s")]
            });
            let mut row = vec![what.to_string(), adopt.to_string()];
            row.extend(cells.into_iter().flatten());
            rows.push(row);
        }
    }
    section("Same host: registration", &head, rows)
}

/// Durations of a page-aligned allocation and of its release, without an open device and with one.
fn allocating(once: &Once) -> String {
    let head = ["bytes", "no device", "a device", "to none", "one of 16 registered", "to none"];
    let rows = [4 << 10, 64 << 10, 1 << 20, 4 << 20].map(|size| {
        let value = |when: &str| once.get(&format!("alloc_{when}_{size}"));
        let mut row = vec![size_name(size), shown(value("plain"), 1e9, " ns")];
        for when in ["open", "registered"] {
            let ratio = value(when).zip(value("plain")).map(|(with, without)| with / without);
            row.extend([shown(value(when), 1e9, " ns"), shown(ratio, 1.0, "")]);
        }
        row
    });
    section("Same host: page-aligned allocation", &head, rows)
}

/// Memory, latency by the number of queue pairs, the mesh, and idle queue pairs.
fn scaling(idle: &Once, scale: &Once) -> String {
    let shown = |value, by| shown(value, by, "");
    let count = |value: Option<f64>| value.map_or("failed".to_string(), |v| v.to_string());
    let head = ["queue pairs, in turn", "SEND, ns", "to one", "WRITE, ns", "to one"];
    let rows = scale.endings("pair_send_ratio_").into_iter().map(|count| {
        let value = |what: &str, by| shown(scale.get(&format!("pair_{what}_{count}")), by);
        vec![
            count.clone(),
            value("send", 1e9),
            value("send_ratio", 1.0),
            value("write", 1e9),
            value("write_ratio", 1.0),
        ]
    });
    let mut text = section("Same host: scale", &head, rows);
    let kib = 1.0 / 1024.0;
    let pairs = format!(
        "- {} connected queue pairs between two processes: {} and {} bytes each in either process, {} s to make and \
         connect; the first one takes {} KiB in both together.\n",
        count(scale.get("pair_qps")),
        shown(scale.get("pair_qp_pss_0"), 1.0),
        shown(scale.get("pair_qp_pss_1"), 1.0),
        shown(scale.get("pair_connect"), 1.0),
        shown(scale.get("pair_first_pss"), kib),
    );
    let mesh = format!(
        "- {} processes, every two connected: {} messages of 1 KiB in {} s, all verified; the largest has {} KiB (PSS; {} KiB \
         resident), {} KiB for each other process, and {} descriptors.\n",
        count(scale.get("mesh_processes")),
        count(scale.get("mesh_messages")),
        shown(scale.get("mesh_exchange"), 1.0),
        shown(scale.get("mesh_pss"), kib),
        shown(scale.get("mesh_rss"), kib),
        shown(scale.get("mesh_peer_pss"), kib),
        count(scale.get("mesh_fds")),
    );
    let idleness = format!(
        "- {} idle queue pairs, both processes asleep on armed CQs for {} s: {} CPU seconds (`utime` + `stime`), {} by the \
         processes' own clocks; a thread went to sleep {} times.\n",
        count(idle.get("idle_qps")),
        count(idle.get("idle_time")),
        shown(idle.get("idle_cpu"), 1.0),
        shown(idle.get("idle_clock"), 1.0),
        count(idle.get("idle_sleeps")),
    );
    // A program prints its last figure only when everything was verified.
    let parts = [
        (scale.get("pair_qps"), pairs, "Queue pairs between two processes"),
        (scale.get("mesh_fds"), mesh, "The mesh of processes"),
        (idle.get("idle_sleeps"), idleness, "Idle queue pairs"),
    ];
    for (found, line, name) in parts {
        text += &found.map_or(format!("- {name}: failed.\n"), |_| line);
    }
    text + "\n"
}

/// The whole report below the lines about machine and date.
pub fn text(samples: &Samples<Key>, once: &Onces) -> String {
    let Onces { idle, scale, mapped, unmapped } = once;
    let mut text = comparison(samples, idle, scale);
    text += "### Same host: latency (half a round trip; of READ and atomics the whole)\n\n";
    let of = |latency: bool| COMPARED.into_iter().filter(move |c| c.latency == latency);
    of(true).for_each(|c| text += &by_size(&c, (What::Latency, 1e9, "ns"), samples));
    text += "### Same host: bandwidth\n\n";
    of(false).for_each(|c| text += &by_size(&c, (What::Bytes, 1e-9, "GB/s"), samples));
    text += "### Same host: messages\n\n";
    let messages = (What::Messages, 1e-6, "million messages a second");
    of(false).for_each(|c| text += &by_size(&c, messages, samples));
    text += &events(samples);
    text += &private(samples);
    text += &registering(mapped, unmapped);
    text += &allocating(mapped);
    text + &scaling(idle, scale)
}

#[cfg(test)]
mod tests;
