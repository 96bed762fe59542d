//! The thread that serves the ids of all connections of an adapter, and their deadlines.
//!
//! The thread runs no callback of the consumer; the adapter's dispatcher runs them. The methods of
//! a source take the source's lock, and may call the registry under that lock. The registry's lock
//! is never held while a source or an id is called.
use crate::status::NtStatus;
use adverb_sync::{Condvar, Mutex};
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Instant;

/// An object with an id of the connection manager.
pub(crate) trait Source: Send + Sync {
    /// The id has events.
    fn ready(&self, token: u64);
    /// The scheduled time has come.
    fn due(&self, token: u64, now: Instant) {
        let _ = (token, now);
    }
    /// [`Worker::poke`] was called.
    fn poked(&self, token: u64) {
        let _ = token;
    }
}

/// The sources, their deadlines, and the thread that waits for them.
#[derive(Debug, Default)]
pub(crate) struct Worker {
    state: Mutex<Registry>,
    stir: Condvar,
}

#[derive(Default)]
struct Registry {
    sources: HashMap<u64, SourceEntry>,
    deadlines: BTreeSet<(Instant, u64)>,
    rung: Vec<u64>,
    poked: Vec<u64>,
    last_token: u64,
    stopping: bool,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct SourceEntry {
    /// `None` while the token is only reserved.
    source: Option<Arc<dyn Source>>,
    deadline: Option<Instant>,
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ids, {} deadlines", self.sources.len(), self.deadlines.len())
    }
}

/// The worker of an adapter. The first listener or connection starts the thread.
#[derive(Debug, Default)]
pub(crate) struct Network(OnceLock<Arc<Worker>>);

impl Network {
    /// The worker.
    ///
    /// # Errors
    /// `INSUFFICIENT_RESOURCES` if no thread can be started.
    pub(crate) fn get(&self) -> Result<Arc<Worker>, NtStatus> {
        if let Some(worker) = self.0.get() {
            return Ok(worker.clone());
        }
        let made = Worker::start().map_err(|e| {
            log::error!("connections cannot be served: {e}");
            NtStatus::INSUFFICIENT_RESOURCES
        })?;
        let worker = self.0.get_or_init(|| made.clone());
        if !Arc::ptr_eq(worker, &made) {
            made.stop();
        }
        Ok(worker.clone())
    }

    /// Ends the thread, and waits for its end unless called on the thread itself.
    pub(crate) fn stop(&self) {
        if let Some(worker) = self.0.get() {
            worker.stop();
        }
    }
}

impl Worker {
    fn start() -> std::io::Result<Arc<Self>> {
        let worker = Arc::new(Worker::default());
        let me = worker.clone();
        let thread =
            std::thread::Builder::new().name("ndk-connect".to_owned()).spawn(move || me.serve())?;
        worker.state.lock().thread = Some(thread);
        Ok(worker)
    }

    fn stop(&self) {
        let thread = {
            let mut state = self.state.lock();
            state.stopping = true;
            state.thread.take()
        };
        self.stir.notify_all();
        if let Some(thread) = thread
            && thread.thread().id() != std::thread::current().id()
        {
            // A panic of the thread was already reported.
            let _ = thread.join();
        }
        let left = std::mem::take(&mut self.state.lock().sources);
        drop(left);
    }

    /// Reserves a token for a source that is entered later.
    pub(crate) fn reserve(&self) -> u64 {
        let mut state = self.state.lock();
        state.last_token += 1;
        let token = state.last_token;
        state.sources.insert(token, SourceEntry::default());
        token
    }

    /// Enters the source of a token, until [`Worker::remove`]. The source then checks for events
    /// that have already come.
    pub(crate) fn enter(&self, token: u64, source: Arc<dyn Source>) {
        if let Some(entry) = self.state.lock().sources.get_mut(&token) {
            entry.source = Some(source);
        }
        self.ring(token);
    }

    /// Removes a source.
    pub(crate) fn remove(&self, token: u64) {
        let mut state = self.state.lock();
        let entry = state.sources.remove(&token);
        if let Some(at) = entry.as_ref().and_then(|e| e.deadline) {
            state.deadlines.remove(&(at, token));
        }
        drop(state);
        // After the lock is released, because dropping the source may call the registry.
        drop(entry);
    }

    /// Schedules a single call of [`Source::due`]. Replaces the time given before.
    pub(crate) fn schedule(&self, token: u64, at: Option<Instant>) {
        let mut state = self.state.lock();
        let Registry { sources, deadlines, .. } = &mut *state;
        let Some(entry) = sources.get_mut(&token) else { return };
        if entry.deadline == at {
            return;
        }
        if let Some(old) = std::mem::replace(&mut entry.deadline, at) {
            deadlines.remove(&(old, token));
        }
        if let Some(at) = at {
            deadlines.insert((at, token));
            if deadlines.first() == Some(&(at, token)) {
                self.stir.notify_all();
            }
        }
    }

    /// Makes the thread call [`Source::ready`]. May be called under any lock except the registry's
    /// lock.
    pub(crate) fn ring(&self, token: u64) {
        self.state.lock().rung.push(token);
        self.stir.notify_all();
    }

    /// Makes the thread call [`Source::poked`]. May be called under any lock except the registry's
    /// lock.
    pub(crate) fn poke(&self, token: u64) {
        self.state.lock().poked.push(token);
        self.stir.notify_all();
    }

    fn serve(&self) {
        while let Some((rung, poked)) = self.wait() {
            for token in rung {
                if let Some(source) = self.source(token) {
                    source.ready(token);
                }
            }
            for token in poked {
                if let Some(source) = self.source(token) {
                    source.poked(token);
                }
            }
            let now = Instant::now();
            while let Some((token, source)) = self.next_due(now) {
                if let Some(source) = source {
                    source.due(token, now);
                }
            }
        }
    }

    /// Waits for work: the tokens passed to `ring` and to `poke`. `None` if the thread must stop.
    fn wait(&self) -> Option<(Vec<u64>, Vec<u64>)> {
        let mut state = self.state.lock();
        loop {
            if state.stopping {
                return None;
            }
            let next = state.deadlines.first().map(|(at, _)| *at);
            let left = next.map(|at| at.saturating_duration_since(Instant::now()));
            if !state.rung.is_empty()
                || !state.poked.is_empty()
                || left.is_some_and(|left| left.is_zero())
            {
                return Some((std::mem::take(&mut state.rung), std::mem::take(&mut state.poked)));
            }
            match left {
                Some(left) => {
                    self.stir.wait_for(&mut state, left);
                }
                None => self.stir.wait(&mut state),
            }
        }
    }

    fn source(&self, token: u64) -> Option<Arc<dyn Source>> {
        self.state.lock().sources.get(&token).and_then(|e| e.source.clone())
    }

    fn next_due(&self, now: Instant) -> Option<(u64, Option<Arc<dyn Source>>)> {
        let mut state = self.state.lock();
        let (_, token) = *state.deadlines.first().filter(|(at, _)| *at <= now)?;
        state.deadlines.pop_first();
        let entry = state.sources.get_mut(&token)?;
        entry.deadline = None;
        Some((token, entry.source.clone()))
    }
}
