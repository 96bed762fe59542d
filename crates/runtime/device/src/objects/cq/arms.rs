//! How a program arms a queue, and the moderation of a queue.
use super::notify::{Armed, Closed};
use super::{ArmSite, Cq, Sink};
use crate::error::Error;
use crate::faults::Call;
use crate::node::Timed;
use adverb_engine::cq::arm::{ArmKind, ArmRule};
use std::panic::Location;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

impl Cq {
    /// Asks for a notification (CQN-1 … CQN-6), by the rule of the NIC that the device stands for
    /// (NIC-7). Without a channel the arm stays pending, and its
    /// event goes nowhere (CQN-11).
    ///
    /// # Errors
    /// EINVAL for a destroyed queue (CQN-10).
    #[track_caller]
    pub fn req_notify(self: &Arc<Self>, kind: ArmKind) -> Result<(), Error> {
        self.req_notify_at(kind, ArmSite::Source(Location::caller()))
    }

    /// As [`Cq::req_notify`], for a face that knows the address or line of the call.
    ///
    /// # Errors
    /// EINVAL for a destroyed queue (CQN-10).
    pub fn req_notify_at(self: &Arc<Self>, kind: ArmKind, site: ArmSite) -> Result<(), Error> {
        self.context.node().check_alive()?;
        self.context.node().fault_call(Call::ReqNotifyCq)?;
        let armed = match self.context.nic().map_or(ArmRule::Later, |nic| nic.arms) {
            ArmRule::Later => self.core.arm(site, |cq| cq.arm(kind))?,
            rule @ ArmRule::Waiting => {
                let now = self.context.node().now();
                self.core.arm(site, |cq| {
                    if cq.arm_by(rule, kind, now) {
                        self.notify(cq);
                    }
                    self.keep_timer(cq);
                })?
            }
        };
        self.armed(armed);
        Ok(())
    }

    /// Asks for a notification of every completion (with moderation: of every batch) that matches
    /// `kind`, until [`Cq::disarm`] (EXT-3). Unread events are limited to the capacity of the
    /// queue.
    ///
    /// # Errors
    /// EINVAL for a destroyed queue.
    #[track_caller]
    pub fn notify_persistent(self: &Arc<Self>, kind: ArmKind) -> Result<(), Error> {
        self.notify_persistent_at(kind, ArmSite::Source(Location::caller()))
    }

    /// As [`Cq::notify_persistent`], for a face that knows the address or line of the call.
    ///
    /// # Errors
    /// EINVAL for a destroyed queue.
    pub fn notify_persistent_at(
        self: &Arc<Self>,
        kind: ArmKind,
        site: ArmSite,
    ) -> Result<(), Error> {
        self.context.node().check_alive()?;
        let armed = self.core.arm(site, |cq| cq.arm_persistent(kind))?;
        self.armed(armed);
        Ok(())
    }

    /// Removes the pending arm, persistent or not. Events already made stay.
    pub fn disarm(&self) {
        self.core.change(|cq| cq.disarm());
    }

    /// Arms as NDKPI does. A completion in the queue that was added after the last
    /// [`Cq::mark_notified`] satisfies the arm at once (NDK-2). An overrun satisfies the arm too,
    /// now or later.
    ///
    /// # Errors
    /// EINVAL for a destroyed queue.
    pub fn arm_fresh(self: &Arc<Self>, kind: ArmKind) -> Result<(), Error> {
        let node = self.context.node();
        node.check_alive()?;
        self.untimed.store(false, Ordering::Relaxed);
        let now = node.now();
        self.core.arm(ArmSite::Unknown, |cq| {
            if cq.arm_fresh(kind, now) {
                self.notify(cq);
            }
            self.keep_timer(cq);
        })?;
        self.armed(Armed { waiting: 0, idly: false });
        Ok(())
    }

    /// The callback for [`Cq::arm_fresh`] is about to run.
    pub fn mark_notified(&self) {
        self.core.change(|cq| cq.mark_notified());
    }

    /// The program has armed and will probably sleep.
    fn armed(self: &Arc<Self>, armed: Armed) {
        if !matches!(self.sink, Sink::None) {
            self.context.node().about_to_sleep(armed.idly);
        }
        self.note_arm(armed.waiting);
    }

    /// Moderates events (EXT-2). An armed queue notifies after `count` completions that match the
    /// arm, or `period` after the first of them, whichever comes first. Zero for both ends
    /// moderation.
    ///
    /// # Errors
    /// EINVAL for a destroyed queue.
    pub fn moderate(self: &Arc<Self>, count: u32, period: Duration) -> Result<(), Error> {
        self.context.check_usable()?;
        self.enter_timed();
        self.untimed.store(false, Ordering::Relaxed);
        self.core.moderate(|cq| {
            cq.set_moderation(count, period);
            self.keep_timer(cq);
        })?;
        Ok(())
    }

    /// Registers the queue with the timer queue.
    pub(super) fn enter_timed(self: &Arc<Self>) {
        self.timed.get_or_init(|| {
            let queue: Weak<Cq> = Arc::downgrade(self);
            self.context.node().registry.add_timed_cq(self.number, queue);
        });
    }

    /// Called under the lock.
    pub(super) fn keep_timer(&self, cq: &adverb_engine::Cq) {
        let Some(at) = cq.poll_timeout() else { return };
        let old = self.timer_at.load(Ordering::Relaxed);
        if at.0 < old {
            self.timer_at.store(at.0, Ordering::Relaxed);
            self.context.node().enter_timer(at, Timed::Cq(self.number), old);
        }
    }
}

impl From<Closed> for Error {
    fn from(_: Closed) -> Self {
        Error::invalid("cq", "the completion queue was destroyed")
    }
}
