//! Measured values by round, and their statistics.

use std::collections::BTreeMap;

/// All values of a run, by key and by round.
#[derive(Debug)]
pub struct Samples<K> {
    values: BTreeMap<K, BTreeMap<usize, f64>>,
    /// Number of values in a series without failures.
    pub rounds: usize,
    /// Failed programs, in words.
    pub failures: Vec<String>,
}

impl<K: Ord> Samples<K> {
    /// An empty set of samples for `rounds` rounds.
    #[must_use]
    pub fn new(rounds: usize) -> Self {
        Self { values: BTreeMap::new(), rounds, failures: Vec::new() }
    }

    /// Adds the value of a round.
    pub fn add(&mut self, key: K, round: usize, value: f64) {
        self.values.entry(key).or_default().insert(round, value);
    }

    /// The values of all rounds.
    pub fn series(&self, key: &K) -> Option<Series> {
        Series::of(self.values.get(key)?.values().copied())
    }

    /// The value that `better` chooses among these keys in one round.
    fn best(&self, keys: &[K], round: usize, better: fn(f64, f64) -> f64) -> Option<f64> {
        keys.iter().filter_map(|k| self.values.get(k)?.get(&round).copied()).reduce(better)
    }

    /// Quotients round by round, because a disturbance of a round affects both values. The divisor
    /// is the value that `better` chooses among the keys `to` in the same round.
    pub fn ratio(&self, of: &K, to: &[K], better: fn(f64, f64) -> f64) -> Option<Series> {
        let of = self.values.get(of)?;
        Series::of(of.iter().filter_map(|(round, v)| Some(v / self.best(to, *round, better)?)))
    }
}

/// Median and range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Series {
    /// The middle value, or the mean of the two in the middle.
    pub median: f64,
    /// The smallest value.
    pub min: f64,
    /// The largest value.
    pub max: f64,
    /// The number of values.
    pub count: usize,
}

impl Series {
    /// Statistics of these values; `None` without values.
    pub fn of(values: impl Iterator<Item = f64>) -> Option<Self> {
        let mut v: Vec<f64> = values.collect();
        v.sort_by(f64::total_cmp);
        let (min, max) = (*v.first()?, *v.last()?);
        let median = f64::midpoint(v[(v.len() - 1) / 2], v[v.len() / 2]);
        Some(Self { median, min, max, count: v.len() })
    }

    /// The same in another unit.
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
        let mut s = Samples::new(3);
        for (round, (a, b)) in [(2.0, 1.0), (9.0, 3.0), (4.0, 4.0)].into_iter().enumerate() {
            s.add("of", round, a);
            s.add("to", round, b);
        }
        assert_eq!(s.series(&"of").map(|s| s.median), Some(4.0));
        let ratio = s.ratio(&"of", &["to"], f64::max).unwrap();
        assert_eq!((ratio.median, ratio.min, ratio.max, ratio.count), (2.0, 1.0, 3.0, 3));
        assert!(Series::of(std::iter::empty()).is_none());
        assert_eq!(Series::of([1.0, 2.0].into_iter()).map(|s| s.median), Some(1.5));
    }

    #[test]
    fn the_divisor_is_the_better_one_of_the_same_round() {
        let mut s = Samples::new(1);
        for (key, value) in [("of", 6.0), ("slow", 12.0), ("quick", 3.0)] {
            s.add(key, 0, value);
        }
        let ratio = |better| s.ratio(&"of", &["slow", "quick", "absent"], better).map(|r| r.median);
        assert_eq!((ratio(f64::max), ratio(f64::min)), (Some(0.5), Some(2.0)));
        assert_eq!(s.ratio(&"of", &["absent"], f64::max), None);
    }
}
