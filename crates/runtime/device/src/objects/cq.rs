//! Completion queues and completion channels.
use self::notify::{Lost, NotifyCore};
use self::watch::Watch;
use crate::acks::Acks;
use crate::async_event::{AsyncEvent, Subject};
use crate::error::Error;
use crate::faults::Call;
use crate::nic::Has;
use crate::node::ListPlace;
use crate::objects::context::Context;
use crate::objects::device::COMP_VECTORS;
use crate::uses::Uses;
use adverb_engine::{Cause, Completion, Time};
use adverb_trace::{Done, Record};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

mod adversary;
mod arms;
mod channel;
mod judge;
#[cfg(all(test, loom))]
mod loom_tests;
mod notify;
mod shown;
mod watch;

pub use adversary::{Adversary, Maker, install};
pub use channel::CompChannel;
pub use notify::ArmSite;
pub use watch::{LostWakeup, set_code_namer};

/// The destination of a completion queue's events.
#[derive(Clone, Debug)]
pub enum Sink {
    /// Nowhere (CQN-11).
    None,
    /// To a completion channel.
    Channel(Arc<CompChannel>),
    /// To an object of the face.
    Custom(Arc<dyn Notify>),
}

/// Takes the events of completion queues.
pub trait Notify: Send + Sync + std::fmt::Debug {
    /// An arm of `cq` was satisfied. Called under the queue's lock, by the thread that added the
    /// completion. The function may only wake a task or thread, and must not call the queue.
    fn notify(&self, cq: &Arc<Cq>);
}

