//! The measurements, and what each is compared with.

use std::time::Duration;

use adverb_bench::ends::Ends;
use adverb_bench::items::{First, Item};
use adverb_bench::message_test::{Over, Test};
use adverb_bench::pair::Cpus;
use adverb_bench::report::{Key, What};
use adverb_foreign::device::DeviceArgs;

/// Messages of the first run, which determines the length of the next, and the limit of its bytes.
const FIRST: usize = 2000;
const FIRST_BYTES: usize = 1 << 30;

/// Message sizes of the latency programs, in bytes.
const LATENCY: &[usize] = &[8, 64, 512, 4096, 65536];
/// Message sizes of the bandwidth programs.
const STREAM: &[usize] = &[8, 512, 4096, 65536, 1 << 20, 8 << 20];
/// Size of atomics.
const WORD: &[usize] = &[8];
/// Transports of UCX between two processes of a host: shared memory, and the same with system calls
/// for copies.
pub const TRANSPORTS: [&str; 2] = ["posix", "posix,cma"];

/// A program of perftest with counterparts.
#[derive(Clone, Copy, Debug)]
pub struct Compared {
    /// Name of the program.
    pub program: &'static str,
    /// Message sizes.
    pub sizes: &'static [usize],
    /// Whether the program measures latency.
    pub latency: bool,
    /// The limit of shared memory: the name in the program `limits`, without the size.
    pub raw: &'static str,
    /// Tests of `ucx_perftest`, with their options.
    pub ucx: &'static [&'static str],
}

type Tests = &'static [&'static str];

const fn latency(
    program: &'static str,
    sizes: &'static [usize],
    raw: &'static str,
    ucx: Tests,
) -> Compared {
    Compared { program, sizes, latency: true, raw, ucx }
}

const fn stream(program: &'static str, raw: &'static str, ucx: Tests) -> Compared {
    Compared { program, sizes: STREAM, latency: false, raw, ucx }
}

/// All comparisons.
pub const COMPARED: [Compared; 7] = [
    latency("ib_write_lat", LATENCY, "shm_spin", &["ucp_put_lat"]),
    latency("ib_send_lat", LATENCY, "shm_spin", &["ucp_am_lat", "tag_lat"]),
    latency("ib_read_lat", LATENCY, "shm_get", &["ucp_get"]),
    latency("ib_atomic_lat", WORD, "shm_fadd", &["ucp_fadd"]),
    stream("ib_write_bw", "shm_put", &["ucp_put_bw"]),
    stream("ib_read_bw", "shm_get", &["ucp_get -O 32"]),
    stream("ib_send_bw", "shm_put", &["tag_bw", "ucp_am_bw"]),
];

/// Programs measured again with memory that peers do not map. The counterpart is the UCX test with
/// long messages copied by the kernel.
pub const PRIVATE: [&str; 3] = ["ib_write_bw", "ib_read_bw", "ib_send_bw"];
/// Message sizes of these programs.
pub const PRIVATE_SIZES: [usize; 3] = [4096, 65536, 1 << 20];
/// The counterpart of these programs, and the transports.
pub const BY_KERNEL: (&str, &str) = ("tag_bw", "posix,cma");

/// The name of a program's figures with such memory.
pub fn private_name(program: &str) -> String {
    format!("{program} private")
}

/// UCX over Adverb: tests, sizes, and whether a test measures latency.
pub const OVER: [(&str, usize, bool); 4] = [
    ("tag_lat", 8, true),
    ("tag_lat", 65536, true),
    ("tag_bw", 8, false),
    ("tag_bw", 65536, false),
];
/// The transport of UCX over Adverb.
pub const OVER_US: &str = "rc_v";

/// Programs with both ends on one processor.
pub const ONE_CPU: [&str; 2] = ["ib_send_lat", "ib_write_lat"];
/// Their message size.
pub const ONE_CPU_SIZE: usize = 8;
/// Their paths (`ADVERB_PATH`).
pub const PATHS: [&str; 2] = ["local", "wire"];

/// The name of a program's figures with both ends on one processor.
pub fn one_cpu_name(program: &str, path: &str) -> String {
    format!("{program} {path} one processor")
}

/// The event-driven program, and the message size.
pub const EVENTS: (&str, usize) = ("ib_send_lat -e", 8);
/// Completion events between two processes, by their names in the program `wake`.
pub const WAKES: [&str; 2] = ["cq_wake", "cq_wake_epoll"];
/// Their counterparts, by their names in the program `limits`.
pub const EVENTFDS: [&str; 2] = ["eventfd_wake", "eventfd_epoll"];

