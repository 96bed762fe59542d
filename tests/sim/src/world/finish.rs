//! The end of a run. The network is whole and receives are posted, so everything must end in good
//! order, and nothing may be left.
use super::World;
use crate::model::{Check, ensure};
use adverb_engine::{QpAttr, QpState, QpType};
use std::time::Duration;

/// Virtual time within which everything must end once the network is whole.
const HANG_LIMIT: Duration = Duration::from_secs(60);
/// Length of the receives posted at the end, enough for any message.
const LONG: u32 = 16 * 1024;

impl World {
    pub(crate) fn finish(&mut self) -> Check {
        self.note(|| "winding up".into());
        self.begun = self.step;
        self.net.calm(self.now);
        self.winding_up = true;
        for q in 0..self.ends.len() {
            self.resume(q)?;
            self.commit(q)?;
            self.wake(q);
        }
        self.attend()?;
        let deadline = self.now + HANG_LIMIT;
        while let Some(at) = self.next_event() {
            ensure!(
                at <= deadline,
                "not at rest {HANG_LIMIT:?} after the network healed; next event at {}",
                at.0
            );
            self.run_until(at)?;
        }
        self.check_rest()?;
        self.check_patience()?;
        self.tear_down()
    }

    /// Polls every queue, and posts receives to empty receive queues.
    pub(crate) fn attend(&mut self) -> Check {
        for i in 0..self.queues.len() {
            while self.poll(i)? {}
        }
        for q in 0..self.ends.len() {
            let end = &self.ends[q];
            let peer = &self.ends[end.peer].flow;
            let empty = match (end.kind, end.srq) {
                (QpType::XrcRecv, _) => self.srqs[end.device * 2 + 1].queue.is_empty(),
                (QpType::XrcSend, _) => false,
                (_, Some(srq)) => self.srqs[srq].queue.is_empty(),
                _ => end.rx.recvs.is_empty(),
            };
            let up = !matches!(end.engine.state(), QpState::Err | QpState::Reset);
            if empty && up && peer.head < peer.committed {
                self.recv(q, LONG, 1, false)?;
            }
        }
        Ok(())
    }

    /// Checks that every request has ended, and nothing is on its way.
    fn check_rest(&self) -> Check {
        for (q, end) in self.ends.iter().enumerate() {
            let flow = &end.flow;
            let open = flow.ops[flow.head..].iter().find(|o| !o.is_finished(end.is_reliable()));
            if let Some(op) = open {
                let state = end.engine.state();
                return Err(crate::model::Violation(format!(
                    "queue pair {q} in {state:?}: request {} ({:?}) never ended; refused: {:?}",
                    op.id, op.op, op.refused
                )));
            }
            let loud = flow.ops[flow.head..].iter().find(|o| !o.is_silent());
            ensure!(
                loud.is_none(),
                "queue pair {q}: request {:?} never completed",
                loud.map(|o| o.id)
            );
            ensure!(!end.engine.has_unacknowledged(), "queue pair {q}: packets are unacknowledged");
            ensure!(end.engine.staged_sends() == 0, "queue pair {q}: requests are staged");
            let posted = end.engine.receives_posted() as usize;
            ensure!(
                posted == end.rx.recvs.len(),
                "queue pair {q}: {posted} receives, not {}",
                end.rx.recvs.len()
            );
        }
        Ok(())
    }

    /// Without faults no retry limit may be reached: a timer is a last resort.
    fn check_patience(&self) -> Check {
        let f = &self.config.faults;
        if self.net.harmed > 0 || f.jitter > 0 || f.duplicate > 0 {
            return Ok(());
        }
        for (q, end) in self.ends.iter().enumerate() {
            let never_down =
                |e: &super::WorldEnd| e.engine.state() == QpState::Rts && self.epoch_of(q) == 1;
            if never_down(end) && never_down(&self.ends[end.peer]) {
                let timeouts = end.engine.counters().timeouts;
                ensure!(timeouts == 0, "queue pair {q}: {timeouts} timeouts on a perfect network");
            }
        }
        Ok(())
    }

    /// Destroys everything: each receive is flushed, each key freed, and nothing stays.
    fn tear_down(&mut self) -> Check {
        for q in 0..self.ends.len() {
            self.ends[q].doomed = true;
            if self.ends[q].engine.state() != QpState::Reset {
                let attr = QpAttr { state: QpState::Err, ..QpAttr::default() };
                self.modify(q, &attr)?;
            }
            self.reset(q)?;
            let qpn = self.ends[q].engine.config().qpn;
            let device = self.ends[q].device;
            self.devices[device].keys.release_qp(qpn);
        }
        for device in &mut self.devices {
            let (known, held) = (device.naive.len(), device.keys.len());
            ensure!(known == held, "{held} keys in the table, {known} known");
            let keys = &mut device.keys;
            for window in device.windows {
                let key = device.naive.current(window);
                let done = keys.dealloc_mw(key);
                ensure!(done.is_ok(), "a window stays: {done:?}");
            }
            for fast in device.fast {
                let done = keys.dealloc_fast(fast);
                ensure!(done.is_ok(), "a fast-registered region stays: {done:?}");
            }
            let regions = [device.all, device.good, device.read_only, device.other_pd];
            let regions = regions.into_iter().chain(device.on_demand);
            for key in regions.chain(device.volatile) {
                let done = keys.deregister(key);
                ensure!(done.is_ok(), "a region stays: {done:?}");
            }
            ensure!(keys.is_empty(), "{} keys are left", keys.len());
            self.record.mix_bytes(&device.arena.bytes());
        }
        Ok(())
    }
}
