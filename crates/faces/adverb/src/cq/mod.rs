//! Completion queues and their channels.
use crate::completion::Completion;
use crate::device::Context;
use crate::error::{Error, Result};
use crate::handle::{DeviceObject, Handle};
use crate::sites;
use crate::wakers::Wakers;
use adverb_device::ArmSite;
use adverb_device::engine::cq::arm::ArmKind;
use std::panic::Location;
use std::sync::Arc;
use std::time::{Duration, Instant};

mod builder;
mod channel;
mod stream;

pub use builder::CqBuilder;
pub use channel::{CompChannel, CqEvent, LostWakeup, NextEvent};
pub use stream::Completions;
pub(crate) use stream::look_arm_look;

/// Which completions a completion queue notifies of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Notify {
    /// The next completion.
    Next,
    /// The next completion that is solicited or unsuccessful. A completion is solicited if the
    /// sender of the message asked for an event. Failures of any kind count.
    Solicited,
    /// The next unsuccessful completion. Verbs have no such arm; NDKPI does.
    Errors,
}

impl Notify {
    fn kind(self) -> ArmKind {
        match self {
            Notify::Next => ArmKind::Next,
            Notify::Solicited => ArmKind::Solicited,
            Notify::Errors => ArmKind::Errors,
        }
    }
}

/// A completion queue (IBTA 10.2.4, `ibv_create_cq(3)`). A queue is cheap to clone. The queue is
/// destroyed with the last handle, queue pair or event that refers to it. Any number of threads may
/// poll, arm and wait at the same time.
#[derive(Clone, Debug)]
pub struct Cq(pub(crate) Handle<CqInner>);

#[derive(Debug)]
pub struct CqInner {
    pub(crate) cq: Arc<adverb_device::Cq>,
    context: Context,
    channel: Option<CompChannel>,
    wakers: Arc<Wakers>,
    user_data: u64,
}

impl DeviceObject for CqInner {
    const WHAT: &'static str = "the completion queue";
    fn end(&mut self) -> Result<(), adverb_device::Error> {
        if let Some(channel) = &self.channel {
            channel.remove(self.cq.number());
        }
        self.cq.destroy()
    }
}

