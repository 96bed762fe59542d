//! The thread that serves the sockets of an adapter's connections, all of them, and their deadlines.
//!
//! It runs no callback of the consumer's: those go to the adapter's dispatcher. A source is locked by its own methods, and
//! may call the registry while it is; the registry's lock is never held while a source is called.
use crate::status::NtStatus;
use adverb_sync::Mutex;
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::collections::{BTreeSet, HashMap};
use std::os::fd::AsFd;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Events taken from the kernel at a time.
const EVENTS: usize = 64;
/// The wake-up descriptor's token; sources have others.
const WAKE: u64 = 0;

/// Something with a socket.
pub(crate) trait Source: Send + Sync {
    /// Its socket can be read or written, or has failed.
    fn ready(&self, token: u64);
    /// The time it was scheduled for has come.
    fn due(&self, token: u64, now: Instant);
    /// [`Sockets::poke`] was called.
    fn poked(&self, token: u64) {
        let _ = token;
    }
}

/// Sockets and deadlines, and the thread that waits for them.
#[derive(Debug)]
pub(crate) struct Sockets {
    epoll: Epoll,
    wake: EventFd,
    state: Mutex<Registry>,
}

#[derive(Default)]
struct Registry {
    sources: HashMap<u64, Entry>,
    deadlines: BTreeSet<(Instant, u64)>,
    poked: Vec<u64>,
    last_token: u64,
    stopping: bool,
    thread: Option<JoinHandle<()>>,
}

struct Entry {
    source: Arc<dyn Source>,
    deadline: Option<Instant>,
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} sockets, {} deadlines", self.sources.len(), self.deadlines.len())
    }
}

/// An adapter's sockets: the thread is started by its first listener or connection.
#[derive(Debug, Default)]
pub(crate) struct Network(OnceLock<Arc<Sockets>>);

impl Network {
    /// The sockets.
    ///
    /// # Errors
    /// `INSUFFICIENT_RESOURCES` when descriptors or threads cannot be had.
    pub(crate) fn get(&self) -> Result<Arc<Sockets>, NtStatus> {
        if let Some(sockets) = self.0.get() {
            return Ok(sockets.clone());
        }
        let made = Sockets::start().map_err(|e| {
            log::error!("connections cannot be served: {e}");
            NtStatus::INSUFFICIENT_RESOURCES
        })?;
        let sockets = self.0.get_or_init(|| made.clone());
        if !Arc::ptr_eq(sockets, &made) {
            made.stop();
        }
        Ok(sockets.clone())
    }

    /// Ends the thread, waiting for it unless this is it.
    pub(crate) fn stop(&self) {
        if let Some(sockets) = self.0.get() {
            sockets.stop();
        }
    }
}

impl Sockets {
    fn start() -> std::io::Result<Arc<Self>> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let wake = EventFd::from_value_and_flags(0, EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        epoll.add(&wake, EpollEvent::new(EpollFlags::EPOLLIN, WAKE))?;
        let sockets = Arc::new(Sockets { epoll, wake, state: Mutex::default() });
        let me = sockets.clone();
        let thread = std::thread::Builder::new().name("ndk-connect".to_owned()).spawn(move || me.serve())?;
        sockets.state.lock().thread = Some(thread);
        Ok(sockets)
    }

    fn stop(&self) {
        let thread = {
            let mut state = self.state.lock();
            state.stopping = true;
            state.thread.take()
        };
        self.wake();
        if let Some(thread) = thread
            && thread.thread().id() != std::thread::current().id()
        {
            // A panic of the thread has said so already.
            let _ = thread.join();
        }
        // Streams that never became connections.
        let left = std::mem::take(&mut self.state.lock().sources);
        drop(left);
    }

    fn wake(&self) {
        // Full means that the thread is woken anyway.
        let _ = self.wake.write(1);
    }

    /// A token for a source, under which it is kept until [`Sockets::remove`].
    pub(crate) fn add(&self, source: Arc<dyn Source>) -> u64 {
        let mut state = self.state.lock();
        state.last_token += 1;
        let token = state.last_token;
        state.sources.insert(token, Entry { source, deadline: None });
        token
    }

    /// Another source takes the token, its socket and its deadline over.
    pub(crate) fn replace(&self, token: u64, source: Arc<dyn Source>) {
        let mut state = self.state.lock();
        let old = state.sources.get_mut(&token).map(|e| std::mem::replace(&mut e.source, source));
        drop(state);
        // Not under the lock: its end may call the registry.
        drop(old);
    }

