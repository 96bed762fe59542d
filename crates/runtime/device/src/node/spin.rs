//! How long a thread that waits for an event looks for it before it sleeps.
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Longest spin of a blocking get-event call before it sleeps: about the cost of a wake-up.
const LONGEST_SPIN: Duration = Duration::from_micros(30);
/// Shortest spin: long enough for one call of progress.
const SHORTEST_SPIN: Duration = Duration::from_micros(1);
/// About the cost of waking a sleeping thread. An event that ended a sleep arrived earlier by this
/// time.
const WAKE_UP: Duration = Duration::from_micros(25);
/// Spin before any event.
const FIRST_SPIN: Duration = Duration::from_micros(20);

/// The duration of a worthwhile spin, learned from the waits for the last events.
#[derive(Debug)]
pub(crate) struct Spin(AtomicU32);

impl Default for Spin {
    fn default() -> Self {
        Spin(AtomicU32::new(FIRST_SPIN.as_nanos() as u32))
    }
}

impl Spin {
    pub(crate) fn new() -> Self {
        Spin::default()
    }
    pub(crate) fn length(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed).into())
    }
    /// An event arrived after `waited`. If the longest spin would have seen the event, the spin
    /// becomes at least three times as long as the wait. Otherwise the spin is halved.
    pub(crate) fn learn(&self, waited: Duration, slept: bool) {
        let waited = if slept { waited.saturating_sub(WAKE_UP) } else { waited };
        let next =
            if waited <= LONGEST_SPIN { self.length().max(waited * 3) } else { self.length() / 2 };
        let next = next.clamp(SHORTEST_SPIN, LONGEST_SPIN);
        self.0.store(next.as_nanos() as u32, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_spin_is_as_long_as_it_pays() {
        let spin = Spin::new();
        assert_eq!(spin.length(), FIRST_SPIN);
        for _ in 0..10 {
            spin.learn(Duration::from_millis(1), true);
        }
        assert_eq!(spin.length(), SHORTEST_SPIN, "rare events: straight to sleep");
        spin.learn(Duration::from_micros(29), true);
        assert_eq!(spin.length(), Duration::from_micros(12));
        spin.learn(Duration::from_micros(1), false);
        assert_eq!(spin.length(), Duration::from_micros(12), "a quick one does not shorten it");
        spin.learn(Duration::from_micros(29), false);
        assert_eq!(spin.length(), LONGEST_SPIN);
    }
}
