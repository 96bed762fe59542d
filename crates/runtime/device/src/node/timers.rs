//! Deadlines of queue pairs and of moderated or watched completion queues.
//!
//! The queue keeps at most one entry for each object, and lets an entry fire early. If a queue pair
//! has put off its deadline, the entry is put back. So a data path that restarts its timer with
//! every acknowledgement costs one atomic load. The owner of an entry remembers the entry's time.
//! If an entry is taken with another time, the entry was replaced in the meantime and does not
//! count.
use crate::ranks;
use adverb_engine::Time;
use adverb_sync::Ranked;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

/// The owner of a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timed {
    /// A queue pair, by number.
    Qp(u32),
    /// A moderated completion queue, by its number.
    Cq(u32),
    /// A watched completion queue (lost wake-ups), by its number. These deadlines are in a separate
    /// queue, served by the background thread alone.
    Watch(u32),
    /// Packets and one-sided requests delayed by a fault.
    Delayed,
    /// Recorded packets still to be written, in the queue of [`Timed::Watch`].
    Capture,
    /// The handler of MADs.
    Mad,
    /// An outage that begins or ends, by its place in the list of outages. In the queue of
    /// [`Timed::Watch`].
    Outage(usize),
}

/// No deadline.
pub(crate) const NEVER: u64 = u64::MAX;

/// A time that several threads change, [`NEVER`] at first.
#[derive(Debug)]
pub(crate) struct Deadline(pub(crate) AtomicU64);

impl Default for Deadline {
    fn default() -> Self {
        Deadline(AtomicU64::new(NEVER))
    }
}

#[derive(Default)]
pub(super) struct Timers {
    entries: Ranked<BTreeSet<(u64, Timed)>, ranks::Timers>,
    /// Time of the earliest entry, [`NEVER`] without an entry. SeqCst: a thread that adds an entry
    /// stores here, and then reads how long the background thread sleeps. The background thread
    /// stores its sleep, and then reads this time. So neither misses the other.
    next: Deadline,
}

impl Timers {
    /// Earliest deadline.
    pub(super) fn next(&self) -> u64 {
        self.next.0.load(Ordering::SeqCst)
    }

    /// Enters a deadline in place of an earlier entry at `old`, if there is an entry. `true` if the
    /// new deadline is the earliest.
    pub(super) fn add(&self, at: Time, who: Timed, old: u64) -> bool {
        let mut entries = self.entries.lock();
        if old != NEVER {
            entries.remove(&(old, who));
        }
        entries.insert((at.0, who));
        let earliest = at.0 < self.next.0.load(Ordering::SeqCst);
        self.next.0.store(entries.first().map_or(NEVER, |(at, _)| *at), Ordering::SeqCst);
        earliest
    }

    /// Number of entries of `who`.
    #[cfg(all(test, not(loom)))]
    pub(super) fn count(&self, who: Timed) -> usize {
        self.entries.lock().iter().filter(|entry| entry.1 == who).count()
    }

    /// Takes a due entry, with its time.
    pub(super) fn pop_due(&self, now: Time) -> Option<(Time, Timed)> {
        if self.next() > now.0 {
            return None;
        }
        let mut entries = self.entries.lock();
        let due = entries
            .first()
            .is_some_and(|(at, _)| *at <= now.0)
            .then(|| entries.pop_first())
            .flatten();
        self.next.0.store(entries.first().map_or(NEVER, |(at, _)| *at), Ordering::SeqCst);
        due.map(|(at, who)| (Time(at), who))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_entry_takes_the_place_of_the_one_before() {
        let timers = Timers::default();
        let who = Timed::Qp(7);
        assert!(timers.add(Time(100), who, NEVER));
        assert!(timers.add(Time(50), who, 100));
        assert!(!timers.add(Time(60), Timed::Cq(7), NEVER));
        assert_eq!(timers.pop_due(Time(49)), None);
        assert_eq!(timers.pop_due(Time(200)), Some((Time(50), who)));
        assert_eq!(timers.next(), 60);
        assert_eq!(timers.pop_due(Time(200)), Some((Time(60), Timed::Cq(7))));
        assert_eq!((timers.pop_due(Time(200)), timers.next()), (None, NEVER));
    }
}
