//! Performs the actions of a program.
use super::{Queue, World};
use crate::model::{Check, Flow, Rx, ensure};
use crate::program::Action;
use adverb_engine::{QpAttr, QpState, QpType};
use std::time::Duration;

/// Gap between the PSNs of one connection and the next one of the same queue pairs. The gap
/// separates late copies from new packets.
const PSN_GAP: u64 = 1 << 20;

impl World {
    fn end_index(&self, n: u8) -> usize {
        usize::from(n) % self.ends.len()
    }
    fn queue(&mut self, n: u8) -> (usize, &mut Queue) {
        let i = usize::from(n) % self.queues.len();
        (i, &mut self.queues[i])
    }

    pub(crate) fn apply(&mut self, action: &Action) -> Check {
        match *action {
            Action::Run { ns } => self.run_until(self.now + Duration::from_nanos(ns))?,
            Action::Post(ref post) => self.post(post)?,
            Action::Commit { qp } => self.commit(self.end_index(qp))?,
            Action::Abort { qp } => {
                let q = self.end_index(qp);
                let end = &mut self.ends[q];
                end.engine.abort_sends();
                end.flow.ops.truncate(end.flow.committed);
            }
            Action::Recv { qp, len, sges, bad_local } => {
                self.recv(self.end_index(qp), len, u32::from(sges), bad_local)?;
            }
            Action::Poll { cq, max } => {
                for _ in 0..max {
                    if !self.poll(usize::from(cq) % self.queues.len())? {
                        break;
                    }
                }
            }
            Action::SrqLimit { srq, limit } => {
                let n = self.srqs.len();
                let queue = &mut self.srqs[usize::from(srq) % n];
                if queue.srq.modify(None, Some(limit)).is_ok() {
                    queue.limit = limit;
                }
            }
            Action::Fail { qp } => {
                let q = self.end_index(qp);
                self.ends[q].doomed = true;
                self.modify(q, &QpAttr { state: QpState::Err, ..QpAttr::default() })?;
            }
            Action::Resume { qp } => self.resume(self.end_index(qp))?,
            Action::Drain { qp } => {
                let q = self.end_index(qp);
                if self.ends[q].engine.state() == QpState::Rts {
                    self.ends[q].flow.began_in_sqd = false;
                    self.modify(q, &QpAttr { state: QpState::Sqd, ..QpAttr::default() })?;
                }
            }
            Action::Reconnect { link, gap } => {
                self.reconnect(usize::from(link) % self.config.links.len(), gap)?;
            }
            Action::Mend => {
                for link in 0..self.config.links.len() {
                    let broken = |q: usize| self.ends[q].engine.state() == QpState::Err;
                    if broken(2 * link) || broken(2 * link + 1) {
                        self.reconnect(link, 0)?;
                    }
                }
            }
            Action::Revoke { device } => self.revoke(usize::from(device) % self.devices.len())?,
            Action::Partition { a, b } => self.net.part(usize::from(a), usize::from(b)),
            Action::Heal => self.net.heal(),
            Action::Clog { a, b, ns } => {
                self.net.clog(usize::from(a), usize::from(b), self.now + Duration::from_nanos(ns));
            }
            _ => self.apply_to_queue(action)?,
        }
        Ok(())
    }

