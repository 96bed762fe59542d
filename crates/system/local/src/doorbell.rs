//! Doorbells between two processes of a host, and how a process detects the end of another.
//!
//! For each other process, a process makes a pair of sockets, keeps one end and gives the other end
//! away. A byte through the socket wakes the process. End of file on the socket says that the giver
//! has ended: its process has ended, or `exec`, which closes the socket, has replaced the program.
//! A pair has one holder, so no process can break another process's doorbell. A call on a socket
//! can ask not to wait. On a shared `eventfd` only the flag `O_NONBLOCK` of the file says so, and a
//! peer can change this flag. A full `eventfd` would then block its writer for ever (TRU-3).
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::sync::Arc;

use adverb_os::SocketErrors;
use adverb_os::sys::{self, EVENTS, Fd, FdTable, Transit};

/// All doorbells of a process, and one descriptor for waiting: readable while a doorbell is
/// readable or a watched process has ended.
pub struct Doorbells {
    table: Arc<FdTable>,
    any: Fd,
    errors: Arc<SocketErrors>,
}

/// A doorbell rung by another process.
pub struct Doorbell {
    ours: Fd,
    theirs: Fd,
}

/// The result of reading a [`Doorbell`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rung {
    /// Not rung.
    No,
    /// Rung.
    Yes,
    /// The holder of the other end broke the doorbell.
    Broken,
}

/// The handle for ringing another process's doorbell.
pub struct DoorbellHandle(Fd);

/// A descriptor received from a peer: its memory, or its end. Dropping the value closes the
/// descriptor, and so does [`Doorbells::close_after_fork`] in the child of a fork.
pub struct PeerFd(Option<Fd>);

/// The largest number of descriptors of [`Doorbells`]: five for each of some 1600 peers.
const ROOM: usize = 8192;

impl Doorbells {
    /// Creates an empty set. `errors` records failed waits.
    ///
    /// # Errors
    /// No descriptors are left.
    pub fn new(errors: Arc<SocketErrors>) -> io::Result<Self> {
        let table = FdTable::with_room(ROOM);
        Ok(Doorbells { any: sys::any_of(&table)?, table, errors })
    }

    /// Creates a doorbell.
    ///
    /// # Errors
    /// No descriptors are left.
    pub fn make(&self) -> io::Result<Doorbell> {
        let (ours, theirs) = sys::stream_pair(&self.table)?;
        Ok(Doorbell { ours, theirs })
    }

    /// The handle for another process's doorbell.
    ///
    /// # Errors
    /// The descriptor is not an AF_UNIX stream, so a call on it might wait for another process. Or
    /// the table of descriptors is full.
    pub fn handle(&self, fd: OwnedFd) -> io::Result<DoorbellHandle> {
        if sys::is_local_stream(fd.as_fd()) {
            return Ok(DoorbellHandle(self.table.register(fd.into_raw_fd())?));
        }
        let found =
            std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).unwrap_or_default();
        Err(io::Error::other(format!("the doorbell is {}, not an AF_UNIX stream", found.display())))
    }

    /// Takes over a descriptor, so that no child of a fork keeps it open.
    ///
    /// # Errors
    /// The table of descriptors is full.
    pub fn keep(&self, fd: OwnedFd) -> io::Result<PeerFd> {
        Ok(PeerFd(Some(self.table.register(fd.into_raw_fd())?)))
    }

    /// Readable while a watched descriptor is readable. `None` in the child of a fork.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.any.borrow()
    }

    /// Watches a doorbell, the end of its peer's doorbell, and `end`, another descriptor that is
    /// readable once the peer has ended. All three report `token`.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn watch(
        &self,
        doorbell: &Doorbell,
        handle: &DoorbellHandle,
        end: Option<BorrowedFd<'_>>,
        token: u64,
    ) -> io::Result<()> {
        sys::watch(&self.any, &doorbell.ours, token)?;
        // Bytes from the peer there are not for this process: only the end is watched.
        sys::watch_for(self.any.own(), handle.0.own(), 0, token)?;
        end.map_or(Ok(()), |end| {
            sys::watch_for(self.any.own(), end.as_raw_fd(), libc::EPOLLIN, token)
        })
    }

    /// Stops watching. Also breaks the doorbell, so that the peer sees the end of the watch.
    pub fn forget(
        &self,
        doorbell: &Doorbell,
        handle: &DoorbellHandle,
        end: Option<BorrowedFd<'_>>,
    ) {
        sys::break_off(&doorbell.ours);
        for fd in [Some(doorbell.ours.own()), Some(handle.0.own()), end.map(|end| end.as_raw_fd())]
        {
            fd.into_iter().for_each(|fd| sys::unwatch(self.any.own(), fd));
        }
    }

    /// Stops watching a descriptor given as a peer's `end`. Closing the descriptor is not enough,
    /// because a child of a fork may have the descriptor, too, for a moment.
    pub fn unwatch(&self, end: BorrowedFd<'_>) {
        sys::unwatch(self.any.own(), end.as_raw_fd());
    }

    /// Fills in the tokens of readable descriptors. Descriptors without room in `tokens` come first
    /// the next time.
    pub fn ready(&self, tokens: &mut [u64; EVENTS]) -> usize {
        sys::wait_any(&self.any, tokens).unwrap_or_else(|error| {
            self.errors.note("look at the doorbells of this host", &error);
            0
        })
    }

    /// Closes all descriptors in the child of a fork. Otherwise other processes would see the
    /// parent as alive. Calls only `close`.
    pub fn close_after_fork(&self) {
        self.table.close_all();
    }
}

impl Doorbell {
    /// The descriptor for the other process, the same at each call.
    pub fn to_give(&self) -> Option<BorrowedFd<'_>> {
        self.theirs.borrow()
    }

    /// Reports `POLLHUP` when the ringer breaks the doorbell. `None` in the child of a fork.
    pub fn as_end(&self) -> Option<BorrowedFd<'_>> {
        self.ours.borrow()
    }

    /// Whether the doorbell was rung. Consumes the bytes, up to the limit of one call.
    pub fn take(&self) -> Rung {
        match sys::take_bytes(&self.ours) {
            None => Rung::No,
            Some(0) => Rung::Broken,
            Some(_) => Rung::Yes,
        }
    }
}

impl DoorbellHandle {
    /// Rings by one system call, without waiting. A full doorbell is rung already.
    pub fn ring(&self) {
        if let Some(fd) = self.0.borrow_lately() {
            sys::send_byte(fd);
        }
    }

    /// Reports `POLLHUP` when the giver ends; no event needs to be requested. `None` in the child
    /// of a fork.
    pub fn as_end(&self) -> Option<BorrowedFd<'_>> {
        self.0.borrow()
    }
}

impl PeerFd {
    /// The descriptor. `None` in the child of a fork.
    pub fn borrow(&self) -> Option<BorrowedFd<'_>> {
        self.0.as_ref()?.borrow()
    }
}

impl Drop for PeerFd {
    fn drop(&mut self) {
        let _transit = Transit::begin();
        drop(self.0.take());
    }
}

impl std::fmt::Debug for PeerFd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("PeerFd").field(&self.0.as_ref().map(Fd::raw)).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
