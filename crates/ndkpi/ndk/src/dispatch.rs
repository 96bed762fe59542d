//! The two threads of an adapter that run callbacks.
//!
//! One waits for events of the completion channel, drives the device while it waits, and runs
//! notification callbacks of completion queues: being one thread, it never overlaps two of one
//! queue (NDK-3). The other runs what else completes later, and turns the device's asynchronous
//! events (SRQ limits, fatal errors) into callbacks.
use crate::status::NtStatus;
use crate::version::Version;
use adverb_device::{AsyncEvent, CompChannel, Context, Cq as DeviceCq, Element, Errno};
use adverb_sync::Mutex;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::os::fd::AsFd;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

/// Which requests that may complete later do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum PendingMode {
    /// Those that must: a close of an object in use, and what waits for a peer.
    #[default]
    Never,
    /// All, failures too.
    Always,
    /// Every other one.
    Alternate,
}

type Task = Box<dyn FnOnce() + Send>;

/// What the event threads call when the device has something for an object.
pub(crate) trait Notified: Send + Sync {
    /// An event of a completion queue was read.
    fn cq_event(&self) {}
    /// An asynchronous event of the device.
    fn async_event(&self, event: AsyncEvent) {
        let _ = event;
    }
}

/// The threads of an adapter and what they look at.
pub(crate) struct Dispatcher {
    context: Arc<Context>,
    channel: Arc<CompChannel>,
    pending: PendingMode,
    version: Version,
    /// For [`PendingMode::Alternate`].
    turn: AtomicBool,
    tasks: Mutex<VecDeque<Task>>,
    /// Wakes the second thread.
    wake: EventFd,
    stopping: AtomicBool,
    /// Objects by the cookie of their device object.
    targets: Mutex<HashMap<usize, Weak<dyn Notified>>>,
    next_cookie: AtomicUsize,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

thread_local! {
    static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
}

/// Is this thread one that runs callbacks of an adapter?
pub(crate) fn in_callback() -> bool {
    IN_CALLBACK.get()
}

/// Runs a callback. One that panics must not take the callbacks of the whole adapter along: what
/// waits for them, a close above all, would wait for ever.
fn guarded(callback: impl FnOnce()) {
    if std::panic::catch_unwind(AssertUnwindSafe(callback)).is_err() {
        log::error!("a callback of an NDK consumer panicked");
    }
}

impl Dispatcher {
    /// Starts the threads.
    ///
    /// # Errors
    /// `INSUFFICIENT_RESOURCES` when descriptors or threads cannot be had.
    pub(crate) fn start(
        context: &Arc<Context>,
        pending: PendingMode,
        version: Version,
    ) -> Result<Arc<Self>, NtStatus> {
        let exhausted = |why: &dyn std::fmt::Display| {
            log::error!("an adapter cannot be opened: {why}");
            NtStatus::INSUFFICIENT_RESOURCES
        };
        let channel = CompChannel::new(context).map_err(|e| exhausted(&e))?;
        // Our thread waits on it whether or not the consumer polls.
        channel.unwatch();
        let wake = EventFd::from_value_and_flags(0, EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)
            .map_err(|e| exhausted(&e))?;
        // The thread polls the descriptor and must not be caught in a read.
        fcntl(context.async_events(), FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).map_err(|e| exhausted(&e))?;
        let dispatcher = Arc::new(Dispatcher {
            context: context.clone(),
            channel,
            pending,
            version,
            turn: AtomicBool::new(false),
            tasks: Mutex::default(),
            wake,
            stopping: AtomicBool::new(false),
            targets: Mutex::default(),
            next_cookie: AtomicUsize::new(1),
            threads: Mutex::default(),
        });
        let started = dispatcher
            .spawn("ndk-cq", Dispatcher::serve_channel)
            .and_then(|()| dispatcher.spawn("ndk-completion", Dispatcher::serve_tasks));
        if let Err(e) = started {
            dispatcher.stop();
            return Err(exhausted(&e));
        }
        Ok(dispatcher)
    }

