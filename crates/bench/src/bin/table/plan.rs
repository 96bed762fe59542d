//! What is measured, in which order, and where the results are kept.

use std::collections::BTreeMap;
use std::time::Duration;

/// Message sizes of the table, in bytes.
pub const SIZES: [usize; 6] = [8, 64, 512, 4096, 65536, 1 << 20];
/// Latency programs with the options that make a column of their own.
pub const LATENCY: [&str; 4] = ["ib_send_lat", "ib_write_lat", "ib_read_lat", "ib_send_lat -e"];
/// Bandwidth programs.
pub const BANDWIDTH: [&str; 3] = ["ib_send_bw", "ib_write_bw", "ib_read_bw"];
/// The run that is set beside raw segments of path MTU 1024.
pub const SMALL_MTU: &str = "ib_write_bw -m 1024";
/// Raw limits, by their names in the program `limits`.
pub const LIMITS: [&str; 10] = [
    "udp_spin",
    "udp_block",
    "eventfd_wake",
    "udp_gso_4156",
    "udp_gso_window_4156",
    "udp_gso_1060",
    "udp_gso_window_1060",
    "udp_plain_4156",
    "memcpy_65536",
    "memcpy_1048576",
];
/// iperf3 by protocol.
pub const IPERF: [&str; 2] = ["iperf3_tcp", "iperf3_udp"];

/// One program run.
#[derive(Clone, Debug)]
pub enum Item {
    /// A raw limit.
    Limit(&'static str),
    /// iperf3, TCP or UDP.
    Iperf(&'static str),
    /// perftest: program with options, size, whether it is a latency program.
    Perftest(&'static str, usize, bool),
}

/// The items of a round and how long each takes.
pub struct Plan {
    /// In the order they run: raw limits stand between the programs they are compared with.
    pub items: Vec<Item>,
    /// How long one measurement should take, start and end apart.
    pub time: Duration,
}

impl Plan {
    /// The whole table, with shorter runs if it is to be quick.
    pub fn new(quick: bool) -> Self {
        let mut items = Vec::new();
        let mut others = LIMITS.iter().map(|l| Item::Limit(l)).chain(IPERF.iter().map(|i| Item::Iperf(i)));
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

/// What a series of values measures.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// Raw limit or iperf3: seconds, or bytes a second.
    Raw(&'static str),
    /// Microseconds.
    Latency(&'static str, usize),
    /// Bytes a second.
    Bandwidth(&'static str, usize),
    /// Messages a second.
    Rate(&'static str, usize),
}

/// All values, by round.
#[derive(Debug, Default)]
pub struct Samples {
    values: BTreeMap<Key, BTreeMap<usize, f64>>,
    /// Values a series has when nothing failed.
    pub rounds: usize,
    /// Programs that failed, in words.
    pub failures: Vec<String>,
}

impl Samples {
    /// Nothing measured yet, of so many rounds.
    pub fn new(rounds: usize) -> Self {
        Self { rounds, ..Self::default() }
    }

    /// Adds the value of a round.
    pub fn add(&mut self, key: Key, round: usize, value: f64) {
        self.values.entry(key).or_default().insert(round, value);
    }

    /// The values of all rounds.
    pub fn series(&self, key: &Key) -> Option<Series> {
        Series::of(self.values.get(key)?.values().copied())
    }

    /// The largest value of any of the keys in one round.
    pub fn best(&self, keys: &[Key], round: usize) -> Option<f64> {
        keys.iter().filter_map(|k| self.values.get(k)?.get(&round).copied()).reduce(f64::max)
    }

    /// Quotients round by round: what disturbs a round disturbs both sides of it.
    pub fn ratio(&self, of: &Key, to: &[Key]) -> Option<Series> {
        let of = self.values.get(of)?;
        Series::of(of.iter().filter_map(|(round, v)| Some(v / self.best(to, *round)?)))
    }
}

/// Median and range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Series {
    /// The middle value, or the mean of the two in the middle.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// How many there are.
    pub count: usize,
}

impl Series {
    /// None of nothing.
    pub fn of(values: impl Iterator<Item = f64>) -> Option<Self> {
        let mut v: Vec<f64> = values.collect();
        v.sort_by(f64::total_cmp);
        let (min, max) = (*v.first()?, *v.last()?);
        let median = f64::midpoint(v[(v.len() - 1) / 2], v[v.len() / 2]);
        Some(Self { median, min, max, count: v.len() })
    }

    /// In another unit.
    #[must_use]
    pub fn scaled(self, by: f64) -> Self {
        Self { median: self.median * by, min: self.min * by, max: self.max * by, count: self.count }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_ratios_are_taken_by_round() {
        let mut s = Samples::default();
        let (of, to) = (Key::Latency("x", 8), Key::Raw("y"));
        for (round, (a, b)) in [(2.0, 1.0), (9.0, 3.0), (4.0, 4.0)].into_iter().enumerate() {
            s.add(of.clone(), round, a);
            s.add(to.clone(), round, b);
        }
        assert_eq!(s.series(&of).map(|s| s.median), Some(4.0));
        let ratio = s.ratio(&of, &[to]).unwrap();
        assert_eq!((ratio.median, ratio.min, ratio.max, ratio.count), (2.0, 1.0, 3.0, 3));
        assert!(Series::of(std::iter::empty()).is_none());
        assert_eq!(Series::of([1.0, 2.0].into_iter()).map(|s| s.median), Some(1.5));
    }

    #[test]
    fn every_cell_of_the_table_is_planned() {
        let items = Plan::new(true).items;
        let perftest = items.iter().filter(|i| matches!(i, Item::Perftest(..))).count();
        assert_eq!(perftest, SIZES.len() * (LATENCY.len() + BANDWIDTH.len()) + 1);
        assert_eq!(items.len() - perftest, LIMITS.len() + IPERF.len());
    }
}
