//! The clocks of a step of the engine. Each clock is read when the step first needs it, and only
//! once.
use adverb_engine::{Clock, Time};
use nix::time::ClockId;
use std::cell::Cell;
#[cfg(feature = "sim")]
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The coarse clock is behind by at most this time: a tick of the slowest kernel, which may be late
/// on a busy host.
const TICK: Duration = Duration::from_millis(12);

/// The clocks of a node. They begin with the node.
#[derive(Debug)]
pub(super) enum Clocks {
    /// The machine's clocks.
    Machine {
        started: Instant,
        /// The start on the coarse clock.
        started_coarsely: Duration,
    },
    /// The time set by a simulator, in nanoseconds.
    #[cfg(feature = "sim")]
    Virtual(AtomicU64),
}

/// Duration of a look at the virtual clock. So a loop that waits for a time ends.
#[cfg(feature = "sim")]
const LOOK: u64 = 500;
/// A tick of the virtual coarse clock.
#[cfg(feature = "sim")]
const VIRTUAL_TICK: u64 = 4_000_000;

impl Clocks {
    pub(super) fn start() -> Self {
        Clocks::Machine { started: Instant::now(), started_coarsely: coarse() }
    }

    /// Moves virtual time on to `now`, unless it is later already.
    #[cfg(feature = "sim")]
    pub(super) fn advance(&self, now: Time) {
        if let Clocks::Virtual(time) = self {
            time.fetch_max(now.0, Ordering::Relaxed);
        }
    }
}

/// The time of the kernel's last tick.
#[inline]
fn coarse() -> Duration {
    ClockId::CLOCK_MONOTONIC_COARSE.now().map_or(Duration::ZERO, Duration::from)
}

impl Clocks {
    /// The time between two ticks of the kernel. Zero in virtual time.
    pub(super) fn tick(&self) -> Duration {
        match self {
            Clocks::Machine { .. } => {
                ClockId::CLOCK_MONOTONIC_COARSE.res().map_or(TICK, Duration::from)
            }
            #[cfg(feature = "sim")]
            Clocks::Virtual(_) => Duration::ZERO,
        }
    }

    /// The time of the engine.
    #[inline]
    pub(super) fn now(&self) -> Time {
        match self {
            Clocks::Machine { started, .. } => {
                Time(u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX))
            }
            #[cfg(feature = "sim")]
            Clocks::Virtual(time) => Time(time.fetch_add(LOOK, Ordering::Relaxed)),
        }
    }

    /// A time not before [`Clocks::now`], and little after it.
    #[inline]
    pub(super) fn at_latest(&self) -> Time {
        let passed = match self {
            Clocks::Machine { started_coarsely, .. } => coarse().saturating_sub(*started_coarsely),
            #[cfg(feature = "sim")]
            Clocks::Virtual(time) => {
                let now = time.load(Ordering::Relaxed);
                Duration::from_nanos(now - now % VIRTUAL_TICK)
            }
        };
        Time(u64::try_from((passed + TICK).as_nanos()).unwrap_or(u64::MAX))
    }
}

/// The clock of one step. On a ring no packet is lost, so [`Clocks::at_latest`] is exact enough,
/// except for the wait for a receiver that is not ready.
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
