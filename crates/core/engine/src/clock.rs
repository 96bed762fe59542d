//! The time of a step, read when the step needs it.
use crate::time::Time;

/// Says what time it is. Most packets come in their turn and need no time, and a look at a clock
/// costs as much as the rest of a short one: so a step is given a clock, not a time, and reads it
/// at most once each way if the clock keeps what it read.
pub trait Clock {
    /// The time, for deadlines of milliseconds and for ages. It may be ahead by a few milliseconds.
    fn now(&self) -> Time;
    /// The exact time, for the wait that a receiver that is not ready asks for (IBTA 9.7.5.2.8),
    /// which may be 10 µs.
    fn exact(&self) -> Time {
        self.now()
    }
}

impl Clock for Time {
    fn now(&self) -> Time {
        *self
    }
}