    fn spawn(self: &Arc<Self>, name: &str, body: fn(&Dispatcher)) -> std::io::Result<()> {
        let me = self.clone();
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            IN_CALLBACK.set(true);
            body(&me);
        })?;
        self.threads.lock().push(thread);
        Ok(())
    }

    /// The channel of the adapter's completion queues.
    pub(crate) fn channel(&self) -> &Arc<CompChannel> {
        &self.channel
    }

    /// The version of NDKPI that the consumer knows.
    pub(crate) fn version(&self) -> Version {
        self.version
    }

    /// Does the next request complete through its callback?
    pub(crate) fn pends(&self) -> bool {
        match self.pending {
            PendingMode::Never => false,
            PendingMode::Always => true,
            PendingMode::Alternate => self.turn.fetch_xor(true, Ordering::Relaxed),
        }
    }

    /// A cookie for a device object, by which its events find `target` until
    /// [`Dispatcher::unregister`].
    pub(crate) fn register(&self, target: Weak<dyn Notified>) -> usize {
        let cookie = self.next_cookie.fetch_add(1, Ordering::Relaxed);
        self.targets.lock().insert(cookie, target);
        cookie
    }

    /// Events with this cookie go nowhere any more.
    pub(crate) fn unregister(&self, cookie: usize) {
        self.targets.lock().remove(&cookie);
    }

    fn target(&self, cookie: usize) -> Option<Arc<dyn Notified>> {
        self.targets.lock().get(&cookie).and_then(Weak::upgrade)
    }

    /// Runs `task` on the second thread, after those given before.
    pub(crate) fn run(&self, task: impl FnOnce() + Send + 'static) {
        self.tasks.lock().push_back(Box::new(task));
        let _ = self.wake.write(1);
    }

    fn serve_channel(&self) {
        while !self.stopping.load(Ordering::SeqCst) {
            match self.channel.next_event(None) {
                Ok(cq) => self.cq_event(&cq),
                Err(Errno::EINTR | Errno::EAGAIN) => {}
                Err(e) => {
                    log::error!("completion events of an adapter end: {e}");
                    return;
                }
            }
        }
    }

    fn cq_event(&self, cq: &Arc<DeviceCq>) {
        // At once: destroying the queue waits for it, and whether the callback may run is decided
        // by its object.
        cq.ack_events(1);
        if let Some(target) = self.target(cq.cookie()) {
            guarded(|| target.cq_event());
        }
    }

    fn serve_tasks(&self) {
        loop {
            while let Some(task) = self.next_task() {
                guarded(task);
            }
            if self.stopping.load(Ordering::SeqCst) {
                return;
            }
            let asynchronous = self.context.async_events();
            let mut fds = [
                PollFd::new(self.wake.as_fd(), PollFlags::POLLIN),
                PollFd::new(asynchronous, PollFlags::POLLIN),
            ];
            let _ = poll(&mut fds, PollTimeout::NONE);
            let _ = self.wake.read();
            while let Ok((event, element)) = self.context.next_async_event() {
                self.context.ack_async_event(&element);
                self.async_event(event, &element);
            }
        }
    }

    fn next_task(&self) -> Option<Task> {
        self.tasks.lock().pop_front()
    }

    fn async_event(&self, event: AsyncEvent, element: &Element) {
        let cookie = match element {
            Element::Cq(cq) => cq.cookie(),
            Element::Qp(qp) => qp.cookie(),
            Element::Srq(srq) => srq.cookie(),
            Element::Port(_) => return,
        };
        if let Some(target) = self.target(cookie) {
            target.async_event(event);
        }
    }

    /// Ends the threads and, unless called on one of them, waits for their end. Tasks given before
    /// are run.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        let _ = self.wake.write(1);
        self.channel.interrupt();
        if in_callback() {
            return;
        }
        for thread in std::mem::take(&mut *self.threads.lock()) {
            // A callback that panicked has said so already.
            let _ = thread.join();
        }
    }
}

impl std::fmt::Debug for Dispatcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dispatcher").field("pending", &self.pending).finish_non_exhaustive()
    }
}
