//! When a thread that polls in vain yields its processor.
//!
//! Two processes may poll on one processor. Without a yield each polls to the end of its time slice
//! before the other runs, and a message takes milliseconds. On a processor of its own a thread
//! gains nothing by a yield, and pays for the system call. So each yield is an experiment whose
//! outcome decides when the next one is due ([`Yielded`]):
//!
//! - No other thread ran: the yield was in vain. The next yield is due after twice as many empty
//!   polls, until all yields together cost a thousandth of the polling.
//! - Another thread ran and soon gave the processor back: it polls too, or waits for this process.
//!   The next yield is due after [`FEWEST`] empty polls, or an eighth of the time that the other
//!   thread took.
//! - Another thread ran to the end of its time slice: it computes, or waits in a spin for a lock
//!   that this thread holds. The kernel takes a yield for the wish to run a slice later than
//!   others, so yields only lose time here. The next one is due after twice the time that the last
//!   such yield took, then four times, and so on; each yield of the first two kinds halves that
//!   again.
//!
//! All threads of a process share this state. It is not exact where they do different things.
use adverb_engine::Time;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

#[cfg(test)]
mod tests;

/// Empty polls in a row before a yield, at least. What comes from another processor comes sooner.
const FEWEST: u64 = 8;
/// Yields in vain cost so small a part of the time between them.
const PART: u64 = 1024;
/// This thread polls for such a part of the time that another thread took.
const SHARE: u64 = 8;
/// Longest time without a yield, in ticks.
const LONGEST: u64 = 1024;
/// Most doublings, whatever a poll costs.
const MOST_DOUBLINGS: u32 = 40;

/// What came of a yield.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Yielded {
    /// When it began.
    pub(crate) begun: Time,
    /// When the thread ran again.
    pub(crate) ended: Time,
    /// Another thread had the processor meanwhile.
    pub(crate) switched: bool,
    /// Polls of the process so far.
    pub(crate) polls: u64,
}

/// See the module's page.
#[derive(Debug)]
pub(crate) struct Yields {
    /// A yield is due when an empty poll finds that the process had so many polls before it.
    due: AtomicU64,
    /// Yields in vain since the last one that let another thread run.
    doublings: AtomicU32,
    /// How long to poll without a yield, in nanoseconds, as other threads compute.
    patience: AtomicU64,
    /// When the last yield ended, and the polls until then.
    ended: AtomicU64,
    polls: AtomicU64,
    /// Yields so far that let another thread run; the background thread watches the number move.
    turns: AtomicU64,
    /// Time between two ticks of the scheduler in nanoseconds. A thread that computes loses the
    /// processor at a tick.
    tick: u64,
}

impl Yields {
    /// `tick`: see [`Yields::tick`]. Zero: there are no yields.
    pub(super) fn new(tick: Duration) -> Self {
        Yields {
            due: AtomicU64::new(if tick.is_zero() { u64::MAX } else { FEWEST }),
            doublings: AtomicU32::new(0),
            patience: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            polls: AtomicU64::new(0),
            turns: AtomicU64::new(0),
            tick: tick.as_nanos() as u64,
        }
    }

    /// Does an empty poll yield that `polls` polls came before?
    #[inline]
    pub(crate) fn is_due(&self, polls: u64) -> bool {
        polls >= self.due.load(Ordering::Relaxed)
    }

    /// A poll found something that `polls` polls came before: the empty ones begin anew.
    #[inline]
    pub(crate) fn found(&self, polls: u64) {
        if self.due.load(Ordering::Relaxed) < polls + FEWEST {
            self.due.store(polls + FEWEST, Ordering::Relaxed);
        }
    }

    /// How often a thread that polled in vain has let another thread run.
    pub(super) fn turns(&self) -> u64 {
        self.turns.load(Ordering::Relaxed)
    }

    /// A thread has yielded.
    pub(crate) fn yielded(&self, came: Yielded) {
        let took = came.ended.since(came.begun).as_nanos() as u64;
        let polled = came.polls.wrapping_sub(self.polls.load(Ordering::Relaxed)).max(1);
        // Before the first yield nothing is known of the time that a poll takes.
        let time = match self.ended.load(Ordering::Relaxed) {
            0 => took,
            ended => came.begun.0.saturating_sub(ended),
        };
        // So many polls take so long.
        let polls_in = |long: u64| {
            let polls = u128::from(long) * u128::from(polled) / u128::from(time.max(1));
            u64::try_from(polls).unwrap_or(u64::MAX >> 1)
        };
        let doublings = if came.switched { 0 } else { self.doublings.load(Ordering::Relaxed) + 1 };
        if came.switched {
            self.turns.store(self.turns() + 1, Ordering::Relaxed);
        }
        let computed = came.switched && took >= self.tick / 2;
        let mut patience = self.patience.load(Ordering::Relaxed);
        if computed {
            patience = patience.max(took).saturating_mul(2).min(self.tick * LONGEST);
        } else {
            patience /= 2;
            // Less than a tick is no time in which others compute.
            if patience < self.tick {
                patience = 0;
            }
        }
        self.patience.store(patience, Ordering::Relaxed);
        let wait = if came.switched {
            polls_in(took / SHARE)
        } else {
            (FEWEST << doublings).min(polls_in(took.saturating_mul(PART)))
        };
        let wait = wait.max(polls_in(patience)).max(FEWEST);
        self.doublings.store(doublings.min(MOST_DOUBLINGS), Ordering::Relaxed);
        self.ended.store(came.ended.0.max(1), Ordering::Relaxed);
        self.polls.store(came.polls, Ordering::Relaxed);
        self.due.store(came.polls.saturating_add(wait), Ordering::Relaxed);
    }
}
