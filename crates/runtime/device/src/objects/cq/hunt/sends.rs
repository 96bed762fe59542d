//! Send queues of a hunted process: queue pairs that carry out their requests late, and READs whose
//! data is taken late.
use super::process::Hunt;
use super::{Chosen, Cq, Hunted, Visibility, Why};
use crate::asleep::call::{Line, parse};
use crate::asleep::process::threads;
use crate::node::{AnyQp, Node};
use adverb_choice::Choice;
use adverb_engine::wr::Remote;
use adverb_engine::{Payload, SendFlags, SendOp, SendWr, Sge};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// The rest of a message comes this long after its last line.
const REST: Duration = Duration::from_millis(2);
/// A late queue pair begins when the program has slept for this time.
const SLEPT: Duration = Duration::from_millis(2);
/// The next late queue pair begins this long after the one before.
const APART: Duration = Duration::from_micros(1500);
/// With more late queue pairs than this, the next begins at once.
const MANY: usize = 8;

/// The late queue pairs, in the order of their posts.
#[derive(Debug, Default)]
pub(super) struct LateQueuePairs {
    list: Vec<LateQueuePair>,
    /// When all threads of the program were first seen asleep.
    asleep: Option<Instant>,
    /// When the last late queue pair began.
    begun: Option<Instant>,
}

#[derive(Debug)]
struct LateQueuePair {
    qp: Weak<AnyQp>,
    since: Instant,
    longest: Duration,
    /// The requests leave when the program sleeps.
    until_sleep: bool,
}

impl LateQueuePairs {
    /// Takes the queue pair that begins now. Of several queue pairs the last begins first.
    /// `asleep`: all threads of the program sleep.
    fn next_due(&mut self, now: Instant, asleep: impl FnOnce() -> bool) -> Option<Weak<AnyQp>> {
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
        Some(self.list.remove(at).qp)
    }
}

/// The READs of a completion queue to repeat.
#[derive(Debug, Default)]
pub(super) struct LateReads {
    /// The queue pairs that repeat their READs from now on.
    of: Vec<u32>,
    reads: Vec<LateRead>,
}

#[derive(Clone, Debug)]
struct LateRead {
    qpn: u32,
    remote: Remote,
    to: Vec<Sge>,
}

impl Hunt {
    /// A queue pair carries out its requests late from now on. The caller has marked the queue pair
    /// as late.
    fn add_late(&self, qp: &Arc<AnyQp>, longest: Duration, until_sleep: bool) {
        let (qp, since) = (Arc::downgrade(qp), Instant::now());
        self.late.lock().list.push(LateQueuePair { qp, since, longest, until_sleep });
    }

    /// Lets a late queue pair begin, if one is due.
    pub(super) fn end_lateness(&self) {
        let due = self.late.lock().next_due(Instant::now(), everyone_sleeps);
        if let Some(qp) = due.and_then(|qp| qp.upgrade())
            && let Some(node) = Node::existing()
        {
            node.end_lateness(&qp);
        }
    }
}

impl Chosen {
    /// A queue pair is about to post.
    pub(crate) fn post_begins(&self, cq: &Cq, qp: Option<Arc<AnyQp>>) {
        let (Some(h), Some(qp)) = (&cq.hunted, qp) else { return };
        match self.choice {
            Some(Choice::Late | Choice::TailFirst) => {
                let Some(longest) = self.hunt.next_hold() else { return };
                let mut inner = qp.inner.lock();
                if std::mem::replace(&mut inner.late, true) {
                    return;
                }
                drop(inner);
                let late = self.choice == Some(Choice::Late);
                self.hunt.add_late(&qp, if late { longest } else { REST }, late);
            }
            Some(Choice::ReadLate) => {
                h.holds_more(Visibility::Together);
                let mut late = h.reads.lock();
                if !late.of.contains(&qp.number()) {
                    late.of.push(qp.number());
                }
            }
            _ => {}
        }
    }

    /// The post has happened.
    pub(crate) fn post_ends(&self, qp: Option<Arc<AnyQp>>) {
        if self.choice == Some(Choice::TailFirst)
            && let (Some(qp), Some(node)) = (qp, Node::existing())
        {
            let mut inner = qp.inner.lock();
            if inner.late {
                node.place_tail(&qp, &mut inner);
            }
        }
    }
}

impl Hunted {
    /// A request is staged. A fence waits for the READs before, so they are not repeated.
    pub(super) fn note_read(&self, qpn: u32, wr: &SendWr<'_>) {
        let mut late = self.reads.lock();
        if wr.flags.contains(SendFlags::FENCE) {
            late.reads.retain(|r| r.qpn != qpn);
        }
        if let (SendOp::Read(remote), Payload::Sges(to)) = (wr.op, &wr.data)
            && late.of.contains(&qpn)
        {
            late.reads.push(LateRead { qpn, remote, to: to.to_vec() });
        }
    }

    /// The queue pair has ended.
    pub(super) fn forget_reads(&self, qpn: u32) {
        self.reads.lock().reads.retain(|r| r.qpn != qpn);
    }

    /// A completion becomes visible, so no READ before the completion is repeated.
    pub(super) fn reads_end(&self) {
        *self.reads.lock() = LateReads::default();
    }
}

/// Do all threads of the program sleep?
fn everyone_sleeps() -> bool {
    let sleeps = |id: &i32| {
        let line = std::fs::read_to_string(format!("/proc/self/task/{id}/syscall"));
        // A thread that has just ended has no file.
        line.is_ok_and(|line| matches!(parse(&line), Some(Line::Blocked(_))))
    };
    threads().is_some_and(|threads| threads.iter().all(sleeps))
}

impl Cq {
    /// Adds the withheld completions that are due. The data of READs is taken just before.
    pub(super) fn let_go(self: &Arc<Self>, why: Why) {
        let Some(h) = &self.hunted else { return };
        if h.reads.lock().reads.is_empty() {
            return self.release(why);
        }
        // Another thread may be reading for a completion that this thread would make visible.
        let _turn = h.turn.lock();
        let reads = h.reads.lock().reads.clone();
        if self.due(&h.withheld.lock(), why) == 0 {
            return;
        }
        let node = self.context.node();
        for read in reads {
            let found = (!node.is_stale()).then(|| node.qp(read.qpn)).flatten();
            if let Some(qp) = found {
                node.read_again(&qp, &mut qp.inner.lock(), read.remote, &read.to);
            }
        }
        self.release(Why::Now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn late(millis: u64, since: Instant, until_sleep: bool) -> LateQueuePair {
        let qp = Weak::<crate::node::QueuePair<crate::objects::qp::QpObject>>::new();
        LateQueuePair { qp, since, longest: Duration::from_millis(millis), until_sleep }
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