/// The items of a round on the device, with an end on each processor. Compared items run in a row.
pub fn items(device: &DeviceArgs, cpus: Cpus, time: Duration) -> Vec<Item> {
    let ends = Ends::loopback(device).pinned(cpus);
    let one_cpu = Ends::loopback(device).pinned(Cpus { there: cpus.here, ..cpus });
    let event = |program, name| {
        Item::figure(program, name, time, None, move |v| {
            vec![(Key::new(name, 0, What::Latency), v)]
        })
    };
    let test = |name: String, program, size, latency, over| {
        let first = First::Messages(FIRST.min(FIRST_BYTES / size).max(100));
        Item::test(name, Test { program, size, latency, over }, &ends, time, first)
    };
    let (verbs, private) =
        (Over::Verbs { path: None, private: false }, Over::Verbs { path: None, private: true });
    let mut items: Vec<Item> = EVENTFDS.map(|name| event("limits", name)).into();
    items.extend(WAKES.map(|name| event("wake", name)));
    items.push(test(EVENTS.0.to_string(), EVENTS.0, EVENTS.1, true, verbs));
    for c in COMPARED {
        for &size in c.sizes {
            // Two programs may have the same limit.
            if !items.iter().any(|item| item.name == raw_figure(c.raw, size)) {
                items.push(shared(c.raw, size, time));
            }
            items.push(test(c.program.to_string(), c.program, size, c.latency, verbs));
            let tests = c.ucx.iter().flat_map(|test| TRANSPORTS.map(|tls| (*test, tls)));
            items.extend(tests.map(|(program, tls)| {
                test(ucx_name(program, tls), program, size, c.latency, Over::Ucx(tls))
            }));
        }
    }
    let all = PRIVATE.iter().flat_map(|program| PRIVATE_SIZES.map(|size| (*program, size)));
    items.extend(
        all.map(|(program, size)| test(private_name(program), program, size, false, private)),
    );
    items.extend(OVER.map(|(program, size, latency)| {
        let over = Over::UcxOnAdverb(OVER_US);
        test(ucx_name(program, OVER_US), program, size, latency, over)
    }));
    let all = ONE_CPU.iter().flat_map(|program| PATHS.map(|path| (*program, path)));
    items.extend(all.map(|(program, path)| {
        let over = Over::Verbs { path: Some(path), private: false };
        let test = Test { program, size: ONE_CPU_SIZE, latency: true, over };
        Item::test(one_cpu_name(program, path), test, &one_cpu, time, First::Messages(FIRST))
    }));
    items
}

/// The name of a limit of shared memory in the program `limits`.
fn raw_figure(raw: &str, size: usize) -> String {
    if raw == "shm_fadd" { raw.to_string() } else { format!("{raw}_{size}") }
}

/// A limit of shared memory in all units, for comparison with figures in any of them.
fn shared(raw: &'static str, size: usize, time: Duration) -> Item {
    Item::figure("limits", raw_figure(raw, size), time, None, move |seconds| {
        let key = |unit| Key::new(raw, size, unit);
        vec![
            (key(What::Latency), seconds),
            (key(What::Bytes), size as f64 / seconds),
            (key(What::Messages), 1.0 / seconds),
        ]
    })
}

/// Length of a measurement, without start and end.
pub fn time(quick: bool) -> Duration {
    Duration::from_millis(if quick { 100 } else { 300 })
}

/// The keys of UCX tests, over all transports.
pub fn ucx_keys(tests: &[&str], size: usize, what: What) -> Vec<Key> {
    let names = tests.iter().flat_map(|test| TRANSPORTS.map(|tls| ucx_name(test, tls)));
    names.map(|name| Key::new(name, size, what)).collect()
}

/// The name of a UCX test over some transports.
pub fn ucx_name(test: &str, tls: &str) -> String {
    format!("{test} {tls}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_compared_is_measured_once() {
        let device = DeviceArgs { dev: String::new(), gid: String::new() };
        let items = items(&device, Cpus { here: 0, there: 1 }, Duration::ZERO);
        let names: Vec<&str> = items.iter().map(|item| item.name.as_str()).collect();
        for (n, name) in names.iter().enumerate() {
            assert!(!names[..n].contains(name), "{name}");
        }
        for c in COMPARED {
            for &size in c.sizes {
                assert!(names.contains(&&*raw_figure(c.raw, size)), "{c:?} {size}");
                for key in ucx_keys(c.ucx, size, What::Bytes) {
                    assert!(names.contains(&&*format!("{} -s {size}", key.name)), "{key:?}");
                }
            }
        }
    }
}
