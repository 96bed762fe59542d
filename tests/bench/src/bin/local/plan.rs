//! What is measured and beside what.

use std::time::Duration;

/// Sizes of messages whose latency is measured, in bytes.
const LATENCY: &[usize] = &[8, 64, 512, 4096, 65536];
/// Of those that are counted.
const STREAM: &[usize] = &[8, 512, 4096, 65536, 1 << 20, 8 << 20];
/// Of atomics.
const WORD: &[usize] = &[8];
/// Ways of UCX between two processes of one host: shared memory of its own, and system calls that
/// copy as well.
pub const TRANSPORTS: [&str; 2] = ["posix", "posix,cma"];

/// A program of perftest and what stands beside it.
#[derive(Clone, Copy, Debug)]
pub struct Compared {
    /// Program of perftest.
    pub program: &'static str,
    /// Sizes.
    pub sizes: &'static [usize],
    /// Whether it measures latency.
    pub latency: bool,
    /// The limit of shared memory by its name in the program `limits`, without the size.
    pub raw: &'static str,
    /// Tests of `ucx_perftest`, with their options.
    pub ucx: &'static [&'static str],
}

/// All of them.
pub const COMPARED: [Compared; 7] = [
    Compared {
        program: "ib_write_lat",
        sizes: LATENCY,
        latency: true,
        raw: "shm_spin",
        ucx: &["ucp_put_lat"],
    },
    Compared {
        program: "ib_send_lat",
        sizes: LATENCY,
        latency: true,
        raw: "shm_spin",
        ucx: &["ucp_am_lat", "tag_lat"],
    },
    Compared { program: "ib_read_lat", sizes: LATENCY, latency: true, raw: "shm_get", ucx: &["ucp_get"] },
    Compared { program: "ib_atomic_lat", sizes: WORD, latency: true, raw: "shm_fadd", ucx: &["ucp_fadd"] },
    Compared { program: "ib_write_bw", sizes: STREAM, latency: false, raw: "shm_put", ucx: &["ucp_put_bw"] },
    Compared {
        program: "ib_read_bw",
        sizes: STREAM,
        latency: false,
        raw: "shm_get",
        ucx: &["ucp_get -O 32"],
    },
    Compared {
        program: "ib_send_bw",
        sizes: STREAM,
        latency: false,
        raw: "shm_put",
        ucx: &["tag_bw", "ucp_am_bw"],
    },
];

/// Programs that are measured once more with memory that peers do not map, and their sizes; beside
/// them the test of UCX whose long messages are copied by the kernel.
pub const PRIVATE: [&str; 3] = ["ib_write_bw", "ib_read_bw", "ib_send_bw"];
/// Sizes of these.
pub const PRIVATE_SIZES: [usize; 3] = [4096, 65536, 1 << 20];
/// The test beside them, and its way.
pub const BY_KERNEL: (&str, &str) = ("tag_bw", "posix,cma");

/// The name of a program's figures with such memory.
pub fn private_name(program: &str) -> String {
    format!("{program} private")
}

/// UCX over this device: tests, their sizes, and whether they measure latency.
pub const OVER: [(&str, usize, bool); 4] =
    [("tag_lat", 8, true), ("tag_lat", 65536, true), ("tag_bw", 8, false), ("tag_bw", 65536, false)];
/// The way UCX takes then.
pub const OVER_US: &str = "rc_v";

/// Programs whose two ends share one processor, and their size.
pub const ONE_CPU: [&str; 2] = ["ib_send_lat", "ib_write_lat"];
/// The size of their messages.
pub const ONE_CPU_SIZE: usize = 8;
/// The paths that these take.
pub const PATHS: [&str; 2] = ["local", "wire"];

/// The name of a program's figures when both ends share a processor.
pub fn one_cpu_name(program: &str, path: &str) -> String {
    format!("{program} {path} one processor")
}

/// The program that sleeps until its completion events, and the size of its messages.
pub const EVENTS: (&str, usize) = ("ib_send_lat -e", 8);
/// Completion events between two processes, by their names in the program `wake`.
pub const WAKES: [&str; 2] = ["cq_wake", "cq_wake_epoll"];
/// What they are beside, by their names in the program `limits`.
pub const EVENTFDS: [&str; 2] = ["eventfd_wake", "eventfd_epoll"];

/// One program run.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// A limit of shared memory, for a size.
    Shared(&'static str, usize),
    /// A limit, or completion events: the program of ours and the name in it.
    Own(&'static str, &'static str),
    /// perftest: program, size, whether it measures latency.
    Verbs(&'static str, usize, bool),
    /// perftest with memory that peers do not map: program, size.
    Private(&'static str, usize),
    /// UCX: test, transports, size, whether it measures latency.
    Ucx(&'static str, &'static str, usize, bool),
    /// UCX over this device: test, size, whether it measures latency.
    Over(&'static str, usize, bool),
    /// perftest with both ends on one processor: program, path.
    OneCpu(&'static str, &'static str),
}

/// The items of a round: what is compared runs in a row.
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
    items.extend(PRIVATE.iter().flat_map(|program| PRIVATE_SIZES.map(|size| Item::Private(program, size))));
    items.extend(OVER.map(|(test, size, latency)| Item::Over(test, size, latency)));
    items.extend(ONE_CPU.iter().flat_map(|program| PATHS.map(|path| Item::OneCpu(program, path))));
    items
}

/// How long one measurement takes, start and end apart.
pub fn time(quick: bool) -> Duration {
    Duration::from_millis(if quick { 100 } else { 300 })
}

/// What a series of values is of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// A program, a test of UCX with its transports, a limit.
    pub name: String,
    /// Bytes of a message; 0 where there is none.
    pub size: usize,
    /// In which unit.
    pub what: What,
}

/// Units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// Seconds.
    Latency,
    /// Bytes a second.
    Bytes,
    /// Messages a second.
    Messages,
}

impl Key {
    /// That of a program or limit.
    pub fn new(name: &str, size: usize, what: What) -> Self {
        Self { name: name.to_string(), size, what }
    }

    /// Those of UCX's tests, over all transports.
    pub fn ucx(tests: &[&str], size: usize, what: What) -> Vec<Self> {
        let names = tests.iter().flat_map(|test| TRANSPORTS.map(|tls| ucx_name(test, tls)));
        names.map(|name| Self { name, size, what }).collect()
    }
}

/// A test of UCX over one way, in a word.
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
                assert_eq!(items.iter().filter(ucx).count(), Key::ucx(c.ucx, size, What::Bytes).len());
            }
        }
    }
}
