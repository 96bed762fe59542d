//! Completion channels and their events.
use super::{Cq, CqInner};
use crate::device::Context;
use crate::error::{Error, Result};
use crate::handle::{End, Handle, WeakHandle};
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

/// A completion channel: where completion queues that were made with it report that completions
/// have come (`ibv_create_comp_channel(3)`, `ibv_get_cq_event(3)`). Cheap to clone; ends with its
/// last handle and queue.
///
/// There are four ways to wait, and all of them may be used on one channel at a time; each event
/// goes to one waiter, in the order in which events arose:
///
/// * [`CompChannel::next_event`] blocks,
/// * [`CompChannel::try_event`] does not,
/// * the descriptor ([`AsFd`]) is readable exactly while an event waits, for `poll`,
///   `epoll` and reactors,
/// * [`CompChannel::event`] is a future for any executor.
#[derive(Clone, Debug)]
pub struct CompChannel(Handle<ChannelInner>);

#[derive(Debug)]
pub struct ChannelInner {
    channel: Arc<adverb_device::CompChannel>,
    context: Context,
    /// Tasks that wait for an event.
    wakers: Arc<Wakers>,
    /// Wakes all of them. The device has this one, and not theirs, which it would drop under a
    /// queue's lock.
    wake_all: Waker,
    /// Its queues, by number.
    cqs: Mutex<HashMap<u32, WeakHandle<CqInner>>>,
}

impl End for ChannelInner {
    const WHAT: &'static str = "the completion channel";
    fn end(&mut self) -> Result<(), adverb_device::Error> {
        self.channel.destroy()
    }
}

/// A queue whose completions no event will speak of: they came before its pending arm, or
/// it is not armed.
#[derive(Clone, Debug)]
pub struct Overlooked {
    /// The queue.
    pub cq: Cq,
    /// Completions in it that no event speaks of.
    pub waiting: usize,
    /// Is an arm pending, which only later completions satisfy?
    pub armed: bool,
    /// It all in words, with the place in the program where the queue was armed last.
    pub report: String,
}

impl Context {
    /// Makes a completion channel (`ibv_create_comp_channel(3)`).
    ///
    /// # Errors
    /// EMFILE and the like from the kernel.
    pub fn create_channel(&self) -> Result<CompChannel> {
        CompChannel::new(self)
    }
}

impl CompChannel {
    pub(crate) fn new(context: &Context) -> Result<Self> {
        let channel = adverb_device::CompChannel::new(context.raw())?;
        let wakers = Arc::new(Wakers::default());
        Ok(CompChannel(Handle::new(ChannelInner {
            channel,
            context: context.clone(),
            wake_all: Waker::from(wakers.clone()),
            wakers,
            cqs: Mutex::default(),
        })))
    }

    /// The open device.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.0.context
    }

    /// Waits for an event, making progress meanwhile. If the descriptor was made
    /// non-blocking it does not wait.
    ///
    /// # Errors
    /// [`Error::Interrupted`] by a signal or [`CompChannel::interrupt`];
    /// [`Error::WouldBlock`] when non-blocking.
    #[track_caller]
    pub fn next_event(&self) -> Result<CqEvent> {
        self.wait(None, Location::caller())
    }

    /// Waits for an event, but at most so long; `None` when none came. A time of zero is
    /// [`CompChannel::try_event`].
    ///
    /// # Errors
    /// [`Error::Interrupted`]; [`Error::WouldBlock`] when non-blocking.
    #[track_caller]
    pub fn next_event_timeout(&self, timeout: Duration) -> Result<Option<CqEvent>> {
        // A time too long to add is forever.
        match self.wait(Instant::now().checked_add(timeout), Location::caller()) {
            Ok(event) => Ok(Some(event)),
            Err(Error::TimedOut) => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn wait(&self, cutoff: Option<Instant>, at: &'static Location<'static>) -> Result<CqEvent> {
        loop {
            let channel = &self.0.channel;
            let cq = sites::event(channel, at, || channel.next_event(cutoff)).map_err(Error::from_wait)?;
            if let Some(event) = self.event_of(cq) {
                return Ok(event);
            }
        }
    }

    /// An event if one waits; never waits itself.
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

    /// The next event, as a future for any executor: the device's background thread makes progress
    /// and wakes the task. Dropped before it is ready, it has taken nothing.
    pub fn event(&self) -> NextEvent<'_> {
        NextEvent { channel: self, number: self.0.wakers.number() }
    }

    /// Has one waiting [`CompChannel::next_event`], or the next one, return [`Error::Interrupted`].
    pub fn interrupt(&self) {
        self.0.channel.interrupt();
    }

    /// Queues of this channel that hold completions which no event will speak of, now: a
    /// thread that goes to sleep on the channel sleeps beside them. Empty for a program that arms,
    /// polls until empty, and only then waits.
    #[must_use]
    pub fn overlooked(&self) -> Vec<Overlooked> {
        let ours = |o: adverb_device::Overlooked| {
            let cq = self.find(&o.cq)?;
            Some(Overlooked { cq, waiting: o.waiting, armed: o.armed, report: o.to_string() })
        };
        self.0.channel.overlooked().into_iter().filter_map(ours).collect()
    }

    /// Sets or clears `O_NONBLOCK` of the descriptor, which decides whether
    /// [`CompChannel::next_event`] waits.
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

    /// Ends it now.
    ///
    /// # Errors
    /// [`Error::Busy`] if other handles or queues of it exist; it ends with the last of
    /// them.
    pub fn destroy(self) -> Result<()> {
        self.0.destroy()
    }

    pub(crate) fn raw(&self) -> &Arc<adverb_device::CompChannel> {
        &self.0.channel
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

    /// The event with its queue, unless the last handle on that is just being dropped: then the
    /// event is gone with it, and acknowledged, since the queue's end waits for that.
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

/// The next event of a channel, for any executor ([`CompChannel::event`]). Its output is an error
/// (EIO) in a child of `fork`.
#[derive(Debug)]
#[must_use = "a future does nothing unless it is polled"]
pub struct NextEvent<'a> {
    channel: &'a CompChannel,
    /// Its number among those that wait.
    number: u64,
}

impl Future for NextEvent<'_> {
    type Output = Result<CqEvent>;

    fn poll(self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Self::Output> {
        let inner = &self.channel.0;
        // Before the device looks once more whether there is an event: whoever adds one later finds
        // the waker.
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

/// An event: completions have come that an arm of its queue waited for. Acknowledged when it is
/// dropped (`ibv_ack_cq_events(3)`); it keeps the queue until then.
///
/// The queue may be found empty, if completions were polled before the event was read.
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
        self.cq.raw().ack_events(1);
    }
}
