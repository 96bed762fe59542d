//! Serving queue pair 1, by the background thread or by a thread of the program that waits for an
//! event of the connection manager. So a MAD costs the process one wake-up.
//!
//! A thread that leaves work sets `any`. One thread at a time has the turn to do the work
//! (`served`), so MADs are handled in the order of their arrival. A thread without the turn leaves
//! `any` set. The thread with the turn reads `any` once more after giving the turn back.
//!
//! While a thread looks for MADs, `looking` counts the thread.
//! 1. A thread that leaves work stores `any`, and then loads `looking`. If `looking` is 0, the
//!    thread wakes the background thread.
//! 2. The looking thread decrements `looking`, and then loads `any`. If `any` is set, the thread
//!    does the work, or has the background thread do it.
use super::state::Mads;
use crate::node::core::Node;
use adverb_link::RxFrom;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};

/// The turn to do waiting work.
struct Turn<'a>(&'a AtomicBool);

impl<'a> Turn<'a> {
    fn take(served: &'a AtomicBool) -> Option<Self> {
        let taken = served.compare_exchange(false, true, Ordering::SeqCst, Ordering::SeqCst);
        taken.is_ok().then_some(Turn(served))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

impl Mads {
    /// Announces work for [`Mads::run`].
    pub(super) fn stir(&self, node: &Node) {
        self.any.store(true, Ordering::SeqCst);
        if self.looking.load(Ordering::SeqCst) == 0 {
            node.wake_sleeping_thread();
        }
    }

    /// Does work wait for [`Mads::run`], without a thread at work on it?
    pub(in crate::node) fn wait(&self) -> bool {
        self.any.load(Ordering::SeqCst) && !self.served.load(Ordering::SeqCst)
    }

    /// Does the waiting work, unless another thread does it. The caller holds no lock. `true` if
    /// there was work.
    pub(in crate::node) fn run(&self, node: &Node) -> bool {
        let mut worked = false;
        // Twice: another thread may have left work while this thread had the turn.
        for _ in 0..2 {
            if !self.wait() {
                break;
            }
            let Some(turn) = Turn::take(&self.served) else { break };
            if self.any.swap(false, Ordering::SeqCst) {
                self.work(node);
                worked = true;
            }
            drop(turn);
        }
        worked
    }
}

impl Node {
    /// Looks once for MADs. The caller is a thread of the program that waits for an event of the
    /// connection manager, and holds no lock. `true` if there was anything.
    pub(crate) fn look_for_mads(&self) -> bool {
        let from = if self.host.is_some() { RxFrom::Processes } else { RxFrom::All };
        self.with_mads(|| self.drive_sockets(from))
    }

    /// As [`Node::look_for_mads`], for a thread that receives by `receive`.
    pub(crate) fn with_mads(&self, receive: impl FnOnce() -> bool) -> bool {
        if self.is_stale() {
            return false;
        }
        let mads = &self.mads;
        mads.looking.fetch_add(1, Ordering::SeqCst);
        let received = receive();
        let worked = mads.run(self);
        mads.looking.fetch_sub(1, Ordering::SeqCst);
        if mads.wait() {
            self.wake_sleeping_thread();
        }
        received | worked
    }

    /// Readable when MADs of processes of this host have come, if MADs arrive apart from packets of
    /// queue pairs.
    pub(crate) fn mads_fd(&self) -> Option<BorrowedFd<'_>> {
        self.host.as_ref().and_then(|_| self.link.local()?.fd())
    }
}
