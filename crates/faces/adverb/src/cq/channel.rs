//! Completion channels and their events.
use super::{Cq, CqInner};
use crate::device::Context;
use crate::error::{Error, Result};
use crate::handle::{Handle, WeakHandle, ends};
use crate::sites;
use crate::wakers::Wakers;
use adverb_sync::Mutex;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::{Duration, Instant};

/// A completion channel: the completion queues that were made with the channel send their events
/// here (`ibv_create_comp_channel(3)`, `ibv_get_cq_event(3)`). A channel is cheap to clone, and
/// ends with its last handle and queue.
///
/// There are four ways to wait. A program may use all of them on one channel at the same time. Each
/// event goes to one waiter, in the order in which events arose:
///
/// * [`CompChannel::next_event`] blocks,
/// * [`CompChannel::try_event`] does not block,
/// * the descriptor ([`AsFd`]) is readable exactly while an event waits, for `poll`,
///   `epoll` and reactors,
/// * [`CompChannel::event`] is a future for any executor.
#[derive(Clone, Debug)]
pub struct CompChannel(pub(crate) Handle<ChannelInner>);

#[derive(Debug)]
pub struct ChannelInner {
    pub(crate) channel: Arc<adverb_device::CompChannel>,
    context: Context,
    /// The tasks that wait for an event.
    wakers: Arc<Wakers>,
    /// Wakes all tasks of `wakers`. The device gets this waker and not the tasks' own wakers, which
    /// the device would drop under a queue's lock.
    wake_all: Waker,
    /// The queues of the channel, by number.
    cqs: Mutex<HashMap<u32, WeakHandle<CqInner>>>,
}

ends!(ChannelInner = "the completion channel" by channel.destroy);

/// A queue with completions that no event will report. The completions arrived before the pending
/// arm, or the queue is not armed.
#[derive(Clone, Debug)]
pub struct LostWakeup {
    /// The queue.
    pub cq: Cq,
    /// The number of completions that no event will report.
    pub waiting: usize,
    /// Whether an arm is pending. Only later completions satisfy the arm.
    pub armed: bool,
    /// A report in words, with the place in the program where the queue was armed last.
    pub report: String,
}

impl Context {
    /// Makes a completion channel (`ibv_create_comp_channel(3)`).
    ///
    /// # Errors
    /// EMFILE and similar errors of the kernel.
    pub fn create_channel(&self) -> Result<CompChannel> {
        let channel = adverb_device::CompChannel::new(self.lower())?;
        let wakers = Arc::new(Wakers::default());
        Ok(CompChannel(Handle::new(ChannelInner {
            channel,
            context: self.clone(),
            wake_all: Waker::from(wakers.clone()),
            wakers,
            cqs: Mutex::default(),
        })))
    }
}

