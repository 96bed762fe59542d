//! Queues with a descriptor: completion channels and asynchronous events.
//!
//! The descriptor is the read end of a pipe that holds as many bytes as the queue events whenever
//! the queue's lock is free, so that it is readable exactly while something waits (CHN-2) and each
//! event gives an edge of its own.
use crate::descriptor::Descriptor;
use crate::event_list::{EventList, Tokens};
use crate::node::{Asleep, Node, Spin};
use crate::ranks;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// Wakers of tasks. Those that were woken are kept until somebody comes by who holds no lock:
/// dropping the last waker of a task may drop the task, and with it the very queue whose lock the
/// waking thread holds.
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
    /// The next wait is to return.
    interrupted: AtomicBool,
    spin: Spin,
}

impl<T> EventQueue<T> {
    /// An empty queue. The descriptor is blocking and close-on-exec.
    pub fn new() -> nix::Result<Self> {
        Ok(EventQueue {
            list: EventList::new(Descriptor::new()?),
            wakers: adverb_sync::Ranked::default(),
            has_wakers: AtomicBool::new(false),
            interrupted: AtomicBool::new(false),
            spin: Spin::new(),
        })
    }

    /// The descriptor; it is the queue's for its lifetime.
    #[must_use]
    pub fn raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }

    /// The inode number of the descriptor's pipe.
    pub fn inode(&self) -> Option<u64> {
        self.list.tokens.inode()
    }

    /// Does the descriptor send a signal (`O_ASYNC`)?
    pub fn signals(&self) -> bool {
        fcntl(self.as_fd(), FcntlArg::F_GETFL)
            .is_ok_and(|flags| OFlag::from_bits_retain(flags).contains(OFlag::O_ASYNC))
    }

    /// Adds an event.
    pub fn push(&self, event: T) {
        self.list.push(event);
        // A task stores `has_wakers` and then looks into the list; here it is the other way round,
        // so one sees the other.
        if self.has_wakers.swap(false, Ordering::SeqCst) {
            let woken = std::mem::take(&mut self.wakers.lock().waiting);
            woken.iter().for_each(Waker::wake_by_ref);
            self.wakers.lock().woken.extend(woken);
        }
    }

    /// Drops the wakers that were woken; the caller holds no lock.
    fn forget_woken(&self) {
        let woken = std::mem::take(&mut self.wakers.lock().woken);
        drop(woken);
    }

    /// Has one waiting [`EventQueue::pop`], or the next one, return EINTR.
    pub fn interrupt(&self) {
        // Word and token change together: who took the word before the token was given would leave
        // the descriptor readable for good.
        self.list.with_tokens(|tokens| {
            if !self.interrupted.swap(true, Ordering::SeqCst) {
                tokens.give();
            }
        });
    }

    /// Was it interrupted? Once each.
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

    /// Takes the oldest event, if any, after some progress.
    pub fn try_pop(&self, node: &Node, read: impl Fn(&T)) -> Option<T> {
        let event = self.list.try_pop(&read).or_else(|| {
            node.progress();
            self.list.try_pop(&read)
        })?;
        node.policy.given(node.now());
        Some(event)
    }

    /// Takes the oldest event, or has the task woken when there is one.
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
        // The background thread has the sockets from here on.
        node.sleeps_without_us();
        match self.list.try_pop(&read) {
            Some(event) => Poll::Ready(event),
            None => Poll::Pending,
        }
    }

    /// Removes the events that match; they are never returned (CHN-5). Answers how many.
    pub fn remove(&self, matches: impl FnMut(&T) -> bool) -> usize {
        self.list.remove(matches)
    }

    fn is_nonblocking(&self) -> bool {
        fcntl(self.as_fd(), FcntlArg::F_GETFL)
            .is_ok_and(|flags| OFlag::from_bits_retain(flags).contains(OFlag::O_NONBLOCK))
    }

    /// Takes the oldest event; without one it waits, as the descriptor's `O_NONBLOCK` says (CHN-1,
    /// CHN-2, CHN-7). `read` sees the event before any [`EventQueue::remove`] can miss it (CHN-4).
    /// The waiting thread drives the device itself, so that an arriving packet costs one wake-up,
    /// not two. `before_sleep` is called each time it goes to sleep.
    ///
    /// # Errors
    /// EAGAIN when there is none and the descriptor is non-blocking; EINTR when a signal came
    /// first, unless all handlers are of those that start calls again.
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

    /// As [`EventQueue::pop`], but only the background thread drives the device: for events so rare
    /// that a thread may wait for them as long as the program runs, which is not to wake for every
    /// packet meanwhile.
    ///
    /// # Errors
    /// As of [`EventQueue::pop`].
    pub fn pop_idly(&self, read: impl Fn(&T)) -> nix::Result<T> {
        self.wait(None, None, read, || {})
    }

    /// One look of a thread that drives `node`.
    fn look(&self, node: &Node, read: impl Fn(&T)) -> Option<T> {
        node.progress();
        self.list.try_pop(read)
    }

    /// What [`EventQueue::pop`] does from one sleep to the next, but for its spin (feature `sim`).
    /// `slept`: it has slept before in this call.
    #[cfg(feature = "sim")]
    pub fn pop_step(&self, node: &Node, slept: bool, read: impl Fn(&T)) -> Option<T> {
        let event = match slept {
            false => self.list.try_pop(&read).or_else(|| self.look(node, &read)).or_else(|| {
                node.policy.waits();
                self.look(node, &read)
            }),
            true => {
                node.progress_after_sleep();
                self.look(node, &read)
            }
        }?;
        node.policy.given(node.now());
        Some(event)
    }

    /// `node` is what the waiting thread drives.
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
            node.policy.waits();
        }
        let started = Instant::now();
        let mut slept = false;
        loop {
            if let Some(node) = node.filter(|_| slept) {
                // Whatever ended the sleep lies in any of the sockets.
                node.progress_after_sleep();
            }
            let spin_until = Instant::now() + node.map_or(Duration::ZERO, |_| self.spin.length());
            loop {
                let event = node.map_or_else(|| self.list.try_pop(&read), |node| self.look(node, &read));
                if let Some(event) = event {
                    self.spin.learn(started.elapsed(), slept);
                    return Ok(event);
                }
                if self.take_interrupt() {
                    return Err(Errno::EINTR);
                }
                if Instant::now() >= spin_until {
                    break;
                }
                std::hint::spin_loop();
            }
            before_sleep();
            let timeout = match cutoff {
                None => None,
                Some(at) => {
                    let left = at.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Err(Errno::ETIMEDOUT);
                    }
                    Some(left)
                }
            };
            let asleep = node.map(Asleep::begin);
            // The program has closed all its descriptors: no event comes by them any more.
            let own = self.list.tokens.waits().ok_or(Errno::EBADF)?;
            let fds = [own, node.map_or(own, Node::packets_fd)];
            // A thread cancelled there leaves its announcement behind, which others then ring for
            // in vain.
            let woken = if asleep.as_ref().is_some_and(|a| a.needless) {
                Ok(())
            } else {
                adverb_os::wait_readable(fds, timeout)
            };
            drop(asleep);
            if let Err(e) = woken {
                // The bell may have rung, too, and this thread has taken its ringing from others
                // that sleep.
                if let Some(node) = node {
                    node.progress_after_sleep();
                }
                let errno = e.raw_os_error().map_or(Errno::EIO, Errno::from_raw);
                // The kernel starts a `read` again after such handlers, but never a `poll` (CHN-7).
                if errno != Errno::EINTR || !adverb_os::signals_restart() {
                    return Err(errno);
                }
            }
            slept = true;
        }
    }
}

impl<T> AsFd for EventQueue<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.list.tokens.program()
    }
}
