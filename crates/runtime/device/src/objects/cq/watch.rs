//! The report of lost wake-ups (EXT-4): completions lie in a queue, no event will announce them,
//! and the program sleeps.
//!
//! A watch begins when completions are in the queue and no event is due. This happens at an arm
//! over a queue that is not empty, at a completion without an arm, when an event was taken, and
//! when a thread begins to wait for an event. The background thread looks at the queue after
//! [`PATIENCE`], and then at growing intervals while no thread touches the queue. The state of the
//! program's threads then decides ([`Scene::judge`]). A lost wake-up is reported once an arm.
use super::judge::{Evidence, PATIENCE, QueueThreads, Scene, next_look};
use super::notify::Look;
use super::{ArmSite, CompChannel, Cq, Sink};
use crate::node::{Deadline, NEVER, Timed};
use crate::own_id::own_id;
use adverb_engine::Time;
use adverb_threads::{Channel, Process, ProcessLook, Thread};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// When to look at the queue, and the observed touches of its consumers.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// When the background thread looks; [`NEVER`] without a watch.
    at: Deadline,
    /// The time of the last observed touch of the queue.
    since: AtomicU64,
    /// [`Touches::count`] at that time.
    touches: AtomicU64,
    /// The number of the reported arm plus one; 0 for none.
    reported: AtomicU64,
    seen: Touches,
}

impl Watch {
    /// Moves the next look from `from` to `at`. `false`: another thread has moved it.
    fn moves(&self, from: u64, at: Time) -> bool {
        self.at.0.compare_exchange(from, at.0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// The silence begins now.
    fn begin(&self, look: &Look, now: Time) {
        self.since.store(now.0, Ordering::Relaxed);
        self.touches.store(self.seen.count(look), Ordering::Relaxed);
    }

    /// Time since the last observed touch of the queue. A touch since the last look begins the time
    /// anew.
    pub(super) fn silent(&self, look: &Look, now: Time) -> Duration {
        let since = self.since.load(Ordering::Relaxed);
        if since != 0 && self.seen.count(look) == self.touches.load(Ordering::Relaxed) {
            return Duration::from_nanos(now.0.saturating_sub(since));
        }
        self.begin(look, now);
        Duration::ZERO
    }

    /// The thread that polled last, if another thread has taken an event or armed since.
    pub(super) fn poller_without_event(&self) -> Option<i32> {
        self.seen.queue_threads().poller_after_other()
    }
}

/// The threads that have polled, armed and taken events. All fields are written without ordering,
/// because the judgement uses only values that have been stable for a while.
#[derive(Debug, Default)]
struct Touches {
    poller: AtomicI32,
    armer: AtomicI32,
    taker: AtomicI32,
    /// An arm was set since the last poll.
    armed: AtomicBool,
    /// An event was taken since the last poll.
    taken: AtomicBool,
    /// Number of events taken.
    events: AtomicU64,
    /// [`Touches::count`] when a task began to wait for an event, plus one.
    task: AtomicU64,
}

impl Touches {
    /// A thread polls. Usually the same thread polls again, so nothing is written.
    #[inline]
    fn polled(&self) {
        let id = own_id();
        if self.poller.load(Ordering::Relaxed) != id {
            self.poller.store(id, Ordering::Relaxed);
        }
        for since in [&self.armed, &self.taken] {
            if since.load(Ordering::Relaxed) {
                since.store(false, Ordering::Relaxed);
            }
        }
    }

    fn armed(&self) {
        self.armer.store(own_id(), Ordering::Relaxed);
        self.armed.store(true, Ordering::Relaxed);
    }

    fn taken(&self) {
        self.taker.store(own_id(), Ordering::Relaxed);
        self.taken.store(true, Ordering::Relaxed);
        self.events.fetch_add(1, Ordering::Relaxed);
    }

    /// Changes with every poll of a queue with completions, every arm and every event taken.
    fn count(&self, look: &Look) -> u64 {
        look.polls + look.arms + self.events.load(Ordering::Relaxed)
    }

    fn queue_threads(&self) -> QueueThreads {
        let id = |of: &AtomicI32| Some(of.load(Ordering::Relaxed)).filter(|id| *id != 0);
        let since =
            |of: &AtomicI32, flag: &AtomicBool| id(of).filter(|_| flag.load(Ordering::Relaxed));
        QueueThreads {
            poller: id(&self.poller),
            armer: since(&self.armer, &self.armed),
            taker: since(&self.taker, &self.taken),
            same: id(&self.poller).is_some() && id(&self.poller) == id(&self.taker),
        }
    }
}

/// A queue with completions for which no event will come (EXT-4).
#[derive(Clone, Debug)]
pub struct LostWakeup {
    /// The queue.
    pub cq: Arc<Cq>,
    /// Completions in the queue that arrived before its pending arm; all completions without a
    /// pending arm.
    pub waiting: usize,
    /// Is an arm pending? Only later completions can satisfy the arm.
    pub armed: bool,
    /// Arms so far.
    pub arms: u64,
    /// The place of the last arm.
    pub site: ArmSite,
}

static CODE_NAMER: OnceLock<fn(usize) -> String> = OnceLock::new();

/// Sets the function that names an address of the program's code in words. Called once, by the face
/// that knows the names.
pub fn set_code_namer(namer: fn(usize) -> String) {
    let _ = CODE_NAMER.set(namer);
}

impl fmt::Display for ArmSite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ArmSite::Unknown => write!(f, "an unknown place"),
            ArmSite::Code(address) => match CODE_NAMER.get() {
                Some(namer) => write!(f, "{}", namer(*address)),
                None => write!(f, "{address:#x}"),
            },
            ArmSite::Source(location) => write!(f, "{location}"),
        }
    }
}