impl Cq {
    /// The open device.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.0.context
    }
    /// The completion channel of the queue, if there is a channel.
    #[must_use]
    pub fn channel(&self) -> Option<&CompChannel> {
        self.0.channel.as_ref()
    }
    /// The number of the queue in this process. Asynchronous events name the queue by this number.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.0.cq.number()
    }
    /// The value of [`CqBuilder::user_data`]: `cq_context` of verbs.
    #[must_use]
    pub fn user_data(&self) -> u64 {
        self.0.user_data
    }
    /// The capacity: how many completions the queue holds. One more completion puts the queue in
    /// error.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.0.cq.capacity()
    }
    /// The number of waiting completions. The call makes no progress: what the network has brought
    /// meanwhile shows after a poll.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.cq.len()
    }
    /// Whether no completion waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.cq.is_empty()
    }

    /// Takes completions, oldest first, as many as fit into `into`, and returns their number
    /// (`ibv_poll_cq(3)`). A poll of an empty queue makes the device progress. A poll takes no
    /// event away.
    /// # Errors
    /// [`Error::CqOverflow`] once a queue that overflowed is empty.
    #[track_caller]
    pub fn poll(&self, into: &mut [Completion]) -> Result<usize> {
        let mut places = into.iter_mut();
        let max = places.len();
        let taken = self.0.cq.poll(max, |c| {
            if let Some(place) = places.next() {
                *place = Completion::new(c);
            }
        })?;
        sites::polled(&self.0.cq, taken, Location::caller());
        Ok(taken)
    }

    /// Takes the oldest completion, if there is a completion.
    ///
    /// # Errors
    /// As [`Cq::poll`].
    #[track_caller]
    pub fn poll_one(&self) -> Result<Option<Completion>> {
        self.poll_one_at(Location::caller())
    }

    fn poll_one_at(&self, at: &'static Location<'static>) -> Result<Option<Completion>> {
        let mut got = None;
        let taken = self.0.cq.poll(1, |c| got = Some(Completion::new(c)))?;
        sites::polled(&self.0.cq, taken, at);
        Ok(got)
    }

    /// An iterator that takes completions one by one and ends when the queue is found empty. If the
    /// iterator is dropped before its end, the other completions stay in the queue.
    ///
    /// # Errors
    /// An item is an error as from [`Cq::poll`]. The iterator ends after an error.
    #[track_caller]
    pub fn drain(&self) -> Drain<'_> {
        Drain { cq: self, at: Location::caller(), ended: false }
    }

    /// Polls until a completion comes, for at most `timeout`. The call is for a thread that has
    /// nothing else to do and wants the lowest latency. A thread that wants to sleep waits on a
    /// channel or on a [`Cq::completions`] stream.
    ///
    /// # Errors
    /// [`Error::TimedOut`]; [`Error::CqOverflow`].
    #[track_caller]
    pub fn wait(&self, timeout: Duration) -> Result<Completion> {
        self.wait_at(timeout, Location::caller())
    }

    fn wait_at(&self, timeout: Duration, at: &'static Location<'static>) -> Result<Completion> {
        let start = Instant::now();
        loop {
            if let Some(completion) = self.poll_one_at(at)? {
                return Ok(completion);
            }
            if start.elapsed() >= timeout {
                return Err(Error::TimedOut);
            }
            // The peer may be a thread that needs this processor.
            std::thread::yield_now();
        }
    }

    /// Polls until `n` completions have come, for at most `timeout` in all. Returns the completions
    /// in order.
    ///
    /// # Errors
    /// [`Error::TimedOut`] (completions that arrived before are lost then); [`Error::CqOverflow`].
    #[track_caller]
    pub fn wait_all(&self, n: usize, timeout: Duration) -> Result<Vec<Completion>> {
        let (start, at) = (Instant::now(), Location::caller());
        (0..n).map(|_| self.wait_at(timeout.saturating_sub(start.elapsed()), at)).collect()
    }

    /// Copies up to `max` completions, oldest first, and leaves the originals in the queue. Another
    /// thread may take the originals meanwhile. The call takes no event away and changes no arm. A
    /// call on an empty queue makes the device progress.
    #[must_use]
    pub fn peek(&self, max: usize) -> Vec<Completion> {
        let mut seen = Vec::new();
        self.0.cq.peek(max, |c| seen.push(Completion::new(c.clone())));
        seen
    }

    /// Whether completions were lost because the queue was full.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.0.cq.is_broken()
    }

    /// Asks for one event (`ibv_req_notify_cq(3)`). Completions that are already in the queue cause
    /// no event: *arm, then poll until empty, then wait*. A queue with a channel sends the event
    /// there. A queue without a channel wakes its [`Cq::completions`] streams, if there are any.
    ///
    /// # Errors
    /// EIO in a child of `fork`.
    #[track_caller]
    pub fn notify(&self, what: Notify) -> Result<()> {
        let at = Location::caller();
        let arm = || Ok(self.0.cq.req_notify_at(what.kind(), ArmSite::Source(at))?);
        sites::armed(&self.0.cq, at, arm)
    }

    /// Asks for an event for each completion that `what` matches, until [`Cq::disarm`]. With
    /// [`Cq::moderate`] the queue makes an event for each batch. The number of unread events never
    /// exceeds the capacity of the queue.
    ///
    /// # Errors
    /// EIO in a child of `fork`.
    #[track_caller]
    pub fn notify_persistent(&self, what: Notify) -> Result<()> {
        Ok(self.0.cq.notify_persistent(what.kind())?)
    }

    /// Takes the pending arm back, persistent or not. Events that were made before stay.
    pub fn disarm(&self) {
        self.0.cq.disarm();
    }

    /// Holds events back until `count` completions that match the arm have come, or until `period`
    /// has passed since the first of them, whichever is first (`ibv_modify_cq(3)`). A zero switches
    /// off that condition, and two zeros end moderation. The clock has the grain of the system's
    /// timers, about 50 µs.
    ///
    /// # Errors
    /// EIO in a child of `fork`.
    pub fn moderate(&self, count: u32, period: Duration) -> Result<()> {
        Ok(self.0.cq.moderate(count, period)?)
    }

    /// Changes the capacity (`ibv_resize_cq(3)`) and returns the new capacity.
    ///
    /// # Errors
    /// EINVAL for a size out of range, or below the number of waiting completions.
    pub fn resize(&self, entries: u32) -> Result<u32> {
        Ok(self.0.cq.resize(entries)?)
    }

    /// The completions as a stream for any executor. The stream arms, polls again and only then
    /// sleeps, so no wake-up is lost. The stream buffers nothing, so it may be dropped at any time.
    ///
    /// # Errors
    /// [`Error::HasChannel`]: the events of this queue go to its channel. Make the queue without a
    /// channel.
    pub fn completions(&self) -> Result<Completions> {
        Completions::new(self)
    }

    /// The next completion, as a future for any executor. If the future is dropped before it is
    /// ready, it has taken no completion.
    ///
    /// # Errors
    /// [`Error::HasChannel`] as [`Cq::completions`]; [`Error::CqOverflow`].
    pub async fn completion(&self) -> Result<Completion> {
        let mut completions = self.completions()?;
        std::future::poll_fn(|cx| completions.poll(cx)).await
    }

    /// Destroys the queue now.
    ///
    /// # Errors
    /// [`Error::Busy`] if other handles, queue pairs or unacknowledged events of the queue exist.
    /// The queue then ends with the last of them.
    pub fn destroy(self) -> Result<()> {
        self.0.destroy()
    }

    /// Calls `waker` when the next completion comes. `number` identifies the future.
    pub(crate) fn wake_next(&self, number: u64, waker: &std::task::Waker) -> Result<()> {
        // Set the waker before the arm: the event of the arm must find it.
        self.0.wakers.set(number, waker);
        self.notify(Notify::Next)
    }

    /// The future with this number no longer waits.
    pub(crate) fn wake_no_more(&self, number: u64) {
        self.0.wakers.remove(number);
    }
}

/// Two handles are equal if they name the same queue.
impl PartialEq for Cq {
    fn eq(&self, other: &Self) -> bool {
        self.0.ptr_eq(&other.0)
    }
}
impl Eq for Cq {}

/// Takes all waiting completions ([`Cq::drain`]).
#[derive(Debug)]
pub struct Drain<'a> {
    cq: &'a Cq,
    at: &'static Location<'static>,
    ended: bool,
}

impl Iterator for Drain<'_> {
    type Item = Result<Completion>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let item = self.cq.poll_one_at(self.at).transpose();
        self.ended = !matches!(item, Some(Ok(_)));
        item
    }
}

impl std::iter::FusedIterator for Drain<'_> {}
