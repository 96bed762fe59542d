//! The descriptors of a link, in a table that the child of a fork can close.
use super::ending::end_connection;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

/// How many descriptors a link can hold.
pub(crate) const FD_LIMIT: usize = 2048;

/// All descriptors of a link, readable without a lock, so that the child of a fork can close them
/// from a signal-safe context whatever the parent's threads held.
pub(crate) struct FdTable {
    fds: [AtomicI32; FD_LIMIT],
    /// What each was when it came: a program that closes all descriptors may have put its own under
    /// the number since.
    ids: [AtomicU64; FD_LIMIT],
}

impl FdTable {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(FdTable {
            fds: [const { AtomicI32::new(-1) }; FD_LIMIT],
            ids: [const { AtomicU64::new(0) }; FD_LIMIT],
        })
    }

    /// Takes the descriptor over; closes it when there is no room.
    pub(super) fn register(self: &Arc<Self>, fd: RawFd) -> io::Result<Fd> {
        self.register_as(fd, false)
    }

    /// The same for a socket in which others may leave descriptors.
    pub(super) fn register_connection(self: &Arc<Self>, fd: RawFd) -> io::Result<Fd> {
        self.register_as(fd, true)
    }

    fn register_as(self: &Arc<Self>, fd: RawFd, connects: bool) -> io::Result<Fd> {
        for (index, entry) in self.fds.iter().enumerate() {
            if entry.compare_exchange(-1, fd, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                self.ids[index].store(identity(fd), Ordering::Release);
                return Ok(Fd { table: self.clone(), index, connects });
            }
        }
        if connects {
            // SAFETY: the caller gave it up.
            end_connection(unsafe { OwnedFd::from_raw_fd(fd) });
        } else {
            close(fd);
        }
        Err(io::Error::from_raw_os_error(libc::E2BIG))
    }

    /// Has the program closed one of them?
    pub(crate) fn has_lost_one(&self) -> bool {
        (0..FD_LIMIT).any(|index| {
            let fd = self.fds[index].load(Ordering::Acquire);
            fd >= 0 && identity(fd) != self.ids[index].load(Ordering::Acquire)
        })
    }

    /// Closes everything. Async-signal-safe: atomics, fstat(2) and close(2) only.
    pub(crate) fn close_all(&self) {
        (0..FD_LIMIT).for_each(|index| self.close(index));
    }

    /// Closes one, unless the program has done so.
    pub(super) fn close(&self, index: usize) {
        if let Some(fd) = self.take(index) {
            close(fd);
        }
    }

    /// Takes one out, unless the program has closed it.
    fn take(&self, index: usize) -> Option<RawFd> {
        let fd = self.fds[index].swap(-1, Ordering::AcqRel);
        (fd >= 0 && identity(fd) == self.ids[index].load(Ordering::Acquire)).then_some(fd)
    }
}

/// A descriptor owned by a table: closed when dropped, unless the table closed it before.
pub(crate) struct Fd {
    table: Arc<FdTable>,
    index: usize,
    /// Others may leave descriptors in it.
    connects: bool,
}

impl Fd {
    /// The descriptor; -1 after [`FdTable::close_all`], which every call then answers with EBADF.
    pub(crate) fn raw(&self) -> RawFd {
        self.table.fds[self.index].load(Ordering::Relaxed)
    }

    pub(crate) fn borrow(&self) -> Option<BorrowedFd<'_>> {
        let fd = self.raw();
        // SAFETY: the entry owns the descriptor, and it is closed only by dropping `self` or in the
        // child of a fork, where nobody uses the link any more.
        (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) })
    }
}

impl Drop for Fd {
    fn drop(&mut self) {
        match self.connects {
            // SAFETY: it was this entry's, which forgets it.
            true => self
                .table
                .take(self.index)
                .map_or((), |fd| end_connection(unsafe { OwnedFd::from_raw_fd(fd) })),
            false => self.table.close(self.index),
        }
    }
}

/// What a descriptor is, as far as device and inode say so.
fn identity(fd: RawFd) -> u64 {
    // SAFETY: the kernel writes the structure, of which all zeroes is a value too.
    let about = unsafe {
        let mut about = MaybeUninit::<libc::stat>::zeroed();
        libc::fstat(fd, about.as_mut_ptr());
        about.assume_init()
    };
    about.st_ino ^ about.st_dev.rotate_left(40)
}

pub(super) fn close(fd: RawFd) {
    // SAFETY: the caller owns the descriptor and forgets it.
    unsafe { libc::syscall(libc::SYS_close, fd) };
}
