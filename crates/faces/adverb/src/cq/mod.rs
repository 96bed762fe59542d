//! Completion queues and their channels.
use crate::completion::Completion;
use crate::device::Context;
use crate::error::{Error, Result};
use crate::handle::{End, Handle};
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
pub use channel::{CompChannel, CqEvent, NextEvent, Overlooked};
pub use stream::Completions;

/// What a completion queue is to notify of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Notify {
    /// The next completion.
    Next,
    /// The next completion that is solicited or unsuccessful: of a message whose sender
    /// asked for an event, or a failure of any kind.
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

/// A completion queue (IBTA 10.2.4, `ibv_create_cq(3)`). Cheap to clone; destroyed with its last
/// handle, queue pair and event. Any number of threads may poll, arm and wait at a time.
#[derive(Clone, Debug)]
pub struct Cq(Handle<CqInner>);

#[derive(Debug)]
pub struct CqInner {
    cq: Arc<adverb_device::Cq>,
    context: Context,
    channel: Option<CompChannel>,
    wakers: Arc<Wakers>,
    user_data: u64,
}

impl End for CqInner {
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
    /// Its channel, if it has one.
    #[must_use]
    pub fn channel(&self) -> Option<&CompChannel> {
        self.0.channel.as_ref()
    }
    /// Its number in this process, by which asynchronous events name it.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.0.cq.number()
    }
    /// What [`CqBuilder::user_data`] gave it: `cq_context` of verbs.
    #[must_use]
    pub fn user_data(&self) -> u64 {
        self.0.user_data
    }
    /// Completions it holds at most. One more, and the queue is in error.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.0.cq.capacity()
    }
    /// Completions waiting. Makes no progress: what the network has brought meanwhile shows after a
    /// poll.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.cq.len()
    }
    /// None waiting?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.cq.is_empty()
    }

    /// Takes completions, oldest first, as many as fit into `into`, and answers how many
    /// (`ibv_poll_cq(3)`). Polling an empty queue makes the device progress. Takes no event away.
    ///
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

    /// Takes one completion, if there is one.
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

    /// Takes the completions there are one by one, as an iterator that ends when the queue is found
    /// empty. Dropped before, it leaves the rest where they are.
    ///
    /// # Errors
    /// Its items are errors as those of [`Cq::poll`]; it ends after one.
    #[track_caller]
    pub fn drain(&self) -> Drain<'_> {
        Drain { cq: self, at: Location::caller(), ended: false }
    }

    /// Polls until a completion comes, at most so long. For a thread that has nothing else to do
    /// and wants the lowest latency; one that is to sleep waits on a channel or a
    /// [`Cq::completions`] stream.
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

    /// Polls until `n` completions came, at most so long for all of them, in order.
    ///
    /// # Errors
    /// [`Error::TimedOut`] (what came is lost then); [`Error::CqOverflow`].
    #[track_caller]
    pub fn wait_all(&self, n: usize, timeout: Duration) -> Result<Vec<Completion>> {
        let (start, at) = (Instant::now(), Location::caller());
        (0..n).map(|_| self.wait_at(timeout.saturating_sub(start.elapsed()), at)).collect()
    }

    /// Looks at up to `max` completions, oldest first, and leaves them where they are. They
    /// are copies: another thread may take the originals meanwhile. Takes no event away and changes
    /// no arm.
    #[must_use]
    pub fn peek(&self, max: usize) -> Vec<Completion> {
        let mut seen = Vec::new();
        self.0.cq.peek(max, |c| seen.push(Completion::new(c.clone())));
        seen
    }

    /// Did completions get lost because the queue was full?
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.0.cq.is_broken()
    }

    /// Asks for one event (`ibv_req_notify_cq(3)`). Completions already in the
    /// queue make none: *arm, then poll until empty, then wait*. Without a channel it is a
    /// [`Cq::completions`] stream that is woken, or nobody.
    ///
    /// # Errors
    /// EIO in a child of `fork`.
    #[track_caller]
    pub fn notify(&self, what: Notify) -> Result<()> {
        let at = Location::caller();
        let arm = || Ok(self.0.cq.req_notify_at(what.kind(), ArmSite::Source(at))?);
        sites::armed(&self.0.cq, at, arm)
    }

    /// Asks for an event for every completion that `what` matches, or with [`Cq::moderate`] for
    /// every batch, until [`Cq::disarm`]. No more events wait unread than the queue has
    /// entries.
    ///
    /// # Errors
    /// EIO in a child of `fork`.
    #[track_caller]
    pub fn notify_persistent(&self, what: Notify) -> Result<()> {
        Ok(self.0.cq.notify_persistent(what.kind())?)
    }

    /// Takes the pending arm back, persistent or not. Events made already stay.
    pub fn disarm(&self) {
        self.0.cq.disarm();
    }

    /// Holds events back until `count` completions came that the arm waits for, or `period` has
    /// passed since the first of them, whichever is first (`ibv_modify_cq(3)`). Zero leaves
    /// a part out; both zero end it. The clock's grain is that of the system's timers, about 50 µs.
    ///
    /// # Errors
    /// EIO in a child of `fork`.
    pub fn moderate(&self, count: u32, period: Duration) -> Result<()> {
        Ok(self.0.cq.moderate(count, period)?)
    }

    /// Changes the capacity (`ibv_resize_cq(3)`) and answers the new one.
    ///
    /// # Errors
    /// EINVAL for sizes out of range or below the completions waiting.
    pub fn resize(&self, entries: u32) -> Result<u32> {
        Ok(self.0.cq.resize(entries)?)
    }

    /// Its completions as a stream for any executor. It arms, polls again and only then sleeps, so
    /// no wake-up is lost; it holds nothing back, so it may be dropped at any time.
    ///
    /// # Errors
    /// [`Error::HasChannel`]: the events of this queue go to its channel. Make the queue without one.
    pub fn completions(&self) -> Result<Completions> {
        Completions::new(self)
    }

    /// The next completion, as a future for any executor. Dropped before it is ready, it has taken
    /// nothing.
    ///
    /// # Errors
    /// [`Error::HasChannel`] as [`Cq::completions`]; [`Error::CqOverflow`].
    pub async fn completion(&self) -> Result<Completion> {
        let mut completions = self.completions()?;
        std::future::poll_fn(|cx| completions.poll(cx)).await
    }

    /// Destroys it now.
    ///
    /// # Errors
    /// [`Error::Busy`] if other handles, queue pairs or unacknowledged events of it exist;
    /// it goes with the last.
    pub fn destroy(self) -> Result<()> {
        self.0.destroy()
    }

    /// Has `waker` called when the next completion comes, under a number of the future's own.
    pub(crate) fn wake_next(&self, number: u64, waker: &std::task::Waker) -> Result<()> {
        // The waker first: the event of the arm finds it there.
        self.0.wakers.set(number, waker);
        self.notify(Notify::Next)
    }

    /// The future with this number waits no more.
    pub(crate) fn wake_no_more(&self, number: u64) {
        self.0.wakers.remove(number);
    }

    pub(crate) fn raw(&self) -> &Arc<adverb_device::Cq> {
        &self.0.cq
    }
}

/// The same queue?
impl PartialEq for Cq {
    fn eq(&self, other: &Self) -> bool {
        self.0.ptr_eq(&other.0)
    }
}
impl Eq for Cq {}

/// All completions there are ([`Cq::drain`]).
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
