//! The evidence alone: round trips in, a verdict out.
use super::*;

const MS: u64 = 1_000_000;

/// Evidence, and the time at which the next round trip ends.
struct Path {
    evidence: Evidence,
    now: Time,
}

impl Path {
    fn new() -> Path {
        Path { evidence: Evidence::default(), now: Time(1) }
    }
    /// Round trips of these lengths, one after the other, `n` times.
    fn round_trips(&mut self, window: u64, lengths: &[u64], n: usize) -> Option<bool> {
        for took in lengths.iter().cycle().take(n * lengths.len()) {
            self.now = self.now + Duration::from_nanos(*took / 8);
            self.evidence.round_trip(*took, self.now, window);
        }
        self.evidence.carries()
    }
}

#[test]
fn equal_round_trips_carry_and_longer_ones_do_not() {
    let mut path = Path::new();
    assert_eq!(path.round_trips(BUFFER, &[2 * MS], 7), None);
    assert_eq!(path.round_trips(BUFFER, &[2 * MS], 1), Some(true));
    assert_eq!(path.round_trips(4 * BUFFER, &[2 * MS + MS / 5], 100), Some(true));
    assert_eq!(path.round_trips(4 * BUFFER, &[2 * MS + MS / 3], 20), Some(false));
    assert_eq!(path.round_trips(4 * BUFFER, &[2 * MS], 20), Some(true));
}

/// A single round trip may be long because the peer did not run.
#[test]
fn the_first_round_trip_may_be_slow() {
    let mut path = Path::new();
    path.round_trips(BUFFER, &[50 * MS], 1);
    path.round_trips(BUFFER, &[2 * MS], 8);
    assert_eq!(path.round_trips(BUFFER, &[3 * MS], 20), Some(false));
}

/// Under jitter the typical round trip counts. A longer typical round trip is a queue.
#[test]
fn jitter_is_no_queue() {
    let jitter = [MS, 3 * MS, 2 * MS, MS + MS / 2, 2 * MS + MS / 2];
    let mut path = Path::new();
    assert_eq!(path.round_trips(BUFFER, &jitter, 20), Some(true));
    assert_eq!(path.round_trips(2 * BUFFER, &jitter, 20), Some(true));
    let queue = jitter.map(|took| took + 2 * MS);
    assert_eq!(path.round_trips(2 * BUFFER, &queue, 20), Some(false));
}

/// Under jitter a window of twice the size is the new reference if it delivers a third more.
#[test]
fn a_window_that_delivers_more_is_accepted() {
    let jitter = [MS, 3 * MS, 2 * MS, MS + MS / 2, 2 * MS + MS / 2];
    let longer = |by: u64| jitter.map(|took| took + by);
    let mut path = Path::new();
    path.round_trips(BUFFER, &jitter, 20);
    for (doubled, by) in [(2, MS / 2), (4, MS)] {
        assert_eq!(path.round_trips(doubled * BUFFER, &longer(by), 40), Some(true), "{doubled}");
        assert_eq!(path.evidence.accepted_window, doubled * BUFFER);
    }
    // A larger window and a longer round trip: no more is delivered.
    path.round_trips(6 * BUFFER, &longer(3 * MS), 40);
    assert_eq!(path.round_trips(8 * BUFFER, &longer(4 * MS), 40), Some(false));
    assert_eq!(path.evidence.accepted_window, 4 * BUFFER);
}

/// In a queue that other senders fill, round trips are long and alike. This is no jitter.
#[test]
fn a_standing_queue_is_no_jitter() {
    let mut path = Path::new();
    path.round_trips(BUFFER, &[MS], 1);
    assert_eq!(path.round_trips(BUFFER, &[MS + MS / 2], 100), Some(false));
}

/// The spacing of acknowledgements gives the rate of the line, long before the window fills the
/// line. Under jitter the spacing says nothing.
#[test]
fn trains_give_the_line() {
    for (round_trips, line) in [([2 * MS, 2 * MS], true), ([MS, 3 * MS], false)] {
        let mut path = Path::new();
        path.round_trips(BUFFER, &round_trips, 10);
        for _ in 0..8 {
            path.now = path.now + Duration::from_nanos(MS / 16);
            path.evidence.delivered(TRAIN / 2, path.now);
        }
        // 64 KiB in an eighth of a millisecond, for two milliseconds.
        assert_eq!(path.evidence.line(), line.then_some(16 * TRAIN));
        // A pause makes the line no slower.
        path.now = path.now + Duration::from_secs(1000);
        path.evidence.delivered(TRAIN, path.now);
        assert_eq!(path.evidence.line(), line.then_some(16 * TRAIN));
    }
}

#[test]
fn evidence_gets_old() {
    let mut path = Path::new();
    path.round_trips(BUFFER, &[2 * MS], 8);
    let later = |ms: u64| Time(path.now.0 + ms * MS);
    assert!(!path.evidence.is_stale(later(999)) && path.evidence.is_stale(later(1001)));
    // The path has become longer, so no round trip is as short.
    path.round_trips(BUFFER, &[4 * MS], 2100);
    assert!(path.evidence.is_stale(path.now));
}
