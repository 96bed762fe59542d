//! The measurements and their order.

use std::time::Duration;

/// Message sizes of the table, in bytes.
pub const SIZES: [usize; 6] = [8, 64, 512, 4096, 65536, 1 << 20];
/// Latency programs, with the options for a separate column.
pub const LATENCY: [&str; 4] = ["ib_send_lat", "ib_write_lat", "ib_read_lat", "ib_send_lat -e"];
/// Bandwidth programs.
pub const BANDWIDTH: [&str; 3] = ["ib_send_bw", "ib_write_bw", "ib_read_bw"];
/// The run to compare with raw segments of path MTU 1024.
pub const SMALL_MTU: &str = "ib_write_bw -m 1024";
/// Raw limits, by their names in the program `limits`.
pub const LIMITS: [&str; 12] = [
    "udp_spin",
    "udp_block",
    "udp_epoll",
    "eventfd_wake",
    "eventfd_epoll",
    "udp_gso_4156",
    "udp_gso_window_4156",
    "udp_gso_1060",
    "udp_gso_window_1060",
    "udp_plain_4156",
    "memcpy_65536",
    "memcpy_1048576",
];
/// Completion events between two processes, by their names in the program `wake`.
pub const WAKES: [&str; 2] = ["cq_wake", "cq_wake_epoll"];
/// Lengths of the chains of the program `chains`.
pub const CHAINS: [u32; 4] = [1, 8, 32, 128];
/// Ways to post a chain, by their names in the program `chains`.
pub const WAYS: [&str; 2] = ["singly", "deferred"];
/// iperf3 by protocol.
pub const IPERF: [&str; 2] = ["iperf3_tcp", "iperf3_udp"];

/// One run of a program.
#[derive(Clone, Debug)]
pub enum Item {
    /// A raw limit.
    Limit(&'static str),
    /// Completion events.
    Wake(&'static str),
    /// Chains of all lengths, in both ways.
    Chains,
    /// iperf3, TCP or UDP.
    Iperf(&'static str),
    /// perftest: program with options, size, whether it is a latency program.
    Perftest(&'static str, usize, bool),
}

/// The items of a round and the length of each measurement.
pub struct Plan {
    /// In the order of their runs. Raw limits stand between the programs that are compared with
    /// them.
    pub items: Vec<Item>,
    /// Length of a measurement, without start and end.
    pub time: Duration,
}

impl Plan {
    /// The whole table; with shorter runs if `quick`.
    pub fn new(quick: bool) -> Self {
        let mut items = Vec::new();
        // Measurements of sleeping and waking come first and together, because they are compared
        // with each other.
        let sleeping = |l: &&str| matches!(*l, "udp_block" | "udp_epoll" | "eventfd_wake" | "eventfd_epoll");
        items.extend(LIMITS.iter().filter(|l| sleeping(l)).map(|l| Item::Limit(l)));
        items.extend(WAKES.map(Item::Wake));
        items.push(Item::Chains);
        let raw = LIMITS.iter().filter(|l| !sleeping(l)).map(|l| Item::Limit(l));
        let mut others = raw.chain(IPERF.iter().map(|i| Item::Iperf(i)));
        for size in SIZES {
            items.extend(others.by_ref().take(2));
            items.extend(LATENCY.iter().map(|p| Item::Perftest(p, size, true)));
            items.extend(BANDWIDTH.iter().map(|p| Item::Perftest(p, size, false)));
        }
        items.extend(others);
        items.push(Item::Perftest(SMALL_MTU, 1 << 20, false));
        Self { items, time: Duration::from_millis(if quick { 300 } else { 700 }) }
    }
}

/// Identifies a series of values.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// Raw limit, iperf3 or completion events: seconds, or bytes per second.
    Raw(&'static str),
    /// Chain of a length, posted in a way: a figure by its name in the program `chains`.
    Chain(u32, &'static str, &'static str),
    /// Seconds.
    Latency(&'static str, usize),
    /// Bytes per second.
    Bandwidth(&'static str, usize),
    /// Messages per second.
    Rate(&'static str, usize),
}

/// Result of ten million armed notifications, or fewer in a quick run.
#[derive(Clone, Debug)]
pub struct Armed {
    /// Events read.
    pub events: f64,
    /// Events read per second.
    pub rate: f64,
    /// Polled completions of packets on the wire path.
    pub wire: f64,
    /// Completions or events lost, duplicated or out of order.
    pub wrong: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cell_of_the_table_is_planned() {
        let items = Plan::new(true).items;
        let perftest = items.iter().filter(|i| matches!(i, Item::Perftest(..))).count();
        assert_eq!(perftest, SIZES.len() * (LATENCY.len() + BANDWIDTH.len()) + 1);
        assert_eq!(items.len() - perftest, LIMITS.len() + WAKES.len() + 1 + IPERF.len());
    }
}
