//! The two threads of an adapter that run callbacks.
//!
//! - The channel thread waits for events of the completion channel, drives the device while it
//!   waits, and runs the notification callbacks of completion queues. A single thread runs these
//!   callbacks, so two callbacks of a queue never overlap (NDK-3).
//! - The task thread runs all other completions. It also turns the device's asynchronous events
//!   (SRQ limits, fatal errors) into callbacks.
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

/// Which requests complete later, of all that may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum PendingMode {
    /// Only requests that must: a close of an object in use, and requests that wait for a peer.
    #[default]
    Never,
    /// All requests, also failed requests.
    Always,
    /// Every second request.
    Alternate,
}

type Task = Box<dyn FnOnce() + Send>;

/// The callbacks by which the threads deliver the device's events to an object.
pub(crate) trait Notified: Send + Sync {
    /// An event of a completion queue was read.
    fn cq_event(&self) {}
    /// An asynchronous event of the device.
    fn async_event(&self, event: AsyncEvent) {
        let _ = event;
    }
}

/// The threads of an adapter, and their state.
pub(crate) struct Dispatcher {
    context: Arc<Context>,
    channel: Arc<CompChannel>,
    pending: PendingMode,
    version: Version,
    /// For [`PendingMode::Alternate`].
    turn: AtomicBool,
    tasks: Mutex<VecDeque<Task>>,
    /// Wakes the task thread.
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

/// Does this thread run callbacks of an adapter?
pub(crate) fn in_callback() -> bool {
    IN_CALLBACK.get()
}

/// Runs a callback and catches its panic. A panic would end the thread, and the adapter's other
/// callbacks would never run. A close, for example, would wait for ever.
fn guarded(callback: impl FnOnce()) {
    if std::panic::catch_unwind(AssertUnwindSafe(callback)).is_err() {
        log::error!("a callback of an NDK consumer panicked");
    }
}

impl Dispatcher {
    /// Starts the threads.
    ///
    /// # Errors
    /// `INSUFFICIENT_RESOURCES` if descriptors or threads are exhausted.
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
        // The channel thread waits for the channel, whether or not the consumer polls.
        channel.unwatch();
        let wake = EventFd::from_value_and_flags(0, EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)
            .map_err(|e| exhausted(&e))?;
        // The thread polls the descriptor, so a read must not block.
        fcntl(context.async_events(), FcntlArg::F_SETFL(OFlag::O_NONBLOCK))
            .map_err(|e| exhausted(&e))?;
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

    /// The NDKPI version that the consumer uses.
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

    /// A cookie for a device object. The object's events reach `target` until
    /// [`Dispatcher::unregister`].
    pub(crate) fn register(&self, target: Weak<dyn Notified>) -> usize {
        let cookie = self.next_cookie.fetch_add(1, Ordering::Relaxed);
        self.targets.lock().insert(cookie, target);
        cookie
    }

    /// Stops the delivery of events with this cookie.
    pub(crate) fn unregister(&self, cookie: usize) {
        self.targets.lock().remove(&cookie);
    }

    fn target(&self, cookie: usize) -> Option<Arc<dyn Notified>> {
        self.targets.lock().get(&cookie).and_then(Weak::upgrade)
    }

    /// Runs `task` on the task thread, after the tasks given before.
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
        // Acknowledge at once, because the destruction of the queue waits for the acknowledgement.
        // The target decides whether the callback may still run.
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

    /// Ends the threads. Waits for their end, unless this is one of the threads. Tasks given before
    /// still run.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        let _ = self.wake.write(1);
        self.channel.interrupt();
        if in_callback() {
            return;
        }
        for thread in std::mem::take(&mut *self.threads.lock()) {
            // A panic was already reported.
            let _ = thread.join();
        }
    }
}

impl std::fmt::Debug for Dispatcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dispatcher").field("pending", &self.pending).finish_non_exhaustive()
    }
}
