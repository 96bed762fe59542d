//! Send queues of a hunted process: queue pairs that carry out their requests late, and READs whose
//! data is taken late.
use super::late::LateQueuePair;
use super::process::Hunt;
use super::{Chosen, Cq, Hunted, Visibility, Why};
use crate::asleep::call::{Line, parse};
use crate::asleep::process::threads;
use crate::node::{AnyQp, Node};
use adverb_choice::Choice;
use adverb_engine::wr::Remote;
use adverb_engine::{Payload, QpType, SendFlags, SendOp, SendWr, Sge};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The rest of a message comes this long after its last line.
const REST: Duration = Duration::from_millis(2);
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
        // A datagram's queue pair has no connection that would keep late messages.
        if matches!(qp.qp_type(), QpType::Ud | QpType::RawPacket) {
            return;
        }
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
