//! How long a thread that waits for an event looks for it before it sleeps.
use super::costs::Costs;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The shortest spin in system calls: long enough for one call of progress.
const SHORTEST: u32 = 2;
/// System calls that a sleep costs: those of this thread and of the waking thread, and the time
/// until both run as fast as before.
const SLEEP: u32 = 30;
/// No spin has been learned yet.
const NEW: u32 = u32::MAX;

/// The duration of a worthwhile spin, learned from the waits for the last events. The longest spin
/// of a blocking call costs as much as the sleep and the wake-up that it may save.
#[derive(Debug)]
pub(crate) struct Spin(AtomicU32);

/// The cost of a sleep, for this thread and for the thread that ends it.
fn longest(costs: Costs) -> Duration {
    costs.wake_up * 2 + costs.call * SLEEP
}

impl Default for Spin {
    fn default() -> Self {
        Spin(AtomicU32::new(NEW))
    }
}

impl Spin {
    pub(crate) fn length(&self, costs: Costs) -> Duration {
        match self.0.load(Ordering::Relaxed) {
            NEW => longest(costs),
            nanos => Duration::from_nanos(nanos.into()),
        }
    }
    /// Is there no spin worth its time?
    pub(crate) fn is_shortest(&self, costs: Costs) -> bool {
        self.length(costs) <= costs.call * SHORTEST
    }
    /// An event arrived after `waited`. If the longest spin would have seen the event, the spin
    /// becomes at least three times as long as the wait. Otherwise the spin is halved. A thread
    /// that slept would have seen the event earlier by its wake-up.
    pub(crate) fn learn(&self, waited: Duration, slept: bool, costs: Costs) {
        let (length, longest) = (self.length(costs), longest(costs));
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
            let call = Duration::from_nanos(call);
            let costs = Costs { wake_up, call, ..Costs::default() };
            let (spin, most) = (Spin::default(), longest(costs));
            assert_eq!(spin.length(costs), most);
            for _ in 0..10 {
                spin.learn(most * 40, true, costs);
            }
            assert_eq!(spin.length(costs), costs.call * SHORTEST, "rare events: straight to sleep");
            spin.learn(wake_up + most / 10, true, costs);
            assert_eq!(spin.length(costs), most / 10 * 3);
            spin.learn(most / 20, false, costs);
            assert_eq!(spin.length(costs), most / 10 * 3, "a quick one does not shorten it");
            spin.learn(most / 2, false, costs);
            assert_eq!(spin.length(costs), most);
        }
    }
}
