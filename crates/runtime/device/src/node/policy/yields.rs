//! When a thread yields its processor after polls in vain.
//!
//! Two processes may poll on one processor. Without a yield, each polls to the end of its time
//! slice before the other runs, and a message takes milliseconds. A thread with its own processor
//! gains nothing by a yield, and pays for the system call. So each yield is an experiment, and the
//! outcome decides when the next yield is due ([`Yielded`]):
//!
//! - No other thread ran: the yield was in vain. The next yield is due after twice as many empty
//!   polls, until all yields together cost a thousandth of the polling.
//! - Another thread ran and soon gave the processor back: the other thread polls too, or waits for
//!   this process. The next yield is due after [`FEWEST`] empty polls, or an eighth of the other
//!   thread's running time.
//! - Another thread ran to the end of its time slice: the other thread computes, or spins for a
//!   lock of this thread. The kernel takes a yield for the wish to run a slice later than other
//!   threads, so yields only lose time here. The next yield is due after twice the time of the last
//!   such yield, then four times, and so on. Each yield of the first two kinds halves this time
//!   again.
//!
//! All threads of a process share this state. The state is not exact if the threads behave
//! differently.
use adverb_engine::Time;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

#[cfg(test)]
mod tests;

/// Fewest consecutive empty polls before a yield. A message from another processor comes sooner.
const FEWEST: u64 = 8;
/// Yields in vain cost at most this part of the time between them.
const PART: u64 = 1024;
/// This thread polls for at least this part of the other thread's running time.
const SHARE: u64 = 8;
/// Longest time without a yield, in ticks.
const LONGEST: u64 = 1024;
/// Most doublings, whatever a poll costs.
const MOST_DOUBLINGS: u32 = 40;

/// The outcome of a yield.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Yielded {
    /// Start of the yield.
    pub(crate) begun: Time,
    /// The moment at which the thread ran again.
    pub(crate) ended: Time,
    /// Another thread had the processor meanwhile.
    pub(crate) switched: bool,
    /// Polls of the process so far.
    pub(crate) polls: u64,
}

/// See the module's page.
#[derive(Debug)]
pub(crate) struct Yields {
    /// A yield is due when an empty poll finds at least this many earlier polls of the process.
    due: AtomicU64,
    /// Yields in vain since the last yield with another thread running.
    doublings: AtomicU32,
    /// Time to poll without a yield, in nanoseconds, while other threads compute.
    patience: AtomicU64,
    /// End of the last yield, and the number of polls until then.
    ended: AtomicU64,
    polls: AtomicU64,
    /// Yields so far with another thread running. The background thread watches the number change.
    turns: AtomicU64,
    /// Time between two ticks of the scheduler in nanoseconds. A computing thread loses the
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

    /// Does an empty poll yield, after `polls` earlier polls?
    #[inline]
    pub(crate) fn is_due(&self, polls: u64) -> bool {
        polls >= self.due.load(Ordering::Relaxed)
    }

    /// A poll found something, after `polls` earlier polls. The count of empty polls begins anew.
    #[inline]
    pub(crate) fn found(&self, polls: u64) {
        if self.due.load(Ordering::Relaxed) < polls + FEWEST {
            self.due.store(polls + FEWEST, Ordering::Relaxed);
        }
    }

    /// How often a thread has let another thread run after polls in vain.
    pub(super) fn turns(&self) -> u64 {
        self.turns.load(Ordering::Relaxed)
    }

    /// A thread has yielded.
    pub(crate) fn yielded(&self, last: Yielded) {
        let took = last.ended.since(last.begun).as_nanos() as u64;
        let polled = last.polls.wrapping_sub(self.polls.load(Ordering::Relaxed)).max(1);
        // Before the first yield, the duration of a poll is unknown.
        let time = match self.ended.load(Ordering::Relaxed) {
            0 => took,
            ended => last.begun.0.saturating_sub(ended),
        };
        // The number of polls in this time.
        let polls_in = |long: u64| {
            let polls = u128::from(long) * u128::from(polled) / u128::from(time.max(1));
            u64::try_from(polls).unwrap_or(u64::MAX >> 1)
        };
        let doublings = if last.switched { 0 } else { self.doublings.load(Ordering::Relaxed) + 1 };
        if last.switched {
            self.turns.store(self.turns() + 1, Ordering::Relaxed);
        }
        let computed = last.switched && took >= self.tick / 2;
        let mut patience = self.patience.load(Ordering::Relaxed);
        if computed {
            patience = patience.max(took).saturating_mul(2).min(self.tick * LONGEST);
        } else {
            patience /= 2;
            // A time below a tick is too short for other threads' computations.
            if patience < self.tick {
                patience = 0;
            }
        }
        self.patience.store(patience, Ordering::Relaxed);
        let wait = if last.switched {
            polls_in(took / SHARE)
        } else {
            (FEWEST << doublings).min(polls_in(took.saturating_mul(PART)))
        };
        let wait = wait.max(polls_in(patience)).max(FEWEST);
        self.doublings.store(doublings.min(MOST_DOUBLINGS), Ordering::Relaxed);
        self.ended.store(last.ended.0.max(1), Ordering::Relaxed);
        self.polls.store(last.polls, Ordering::Relaxed);
        self.due.store(last.polls.saturating_add(wait), Ordering::Relaxed);
    }
}
