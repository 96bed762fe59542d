//! A completion queue beside a naive queue, which determines the expected events.
use crate::model::cq::NaiveCq;
use crate::verdict::{Check, ensure};
use adverb_device::Cq;
use adverb_engine::cq::arm::ArmKind;
use adverb_engine::{Completion, Time};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Limit of the delay of a moderated event. Threads stall, and the last look may have been before
/// the event.
const MODERATED_LATE: Duration = Duration::from_millis(100);

pub(super) struct Queue {
    pub(super) cq: Arc<Cq>,
    naive: NaiveCq,
    /// Completions in the queue.
    known: VecDeque<(u64, u32)>,
    /// Events in the channel, not yet taken by the program.
    unread: usize,
    /// Events taken and not acknowledged.
    pub(super) unacked: u32,
    /// Completions may have been added and removed in the same step.
    purged: bool,
}

fn name(c: &Completion) -> (u64, u32) {
    (c.wr_id, c.qpn)
}

impl Queue {
    pub(super) fn new(cq: Arc<Cq>) -> Queue {
        let naive = NaiveCq::new(cq.capacity());
        Queue { cq, naive, known: VecDeque::new(), unread: 0, unacked: 0, purged: false }
    }

    pub(super) fn unread(&self) -> usize {
        self.unread
    }

    /// Called before the queue is armed.
    pub(super) fn arm(&mut self, kind: ArmKind) {
        self.naive.arm(kind, false);
    }

    pub(super) fn moderate(&mut self, count: u32, period: Duration) {
        self.naive.moderate(count, period);
    }

    /// Called after an event was taken.
    pub(super) fn taken(&mut self) -> Check {
        self.unread = self.unread.wrapping_sub(1);
        self.unacked += 1;
        Ok(())
    }

    /// Called before completions of a queue pair are removed.
    pub(super) fn purge(&mut self, qpn: u32) {
        self.purged = true;
        self.known.retain(|(_, of)| *of != qpn);
        self.naive.purge(qpn);
    }

    /// Called after each step, with the polled completions. `now` is the node's time.
    pub(super) fn judge(&mut self, polled: &[Completion], now: Time) -> Check {
        let unread = self.cq.unread();
        let purged = std::mem::take(&mut self.purged);
        if !purged
            && polled.is_empty()
            && self.cq.len() == self.known.len()
            && unread == self.unread
        {
            ensure!(
                now.0 < 200_000_000
                    || !self.naive.fire(Time(now.0 - MODERATED_LATE.as_nanos() as u64)),
                "the event of a moderated queue is late"
            );
            return Ok(());
        }
        let waiting = self.cq.waiting();
        let all: Vec<&Completion> = polled.iter().chain(&waiting).collect();
        ensure!(
            all.len() >= self.known.len(),
            "completions vanish: {all:?}, known {:?}",
            self.known
        );
        for (known, real) in self.known.iter().zip(&all) {
            ensure!(*known == name(real), "{real:?} is at the place of {known:x?}");
        }
        let mut due = self.unread;
        for new in &all[self.known.len()..] {
            let (fits, event) = self.naive.push(new, new.timestamp);
            ensure!(fits, "a completion more than the queue holds");
            due = due.wrapping_add(usize::from(event));
        }
        self.naive.queue.clear();
        if unread == due.wrapping_add(1) && (purged || self.naive.fire(now)) {
            // A moderated event is due, or an event for a removed completion.
            if purged {
                self.naive.disarm();
            }
            due = unread;
        }
        ensure!(unread == due, "{unread} events, and {due} are due after {all:?}");
        self.unread = unread;
        self.known = waiting.iter().map(name).collect();
        Ok(())
    }
}
