//! Completion queues and completion channels.
use self::notify::{Closed, Lost, NotifyCore};
use crate::context::{AsyncEvent, Context, Element};
use crate::error::Error;
use crate::event_queue::{Acks, EventQueue};
use crate::node::Timed;
use crate::uses::Uses;
use adverb_engine::cq::arm::ArmKind;
use adverb_engine::{Cause, Completion, Time};
use nix::errno::Errno;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

#[cfg(all(test, loom))]
mod loom_tests;
mod notify;

/// A completion channel: events of the CQs that were created with it, and a descriptor (CHN-1 … CHN-6).
#[derive(Debug)]
pub struct CompChannel {
    context: Arc<Context>,
    events: EventQueue<Arc<Cq>>,
    uses: Uses,
}

impl CompChannel {
    /// Makes a channel.
    ///
    /// # Errors
    /// EMFILE and the like from the kernel.
    pub fn new(context: &Arc<Context>) -> Result<Arc<Self>, Error> {
        context.node().check_alive()?;
        Ok(Arc::new(CompChannel {
            context: context.clone(),
            events: EventQueue::new()?,
            uses: Uses::new("the completion channel"),
        }))
    }
    /// The descriptor, readable exactly while an event waits (CHN-2).
    #[must_use]
    pub fn raw_fd(&self) -> RawFd {
        self.events.raw_fd()
    }
    /// Waits for an event as the descriptor's `O_NONBLOCK` says and answers its CQ (CHN-1). The event must be
    /// acknowledged with [`Cq::ack_events`] (CHN-4).
    ///
    /// # Errors
    /// EAGAIN, EINTR (CHN-7), or ETIMEDOUT after `cutoff`.
    pub fn next_event(&self, cutoff: Option<Instant>) -> Result<Arc<Cq>, Errno> {
        if self.context.node().is_stale() {
            return Err(Errno::EIO);
        }
        self.events.pop(self.context.node(), cutoff, |cq| cq.acks.note_read())
    }
    /// Ends the channel; refused while CQs use it (CHN-6).
    ///
    /// # Errors
    /// EBUSY.
    pub fn destroy(&self) -> Result<(), Error> {
        self.uses.check_unused()
    }
}

/// A completion queue.
#[derive(Debug)]
pub struct Cq {
    context: Arc<Context>,
    channel: Option<Arc<CompChannel>>,
    core: NotifyCore,
    acks: Acks,
    pub(crate) async_acks: Acks,
    pub(crate) uses: Uses,
    /// The face's own word: the C object of this queue.
    cookie: AtomicUsize,
    destroyed: AtomicBool,
    /// Earliest entry in the timer queue; `u64::MAX` without one.
    timer_at: AtomicU64,
    /// Number in the timer queue.
    timer_id: OnceLock<u32>,
}

impl Cq {
    /// Makes a queue of at least `cqe` entries.
    ///
    /// # Errors
    /// EINVAL naming the bad argument.
    pub fn new(
        context: &Arc<Context>,
        cqe: u32,
        channel: Option<&Arc<CompChannel>>,
        comp_vector: u32,
    ) -> Result<Arc<Self>, Error> {
        context.node().check_alive()?;
        let max = context.limits().max_cqe;
        if cqe == 0 || cqe > max {
            return Err(Error::invalid(format!("cqe is {cqe}"), format!("1 to {max} are possible")));
        }
        if comp_vector >= crate::device::COMP_VECTORS {
            return Err(Error::invalid(
                format!("comp_vector is {comp_vector}"),
                format!("the device has {}", crate::device::COMP_VECTORS),
            ));
        }
        if let Some(channel) = channel {
            channel.uses.add();
        }
        Ok(Arc::new(Cq {
            context: context.clone(),
            channel: channel.cloned(),
            core: NotifyCore::new(cqe),
            acks: Acks::default(),
            async_acks: Acks::default(),
            uses: Uses::new("the completion queue"),
            cookie: AtomicUsize::new(0),
            destroyed: AtomicBool::new(false),
            timer_at: AtomicU64::new(u64::MAX),
            timer_id: OnceLock::new(),
        }))
    }

