//! Clocks of a step of the engine: each is read when the step first needs it, and once.
use adverb_engine::{Clock, Time};
use nix::time::ClockId;
use std::cell::Cell;
use std::time::{Duration, Instant};

/// The coarse clock is not further behind than this: a tick of the slowest kernel, which a busy
/// host may deliver late.
const TICK: Duration = Duration::from_millis(12);

/// The clocks of a node, which begin with it.
#[derive(Debug)]
pub(super) struct Clocks {
    started: Instant,
    /// The same on the coarse clock.
    started_coarsely: Duration,
}

impl Clocks {
    pub(super) fn start() -> Self {
        Clocks { started: Instant::now(), started_coarsely: coarse() }
    }
}

/// The time of the kernel's last tick.
#[inline]
fn coarse() -> Duration {
    ClockId::CLOCK_MONOTONIC_COARSE.now().map_or(Duration::ZERO, Duration::from)
}

impl Clocks {
    /// The time as the engine counts it.
    #[inline]
    pub(super) fn now(&self) -> Time {
        Time(u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// A time that is not before [`Clocks::now`], and little after it.
    #[inline]
    pub(super) fn at_latest(&self) -> Time {
        let passed = coarse().saturating_sub(self.started_coarsely);
        Time(u64::try_from((passed + TICK).as_nanos()).unwrap_or(u64::MAX))
    }
}

/// The clock of one step. On a ring, where nothing is lost, [`Clocks::at_latest`] will do for all
/// but the wait for a receiver that is not ready.
pub(super) struct StepClock<'a> {
    clocks: &'a Clocks,
    near: bool,
    read: Cell<Option<Time>>,
}

impl<'a> StepClock<'a> {
    /// `near`: for packets of a ring.
    pub(super) fn new(clocks: &'a Clocks, near: bool) -> Self {
        StepClock { clocks, near, read: Cell::new(None) }
    }
}

impl Clock for StepClock<'_> {
    #[inline]
    fn now(&self) -> Time {
        let now = self
            .read
            .get()
            .unwrap_or_else(|| if self.near { self.clocks.at_latest() } else { self.clocks.now() });
        self.read.set(Some(now));
        now
    }
    fn exact(&self) -> Time {
        if self.near { self.clocks.now() } else { self.now() }
    }
}