impl LostWakeup {
    /// The report in words.
    pub(super) fn words(&self, evidence: &Evidence) -> String {
        let (held, Some(Thread { id, name, call, .. })) = (self.held(), &evidence.poller) else {
            return format!("{self}; {evidence}");
        };
        format!(
            "{held}, another thread has taken the event and armed, and thread {id} {name:?}, which \
             polls, sleeps in {call} and was not woken after the arm (a condition variable keeps no \
             signal: look at a flag under the mutex before pthread_cond_wait); {evidence}"
        )
    }

    fn held(&self) -> String {
        let (number, n) = (self.cq.number, self.waiting);
        let s = if n == 1 { "" } else { "s" };
        format!("CQ {number} holds {n} completion{s}")
    }
}

impl fmt::Display for LostWakeup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.held())?;
        match (self.armed, self.arms) {
            (_, 0) => write!(f, "and was never armed")?,
            (true, _) => write!(f, "that came before its last arm (armed at {})", self.site)?,
            (false, _) => {
                write!(
                    f,
                    "and was not armed again after its last event (last armed at {})",
                    self.site
                )?;
            }
        }
        let them = if self.waiting == 1 { "it" } else { "them" };
        write!(f, ": no event will come for {them}; arm, then poll until empty")
    }
}

impl Cq {
    /// The completions in the queue for which no event will come.
    #[must_use]
    pub fn lost_wakeup(self: &Arc<Self>) -> Option<LostWakeup> {
        self.lost_wakeup_in(&self.core.look())
    }

    fn lost_wakeup_in(self: &Arc<Self>, look: &Look) -> Option<LostWakeup> {
        // An unread event announces them.
        if look.unannounced == 0 || self.unread.load(Ordering::Relaxed) > 0 {
            return None;
        }
        let Look { unannounced: waiting, arm, arms, site, .. } = *look;
        Some(LostWakeup { cq: self.clone(), waiting, armed: arm.is_some(), arms, site })
    }

    /// A thread polls.
    #[inline]
    pub(super) fn note_poll(&self) {
        if matches!(self.sink, Sink::Channel(_)) {
            self.watch.seen.polled();
        }
    }

