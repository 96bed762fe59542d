//! Whether the process stands still: all threads of the program sleep without a time limit.
use adverb_threads::{Process, Stillness};
use std::time::{Duration, Instant};

/// The time between two looks at the threads.
const PACE: Duration = Duration::from_millis(250);

/// Looks at the threads from time to time.
pub(super) struct StuckWatch {
    /// The threads have to sleep for this time.
    limit: Duration,
    looked: Instant,
    stillness: Stillness,
    /// This state was reported.
    told: bool,
}

impl StuckWatch {
    pub fn new(limit: Duration) -> Self {
        let stillness = Stillness::default();
        StuckWatch { limit, looked: Instant::now(), stillness, told: false }
    }

    /// Does the process stand still for the first time in its present state?
    pub fn begins(&mut self) -> bool {
        let passed = self.looked.elapsed();
        if passed < PACE {
            return false;
        }
        self.looked = Instant::now();
        self.stillness.look([Process::Own], passed);
        let is_stuck = self.stillness.lasts() >= self.limit;
        !std::mem::replace(&mut self.told, is_stuck) && is_stuck
    }
}
