//! How long a thread that waits for an event looks for it before it sleeps.
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// How long a blocking get looks at the sockets itself before it sleeps, at most: about what a
/// wake-up costs.
const LONGEST_SPIN: Duration = Duration::from_micros(30);
/// And at least, so that one progress is made.
const SHORTEST_SPIN: Duration = Duration::from_micros(1);
/// About what the wake-up of a sleeping thread costs; an event that ended a sleep came that much
/// earlier.
const WAKE_UP: Duration = Duration::from_micros(25);
/// Before anything is known.
const FIRST_SPIN: Duration = Duration::from_micros(20);

/// How long it is worth looking, learned from how long the last events took to come.
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
    /// An event came after `waited`. One that a spin of bounded length would have seen makes the
    /// spin long enough for three times that; one that took longer halves it.
    pub(crate) fn learn(&self, waited: Duration, slept: bool) {
        let waited = if slept { waited.saturating_sub(WAKE_UP) } else { waited };
        let next = if waited <= LONGEST_SPIN { self.length().max(waited * 3) } else { self.length() / 2 };
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
