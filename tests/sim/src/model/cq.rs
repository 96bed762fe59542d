//! A naive completion queue: a record of the arms and of the completions since. Each decision is
//! made from this record.
use adverb_engine::cq::arm::ArmKind;
use adverb_engine::{Completion, Time, WcOpcode, WcStatus};
use std::collections::VecDeque;
use std::time::Duration;

#[derive(Debug, Default)]
pub(crate) struct NaiveCq {
    capacity: usize,
    /// (number, time, id, status, queue pair).
    pub(crate) queue: VecDeque<(u64, Time, u64, WcStatus, u32)>,
    added: u64,
    broken: bool,
    arms: Vec<ArmKind>,
    persistent: bool,
    overrun_fires: bool,
    count: usize,
    period: Duration,
    /// Times of the completions that match an arm.
    matched: Vec<Time>,
    notified: u64,
    /// Completions were removed from the middle, so the oracle no longer knows exactly which
    /// completions are new.
    pub(crate) purged: bool,
}

fn matches(kind: ArmKind, c: &Completion) -> bool {
    let failed = c.status != WcStatus::Success;
    let received = matches!(c.opcode, WcOpcode::Recv | WcOpcode::RecvRdmaWithImm);
    match kind {
        ArmKind::Next => true,
        ArmKind::Solicited => failed || received && c.solicited,
        ArmKind::Errors => failed,
    }
}

impl NaiveCq {
    pub(crate) fn new(capacity: u32) -> NaiveCq {
        NaiveCq { capacity: capacity as usize, ..NaiveCq::default() }
    }

    /// Adds a completion. Returns whether the completion fits, and whether an event is due.
    pub(crate) fn push(&mut self, c: &Completion, now: Time) -> (bool, bool) {
        if self.broken || self.queue.len() == self.capacity {
            self.broken = true;
            return (false, self.overrun());
        }
        self.queue.push_back((self.added, now, c.wr_id, c.status, c.qpn));
        self.added += 1;
        if self.arms.iter().any(|a| matches(*a, c)) {
            self.matched.push(now);
        } else {
            return (true, false);
        }
        (true, self.fire(now))
    }

    fn overrun(&mut self) -> bool {
        let fires = self.overrun_fires && !self.arms.is_empty();
        if fires {
            self.disarm();
        }
        fires
    }

    /// Raises an event if one is due.
    pub(crate) fn fire(&mut self, now: Time) -> bool {
        let Some(first) = self.matched.first() else { return false };
        let moderated = self.count > 0 || !self.period.is_zero();
        let due = !moderated
            || self.count > 0 && self.matched.len() >= self.count
            || !self.period.is_zero() && now >= *first + self.period;
        if due && self.persistent {
            self.matched.clear();
        } else if due {
            self.disarm();
        }
        due
    }

    pub(crate) fn arm(&mut self, kind: ArmKind, persistent: bool) {
        self.arms.push(kind);
        self.persistent |= persistent;
    }

    pub(crate) fn arm_fresh(&mut self, kind: ArmKind, now: Time) -> bool {
        self.arms.push(kind);
        self.overrun_fires = true;
        let fresh: Vec<Time> = self
            .queue
            .iter()
            .filter(|(n, ..)| *n >= self.notified)
            .map(|(_, at, ..)| *at)
            .collect();
        if fresh.len() > self.matched.len() {
            self.matched = fresh;
        }
        self.fire(now) || self.broken && self.overrun()
    }

    pub(crate) fn mark_notified(&mut self) {
        self.notified = self.added;
    }

    pub(crate) fn disarm(&mut self) {
        self.arms.clear();
        self.persistent = false;
        self.overrun_fires = false;
        self.matched.clear();
    }

    pub(crate) fn moderate(&mut self, count: u32, period: Duration) {
        (self.count, self.period) = (count as usize, period);
    }

    pub(crate) fn purge(&mut self, qpn: u32) {
        let before = self.queue.len();
        self.queue.retain(|(.., q)| *q != qpn);
        self.purged |= self.queue.len() != before;
    }
}