    /// A thread has armed the queue, and `waiting` completions are in the queue.
    pub(super) fn note_arm(self: &Arc<Self>, waiting: usize) {
        if matches!(self.sink, Sink::Channel(_)) {
            self.watch.seen.armed();
            if waiting > 0 {
                self.watch();
            }
        }
    }

    /// A thread has taken an event of the queue.
    pub(super) fn note_event(self: &Arc<Self>) {
        self.watch.seen.taken();
        if !self.is_empty() {
            self.watch();
        }
    }

    /// A completion arrived without a pending arm.
    #[inline]
    pub(super) fn note_unarmed(self: &Arc<Self>) {
        let is_watched = self.watch.at.0.load(Ordering::Relaxed) != NEVER;
        if !is_watched
            && matches!(self.sink, Sink::Channel(_))
            && self.unread.load(Ordering::Relaxed) == 0
        {
            self.watch();
        }
    }

    /// Completions may be unannounced: the background thread will look after a while.
    #[cold]
    fn watch(self: &Arc<Self>) {
        let Sink::Channel(channel) = &self.sink else { return };
        if self.watch.at.0.load(Ordering::Relaxed) != NEVER || !channel.is_watched() {
            return;
        }
        let now = self.context.node().now();
        let at = now + PATIENCE;
        // One watch at a time.
        if !self.watch.moves(NEVER, at) {
            return;
        }
        self.enter_timed();
        self.watch.begin(&self.core.look(), now);
        self.context.node().enter_deadline_of_thread(at, Timed::Watch(self.number), NEVER);
    }

    /// A thread begins to wait for an event while the looks at the queue are far apart.
    fn watch_soon(self: &Arc<Self>) {
        let at = self.watch.at.0.load(Ordering::Acquire);
        let soon = self.context.node().now() + PATIENCE;
        if at == NEVER {
            self.watch();
        } else if at > soon.0 && self.watch.moves(at, soon) {
            self.context.node().enter_deadline_of_thread(soon, Timed::Watch(self.number), at);
        }
    }

    /// The watch's entry is due; called by the background thread.
    pub(super) fn look_again(self: &Arc<Self>, now: Time) {
        let at = self.watch.at.0.load(Ordering::Acquire);
        if at > now.0 {
            return;
        }
        // Stored before the look, so that a thread that touches the queue after the look begins a
        // new watch.
        self.watch.at.0.store(NEVER, Ordering::SeqCst);
        let look = self.core.look();
        let reported = self.watch.reported.load(Ordering::Relaxed) == look.arms + 1;
        if reported || self.lost_wakeup_in(&look).is_none() || !look.missed {
            return;
        }
        let silent = self.watch.silent(&look, now);
        if let Some((lost, evidence)) = self.lost(&look, silent) {
            self.watch.reported.store(look.arms + 1, Ordering::Relaxed);
            log::warn!("lost wake-up: {}", lost.words(&evidence));
            return;
        }
        let next = now + next_look(silent);
        if self.watch.moves(NEVER, next) {
            self.context.node().enter_deadline_of_thread(next, Timed::Watch(self.number), NEVER);
        }
    }

    /// The completions of a lost wake-up, and the evidence.
    pub(super) fn lost(
        self: &Arc<Self>,
        look: &Look,
        silent: Duration,
    ) -> Option<(LostWakeup, Evidence)> {
        let lost = self.lost_wakeup_in(look).filter(|_| look.missed && !silent.is_zero())?;
        let touches = self.watch.seen.count(look);
        let evidence = self.judge(look, silent)?;
        let after = self.core.look();
        // The threads were looked at one after the other. If the queue is unchanged, the threads'
        // actions in between did not concern the queue.
        let same = self.watch.seen.count(&after) == touches;
        (same && self.lost_wakeup_in(&after).is_some()).then_some((lost, evidence))
    }

