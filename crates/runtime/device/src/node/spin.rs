//! How long a thread that waits for an event looks for it before it sleeps.
use super::costs::Costs;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The shortest spin in system calls: long enough for one call of progress.
const SHORTEST: u32 = 2;
/// No spin has been learned yet.
const NEW: u32 = u32::MAX;

/// The duration of a worthwhile spin, learned from the waits for the last events. The longest spin
/// of a blocking call costs as much as the wake-up that it may save.
#[derive(Debug)]
pub(crate) struct Spin(AtomicU32);

impl Default for Spin {
    fn default() -> Self {
        Spin(AtomicU32::new(NEW))
    }
}

impl Spin {
    pub(crate) fn new() -> Self {
        Spin::default()
    }
    pub(crate) fn length(&self, costs: Costs) -> Duration {
        match self.0.load(Ordering::Relaxed) {
            NEW => costs.wake_up,
            nanos => Duration::from_nanos(nanos.into()),
        }
    }
    /// An event arrived after `waited`. If the longest spin would have seen the event, the spin
    /// becomes at least three times as long as the wait. Otherwise the spin is halved. An event
    /// that ended a sleep arrived earlier by a wake-up.
    pub(crate) fn learn(&self, waited: Duration, slept: bool, costs: Costs) {
        let (length, longest) = (self.length(costs), costs.wake_up);
        let waited = if slept { waited.saturating_sub(costs.wake_up) } else { waited };
        let next = if waited <= longest { length.max(waited * 3) } else { length / 2 };
        let next = next.min(longest).max(costs.call * SHORTEST);
        self.0.store(next.as_nanos() as u32, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_spin_is_as_long_as_it_pays() {
        for (wake_up, call) in [(5, 250), (25, 1000)] {
            let wake_up = Duration::from_micros(wake_up);
            let costs = Costs { wake_up, call: Duration::from_nanos(call) };
            let spin = Spin::new();
            assert_eq!(spin.length(costs), wake_up);
            for _ in 0..10 {
                spin.learn(wake_up * 40, true, costs);
            }
            assert_eq!(spin.length(costs), costs.call * SHORTEST, "rare events: straight to sleep");
            spin.learn(wake_up * 6 / 5, true, costs);
            assert_eq!(spin.length(costs), wake_up * 3 / 5);
            spin.learn(wake_up / 20, false, costs);
            assert_eq!(spin.length(costs), wake_up * 3 / 5, "a quick one does not shorten it");
            spin.learn(wake_up, false, costs);
            assert_eq!(spin.length(costs), wake_up);
        }
    }
}
