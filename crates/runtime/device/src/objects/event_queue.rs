//! Queues with a descriptor: completion channels and asynchronous events.
//!
//! The descriptor is the read end of a pipe. Whenever the queue's lock is free, the pipe contains
//! one byte for each event in the queue. So the descriptor is readable exactly while an event waits
//! (CHN-2), and each event gives its own edge.
use crate::descriptor::Descriptor;
use crate::descriptor::kinds::Kind;
use crate::event_list::{EventList, Tokens};
use crate::node::{Asleep, Node, Spin};
use crate::ranks;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// Wakers of tasks. Woken wakers are kept until a thread without locks drops them. The reason:
/// dropping the last waker of a task may drop the task, and with the task this queue, while the
/// waking thread holds the queue's lock.
#[derive(Debug, Default)]
struct Wakers {
    waiting: Vec<Waker>,
    woken: Vec<Waker>,
}

/// A queue of events with a pollable descriptor.
#[derive(Debug)]
pub struct EventQueue<T> {
    list: EventList<T, Descriptor>,
    /// Tasks that wait for an event, and whether there are any.
    wakers: adverb_sync::Ranked<Wakers, ranks::Wakers>,
    has_wakers: AtomicBool,
    /// The next wait has to return.
    interrupted: AtomicBool,
    spin: Spin,
}

impl<T> EventQueue<T> {
    /// An empty queue. The descriptor is blocking and close-on-exec. Waits of the program for
    /// events of this kind drive the device.
    pub fn new(kind: Kind) -> nix::Result<Self> {
        Ok(EventQueue {
            list: EventList::new(Descriptor::new(kind)?),
            wakers: adverb_sync::Ranked::default(),
            has_wakers: AtomicBool::new(false),
            interrupted: AtomicBool::new(false),
            spin: Spin::default(),
        })
    }

    /// The inode number of the descriptor's pipe.
    pub fn inode(&self) -> Option<u64> {
        self.list.tokens.inode()
    }

    /// Does the descriptor send a signal (`O_ASYNC`)?
    pub fn signals(&self) -> bool {
        self.has_flag(OFlag::O_ASYNC)
    }

    fn has_flag(&self, flag: OFlag) -> bool {
        fcntl(self.as_fd(), FcntlArg::F_GETFL)
            .is_ok_and(|flags| OFlag::from_bits_retain(flags).contains(flag))
    }

    /// Adds an event.
    pub fn push(&self, event: T) {
        self.list.push(event);
        // A task stores `has_wakers` and then looks into the list. This thread adds to the list and
        // then reads `has_wakers`. So at least one side sees the other.
        if self.has_wakers.swap(false, Ordering::SeqCst) {
            let woken = std::mem::take(&mut self.wakers.lock().waiting);
            woken.iter().for_each(Waker::wake_by_ref);
            self.wakers.lock().woken.extend(woken);
        }
    }

    /// Drops the woken wakers. The caller holds no lock.
    fn forget_woken(&self) {
        let woken = std::mem::take(&mut self.wakers.lock().woken);
        drop(woken);
    }

    /// Makes a waiting [`EventQueue::pop`], or the next call, return EINTR.
    pub fn interrupt(&self) {
        // Word and token change together. If a thread took the word before the token was given, the
        // descriptor would stay readable for ever.
        self.list.with_tokens(|tokens| {
            if !self.interrupted.swap(true, Ordering::SeqCst) {
                tokens.give();
            }
        });
    }

    /// Was the queue interrupted? Answers `true` once for each interrupt.
    fn take_interrupt(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
            && self.list.with_tokens(|tokens| {
                let was = self.interrupted.swap(false, Ordering::SeqCst);
                if was {
                    tokens.take();
                }
                was
            })
    }

    /// Takes the oldest event, if there is one already.
    pub fn take(&self, read: impl Fn(&T)) -> Option<T> {
        self.list.try_pop(read)
    }

    /// Takes the oldest event, if there is any after some progress.
    pub fn try_pop(&self, node: &Node, read: impl Fn(&T)) -> Option<T> {
        let event = self.list.try_pop(&read).or_else(|| {
            node.progress();
            self.list.try_pop(&read)
        })?;
        node.policy.given(node.now());
        Some(event)
    }

    /// Takes the oldest event, or registers the task for a wake-up.
    pub fn poll_pop(&self, node: &Node, cx: &mut Context<'_>, read: impl Fn(&T)) -> Poll<T> {
        self.forget_woken();
        if let Some(event) = self.try_pop(node, &read) {
            return Poll::Ready(event);
        }
        let mut wakers = self.wakers.lock();
        if !wakers.waiting.iter().any(|w| w.will_wake(cx.waker())) {
            wakers.waiting.push(cx.waker().clone());
        }
        self.has_wakers.store(true, Ordering::SeqCst);
        drop(wakers);
        // From here on the background thread drives the sockets.
        node.sleeps_without_us();
        match self.list.try_pop(&read) {
            Some(event) => Poll::Ready(event),
            None => Poll::Pending,
        }
    }

    /// Removes the matching events, which are never returned (CHN-5). Answers their number.
    pub fn remove(&self, matches: impl FnMut(&T) -> bool) -> usize {
        self.list.remove(matches)
    }

    /// Would a call for an event sleep now?
    pub fn would_sleep(&self) -> bool {
        self.list.is_empty() && !self.is_nonblocking()
    }

    fn is_nonblocking(&self) -> bool {
        self.has_flag(OFlag::O_NONBLOCK)
    }

