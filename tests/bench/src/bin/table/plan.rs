//! The measurements and their order.

use std::time::Duration;

use adverb_bench::ends::Ends;
use adverb_bench::items::{First, Item};
use adverb_bench::message_test::{Over, Test};
use adverb_bench::places::PLACES;
use adverb_bench::ucx::TCP;

use super::keys::{lean_key, raw_key};
use super::run::{self, WIRE};

/// Message sizes of the table, in bytes.
pub const SIZES: [usize; 6] = [8, 64, 512, 4096, 65536, 1 << 20];
/// The largest of them.
pub const BIG: usize = SIZES[5];
/// Latency programs, with the options for a separate column.
pub const LATENCY: [&str; 4] = ["ib_send_lat", "ib_write_lat", "ib_read_lat", "ib_send_lat -e"];
/// Bandwidth programs.
pub const BANDWIDTH: [&str; 3] = ["ib_send_bw", "ib_write_bw", "ib_read_bw"];
/// Tests of `ucx_perftest` over tcp, each with the program of perftest beside which it runs.
pub const UCX_LATENCY: [(&str, &str); 3] =
    [("tag_lat", "ib_send_lat"), ("ucp_put_lat", "ib_write_lat"), ("ucp_get", "ib_read_lat")];
/// The same for bandwidth.
pub const UCX_BANDWIDTH: [(&str, &str); 3] =
    [("tag_bw", "ib_send_bw"), ("ucp_put_bw", "ib_write_bw"), ("ucp_get -O 32", "ib_read_bw")];
/// The run to compare with raw segments of path MTU 1024.
pub const SMALL_MTU: &str = "ib_write_bw -m 1024";
/// The ping-pong of 8 bytes.
pub const UDP_8: &str = "udp_spin_8";
/// The lean RoCEv2 program with packets of 4 KiB and of 1 KiB.
pub const LEAN: [&str; 2] = ["lean_roce", "lean_roce_1024"];
/// Raw limits, by their names in the program `limits`, and in words.
pub const LIMITS: [(&str, &str); 15] = [
    ("udp_spin", "UDP ping-pong, spinning, half a round trip"),
    (UDP_8, "UDP ping-pong of 8 bytes, spinning, half a round trip"),
    ("udp_block", "UDP ping-pong, blocking, half a round trip"),
    ("udp_epoll", "UDP ping-pong, in epoll, half a round trip"),
    ("eventfd_wake", "eventfd wake, half a round trip"),
    ("eventfd_epoll", "eventfd wake, in epoll, half a round trip"),
    ("udp_gso_4156", "UDP GSO, 4156-byte segments, unthrottled, received"),
    ("udp_gso_window_4156", "UDP GSO, 4156-byte segments, window of 1 MiB"),
    ("udp_gso_1060", "UDP GSO, 1060-byte segments, unthrottled, received"),
    ("udp_gso_window_1060", "UDP GSO, 1060-byte segments, window of 1 MiB"),
    ("udp_plain_4156", "UDP, 4156 bytes, one a call"),
    (LEAN[0], "lean RoCEv2: 4 KiB packets in GSO runs, ICRC, one copy a side, window of 1 MiB"),
    (LEAN[1], "lean RoCEv2 with 1 KiB packets"),
    ("memcpy_65536", "memcpy, 64 KiB"),
    ("memcpy_1048576", "memcpy, 1 MiB"),
];
/// Completion events between two processes, by their names in the program `wake`, and in words.
pub const WAKES: [(&str, &str); 2] = [
    ("cq_wake", "completion event, asleep in get-event, half a round trip"),
    ("cq_wake_epoll", "completion event, asleep in epoll, half a round trip"),
];
/// iperf3 by protocol, and in words.
pub const IPERF: [(&str, &str); 2] =
    [("iperf3_tcp", "iperf3 TCP"), ("iperf3_udp", "iperf3 UDP, 4156 bytes, received")];

/// Both ends on the loopback interface.
pub struct Loopbacks {
    /// For perftest.
    pub ends: Ends,
    /// For UCX, which is faster with each end on a processor.
    pub pinned: Ends,
}