/// A completion queue.
#[derive(Debug)]
pub struct Cq {
    context: Arc<Context>,
    number: u32,
    sink: Sink,
    core: NotifyCore,
    /// Events in the channel that the program has not read.
    unread: AtomicUsize,
    watch: Watch,
    acks: Acks,
    async_acks: Acks,
    pub(crate) uses: Uses,
    /// A word for the face: the C object of this queue.
    cookie: AtomicUsize,
    destroyed: AtomicBool,
    /// The queue's entry in the timer queue; `u64::MAX` without an entry. Changed under the lock of
    /// `core`.
    timer_at: AtomicU64,
    /// Set when the timer queue knows the queue's number.
    timed: OnceLock<()>,
    /// The program does not read the time stamps of completions.
    untimed: AtomicBool,
    adversary: Option<Box<dyn Adversary>>,
    place: ListPlace,
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
        let sink = channel.map_or(Sink::None, |c| Sink::Channel(c.clone()));
        Cq::with_sink(context, cqe, sink, comp_vector)
    }

    /// Makes a queue of at least `cqe` entries with events to `sink`.
    ///
    /// # Errors
    /// EINVAL naming the bad argument.
    pub fn with_sink(
        context: &Arc<Context>,
        cqe: u32,
        sink: Sink,
        comp_vector: u32,
    ) -> Result<Arc<Self>, Error> {
        context.fault_call(Call::CreateCq)?;
        Error::check_size("cqe", cqe, context.limits().max_cqe)?;
        if comp_vector >= COMP_VECTORS {
            let what = format!("comp_vector is {comp_vector}");
            return Err(Error::invalid(what, format!("the device has {COMP_VECTORS}")));
        }
        let number = context.node().registry.new_cq();
        let cq = Arc::new(Cq {
            context: context.clone(),
            number,
            sink,
            core: NotifyCore::new(cqe)?,
            unread: AtomicUsize::new(0),
            watch: Watch::default(),
            acks: Acks::default(),
            async_acks: Acks::default(),
            uses: Uses::new("the completion queue"),
            cookie: AtomicUsize::new(0),
            destroyed: AtomicBool::new(false),
            timer_at: AtomicU64::new(u64::MAX),
            timed: OnceLock::new(),
            untimed: AtomicBool::new(false),
            adversary: adversary::of_new_queue(number),
            place: context.place(),
        });
        cq.place.fill(&cq);
        if let Some(adversary) = &cq.adversary {
            adversary.enters(&cq);
        }
        if let Sink::Channel(channel) = &cq.sink {
            channel.add(&cq);
        }
        Ok(cq)
    }

    /// The program will not read time stamps, so no time stamp is taken. Reading the clock costs as
    /// much as the rest of adding a completion.
    pub fn without_timestamps(&self) {
        self.untimed.store(true, Ordering::Relaxed);
    }

    /// From now on a completion that does not fit replaces the oldest completion, and the queue
    /// never falls into error. The consumer is responsible for the size of the queue
    /// (`IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN`).
    pub fn ignore_overrun(&self) {
        self.core.change(|cq| cq.ignore_overrun());
    }

    /// The queue's number in this process.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The word of the face.
    #[must_use]
    pub fn cookie(&self) -> usize {
        self.cookie.load(Ordering::Acquire)
    }
    /// Sets the word of the face.
    pub fn set_cookie(&self, cookie: usize) {
        self.cookie.store(cookie, Ordering::Release);
    }
    /// The context of the queue.
    #[must_use]
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }
    /// The capacity in entries.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.core.change(|cq| cq.capacity())
    }

    /// Adds a completion and, if an arm fires, its event.
    #[inline(always)]
    pub(crate) fn push(
        self: &Arc<Self>,
        completion: Completion,
        now: impl FnOnce() -> Time,
    ) -> Result<(), Cause> {
        if let Some(adversary) = &self.adversary {
            return self.push_unless_withheld(&**adversary, completion, now);
        }
        self.add(completion, now)
    }

    #[cold]
    fn push_unless_withheld(
        self: &Arc<Self>,
        adversary: &dyn Adversary,
        completion: Completion,
        now: impl FnOnce() -> Time,
    ) -> Result<(), Cause> {
        adversary.completes(self, completion).map_or(Ok(()), |completion| self.add(completion, now))
    }

    /// Adds a completion that the queue's adversary has withheld.
    pub fn make_visible(self: &Arc<Self>, completion: Completion) {
        // A lost completion was reported.
        let _ = self.add(completion, || self.context.node().now());
    }

    /// The adversary of the queue.
    #[inline]
    #[must_use]
    pub fn adversary(&self) -> Option<&dyn Adversary> {
        self.adversary.as_deref()
    }

    #[inline(always)]
    fn add(
        self: &Arc<Self>,
        completion: Completion,
        now: impl FnOnce() -> Time,
    ) -> Result<(), Cause> {
        let now = if self.untimed.load(Ordering::Relaxed) { Time::ZERO } else { now() };
        if adverb_trace::on() {
            trace_completion(self.number, &completion);
        }
        let pushed =
            self.core.push(completion, now, |cq| self.notify(cq), |cq| self.keep_timer(cq));
        let unarmed = pushed.map_err(|Lost { cause, first }| {
            if first {
                log::error!("{cause}; poll the queue more often, or make the queue larger");
                self.context.raise(AsyncEvent::CqErr, self.clone());
            }
            cause
        })?;
        if unarmed {
            self.note_unarmed();
        }
        Ok(())
    }

    /// Called under the lock.
    fn notify(self: &Arc<Self>, cq: &adverb_engine::Cq) {
        match &self.sink {
            Sink::None => {}
            Sink::Channel(channel) => {
                // A persistent arm makes events even if the program reads none. So unread events
                // are limited to the capacity of the queue.
                let unread = self.unread.load(Ordering::Relaxed);
                if !cq.is_persistent() || unread < cq.capacity() as usize {
                    self.unread.fetch_add(1, Ordering::Relaxed);
                    if adverb_trace::on() {
                        let (t, tid) = (adverb_trace::now(), adverb_trace::thread());
                        adverb_trace::record(&Record::Event { t, tid, cq: self.number });
                    }
                    channel.push(self.clone());
                }
            }
            Sink::Custom(sink) => sink.notify(self),
        }
    }

    /// An event of this queue was handed to the program; called under the channel's lock.
    fn event_read(&self) {
        self.unread.fetch_sub(1, Ordering::Relaxed);
        self.acks.note_read();
    }

    /// Takes up to `max` completions, oldest first. With an empty queue the device first makes
    /// progress. `take` is called under the queue's lock, so it must not call the device.
    ///
    /// # Errors
    /// The cause, if the queue overflowed and is empty.
    pub fn poll(
        self: &Arc<Self>,
        max: usize,
        take: impl FnMut(Completion),
    ) -> Result<usize, Cause> {
        let node = self.context.node();
        node.fault_call(Call::PollCq).map_err(|_| Cause::Injected)?;
        node.policy.looks_at_queue(|| node.now());
        self.note_poll();
        if self.is_empty() {
            node.progress_polling();
        } else {
            node.pump_pending();
        }
        if let Some(adversary) = &self.adversary {
            return self.poll_against(&**adversary, max, take);
        }
        self.core.poll(max, take)
    }

    /// Takes another completion after [`Cq::poll`] gave a completion. Makes no progress.
    ///
    /// Stops at a completion that made a still unread event, and leaves the completion for this
    /// event. With `insist` the completion is taken all the same: the caller was told `Ok(0)`
    /// before. So a program that arms and then polls until empty gets no event for an empty queue,
    /// even if the completion arrived between arm and poll. Such an event would be legal (CQN-8).
    /// But on a NIC only nanoseconds lie between arm and poll. Here the program may lose the
    /// processor in between, and some programs take such an event for an error.
    ///
    /// # Errors
    /// The cause, if the queue overflowed and is empty.
    pub fn poll_next(
        self: &Arc<Self>,
        insist: bool,
        take: impl FnMut(Completion),
    ) -> Result<usize, Cause> {
        let leave = |cq: &adverb_engine::Cq| {
            !insist && self.unread.load(Ordering::Relaxed) > 0 && cq.next_made_the_event()
        };
        if let Some(adversary) = &self.adversary {
            return self.poll_against(&**adversary, 1, take);
        }
        self.core.poll_unless(leave, 1, take)
    }

    #[cold]
    fn poll_against(
        self: &Arc<Self>,
        adversary: &dyn Adversary,
        max: usize,
        mut take: impl FnMut(Completion),
    ) -> Result<usize, Cause> {
        adversary.polls(self);
        self.core.poll(max, |c| {
            adversary.polled(&c);
            take(c);
        })
    }

    /// Number of waiting completions; makes no progress.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.core.waiting()
    }
    /// Is no completion waiting?
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Events made and not taken by the program (feature `sim`).
    #[cfg(feature = "sim")]
    #[must_use]
    pub fn unread(&self) -> usize {
        self.unread.load(Ordering::Relaxed)
    }

    /// The completions waiting now, oldest first; makes no progress (feature `sim`).
    #[cfg(feature = "sim")]
    #[must_use]
    pub fn waiting(&self) -> Vec<Completion> {
        let mut all = Vec::new();
        self.core.peek(usize::MAX, |completion| all.push(completion.clone()));
        all
    }

    /// Shows up to `max` completions, oldest first, and leaves them in the queue (EXT-1). Answers
    /// their number. With an empty queue the device first makes progress.
    pub fn peek(&self, max: usize, show: impl FnMut(&Completion)) -> usize {
        let node = self.context.node();
        node.policy.looks_at_queue(|| node.now());
        self.note_poll();
        if self.is_empty() {
            node.progress_polling();
        }
        self.core.peek(max, show)
    }

    /// Has the queue overflowed? Then completions were lost, and none is added any more.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.core.is_broken()
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
        self.context.check_usable()?;
        self.context.needs(Has::RESIZE)?;
        Error::check_size("cqe", cqe, self.context.limits().max_cqe)?;
        self.core.change(|cq| cq.make_room(cqe))?;
        Ok(self.core.change(|cq| cq.resize(cqe).map(|()| cq.capacity()))?)
    }

    /// Removes the completions of a destroyed or reset queue pair.
    pub(crate) fn purge(&self, qpn: u32) {
        if let Some(adversary) = &self.adversary {
            adversary.purged(qpn);
        }
        self.core.purge(qpn);
    }

    /// Ends the queue; refused while queue pairs use the queue. Unread events are taken back
    /// (CHN-5). Then the call waits until every event read was acknowledged (CHN-4).
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
        if let Sink::Channel(channel) = &self.sink {
            channel.remove(self);
        }
        if self.timed.get().is_some() {
            self.context.node().registry.remove_timed_cq(self.number);
        }
        self.context.forget(&**self);
        let name = || format!("CQ {} ({} entries)", self.number, self.capacity());
        self.acks.wait_all(name);
        self.async_acks.wait_all(name);
        Ok(())
    }
}

impl Subject for Cq {
    fn async_acks(&self) -> &Acks {
        &self.async_acks
    }
}

fn trace_completion(cq: u32, c: &Completion) {
    let (t, tid) = (adverb_trace::now(), adverb_trace::thread());
    let (status, opcode) = (c.status as u32, c.opcode as u32);
    let of = Done { qp: c.qpn, wr_id: c.wr_id, status, opcode, bytes: c.byte_len };
    adverb_trace::record(&Record::Completion { t, tid, cq, of });
}