    fn apply_to_queue(&mut self, action: &Action) -> Check {
        let now = self.now;
        match *action {
            Action::Arm { cq, kind, persistent } => {
                let (_, queue) = self.queue(cq);
                if persistent {
                    queue.cq.arm_persistent(kind);
                } else {
                    queue.cq.arm(kind);
                }
                queue.naive.arm(kind, persistent);
            }
            Action::ArmFresh { cq, kind } => {
                let (i, queue) = self.queue(cq);
                if !queue.naive.purged {
                    let due = queue.naive.arm_fresh(kind, now);
                    let fired = queue.cq.arm_fresh(kind, now);
                    ensure!(fired == due, "CQ {i}: satisfied at once: {fired}, due: {due} (NDK-2)");
                    queue.events += u64::from(fired);
                }
            }
            Action::Disarm { cq } => {
                let (_, queue) = self.queue(cq);
                queue.cq.disarm();
                queue.naive.disarm();
            }
            Action::Notified { cq } => {
                let (_, queue) = self.queue(cq);
                queue.cq.mark_notified();
                queue.naive.mark_notified();
            }
            Action::Moderate { cq, count, ns } => {
                let (_, queue) = self.queue(cq);
                queue.cq.set_moderation(count, Duration::from_nanos(ns));
                queue.naive.moderate(count, Duration::from_nanos(ns));
            }
            _ => {}
        }
        Ok(())
    }

    /// Polls a completion; `false`: the queue is empty.
    pub(crate) fn poll(&mut self, i: usize) -> Check<bool> {
        let queue = &mut self.queues[i];
        let got = queue.cq.pop().map(|c| (c.wr_id, c.status, c.qpn));
        let due = queue.naive.queue.pop_front().map(|(_, _, id, status, qpn)| (id, status, qpn));
        ensure!(got == due, "CQ {i}: a poll gives {got:?}, due: {due:?}");
        Ok(got.is_some())
    }

    /// Moves a queue pair from SQE or SQD to RTS.
    pub(crate) fn resume(&mut self, q: usize) -> Check {
        let state = self.ends[q].engine.state();
        if !matches!(state, QpState::Sqe | QpState::Sqd) || self.ends[q].kind == QpType::XrcRecv {
            return Ok(());
        }
        if state == QpState::Sqe {
            let end = &mut self.ends[q];
            ensure!(end.flow.head == end.flow.committed, "in SQE, but not all sends are flushed");
            end.flow.started = end.flow.committed;
            end.flow.resumed = end.flow.committed;
            end.flow.failed = false;
            end.doomed = false;
        }
        self.modify(q, &QpAttr { state: QpState::Rts, ..QpAttr::default() })?;
        self.wake(q);
        Ok(())
    }

    /// Resets both ends of a link and connects them again, the second end `gap` nanoseconds later.
    fn reconnect(&mut self, link: usize, gap: u64) -> Check {
        self.epochs[link] += 1;
        for q in [2 * link, 2 * link + 1] {
            self.reset(q)?;
            // Unreliable transports accept any first packet, so late packets of the old connection
            // must not reach the new one.
            if !self.ends[q].is_reliable() {
                self.net.purge(q);
            }
        }
        for (q, gap) in [(2 * link, 0), (2 * link + 1, gap)] {
            self.ends[q].connect_at = Some(self.now + Duration::from_nanos(gap));
        }
        Ok(())
    }

    /// Moves a queue pair to RESET. The oracle drops its knowledge of the connection, too.
    pub(crate) fn reset(&mut self, q: usize) -> Check {
        let end = &mut self.ends[q];
        let next = u64::from(end.flow.base) + end.flow.high + PSN_GAP;
        end.flow = Flow { base: (next & 0xff_ffff) as u32, ..Flow::default() };
        end.rx = Rx::default();
        end.early.clear();
        end.connect_at = None;
        end.doomed = false;
        self.modify(q, &QpAttr::default())?;
        let qpn = self.ends[q].engine.config().qpn;
        for queue in &mut self.queues {
            queue.cq.purge(qpn);
            queue.naive.purge(qpn);
        }
        Ok(())
    }

    /// Deregisters the volatile region, or registers it again under a new key.
    fn revoke(&mut self, d: usize) -> Check {
        match self.devices[d].volatile.take() {
            Some(key) => {
                let device = &mut self.devices[d];
                let done = device.keys.deregister(key);
                ensure!(done.is_ok(), "the volatile region stays: {done:?}");
                device.naive.remove(key);
            }
            None => self.register_volatile(d),
        }
        Ok(())
    }
}
