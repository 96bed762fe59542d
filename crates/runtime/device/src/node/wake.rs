//! The wake-up of the background thread: a pipe. An `eventfd` shares its inode with every other
//! `eventfd`. If the program closes the device's descriptors and opens an `eventfd` under the same
//! number, the two could not be told apart.
use adverb_os::{OwnFd, add_byte};
use nix::fcntl::OFlag;
use nix::unistd::{pipe2, read};
use std::os::fd::BorrowedFd;

/// Wakes the background thread.
pub(super) struct Wake {
    reads: OwnFd,
    writes: OwnFd,
}

impl Wake {
    /// # Errors
    /// No free descriptors.
    pub(super) fn new() -> nix::Result<Self> {
        let (reads, writes) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
        Ok(Wake { reads: OwnFd::aside(reads), writes: OwnFd::aside(writes) })
    }

    /// Makes the pipe readable. A full pipe is readable already.
    pub(super) fn wake(&self) {
        if let Some(fd) = self.writes.get_lately() {
            let _ = add_byte(fd);
        }
    }

    /// The descriptor to wait on. `None` if the program has closed it.
    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.reads.get_lately()
    }

    /// Empties the pipe. `true` if the pipe was readable.
    pub(super) fn take(&self) -> bool {
        let (mut bytes, mut any) = ([0; 64], false);
        while let Some(fd) = self.fd()
            && let Ok(n @ 1..) = read(fd, &mut bytes)
        {
            any = true;
            if n < bytes.len() {
                break;
            }
        }
        any
    }
}
