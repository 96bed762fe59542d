//! Limits the log lines caused by peers, because any host may send requests at any rate.
use adverb_cm::Time;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// Log lines per period.
const LINES: u32 = 10;
const PERIOD: Duration = Duration::from_secs(1);

/// How many peers are counted apart.
const COUNTED_PEERS: usize = 1024;

/// Counts of MADs, which the log uses.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    pub all: u64,
    from: BTreeMap<IpAddr, u64>,
}

impl Heard {
    pub(crate) fn count(&mut self, peer: IpAddr) {
        self.all += 1;
        if self.from.len() < COUNTED_PEERS || self.from.contains_key(&peer) {
            *self.from.entry(peer).or_default() += 1;
        }
    }

    pub(crate) fn from(&self, peer: IpAddr) -> u64 {
        self.from.get(&peer).copied().unwrap_or(0)
    }
}

/// Log lines caused by peers.
#[derive(Debug, Default)]
pub(crate) struct Limited {
    since: Time,
    said: u32,
    left_out: u64,
}

impl Limited {
    /// Logs a line, or counts the line as left out if the limit of the period is reached. The first
    /// line of the next period contains the count.
    pub(crate) fn warn(&mut self, now: Time, line: impl FnOnce() -> String) {
        if let Some(left_out) = self.turn(now) {
            match left_out {
                0 => log::warn!("{}", line()),
                _ => log::warn!("{} ({left_out} lines like this were left out)", line()),
            }
        }
    }

    /// May a line be logged now? `Some(n)`: yes, and `n` lines were left out since the last logged
    /// line.
    fn turn(&mut self, now: Time) -> Option<u64> {
        if now.since(self.since) >= PERIOD {
            (self.since, self.said) = (now, 0);
        }
        if self.said == LINES {
            self.left_out += 1;
            return None;
        }
        self.said += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_told_in_a_few_lines_and_counted() {
        let mut limited = Limited::default();
        let begin = Time(5_000_000_000);
        let turns = |limited: &mut Limited, at| {
            (0..100).filter_map(|_| limited.turn(at)).collect::<Vec<_>>()
        };
        assert_eq!(turns(&mut limited, begin), [0; 10]);
        assert!(turns(&mut limited, begin + PERIOD / 2).is_empty());
        let next = turns(&mut limited, begin + PERIOD);
        assert_eq!((next[0], next.len(), next[1..].iter().sum::<u64>()), (190, 10, 0));
    }
}
