//! The descriptors of a link, in a table that the child of a fork can close.
use super::ending::end_connection;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many descriptors a link can hold.
pub(crate) const FD_LIMIT: usize = 2048;

/// All descriptors of a link, readable without a lock, so that the child of a fork can close them
/// from a signal-safe context whatever the parent's threads held.
pub(crate) struct FdTable {
    entries: Box<[AtomicU64]>,
}

/// A descriptor and what it was when it came, in one word: a program that closes all descriptors
/// may have put its own under the number since. Two words would let an entry's next owner change
/// what its last owner compares with.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Entry(u64);

impl Entry {
    const FREE: Entry = Entry(0);

    fn of(fd: RawFd) -> Self {
        Entry(identity(fd) << 32 | (fd as u64 + 1))
    }

    /// Its descriptor, which may be the program's by now.
    fn fd(self) -> Option<RawFd> {
        RawFd::try_from(self.0 as u32).ok()?.checked_sub(1).filter(|fd| *fd >= 0)
    }

    /// Its descriptor, unless the program has closed it.
    fn own(self) -> Option<RawFd> {
        self.fd().filter(|fd| Entry::of(*fd) == self)
    }
}

impl FdTable {
    pub(crate) fn new() -> Arc<Self> {
        Self::with_room(FD_LIMIT)
    }

    /// A table of another size.
    pub(crate) fn with_room(limit: usize) -> Arc<Self> {
        Arc::new(FdTable { entries: (0..limit).map(|_| AtomicU64::new(Entry::FREE.0)).collect() })
    }

    /// Takes the descriptor over; closes it when there is no room.
    pub(crate) fn register(self: &Arc<Self>, fd: RawFd) -> io::Result<Fd> {
        self.register_as(fd, false)
    }

    /// The same for a socket in which others may leave descriptors.
    pub(super) fn register_connection(self: &Arc<Self>, fd: RawFd) -> io::Result<Fd> {
        self.register_as(fd, true)
    }

    fn register_as(self: &Arc<Self>, fd: RawFd, connects: bool) -> io::Result<Fd> {
        let new = Entry::of(fd);
        for (index, entry) in self.entries.iter().enumerate() {
            if entry.compare_exchange(Entry::FREE.0, new.0, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
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
        self.entries.iter().any(|entry| {
            let there = Entry(entry.load(Ordering::Acquire));
            // One that was dropped meanwhile has been closed by its owner.
            there.fd().is_some() && there.own().is_none() && entry.load(Ordering::Acquire) == there.0
        })
    }

    /// Closes everything. Async-signal-safe: atomics, fstat(2) and close(2) only.
    pub(crate) fn close_all(&self) {
        (0..self.entries.len()).for_each(|index| self.close(index));
    }

    /// Closes one, unless the program has done so.
    pub(super) fn close(&self, index: usize) {
        if let Some(fd) = self.take(index) {
            close(fd);
        }
    }

    /// Takes one out, unless the program has closed it.
    fn take(&self, index: usize) -> Option<RawFd> {
        Entry(self.entries[index].swap(Entry::FREE.0, Ordering::AcqRel)).own()
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
        Entry(self.table.entries[self.index].load(Ordering::Relaxed)).fd().unwrap_or(-1)
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

/// What a descriptor is, as far as device and inode say so: 32 bits of both.
fn identity(fd: RawFd) -> u64 {
    // SAFETY: the kernel writes the structure, of which all zeroes is a value too.
    let about = unsafe {
        let mut about = MaybeUninit::<libc::stat>::zeroed();
        libc::fstat(fd, about.as_mut_ptr());
        about.assume_init()
    };
    // An odd factor spreads both over the upper bits.
    (about.st_ino ^ about.st_dev.rotate_left(40)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32
}

pub(super) fn close(fd: RawFd) {
    // SAFETY: the caller owns the descriptor and forgets it.
    unsafe { libc::syscall(libc::SYS_close, fd) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::IntoRawFd;

    /// Descriptors that come and go in two threads are closed, each by its owner: entries are used
    /// again at once.
    #[test]
    fn what_is_dropped_is_closed() {
        let table = FdTable::new();
        let rounds = || {
            for round in 0..20_000 {
                let (reader, writer) =
                    nix::unistd::pipe2(nix::fcntl::OFlag::O_NONBLOCK | nix::fcntl::OFlag::O_CLOEXEC).unwrap();
                drop(table.register(writer.into_raw_fd()).unwrap());
                // A child that another test is starting has a copy for a moment.
                let until = std::time::Instant::now() + std::time::Duration::from_secs(30);
                while nix::unistd::read(&reader, &mut [0]) != Ok(0) {
                    let late = std::time::Instant::now() > until;
                    assert!(!late, "round {round}: the other end of the pipe is open");
                    std::thread::yield_now();
                }
            }
        };
        std::thread::scope(|scope| {
            (0..3).for_each(|_| _ = scope.spawn(rounds));
        });
        assert!(!table.has_lost_one());
    }

    /// What the program has put under a number of ours stays open.
    #[test]
    fn what_the_program_has_taken_stays_open() {
        let table = FdTable::new();
        let (_, ours) = nix::unistd::pipe().unwrap();
        let (theirs, writer) = nix::unistd::pipe().unwrap();
        let number = ours.into_raw_fd();
        let fd = table.register(number).unwrap();
        assert!(!table.has_lost_one());
        // SAFETY: the number is the table's, which does not notice.
        let mut taken = unsafe { OwnedFd::from_raw_fd(number) };
        nix::unistd::dup2(&writer, &mut taken).unwrap();
        assert!(table.has_lost_one());
        drop(fd);
        drop(writer);
        nix::unistd::write(&taken, b"x").unwrap();
        assert_eq!(nix::unistd::read(&theirs, &mut [0]), Ok(1));
    }
}