    /// The evidence for a lost wake-up, if there is any. "All threads are idle" holds only if no
    /// thread has moved between the first and the last look.
    fn judge(&self, look: &Look, silent: Duration) -> Option<Evidence> {
        let before = self.scene(look, silent)?;
        let evidence = before.judge()?;
        if !evidence.idle {
            return Some(evidence);
        }
        let first = ProcessLook::of(Process::Own)?;
        let again = self.scene(look, silent)?;
        let moved = ProcessLook::of(Process::Own)?.has_moved(&first);
        (again.threads == before.threads && !moved).then_some(evidence)
    }

    /// The known facts about the queue and the program's threads.
    pub(super) fn scene(&self, look: &Look, silent: Duration) -> Option<Scene> {
        let Sink::Channel(channel) = &self.sink else { return None };
        let queue_threads = self.watch.seen.queue_threads();
        let pipe = channel.pipe()?;
        let others: Vec<_> =
            channel.living().into_iter().filter(|cq| cq.number != self.number).collect();
        let has_event =
            |cq: &Arc<Cq>| cq.unread.load(Ordering::Relaxed) > 0 || cq.core.look().arm.is_some();
        let listed = Process::Own.program_tasks();
        let hidden = listed.is_none();
        // Without a list, only threads that have touched the queue or the channel are known.
        let ids = listed.map(|all| all.iter().map(|(task, _)| task.id).collect());
        let ids: Vec<i32> = ids.unwrap_or_else(|| {
            let known = [queue_threads.poller, queue_threads.armer, queue_threads.taker]
                .into_iter()
                .flatten();
            let mut ids: Vec<i32> = known.chain(pipe.getting.iter().copied()).collect();
            ids.sort_unstable();
            ids.dedup();
            ids
        });
        Some(Scene {
            queue_threads,
            threads: ids.iter().filter_map(|id| adverb_threads::look(*id, &pipe, &ids)).collect(),
            hidden,
            task: self.watch.seen.task.load(Ordering::Relaxed) == self.watch.seen.count(look) + 1,
            alone: others.is_empty(),
            sibling: others.iter().any(has_event),
            never_armed: look.arms == 0,
            silent,
        })
    }
}

impl CompChannel {
    /// The queues of this channel with completions for which no event will come (EXT-4). A thread
    /// that sleeps on the channel does not learn of these completions.
    #[must_use]
    pub fn lost_wakeups(&self) -> Vec<LostWakeup> {
        self.living().iter().filter_map(Cq::lost_wakeup).collect()
    }

    /// Does a queue of this channel contain completions?
    #[must_use]
    pub fn holds_completions(&self) -> bool {
        self.living().iter().any(|cq| !cq.is_empty())
    }

    /// A thread is about to sleep on the channel, for the first time in its call.
    pub(super) fn watch(&self) {
        if self.is_watched() {
            self.living().iter().filter(|cq| !cq.is_empty()).for_each(Cq::watch_soon);
        }
    }

    /// A task is about to sleep on the channel.
    pub(super) fn watch_task(&self) {
        if !self.is_watched() {
            return;
        }
        for cq in self.living() {
            let seen = &cq.watch.seen;
            seen.task.store(seen.count(&cq.core.look()) + 1, Ordering::Relaxed);
            if !cq.is_empty() {
                cq.watch_soon();
            }
        }
    }

    /// The identity of the channel in the kernel's view of waiting threads.
    fn pipe(&self) -> Option<Channel> {
        let inode = self.events.inode()?;
        let getting = self.getting.lock().clone();
        Some(Channel { inode, signals: self.events.signals(), getting })
    }

    /// Is the report wanted?
    fn is_watched(&self) -> bool {
        log::log_enabled!(log::Level::Warn) && self.watched.load(Ordering::Relaxed)
    }

    fn living(&self) -> Vec<Arc<Cq>> {
        self.cqs.lock().iter().filter_map(Weak::upgrade).collect()
    }
}