    /// Forgets a source. Its socket leaves the thread's set by being closed.
    pub(crate) fn remove(&self, token: u64) {
        let mut state = self.state.lock();
        let entry = state.sources.remove(&token);
        if let Some(at) = entry.as_ref().and_then(|e| e.deadline) {
            state.deadlines.remove(&(at, token));
        }
        drop(state);
        drop(entry);
    }

    /// Waits for the socket to be readable, and writable if `writes`.
    ///
    /// # Errors
    /// The kernel's, when it has no memory for it.
    pub(crate) fn watch(&self, token: u64, fd: impl AsFd, interest: Interest) -> nix::Result<()> {
        self.epoll.add(fd, EpollEvent::new(interest.flags(), token))
    }

    /// Waits for something else on a watched socket.
    pub(crate) fn rewatch(&self, token: u64, fd: impl AsFd, interest: Interest) {
        if let Err(e) = self.epoll.modify(fd, &mut EpollEvent::new(interest.flags(), token)) {
            log::error!("a socket of a connection cannot be watched: {e}");
        }
    }

    /// Calls [`Source::due`] at that time, once; replaces the time given before.
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
            let first = deadlines.first() == Some(&(at, token));
            drop(state);
            if first {
                self.wake();
            }
        }
    }

    /// Has the thread call [`Source::poked`]; may be called under any lock.
    pub(crate) fn poke(&self, token: u64) {
        self.state.lock().poked.push(token);
        self.wake();
    }

    fn serve(&self) {
        let mut events = [EpollEvent::empty(); EVENTS];
        loop {
            let Some(timeout) = self.timeout() else { return };
            let count = match self.epoll.wait(&mut events, timeout) {
                Ok(count) => count,
                Err(Errno::EINTR) => 0,
                Err(e) => {
                    log::error!("connections are not served any more: {e}");
                    return;
                }
            };
            for token in events[..count].iter().map(EpollEvent::data) {
                if token == WAKE {
                    let _ = self.wake.read();
                } else if let Some(source) = self.source(token) {
                    source.ready(token);
                }
            }
            for token in self.take_poked() {
                if let Some(source) = self.source(token) {
                    source.poked(token);
                }
            }
            self.serve_deadlines();
        }
    }

    fn source(&self, token: u64) -> Option<Arc<dyn Source>> {
        self.state.lock().sources.get(&token).map(|e| e.source.clone())
    }

    fn take_poked(&self) -> Vec<u64> {
        std::mem::take(&mut self.state.lock().poked)
    }

    fn serve_deadlines(&self) {
        let now = Instant::now();
        while let Some((token, source)) = self.next_due(now) {
            source.due(token, now);
        }
    }

    fn next_due(&self, now: Instant) -> Option<(u64, Arc<dyn Source>)> {
        let mut state = self.state.lock();
        let (_, token) = *state.deadlines.first().filter(|(at, _)| *at <= now)?;
        state.deadlines.pop_first();
        let entry = state.sources.get_mut(&token)?;
        entry.deadline = None;
        Some((token, entry.source.clone()))
    }

    /// Until the next deadline; `None` to stop.
    fn timeout(&self) -> Option<EpollTimeout> {
        let state = self.state.lock();
        if state.stopping {
            return None;
        }
        let Some((at, _)) = state.deadlines.first() else { return Some(EpollTimeout::NONE) };
        // Rounded up: early would spin.
        let wait = at.saturating_duration_since(Instant::now()) + Duration::from_micros(999);
        Some(EpollTimeout::try_from(wait).unwrap_or(EpollTimeout::MAX))
    }
}

/// What a socket is watched for. Failures and the peer's end are always reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interest {
    /// Failures alone.
    Nothing,
    /// Bytes or streams that came.
    Read,
    /// Room to write, or the end of a connect.
    Write,
    /// Both.
    ReadWrite,
}

impl Interest {
    fn flags(self) -> EpollFlags {
        match self {
            Interest::Nothing => EpollFlags::empty(),
            Interest::Read => EpollFlags::EPOLLIN,
            Interest::Write => EpollFlags::EPOLLOUT,
            Interest::ReadWrite => EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT,
        }
    }
}
