//! Deadlines that have come.
use super::carriers::{Carrier, Rings, Udp};
use super::core::Node;
use super::queue_pair::AnyQp;
use super::timers::{NEVER, Timed};
use adverb_engine::Time;
use adverb_link::RxFrom;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How much later a timeout may count if a peer on this host has not read what was written to it,
/// and the pace of looking.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
const WAIT: Duration = Duration::from_millis(2);

impl Node {
    /// Runs the timers that are due.
    pub(super) fn run_timers(&self) -> bool {
        if self.timers.next() > self.at_latest().0 {
            return false;
        }
        let now = self.now();
        let mut any = false;
        while let Some((at, due)) = self.timers.pop_due(now) {
            any = true;
            let qp = match due {
                Timed::Qp(qpn) => self.qp(qpn),
                Timed::Cq(id) => {
                    if let Some(cq) = self.registry.timed_cq(id) {
                        cq.timer_due(at, now);
                    }
                    None
                }
                // In a queue of their own.
                Timed::Watch(_) | Timed::Capture => None,
                Timed::Mad => {
                    self.mads.timer_due(self, at);
                    None
                }
                Timed::Held => {
                    // If somebody else receives just now, what is left is looked at again.
                    let held = &self.held_at;
                    if held.compare_exchange(at.0, NEVER, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                        self.receive(RxFrom::Every, false);
                        self.keep_held_timer();
                    }
                    None
                }
            };
            let Some(qp) = qp else { continue };
            if !self.timer_due(&qp, at, now, false) {
                // The answer may lie in a socket, as its reader is late.
                self.receive(RxFrom::Every, false);
                self.timer_due(&qp, at, now, true);
            }
        }
        any
    }

    /// Enters when the first packet or request is due that a fault holds, unless an earlier entry
    /// stands already.
    pub(super) fn keep_held_timer(&self) {
        let (packets, taps) = (self.link.held_for(), self.taps.as_ref());
        if packets.is_none() && taps.is_none() {
            return;
        }
        let now = self.now();
        let near = taps.and_then(|taps| taps.due(now));
        let Some(at) = Time::earliest(packets.map(|left| now + left), near) else { return };
        let old = self.held_at.fetch_min(at.0, Ordering::Relaxed);
        if at.0 < old {
            self.enter_timer(at, Timed::Held, old);
        }
    }

    /// Looks at the queues that are watched for lost wake-ups, and writes what was recorded. The
    /// background thread calls this: a look reads files, which no call of the program is to wait
    /// for.
    pub(super) fn run_watches(&self) {
        if self.watches.next() > self.at_latest().0 {
            return;
        }
        let now = self.now();
        while let Some((_, due)) = self.watches.pop_due(now) {
            match due {
                Timed::Watch(id) => {
                    if let Some(cq) = self.registry.timed_cq(id) {
                        cq.watch_due(now);
                    }
                }
                Timed::Capture => self.write_captured(),
                _ => {}
            }
        }
    }

    /// A queue pair's deadline may have come, as its entry at `at` is due. `false`: a packet seems
    /// to be lost, and what has arrived is to be looked at first.
    fn timer_due(&self, qp: &AnyQp, at: Time, now: Time, looked: bool) -> bool {
        self.with_tx(|tx| {
            let mut inner = qp.inner.lock();
            if qp.timer_at.load(Ordering::Relaxed) != at.0 {
                // An earlier one took its place, or it was that of a queue pair of the same number.
                return true;
            }
            let overdue =
                inner.engine.ack_timeout().is_some_and(|at| at <= now && now.since(at) < LONGEST_WAIT);
            let near = inner.carried.ring.is_near();
            if overdue && !looked && !near {
                return false;
            }
            qp.timer_at.store(NEVER, Ordering::Relaxed);
            // What is missing lies unread in one of two rings, or another thread is reading just
            // now and was held up: nothing was lost.
            let late = || match Rings::of(self).filter(|_| near) {
                Some(rings) => rings.is_behind(&inner),
                None => Udp(self).is_behind(&inner),
            };
            if overdue && late() {
                let again = now + WAIT;
                qp.timer_at.store(again.0, Ordering::Relaxed);
                self.enter_timer(again, Timed::Qp(qp.number()), NEVER);
            } else if inner.engine.poll_timeout().is_some_and(|at| at <= now) {
                inner.engine.handle_timeout(now, &mut tx.effects);
                self.pump(qp, &mut inner, tx);
            } else {
                self.keep_timer(qp, &inner);
            }
            true
        })
    }
}
