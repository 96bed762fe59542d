//! What wakes the background thread: a pipe. An `eventfd` would do, but its inode is that of every
//! other `eventfd`: where the program has closed the device's descriptors, one of its own under the
//! same number could not be told from it.
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
    /// No descriptors.
    pub(super) fn new() -> nix::Result<Self> {
        let (reads, writes) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
        Ok(Wake { reads: OwnFd::aside(reads), writes: OwnFd::aside(writes) })
    }

    /// Makes it readable. A full pipe is readable already.
    pub(super) fn wake(&self) {
        if let Some(fd) = self.writes.get_lately() {
            let _ = add_byte(fd);
        }
    }

    /// What to wait on; `None` if the program has closed it.
    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.reads.get_lately()
    }

    /// Takes what made it readable. `true` if there was anything.
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