    /// The face's own word.
    #[must_use]
    pub fn cookie(&self) -> usize {
        self.cookie.load(Ordering::Acquire)
    }
    /// Sets the face's own word.
    pub fn set_cookie(&self, cookie: usize) {
        self.cookie.store(cookie, Ordering::Release);
    }
    /// The context it belongs to.
    #[must_use]
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }
    /// Entries it holds.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.core.capacity()
    }

    /// Adds a completion and, if an arm fires, its event.
    pub(crate) fn push(self: &Arc<Self>, completion: Completion, now: Time) -> Result<(), Cause> {
        let pushed = self.core.push(completion, now, || self.notify(), |cq| self.keep_timer(cq));
        pushed.map_err(|Lost { cause, first }| {
            if first {
                log::error!("{cause}; poll it more often or make it larger");
                self.context.raise(AsyncEvent::CqErr, Element::Cq(self.clone()));
            }
            cause
        })
    }

    fn notify(self: &Arc<Self>) {
        if let Some(channel) = &self.channel {
            channel.events.push(self.clone());
        }
    }

    /// Takes up to `max` completions, oldest first. An empty queue makes the device progress first.
    ///
    /// # Errors
    /// The cause, if the queue overflowed and nothing is left in it.
    pub fn poll(&self, max: usize, take: impl FnMut(Completion)) -> Result<usize, Cause> {
        if self.is_empty() {
            self.context.node().progress_polling();
        } else {
            self.context.node().pump_dirty();
        }
        self.core.poll(max, take)
    }

    /// Completions waiting now; makes no progress.
    #[must_use]
    pub fn len(&self) -> usize {
        self.core.waiting()
    }
    /// None waiting now?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Asks for a notification (CQN-1 … CQN-6). Without a channel the arm holds, and no event goes anywhere (CQN-11).
    ///
    /// # Errors
    /// EINVAL for a destroyed queue (CQN-10).
    pub fn req_notify(&self, kind: ArmKind) -> Result<(), Error> {
        self.context.node().check_alive()?;
        self.core.arm(kind)?;
        if self.channel.is_some() {
            self.context.node().about_to_sleep();
        }
        Ok(())
    }

    /// Moderates events: an armed queue notifies after `count` completions that the arm waits for or `period` after the
    /// first of them, whichever is first (EXT-2); both zero end it.
    ///
    /// # Errors
    /// EINVAL for a destroyed queue.
    pub fn moderate(self: &Arc<Self>, count: u32, period: Duration) -> Result<(), Error> {
        self.context.node().check_alive()?;
        self.timer_id.get_or_init(|| self.context.node().add_cq_timer(self));
        self.core.moderate(|cq| cq.set_moderation(count, period), |cq| self.keep_timer(cq))?;
        Ok(())
    }

    /// Called under the lock.
    fn keep_timer(&self, cq: &adverb_engine::Cq) {
        let (Some(at), Some(id)) = (cq.poll_timeout(), self.timer_id.get()) else { return };
        if at.0 < self.timer_at.load(Ordering::Relaxed) {
            self.timer_at.store(at.0, Ordering::Relaxed);
            self.context.node().enter_timer(at, Timed::Cq(*id));
        }
    }

    /// An entry of the timer queue is due.
    pub(crate) fn timer_due(self: &Arc<Self>, now: Time) {
        let rearm = |cq: &adverb_engine::Cq| {
            self.timer_at.store(u64::MAX, Ordering::Relaxed);
            self.keep_timer(cq);
        };
        self.core.expired(now, || self.notify(), rearm);
    }

    /// Acknowledges `n` events at once (CHN-4).
    pub fn ack_events(&self, n: u32) {
        self.acks.ack(n);
    }

    /// Changes the capacity.
    ///
    /// # Errors
    /// EINVAL for sizes out of range or below the completions waiting.
    pub fn resize(&self, cqe: u32) -> Result<u32, Error> {
        self.context.node().check_alive()?;
        let max = self.context.limits().max_cqe;
        if cqe == 0 || cqe > max {
            return Err(Error::invalid(format!("cqe is {cqe}"), format!("1 to {max} are possible")));
        }
        Ok(self.core.resize(cqe)?)
    }

    /// Removes what a destroyed or reset queue pair left.
    pub(crate) fn purge(&self, qpn: u32) {
        self.core.purge(qpn);
    }

    /// Ends the queue: refused while queue pairs use it; unread events are taken back (CHN-5), then it waits until
    /// every event read was acknowledged (CHN-4).
    ///
    /// # Errors
    /// EBUSY.
    pub fn destroy(self: &Arc<Self>) -> Result<(), Error> {
        if self.context.node().is_stale() {
            return Ok(());
        }
        self.uses.check_unused()?;
        if self.destroyed.swap(true, Ordering::SeqCst) {
            return Err(Error::invalid("cq", "the completion queue was destroyed already"));
        }
        self.core.close();
        if let Some(channel) = &self.channel {
            channel.events.remove(|cq| Arc::ptr_eq(cq, self));
            channel.uses.remove();
        }
        if let Some(id) = self.timer_id.get() {
            self.context.node().remove_cq_timer(*id);
        }
        self.context.forget(|e| matches!(e, Element::Cq(cq) if Arc::ptr_eq(cq, self)));
        let name = || format!("a completion queue of {} entries", self.core.capacity());
        self.acks.wait_all(name);
        self.async_acks.wait_all(name);
        Ok(())
    }
}

impl From<Closed> for Error {
    fn from(_: Closed) -> Self {
        Error::invalid("cq", "the completion queue was destroyed")
    }
}
