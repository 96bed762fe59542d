//! Decides from the state of the threads whether a wake-up is lost.
use adverb_threads::{Doing, PAUSE, Thread};
use std::fmt;
use std::time::Duration;

/// A queue is looked at after this time without a touch by a thread.
pub const PATIENCE: Duration = Duration::from_millis(100);
/// All threads have to be idle for this time. `adverb hunt` gives a program up after half a second.
pub const IDLE: Duration = Duration::from_millis(400);
/// The wait if the thread that should poll could be in the middle of its work.
pub const LONG: Duration = Duration::from_secs(10);
/// The longest time between two looks.
const LONGEST: Duration = Duration::from_secs(60);

/// The threads expected to poll a queue, by number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueThreads {
    /// The thread that polled last.
    pub poller: Option<i32>,
    /// The thread that armed last, if after the last poll.
    pub armer: Option<i32>,
    /// The thread that took the last event, if after the last poll.
    pub taker: Option<i32>,
    /// The thread that polled last also took the last event.
    pub same: bool,
}

/// The known facts about a queue with completions for which no event will come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scene {
    /// The threads that are expected to poll.
    pub queue_threads: QueueThreads,
    /// The program's threads, as far as known.
    pub threads: Vec<Thread>,
    /// The kernel does not list the threads.
    pub hidden: bool,
    /// A task of an asynchronous executor has begun to wait for an event since the last poll.
    pub task: bool,
    /// No other queue uses the channel.
    pub alone: bool,
    /// Another queue of the channel is armed or has an event, so a thread may wait for the other
    /// queue.
    pub sibling: bool,
    /// The queue was never armed.
    pub never_armed: bool,
    /// Time without a poll, an arm or an event taken.
    pub silent: Duration,
}

/// Why a wake-up counts as lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// The thread that waits for the channel.
    pub waiter: Option<Thread>,
    /// A task waits for the channel.
    pub task: bool,
    /// No thread of the process that could poll is left.
    pub idle: bool,
    /// The evidence is this time without a poll.
    pub silent: Option<Duration>,
    /// Another thread has taken an event or armed since the last poll, and this thread, which
    /// polls, rests.
    pub poller: Option<Thread>,
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut between = "";
        if let Some(Thread { id, name, call, .. }) = &self.waiter {
            write!(f, "thread {id} {name:?} waits in {call}")?;
            between = ", and ";
        } else if self.task {
            write!(f, "a task waits for the event")?;
            between = ", and ";
        }
        if self.idle {
            write!(f, "{between}every other thread is idle")?;
        }
        if let Some(silent) = self.silent {
            write!(f, "{between}no thread has polled for {} s", silent.as_secs())?;
        }
        Ok(())
    }
}

impl QueueThreads {
    /// The thread that polled last, if another thread has taken an event or armed since. The queue
    /// then waits for a poll of this thread.
    #[must_use]
    pub fn poller_after_other(&self) -> Option<i32> {
        let since = [self.taker, self.armer];
        let other = since.iter().flatten().next().is_some() && !since.contains(&self.poller);
        self.poller.filter(|_| other)
    }
}

impl Scene {
    /// The thread that polls, if another thread has taken an event or armed since, and the thread
    /// waits for a thread of this process.
    fn resting_poller(&self) -> Option<&Thread> {
        let poller = self.queue_threads.poller_after_other()?;
        self.threads.iter().find(|t| t.id == poller && t.doing == Doing::Rests(true))
    }

    /// Decides whether a wake-up is lost. The table is in docs/design/notification.md.
    #[must_use]
    pub fn judge(&self) -> Option<Evidence> {
        let after = |time: Duration| (self.silent >= time).then_some(time);
        let since = |time: Duration, waiter: Option<&Thread>| {
            let silent = Some(after(time)?);
            Some(Evidence {
                waiter: waiter.cloned(),
                task: self.task,
                silent,
                poller: self.resting_poller().cloned(),
                ..Evidence::default()
            })
        };
        let QueueThreads { poller, armer, taker, same } = self.queue_threads;
        if poller.is_some() && self.never_armed && self.sibling {
            // The program polls this queue without events, and sleeps for the other queue.
            return None;
        }
        // Ended threads poll no more.
        let is_queue_thread = |t: &&Thread| [poller, armer, taker].contains(&Some(t.id));
        let queue_threads: Vec<&Thread> = self.threads.iter().filter(is_queue_thread).collect();
        let is_waiter = |t: &Thread| matches!(t.doing, Doing::Waits { .. });
        if let Some(waiter) =
            queue_threads.first().filter(|_| queue_threads.iter().all(|t| is_waiter(t)))
        {
            // Each thread that could be about to poll waits for an event instead.
            let pause = queue_threads.iter().all(|t| t.doing == Doing::Waits { pause: true });
            after(if pause { PAUSE } else { PATIENCE })?;
            let waiter = Some((*waiter).clone());
            return Some(Evidence { waiter, ..Evidence::default() });
        }
        let does = |doing: Doing| queue_threads.iter().any(|t| t.doing == doing);
        let waiter = self.threads.iter().find(|t| is_waiter(t));
        if self.task {
            return since(LONG, waiter);
        }
        let has_polled = queue_threads.iter().any(|t| Some(t.id) == poller);
        if does(Doing::Works) && has_polled {
            return None;
        }
        if does(Doing::Hidden) && !does(Doing::Works) || self.hidden && queue_threads.is_empty() {
            let hidden =
                queue_threads.iter().find(|t| t.doing == Doing::Hidden && !t.call.is_empty());
            return since(PAUSE, waiter.or(hidden.copied()));
        }
        waiter?;
        if queue_threads.is_empty() && self.sibling {
            return since(LONG, waiter);
        }
        let idle =
            |t: &Thread| matches!(t.doing, Doing::Rests(true) | Doing::Waits { pause: false });
        if self.threads.iter().all(idle) {
            // The threads wait for each other and for the channel.
            after(if queue_threads.is_empty() { PATIENCE } else { IDLE })?;
            let idle = self.threads.len() > 1;
            let poller = self.resting_poller().cloned();
            return Some(Evidence { waiter: waiter.cloned(), idle, poller, ..Evidence::default() });
        }
        if queue_threads.is_empty() && self.alone {
            return since(PAUSE, waiter);
        }
        // A thread that has taken the event itself comes back to the queue.
        if has_polled && same { None } else { since(LONG, waiter) }
    }
}

/// Time until the next look at a queue that has been silent for this time. The intervals grow, and
/// include the times for which [`Scene::judge`] waits.
#[must_use]
pub fn next_look(silent: Duration) -> Duration {
    let next = (silent * 2).clamp(PATIENCE, silent + LONGEST);
    let step = [PAUSE, LONG].into_iter().find(|step| silent < *step && next > *step);
    step.unwrap_or(next) - silent
}

#[cfg(all(test, not(loom)))]
mod tests;