/// The items of a round, at these places, with measurements of this length. Raw limits stand
/// between the programs that are compared with them.
pub fn items(at: &Loopbacks, time: Duration, places: &[&'static str]) -> Vec<Item> {
    let limit = |name| Item::figure("limits", name, time, None, move |v| vec![(raw_key(name), v)]);
    let mut items = Vec::new();
    // Measurements of sleeping and waking come first and together, because they are compared
    // with each other.
    let sleeping =
        |l: &&str| matches!(*l, "udp_block" | "udp_epoll" | "eventfd_wake" | "eventfd_epoll");
    let limits = LIMITS.iter().map(|(name, _)| *name);
    items.extend(limits.clone().filter(sleeping).map(limit));
    items.extend(WAKES.map(|(name, _)| {
        Item::figure("wake", name, time, Some(WIRE), move |v| vec![(raw_key(name), v)])
    }));
    items.push(Item::new("chains", move |_, _| run::chains(time / 4)));
    let raw = limits.filter(|l| !sleeping(l) && ![UDP_8, LEAN[0], LEAN[1]].contains(l)).map(limit);
    let mut others = raw.chain(IPERF.map(|(name, _)| {
        Item::new(name, move |_, _| Ok(vec![(raw_key(name), run::iperf(name, time)?)]))
    }));
    for size in SIZES {
        items.extend(others.by_ref().take(2));
        // The machine's speed changes within seconds, so each limit stands directly before the
        // program that is compared with it.
        items.extend((size == SIZES[0]).then(|| limit(UDP_8)));
        items.extend(beside(at, time, &LATENCY, &UCX_LATENCY, size, true));
        items.extend(beside(at, time, &BANDWIDTH, &UCX_BANDWIDTH, size, false));
    }
    items.extend(others);
    items.push(perftest(at, time, SMALL_MTU, BIG, false));
    items.extend(places.iter().map(|&place| {
        Item::new(place, move |samples, round| run::elsewhere(place, time, round, samples))
    }));
    items
}

/// Length of a measurement, without start and end.
pub fn time(quick: bool) -> Duration {
    Duration::from_millis(if quick { 300 } else { 700 })
}

fn perftest(
    at: &Loopbacks,
    time: Duration,
    program: &'static str,
    size: usize,
    latency: bool,
) -> Item {
    let over = Over::Verbs { path: Some(WIRE), private: false };
    let test = Test { program, size, latency, over };
    Item::test(program, test, &at.ends, time, estimate(&test))
}

/// A low estimate of the messages per second, for the first round.
fn estimate(test: &Test<'_>) -> First {
    // The server of UCX's get answers over tcp only about once a millisecond.
    First::Rate(match (test.latency, test.size) {
        (true, _) if test.program == "ucp_get" => 300.0,
        (true, 0..=4096) => 5_000.0,
        (true, 4097..=65536) => 2_000.0,
        (true, _) => 200.0,
        (false, 0..=4096) => 50_000.0,
        (false, 4097..=65536) => 5_000.0,
        (false, _) => 500.0,
    })
}

/// Each program of perftest, with its counterpart directly after it, and the lean program before
/// the bandwidth of the largest size.
fn beside(
    at: &Loopbacks,
    time: Duration,
    programs: &[&'static str],
    ucx: &[(&'static str, &'static str)],
    size: usize,
    latency: bool,
) -> Vec<Item> {
    let mut items = Vec::new();
    for &program in programs {
        if size == BIG && !latency {
            // The table of limits shows the last one of the round.
            let values = move |lean, v| vec![(lean_key(lean, program), v), (raw_key(lean), v)];
            items.extend(
                LEAN.map(|lean| Item::figure("limits", lean, time, None, move |v| values(lean, v))),
            );
        }
        items.push(perftest(at, time, program, size, latency));
        let tests = ucx.iter().filter(|(_, beside)| *beside == program);
        items.extend(tests.map(|&(program, _)| {
            let test = Test { program, size, latency, over: Over::Ucx(TCP) };
            Item::test(program, test, &at.pinned, time, estimate(&test))
        }));
    }
    items
}

/// The places of this run. A place that the machine does not allow has the reason instead.
#[derive(Clone, Debug)]
pub struct Places(pub Vec<(&'static str, Result<(), String>)>);

impl Places {
    /// Finds out by `check` which places can be made.
    pub fn checked(check: impl Fn(&str) -> Result<(), String>) -> Self {
        Self(PLACES.iter().map(|place| (*place, check(place))).collect())
    }

    /// The places that can be made.
    pub fn there(&self) -> Vec<&'static str> {
        self.0.iter().filter(|(_, check)| check.is_ok()).map(|(place, _)| *place).collect()
    }

    /// Why a place cannot be made.
    pub fn missing(&self, place: &str) -> Option<&str> {
        let found = self.0.iter().find(|(name, _)| *name == place)?;
        found.1.as_ref().err().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::super::keys::place_keys;
    use super::*;
    use adverb_bench::places::TASKS;
    use adverb_foreign::device::DeviceArgs;

    #[test]
    fn every_cell_of_the_table_is_planned() {
        let device = DeviceArgs { dev: String::new(), gid: String::new() };
        let ends = Ends::loopback(&device);
        let at = Loopbacks { pinned: ends.clone(), ends };
        let items = items(&at, Duration::ZERO, &PLACES);
        let count = |program: &dyn Fn(&str) -> bool| {
            items.iter().filter(|i| i.name.contains(" -s ") && program(&i.name)).count()
        };
        let perftest = count(&|name| name.starts_with("ib_"));
        assert_eq!(perftest, SIZES.len() * (LATENCY.len() + BANDWIDTH.len()) + 1);
        let ucx = count(&|name| !name.starts_with("ib_"));
        assert_eq!(ucx, SIZES.len() * (UCX_LATENCY.len() + UCX_BANDWIDTH.len()));
        // Each lean program runs once before each bandwidth program.
        let lean = LEAN.len() * (BANDWIDTH.len() - 1);
        let others = LIMITS.len() + lean + WAKES.len() + 1 + IPERF.len() + PLACES.len();
        assert_eq!(items.len() - perftest - ucx, others);
    }

    #[test]
    fn a_place_that_cannot_be_made_is_left_out_and_has_a_reason() {
        let places =
            Places::checked(|place| if place == PLACES[0] { Ok(()) } else { Err("why".into()) });
        assert_eq!(places.there(), [PLACES[0]]);
        assert_eq!((places.missing(PLACES[0]), places.missing(PLACES[1])), (None, Some("why")));
        // The lean program is beside the two streams.
        assert_eq!(place_keys(PLACES[0]).count(), TASKS.len() * 2 + 2);
    }
}
