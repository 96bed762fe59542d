//! The time of a step, read when the step needs the time.
use adverb_wire::Time;

/// A source of the current time. Most packets arrive in order and need no time, and reading a clock
/// costs as much as the rest of a short step. So a step gets a clock and not a time. A clock that
/// keeps what it read reads each time at most once a step.
pub trait Clock {
    /// The time for deadlines of milliseconds, and for ages. May be a few milliseconds ahead.
    fn now(&self) -> Time;
    /// The exact time, for the wait requested by a receiver that is not ready (IBTA 9.7.5.2.8).
    /// This wait may be 10 µs.
    fn exact(&self) -> Time {
        self.now()
    }
}

impl Clock for Time {
    fn now(&self) -> Time {
        *self
    }
}
