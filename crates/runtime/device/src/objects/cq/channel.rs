//! Completion channels.
use super::Cq;
use crate::descriptor::kinds::Kind;
use crate::error::Error;
use crate::faults::Call;
use crate::objects::context::Context;
use crate::objects::event_queue::EventQueue;
use crate::own_id::own_id;
use crate::ranks;
use crate::uses::Uses;
use adverb_sync::Ranked;
use nix::errno::Errno;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Instant;

/// A completion channel: the events of its CQs, and a descriptor (CHN-1 … CHN-6).
#[derive(Debug)]
pub struct CompChannel {
    pub(super) context: Arc<Context>,
    pub(super) events: EventQueue<Arc<Cq>>,
    /// Threads that wait in [`CompChannel::next_event`].
    pub(super) getting: Getting,
    pub(super) cqs: Ranked<Vec<Weak<Cq>>, ranks::ChannelQueues>,
    /// Lost wake-ups are reported (EXT-4).
    pub(super) watched: AtomicBool,
    uses: Uses,
}

impl CompChannel {
    /// Makes a channel.
    ///
    /// # Errors
    /// EMFILE and the like from the kernel.
    pub fn new(context: &Arc<Context>) -> Result<Arc<Self>, Error> {
        context.fault_call(Call::CreateCompChannel)?;
        Ok(Arc::new(CompChannel {
            context: context.clone(),
            events: EventQueue::new(Kind::COMPLETIONS)?,
            getting: Getting::default(),
            cqs: Ranked::default(),
            watched: AtomicBool::new(true),
            uses: Uses::new("the completion channel"),
        }))
    }

    /// The first of the channel's queues.
    #[must_use]
    pub fn first_queue(&self) -> Option<Arc<Cq>> {
        self.cqs.lock().first().and_then(Weak::upgrade)
    }

    /// Would [`CompChannel::next_event`] sleep now?
    #[must_use]
    pub fn would_sleep(&self) -> bool {
        self.events.would_sleep()
    }

    /// Waits for an event and answers its CQ (CHN-1). The descriptor's `O_NONBLOCK` decides whether
    /// the call waits. The caller must acknowledge the event with [`Cq::ack_events`] (CHN-4).
    ///
    /// # Errors
    /// EAGAIN, EINTR (CHN-7, or [`CompChannel::interrupt`]), or ETIMEDOUT after `cutoff`.
    pub fn next_event(&self, cutoff: Option<Instant>) -> Result<Arc<Cq>, Errno> {
        self.check_alive()?;
        let mut waiting = None;
        let before_sleep = || {
            if waiting.is_none() {
                waiting = Some(Waiting::new(&self.getting));
                self.watch();
            }
        };
        let event =
            self.events.pop(self.context.node(), cutoff, |cq| cq.event_read(), before_sleep);
        event.inspect(Cq::note_event)
    }

    /// The part of [`CompChannel::next_event`] between two sleeps (feature `sim`). `slept`: the
    /// call has slept before. Without an event the caller sleeps until the channel has an event, or
    /// a packet arrives.
    #[cfg(feature = "sim")]
    #[must_use]
    pub fn event_step(&self, slept: bool) -> Option<Arc<Cq>> {
        self.events
            .pop_step(self.context.node(), slept, |cq| cq.event_read())
            .inspect(Cq::note_event)
    }

    /// Switches off the report of lost wake-ups (EXT-4) on this channel. Used by a face that waits
    /// on the channel in its own thread, independently of the program.
    pub fn unwatch(&self) {
        self.watched.store(false, Ordering::Relaxed);
    }

    /// Takes an event without waiting, whatever the descriptor's `O_NONBLOCK` says.
    #[must_use]
    pub fn try_event(&self) -> Option<Arc<Cq>> {
        self.check_alive().ok()?;
        self.events.try_pop(self.context.node(), |cq| cq.event_read()).inspect(Cq::note_event)
    }

    /// Takes an event, or registers the task for a wake-up at the next event. Any executor will do,
    /// because the device's background thread makes progress meanwhile.
    ///
    /// # Errors
    /// EIO in a child of `fork`.
    pub fn poll_event(&self, cx: &mut std::task::Context<'_>) -> Poll<Result<Arc<Cq>, Errno>> {
        self.check_alive()?;
        let polled = self.events.poll_pop(self.context.node(), cx, |cq| cq.event_read());
        match &polled {
            Poll::Ready(cq) => cq.note_event(),
            Poll::Pending => self.watch_task(),
        }
        polled.map(Ok)
    }

    /// Makes a waiting [`CompChannel::next_event`], or the next call, return EINTR.
    pub fn interrupt(&self) {
        self.events.interrupt();
    }

    fn check_alive(&self) -> Result<(), Errno> {
        if self.context.node().is_stale() { Err(Errno::EIO) } else { Ok(()) }
    }

    pub(super) fn push(&self, cq: Arc<Cq>) {
        self.events.push(cq);
    }

    /// A queue was created on the channel.
    pub(super) fn add(&self, cq: &Arc<Cq>) {
        self.uses.add();
        self.cqs.lock().push(Arc::downgrade(cq));
    }

    /// A queue ends, and its unread events are removed (CHN-5).
    pub(super) fn remove(&self, cq: &Arc<Cq>) {
        self.events.remove(|c| Arc::ptr_eq(c, cq));
        self.cqs.lock().retain(|c| !std::ptr::eq(c.as_ptr(), Arc::as_ptr(cq)));
        self.uses.remove();
    }

    /// Ends the channel; refused while CQs use it (CHN-6).
    ///
    /// # Errors
    /// EBUSY.
    pub fn destroy(&self) -> Result<(), Error> {
        self.uses.check_unused()
    }
}

/// The threads inside a get-event call of a channel.
pub(super) type Getting = Ranked<Vec<i32>, ranks::Getting>;

/// Registers the calling thread as waiting for an event, until the value is dropped.
struct Waiting<'a> {
    getting: &'a Getting,
    id: i32,
}

impl<'a> Waiting<'a> {
    fn new(getting: &'a Getting) -> Self {
        let id = own_id();
        let mut list = getting.lock();
        // A thread cancelled in the call has left its registration behind.
        if !list.contains(&id) {
            list.push(id);
        }
        Waiting { getting, id }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.getting.lock().retain(|id| *id != self.id);
    }
}

/// The descriptor, readable exactly while an event waits (CHN-2).
impl AsFd for CompChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}
