//! The descriptors by which this process and a peer wake each other and see each other's end.
use crate::ranks;
use adverb_local::{Doorbell, DoorbellHandle, Doorbells, PeerFd, Rung};
use adverb_sync::Ranked;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// The descriptors of a peer that was not left.
pub(crate) struct Links {
    /// The doorbell rung by this peer alone.
    pub(crate) doorbell: Doorbell,
    /// The peer's doorbell, which also shows the end of the peer's program.
    pub(super) handle: DoorbellHandle,
    /// Readable when the peer's process has ended. `None` for this process itself.
    pub(super) end: Option<Arc<PeerFd>>,
}

enum LinkState {
    Met(Arc<Links>),
    /// The peer was left. The end of its process, if the process lived on.
    Left(Option<Arc<PeerFd>>),
}

/// The descriptors shared with a peer.
pub(crate) struct PeerLinks {
    state: Ranked<LinkState, ranks::PeerLinks>,
    /// The sleep announcement for which this process rang the peer's doorbell last.
    rung: AtomicU32,
    /// The peer broke the doorbell of this process.
    broken: AtomicBool,
}

fn end_of(end: Option<&Arc<PeerFd>>) -> Option<BorrowedFd<'_>> {
    end?.borrow()
}

/// Has any of these descriptors an event?
pub(in crate::host) fn any_event(fds: &mut [PollFd<'_>]) -> bool {
    poll(fds, PollTimeout::ZERO).is_ok_and(|n| n > 0)
}

impl PeerLinks {
    pub(super) fn new(links: Links) -> Self {
        PeerLinks {
            state: Ranked::new(LinkState::Met(Arc::new(links))),
            rung: AtomicU32::new(0),
            broken: AtomicBool::new(false),
        }
    }

    /// Doorbells and end. `None` after [`PeerLinks::let_go`].
    pub(crate) fn met(&self) -> Option<Arc<Links>> {
        match &*self.state.lock() {
            LinkState::Met(links) => Some(links.clone()),
            LinkState::Left(_) => None,
        }
    }

    /// Has the doorbell and the end of the peer `id` watched.
    pub(super) fn watch(&self, doorbells: &Doorbells, id: u64) -> io::Result<()> {
        let Some(links) = self.met() else { return Ok(()) };
        doorbells.watch(&links.doorbell, &links.handle, end_of(links.end.as_ref()), id)
    }

    /// Gives the doorbells up. The peer sees a broken doorbell. If the process `lives` on, its end
    /// stays watched until [`PeerLinks::bury`].
    pub(super) fn let_go(&self, doorbells: &Doorbells, lives: bool) {
        let Some(links) = self.met() else { return };
        *self.state.lock() = LinkState::Left(links.end.clone().filter(|_| lives));
        let end = if lives { None } else { end_of(links.end.as_ref()) };
        doorbells.forget(&links.doorbell, &links.handle, end);
    }

    /// Was the peer let go, and has the process ended since?
    pub(in crate::host) fn is_to_bury(&self) -> bool {
        let was_left = matches!(&*self.state.lock(), LinkState::Left(Some(_)));
        was_left && self.process_has_ended()
    }

    /// Ends the watch for the end of the process, after [`PeerLinks::let_go`].
    pub(super) fn bury(&self, doorbells: &Doorbells) {
        let left = std::mem::replace(&mut *self.state.lock(), LinkState::Left(None));
        if let LinkState::Left(end) = &left
            && let Some(end) = end_of(end.as_ref())
        {
            doorbells.unwatch(end);
        }
    }

    /// Has the peer ended or left?
    pub(crate) fn has_ended(&self) -> bool {
        // A polling program takes no doorbells, so a broken doorbell is looked for here, too.
        let closed = |fd| PollFd::new(fd, PollFlags::empty());
        let Some(links) = self.met() else { return true };
        let Some(handle) = links.handle.as_end() else { return true };
        let process = end_of(links.end.as_ref()).map(|end| PollFd::new(end, PollFlags::POLLIN));
        let doorbell = closed(links.doorbell.as_end().unwrap_or(handle));
        let mut fds = [closed(handle), doorbell, process.unwrap_or_else(|| closed(handle))];
        self.broken.load(Ordering::Relaxed) || any_event(&mut fds)
    }

    /// Has the peer's process ended, with all threads? The peer may have left before.
    pub(crate) fn process_has_ended(&self) -> bool {
        let end = match &*self.state.lock() {
            LinkState::Met(links) => links.end.clone(),
            LinkState::Left(end) => end.clone(),
        };
        let end = end_of(end.as_ref());
        end.is_some_and(|end| any_event(&mut [PollFd::new(end, PollFlags::POLLIN)]))
    }

    /// Has the peer rung? Clears the doorbell.
    pub(crate) fn take_doorbell(&self) -> bool {
        let Some(links) = self.met() else { return false };
        let rung = links.doorbell.take();
        if rung == Rung::Broken {
            self.broken.store(true, Ordering::Relaxed);
        }
        rung == Rung::Yes
    }

    /// Rings the peer's doorbell, once for each announcement of a sleep.
    #[inline]
    pub(super) fn ring(&self, announcement: u32) {
        if self.rung.swap(announcement, Ordering::Relaxed) != announcement
            && let Some(links) = self.met()
        {
            links.handle.ring();
        }
    }
}
