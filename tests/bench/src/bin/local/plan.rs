//! The measurements, and what each is compared with.

use std::time::Duration;

use adverb_bench::report::{Key, What};

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

/// One run of a program.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// A limit of shared memory, for a size.
    Shared(&'static str, usize),
    /// A limit, or completion events: the program of Adverb, and the name of the figure.
    Own(&'static str, &'static str),
    /// perftest: program, size, whether for latency.
    Verbs(&'static str, usize, bool),
    /// perftest with memory not mapped by peers: program, size.
    Private(&'static str, usize),
    /// UCX: test, transports, size, whether for latency.
    Ucx(&'static str, &'static str, usize, bool),
    /// UCX over Adverb: test, size, whether for latency.
    Over(&'static str, usize, bool),
    /// perftest with both ends on one processor: program, path.
    OneCpu(&'static str, &'static str),
}

/// The items of a round. Compared items run in a row.
pub fn items() -> Vec<Item> {
    let mut items: Vec<Item> = EVENTFDS.map(|name| Item::Own("limits", name)).into();
    items.extend(WAKES.map(|name| Item::Own("wake", name)));
    items.push(Item::Verbs(EVENTS.0, EVENTS.1, true));
    for c in COMPARED {
        for &size in c.sizes {
            let raw = Item::Shared(c.raw, size);
            // Two programs may have the same limit.
            if !items.contains(&raw) {
                items.push(raw);
            }
            items.push(Item::Verbs(c.program, size, c.latency));
            let tests = c.ucx.iter().flat_map(|test| TRANSPORTS.map(|tls| (test, tls)));
            items.extend(tests.map(|(test, tls)| Item::Ucx(test, tls, size, c.latency)));
        }
    }
    items.extend(
        PRIVATE.iter().flat_map(|program| PRIVATE_SIZES.map(|size| Item::Private(program, size))),
    );
    items.extend(OVER.map(|(test, size, latency)| Item::Over(test, size, latency)));
    items.extend(ONE_CPU.iter().flat_map(|program| PATHS.map(|path| Item::OneCpu(program, path))));
    items
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
        let items = items();
        for (n, item) in items.iter().enumerate() {
            assert!(!items[..n].contains(item), "{item:?}");
        }
        for c in COMPARED {
            for &size in c.sizes {
                assert!(items.contains(&Item::Shared(c.raw, size)), "{c:?} {size}");
                let ucx = |i: &&Item| matches!(i, Item::Ucx(t, _, s, _) if c.ucx.contains(t) && *s == size);
                assert_eq!(
                    items.iter().filter(ucx).count(),
                    ucx_keys(c.ucx, size, What::Bytes).len()
                );
            }
        }
    }
}