    /// Takes the oldest event. Without an event the call waits if the descriptor's `O_NONBLOCK`
    /// allows it (CHN-1, CHN-2, CHN-7). `read` sees the event before any [`EventQueue::remove`] can
    /// miss it (CHN-4). The waiting thread drives the device itself, so that an arriving packet
    /// costs one wake-up and not two. `before_sleep` is called before each sleep.
    ///
    /// # Errors
    /// EAGAIN if there is no event and the descriptor is non-blocking. EINTR if a signal arrived
    /// first, unless all handlers restart system calls (`SA_RESTART`).
    pub fn pop(
        &self,
        node: &Node,
        cutoff: Option<Instant>,
        read: impl Fn(&T),
        before_sleep: impl FnMut(),
    ) -> nix::Result<T> {
        let event = self.wait(Some(node), cutoff, read, before_sleep)?;
        node.policy.given(node.now());
        Ok(event)
    }

    /// As [`EventQueue::pop`], but only the background thread drives the device. For rare events: a
    /// thread may wait for them as long as the program runs, and should not wake for every packet
    /// meanwhile.
    ///
    /// # Errors
    /// As of [`EventQueue::pop`].
    pub fn pop_idly(&self, read: impl Fn(&T)) -> nix::Result<T> {
        self.wait(None, None, read, || {})
    }

    /// A single look of a thread that drives `node`.
    fn look(&self, node: &Node, read: impl Fn(&T)) -> Option<T> {
        node.progress_waiting();
        self.list.try_pop(read)
    }

    /// The part of [`EventQueue::pop`] between two sleeps, without the spin (feature `sim`).
    /// `slept`: the call has slept before.
    #[cfg(feature = "sim")]
    pub fn pop_step(&self, node: &Node, slept: bool, read: impl Fn(&T)) -> Option<T> {
        let event = match slept {
            false => self.list.try_pop(&read).or_else(|| self.look(node, &read)).or_else(|| {
                node.policy.outside.ends();
                self.look(node, &read)
            }),
            true => {
                node.progress_after_sleep();
                self.look(node, &read)
            }
        };
        let Some(event) = event else {
            node.before_sleep();
            return None;
        };
        node.policy.given(node.now());
        Some(event)
    }

    /// `node` is driven by the waiting thread.
    fn wait(
        &self,
        node: Option<&Node>,
        cutoff: Option<Instant>,
        read: impl Fn(&T),
        mut before_sleep: impl FnMut(),
    ) -> nix::Result<T> {
        if let Some(event) = self.list.try_pop(&read).or_else(|| self.look(node?, &read)) {
            return Ok(event);
        }
        if self.is_nonblocking() {
            return Err(Errno::EAGAIN);
        }
        if let Some(node) = node {
            node.policy.outside.ends();
        }
        let mut driving = Driving::new(node);
        let started = Instant::now();
        let mut slept = false;
        loop {
            if let Some(node) = node.filter(|_| slept) {
                // The packet or event that ended the sleep may be in any socket.
                node.progress_after_sleep();
            }
            let spin = |node: &Node| self.spin.length(node.policy.costs());
            let spin_until = Instant::now() + node.map_or(Duration::ZERO, spin);
            loop {
                let event =
                    node.map_or_else(|| self.list.try_pop(&read), |node| self.look(node, &read));
                if let Some(event) = event {
                    if let Some(node) = node {
                        self.spin.learn(started.elapsed(), slept, node.policy.costs());
                    }
                    return Ok(event);
                }
                if self.take_interrupt() {
                    return Err(Errno::EINTR);
                }
                if Instant::now() >= spin_until {
                    break;
                }
                if let Some(node) = node {
                    node.policy.costs().pause();
                }
            }
            before_sleep();
            if let Some(node) = node {
                node.before_sleep();
            }
            let timeout = cutoff.map(|at| at.saturating_duration_since(Instant::now()));
            if timeout == Some(Duration::ZERO) {
                return Err(Errno::ETIMEDOUT);
            }
            let mut asleep = node.map(Asleep::begin);
            // The program has closed all its descriptors, so no event can come through them any
            // more.
            let own = self.list.tokens.waits().ok_or(Errno::EBADF)?;
            let fds = [own, node.map_or(own, Node::packets_fd)];
            let woken = if asleep.as_ref().is_some_and(|a| a.needless) {
                Ok(())
            } else {
                adverb_os::wait_readable(fds, timeout, || {
                    asleep = None;
                    driving.leave();
                })
            };
            drop(asleep);
            if let Err(e) = woken {
                // The doorbell may have rung too, and this thread may have consumed a ring meant
                // for other sleeping threads.
                if let Some(node) = node {
                    node.progress_after_sleep();
                }
                let errno = e.raw_os_error().map_or(Errno::EIO, Errno::from_raw);
                // The kernel restarts a `read` after such handlers, but never a `poll` (CHN-7).
                if errno != Errno::EINTR || !adverb_os::signals_restart() {
                    return Err(errno);
                }
            }
            slept = true;
        }
    }
}

/// A call that waits and drives `node`.
struct Driving<'a> {
    at: Option<(&'a Node, usize)>,
}

impl<'a> Driving<'a> {
    fn new(node: Option<&'a Node>) -> Self {
        Driving { at: node.and_then(|node| Some((node, node.policy.drivers.enter()?))) }
    }

    fn leave(&mut self) {
        if let Some((node, place)) = self.at.take() {
            node.drives_no_more(place);
        }
    }
}

impl Drop for Driving<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}

impl<T> AsFd for EventQueue<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.list.tokens.program()
    }
}