impl CompChannel {
    /// The open device.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.0.context
    }

    /// Waits for an event, and makes progress meanwhile. If the descriptor is non-blocking, the
    /// call does not wait.
    ///
    /// # Errors
    /// [`Error::Interrupted`] if a signal or [`CompChannel::interrupt`] ends the wait;
    /// [`Error::WouldBlock`] if the descriptor is non-blocking and no event waits.
    #[track_caller]
    pub fn next_event(&self) -> Result<CqEvent> {
        self.wait(None, Location::caller())
    }

    /// Waits for an event, for at most `timeout`; `None` if no event arrived. With a timeout of
    /// zero the call is [`CompChannel::try_event`].
    ///
    /// # Errors
    /// [`Error::Interrupted`]; [`Error::WouldBlock`] if the descriptor is non-blocking.
    #[track_caller]
    pub fn next_event_timeout(&self, timeout: Duration) -> Result<Option<CqEvent>> {
        // A deadline beyond the range of the clock means no deadline.
        match self.wait(Instant::now().checked_add(timeout), Location::caller()) {
            Ok(event) => Ok(Some(event)),
            Err(Error::TimedOut) => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn wait(&self, cutoff: Option<Instant>, at: &'static Location<'static>) -> Result<CqEvent> {
        loop {
            let channel = &self.0.channel;
            let cq = sites::event(channel, at, || channel.next_event(cutoff))
                .map_err(Error::from_wait)?;
            if let Some(event) = self.event_of(cq) {
                return Ok(event);
            }
        }
    }

    /// Takes an event if an event waits. The call never blocks.
    #[must_use]
    #[track_caller]
    pub fn try_event(&self) -> Option<CqEvent> {
        let (channel, at) = (&self.0.channel, Location::caller());
        loop {
            let cq = sites::event(channel, at, || channel.try_event())?;
            if let Some(event) = self.event_of(cq) {
                return Some(event);
            }
        }
    }

    /// The next event, as a future for any executor. The device's background thread makes progress
    /// and wakes the task. If the future is dropped before it is ready, it has taken no event.
    pub fn event(&self) -> NextEvent<'_> {
        NextEvent { channel: self, number: self.0.wakers.number() }
    }

    /// Makes one waiting [`CompChannel::next_event`], or the next call, return
    /// [`Error::Interrupted`].
    pub fn interrupt(&self) {
        self.0.channel.interrupt();
    }

    /// The queues of this channel that now hold completions which no event will report. A thread
    /// that sleeps on the channel would not wake for these completions. The list is empty for a
    /// program that arms, polls until empty, and only then waits.
    #[must_use]
    pub fn lost_wakeups(&self) -> Vec<LostWakeup> {
        let ours = |o: adverb_device::LostWakeup| {
            let cq = self.find(&o.cq)?;
            Some(LostWakeup { cq, waiting: o.waiting, armed: o.armed, report: o.to_string() })
        };
        self.0.channel.lost_wakeups().into_iter().filter_map(ours).collect()
    }

    /// Sets or clears `O_NONBLOCK` of the descriptor. With `O_NONBLOCK`,
    /// [`CompChannel::next_event`] does not wait.
    ///
    /// # Errors
    /// The errno of `fcntl`.
    pub fn set_nonblocking(&self, nonblocking: bool) -> Result<()> {
        let flags = fcntl(self.as_fd(), FcntlArg::F_GETFL).map_err(adverb_device::Error::from)?;
        let mut flags = OFlag::from_bits_retain(flags);
        flags.set(OFlag::O_NONBLOCK, nonblocking);
        fcntl(self.as_fd(), FcntlArg::F_SETFL(flags)).map_err(adverb_device::Error::from)?;
        Ok(())
    }

    /// Ends the channel now.
    ///
    /// # Errors
    /// [`Error::Busy`] if other handles or queues of the channel exist. The channel then ends with
    /// the last of them.
    pub fn destroy(self) -> Result<()> {
        self.0.destroy()
    }

    pub(super) fn add(&self, number: u32, cq: WeakHandle<CqInner>) {
        self.0.cqs.lock().insert(number, cq);
    }

    pub(super) fn remove(&self, number: u32) {
        self.0.cqs.lock().remove(&number);
    }

    fn find(&self, cq: &adverb_device::Cq) -> Option<Cq> {
        Handle::upgrade(self.0.cqs.lock().get(&cq.number())?).map(Cq)
    }

    /// The event of a queue. There is none if the last handle on the queue is being dropped. Then
    /// this function acknowledges the event, because the end of the queue waits for the
    /// acknowledgement.
    fn event_of(&self, cq: Arc<adverb_device::Cq>) -> Option<CqEvent> {
        let found = self.find(&cq);
        if found.is_none() {
            cq.ack_events(1);
        }
        found.map(|cq| CqEvent { cq })
    }
}

impl AsFd for CompChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.channel.as_fd()
    }
}

impl AsRawFd for CompChannel {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl PartialEq for CompChannel {
    fn eq(&self, other: &Self) -> bool {
        self.0.ptr_eq(&other.0)
    }
}
impl Eq for CompChannel {}

/// The next event of a channel, for any executor ([`CompChannel::event`]). The output is an error
/// (EIO) in a child of `fork`.
#[derive(Debug)]
#[must_use = "a future does nothing unless it is polled"]
pub struct NextEvent<'a> {
    channel: &'a CompChannel,
    /// The number of this future among the waiting tasks.
    number: u64,
}

impl Future for NextEvent<'_> {
    type Output = Result<CqEvent>;

    fn poll(self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Self::Output> {
        let inner = &self.channel.0;
        // Set the waker before the device looks for an event. A thread that adds an event after the
        // look then finds the waker.
        inner.wakers.set(self.number, cx.waker());
        loop {
            match inner.channel.poll_event(&mut TaskContext::from_waker(&inner.wake_all)) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(e)) => return Poll::Ready(Err(Error::from_wait(e))),
                Poll::Ready(Ok(cq)) => {
                    if let Some(event) = self.channel.event_of(cq) {
                        return Poll::Ready(Ok(event));
                    }
                }
            }
        }
    }
}

impl Drop for NextEvent<'_> {
    fn drop(&mut self) {
        self.channel.0.wakers.remove(self.number);
    }
}

/// An event: completions have come that match an arm of the queue. Dropping the event acknowledges
/// it (`ibv_ack_cq_events(3)`). The event keeps the queue until then.
///
/// The queue may be empty, if the program polled the completions before it read the event.
#[derive(Debug)]
#[must_use = "dropping the event acknowledges it; poll its queue, and arm it again"]
pub struct CqEvent {
    cq: Cq,
}

impl CqEvent {
    /// The queue.
    #[must_use]
    pub fn cq(&self) -> &Cq {
        &self.cq
    }
}

impl Drop for CqEvent {
    fn drop(&mut self) {
        self.cq.lower().ack_events(1);
    }
}
