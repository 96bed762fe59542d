//! The late queue pairs of a hunted process, as values.
use adverb_threads::Process;
use adverb_threads::call::Line;
use std::time::{Duration, Instant};

/// A late queue pair begins when the program has slept for this time.
const SLEPT: Duration = Duration::from_millis(2);
/// The next late queue pair begins this long after the one before.
const APART: Duration = Duration::from_micros(1500);
/// With more late queue pairs than this, the next begins at once.
const MANY: usize = 8;

/// The late queue pairs, in the order of their posts.
#[derive(Debug, Default)]
pub(crate) struct LateQueuePairs {
    pub(crate) list: Vec<LateQueuePair>,
    /// When all threads of the program were first seen asleep.
    asleep: Option<Instant>,
    /// When the last late queue pair began.
    begun: Option<Instant>,
}

#[derive(Debug)]
pub(crate) struct LateQueuePair {
    pub(crate) qpn: u32,
    pub(crate) since: Instant,
    pub(crate) longest: Duration,
    /// The requests leave when the program sleeps.
    pub(crate) until_sleep: bool,
}

impl LateQueuePairs {
    /// Takes the queue pair that begins now. Of several queue pairs the last begins first.
    /// `asleep`: all threads of the program sleep.
    pub(crate) fn next_due(&mut self, now: Instant, asleep: impl FnOnce() -> bool) -> Option<u32> {
        if self.list.is_empty() {
            return None;
        }
        self.asleep = if asleep() { self.asleep.or(Some(now)) } else { None };
        let slept = self.asleep.is_some_and(|at| now.duration_since(at) >= SLEPT);
        let apart =
            self.list.len() > MANY || self.begun.is_none_or(|at| now.duration_since(at) >= APART);
        let due = |l: &LateQueuePair| {
            let over = now.duration_since(l.since) >= l.longest;
            over || (slept && l.until_sleep)
        };
        let at = self.list.iter().rposition(due).filter(|_| apart)?;
        self.begun = Some(now);
        Some(self.list.remove(at).qpn)
    }
}

/// Do all threads of the program sleep?
pub(crate) fn everyone_sleeps() -> bool {
    let threads = Process::Own.program_tasks();
    threads.is_some_and(|all| all.iter().all(|(t, _)| matches!(t.line(), Ok(Line::Blocked(_)))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn late(millis: u64, since: Instant, until_sleep: bool) -> LateQueuePair {
        LateQueuePair { qpn: 1, since, longest: Duration::from_millis(millis), until_sleep }
    }

    /// HUN-13: late queue pairs begin when the program has slept, or after the longest time, and
    /// the last begins first.
    #[test]
    fn late_queue_pairs_begin_one_after_the_other() {
        let now = Instant::now();
        let at = |micros| now + Duration::from_micros(micros);
        let mut all = LateQueuePairs::default();
        assert!(all.next_due(now, || panic!("no queue pair is late")).is_none());
        all.list = vec![late(20, now, true), late(15, now, true), late(2, now, false)];
        assert!(all.next_due(at(0), || true).is_none(), "the program only begins to sleep");
        assert!(all.next_due(at(1900), || true).is_none());
        assert!(all.next_due(at(1950), || false).is_none(), "the program went on");
        assert!(all.next_due(at(2000), || true).is_some(), "the rest of a message");
        assert_eq!(all.list.len(), 2);
        assert!(all.next_due(at(3400), || true).is_none());
        assert!(all.next_due(at(4000), || true).is_some(), "the program slept");
        assert_eq!(all.list[0].longest, Duration::from_millis(20), "the last begins first");
        assert!(all.next_due(at(4100), || true).is_none(), "one after the other");
        assert!(all.next_due(at(5000), || false).is_none());
        assert!(all.next_due(at(20_000), || false).is_some(), "at the latest");
    }
}
