//! Due deadlines.
use super::carriers::{Rings, Udp};
use super::core::Node;
use super::queue_pair::AnyQp;
use super::timers::{NEVER, Timed};
use crate::faults::OutageKind;
use adverb_engine::Time;
use adverb_link::RxFrom;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Longest delay of a timeout while a peer on this host has unread records.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// Interval of looks during this delay.
const WAIT: Duration = Duration::from_millis(2);
/// The next look at a queue pair whose lock was taken.
const BUSY: Duration = Duration::from_micros(100);

impl Node {
    /// Runs due timers.
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
                // In a separate queue.
                Timed::Watch(_) | Timed::Capture | Timed::Outage(_) => None,
                Timed::Mad => {
                    self.mads.timer_due(self, at);
                    None
                }
                Timed::Delayed => {
                    // If another thread receives at this moment, the remaining packets get a new
                    // timer entry.
                    let delayed = &self.delayed_until;
                    if delayed
                        .compare_exchange(at.0, NEVER, Ordering::Relaxed, Ordering::Relaxed)
                        .is_ok()
                    {
                        self.receive(RxFrom::Every, false);
                        self.keep_delay_timer();
                    }
                    None
                }
            };
            let Some(qp) = qp else { continue };
            if !self.timer_due(&qp, at, now, false) {
                // The answer may lie in a socket, because the receiving thread is late.
                self.receive(RxFrom::Every, false);
                self.timer_due(&qp, at, now, true);
            }
        }
        any
    }

    /// Enters the time of the first packet or request delayed by a fault, unless an earlier entry
    /// exists.
    pub(super) fn keep_delay_timer(&self) {
        let packets = self.link.udp().and_then(|link| link.tap().delayed_for());
        let near = self.packet_faults();
        if packets.is_none() && near.is_none() {
            return;
        }
        let now = self.now();
        let near = near.and_then(|faults| faults.due(now));
        let Some(at) = Time::earliest(packets.map(|left| now + left), near) else { return };
        let old = self.delayed_until.fetch_min(at.0, Ordering::Relaxed);
        if at.0 < old {
            self.enter_timer(at, Timed::Delayed, old);
        }
    }

    /// Looks at the queues watched for lost wake-ups, and writes recorded packets. Only the
    /// background thread calls this. A look reads files, and no call of the program should wait for
    /// files.
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
                Timed::Outage(index) => self.outage_due(index),
                _ => {}
            }
        }
    }

    /// Handles the due entry at `at` of a queue pair. The deadline itself may have moved. `false`:
    /// a packet seems to be lost, and arrived packets have to be taken first.
    fn timer_due(&self, qp: &AnyQp, at: Time, now: Time, looked: bool) -> bool {
        self.with_tx(|tx| {
            let Some(mut inner) = qp.inner.try_lock() else {
                self.comes_back(qp, at, now);
                return true;
            };
            if inner.outage == Some(OutageKind::DeviceFatal) {
                return true;
            }
            if qp.timer_at.load(Ordering::Relaxed) != at.0 {
                // The entry was replaced by an earlier entry, or belongs to an ended queue pair of
                // the same number.
                return true;
            }
            let overdue = inner
                .engine
                .ack_timeout()
                .is_some_and(|at| at <= now && now.since(at) < LONGEST_WAIT);
            let near = inner.carried.ring.is_near();
            if overdue && !looked && !near {
                return false;
            }
            qp.timer_at.store(NEVER, Ordering::Relaxed);
            // The missing packet lies unread in a ring or socket, or another thread is reading and
            // was held up. So no packet was lost.
            let late = || match Rings::of(self).filter(|_| near) {
                Some(rings) => rings.is_behind(&inner),
                None => Udp(self).is_behind(),
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

    /// Puts off the due entry at `at` of a queue pair whose lock is taken. The owner of the lock
    /// takes it again and again while traffic flows, and each wait for it would end in one more
    /// sleep.
    #[cold]
    fn comes_back(&self, qp: &AnyQp, at: Time, now: Time) {
        let again = now + BUSY;
        // The owner of the lock may have replaced the entry meanwhile. Then its own entry counts.
        if qp.timer_at.compare_exchange(at.0, again.0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            self.enter_timer(again, Timed::Qp(qp.number()), NEVER);
        }
    }
}
