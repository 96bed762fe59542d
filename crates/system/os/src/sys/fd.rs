//! The descriptors of a process's sockets, in a table for the child of a fork to close.
use super::ending::end_connection;
use super::raw::socket;
use std::fs::File;
use std::io;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// The default number of descriptors in a table.
pub const FD_LIMIT: usize = 2048;

/// All descriptors of one owner, readable without a lock. So the child of a fork can close them
/// from a signal-safe context, whatever locks the parent's threads held.
pub struct FdTable {
    entries: Box<[AtomicU64]>,
    /// The index of the witness socket. The witness stands for descriptors without an inode of
    /// their own. `usize::MAX` for none.
    witness: AtomicUsize,
}

/// A descriptor and its identity at registration, in one word. The identity is needed because a
/// program may close all descriptors and reuse the number. With two words, the next owner of an
/// entry could change the identity during the last owner's comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FdEntry(u64);

impl FdEntry {
    const FREE: FdEntry = FdEntry(0);

    fn of(fd: RawFd) -> Self {
        FdEntry(identity(fd) << 32 | (fd as u64 + 1))
    }

    /// The descriptor. The number may belong to the program by now.
    fn fd(self) -> Option<RawFd> {
        RawFd::try_from(self.0 as u32).ok()?.checked_sub(1).filter(|fd| *fd >= 0)
    }

    /// The descriptor, unless the program has closed it.
    fn own(self) -> Option<RawFd> {
        self.fd().filter(|fd| FdEntry::of(*fd) == self)
    }
}

impl FdTable {
    pub fn new() -> Arc<Self> {
        Self::with_room(FD_LIMIT)
    }

    /// Creates a table of another size.
    pub fn with_room(limit: usize) -> Arc<Self> {
        Arc::new(FdTable {
            entries: (0..limit).map(|_| AtomicU64::new(FdEntry::FREE.0)).collect(),
            witness: AtomicUsize::new(usize::MAX),
        })
    }

    /// Takes over the descriptor. Closes the descriptor if the table is full.
    pub fn register(self: &Arc<Self>, fd: RawFd) -> io::Result<Fd> {
        self.register_as(fd, Kind::Plain)
    }

    /// As [`register`](Self::register), for a socket in which others may leave descriptors.
    pub(super) fn register_connection(self: &Arc<Self>, fd: RawFd) -> io::Result<Fd> {
        self.register_as(fd, Kind::Connection)
    }

    /// As [`register`](Self::register), for an `epoll`. All `epoll` descriptors have the same
    /// inode. So a socket is created as a witness: a program closing all descriptors closes both.
    pub(super) fn register_epoll(self: &Arc<Self>, fd: RawFd) -> io::Result<Fd> {
        let any = self.register_as(fd, Kind::Epoll)?;
        let mut witness = self.register(socket(libc::AF_UNIX, libc::SOCK_DGRAM, 0)?)?;
        self.witness.store(witness.index, Ordering::Release);
        witness.kind = Kind::Witness;
        Ok(any)
    }

    fn register_as(self: &Arc<Self>, fd: RawFd, kind: Kind) -> io::Result<Fd> {
        let (fd, is_aside) = set_aside(fd);
        let new = FdEntry::of(fd);
        for (index, entry) in self.entries.iter().enumerate() {
            if entry
                .compare_exchange(FdEntry::FREE.0, new.0, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
            {
                let seen = Seen::new(is_aside);
                return Ok(Fd { table: self.clone(), index, kind, seen });
            }
        }
        if kind == Kind::Connection {
            // SAFETY: the caller has given the descriptor up.
            end_connection(unsafe { OwnedFd::from_raw_fd(fd) });
        } else {
            close(fd);
        }
        Err(io::Error::from_raw_os_error(libc::E2BIG))
    }

    /// Whether the program has closed one of the descriptors.
    pub fn has_lost_one(&self) -> bool {
        self.entries.iter().any(|entry| {
            let there = FdEntry(entry.load(Ordering::Acquire));
            // A descriptor dropped meanwhile has been closed by its owner.
            there.fd().is_some()
                && there.own().is_none()
                && entry.load(Ordering::Acquire) == there.0
        })
    }

    /// Closes all descriptors. Async-signal-safe: only atomics, fstat(2) and close(2).
    pub fn close_all(&self) {
        (0..self.entries.len()).for_each(|index| self.close(index));
    }

    fn has_witness(&self) -> bool {
        let entry = self.entries.get(self.witness.load(Ordering::Acquire));
        entry.is_none_or(|entry| FdEntry(entry.load(Ordering::Relaxed)).own().is_some())
    }

    /// Closes a descriptor, unless the program has done so.
    pub(super) fn close(&self, index: usize) {
        if let Some(fd) = self.take(index) {
            close(fd);
        }
    }

    /// Removes an entry. Returns the descriptor, unless the program has closed the descriptor.
    fn take(&self, index: usize) -> Option<RawFd> {
        FdEntry(self.entries[index].swap(FdEntry::FREE.0, Ordering::AcqRel)).own()
    }
}

/// The kind of a descriptor, for its checks and its close.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain,
    /// Others may leave descriptors in the socket.
    Connection,
    Epoll,
    Witness,
}

impl Drop for FdTable {
    fn drop(&mut self) {
        self.close_all();
    }
}

/// A descriptor owned by a table. Closed on drop, unless the table has closed it before.
pub struct Fd {
    table: Arc<FdTable>,
    index: usize,
    kind: Kind,
    seen: Seen,
}

impl Fd {
    /// The descriptor, or -1 if the program has closed the descriptor, because the number may
    /// belong to a socket or file of the program. Calls answer -1 with EBADF. Costs one system
    /// call.
    pub fn own(&self) -> RawFd {
        if self.kind == Kind::Epoll && !self.table.has_witness() {
            return -1;
        }
        FdEntry(self.table.entries[self.index].load(Ordering::Relaxed)).own().unwrap_or(-1)
    }

    /// As [`own`](Self::own), for operations on each packet or event: see `Seen`.
    pub fn own_lately(&self) -> RawFd {
        if self.seen.is_recent(|| self.own() >= 0) { self.raw() } else { -1 }
    }

    /// As [`Fd::own_lately`], borrowed.
    pub fn borrow_lately(&self) -> Option<BorrowedFd<'_>> {
        let fd = self.own_lately();
        // SAFETY: as in `borrow`.
        (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) })
    }

    /// The descriptor without a check; -1 after [`FdTable::close_all`], which calls answer with
    /// EBADF. The number may belong to the program by now. For a new descriptor, and for calls
    /// without side effects.
    pub fn raw(&self) -> RawFd {
        FdEntry(self.table.entries[self.index].load(Ordering::Relaxed)).fd().unwrap_or(-1)
    }

    pub fn borrow(&self) -> Option<BorrowedFd<'_>> {
        let fd = self.own();
        // SAFETY: the entry owns the descriptor. Only dropping `self` closes the descriptor, or the
        // child of a fork, where no code uses the table any more.
        (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) })
    }
}

impl Drop for Fd {
    fn drop(&mut self) {
        match self.kind {
            // Closed only together with the table.
            Kind::Witness => {}
            // SAFETY: the entry owned the descriptor, and has been cleared.
            Kind::Connection => self
                .table
                .take(self.index)
                .map_or((), |fd| end_connection(unsafe { OwnedFd::from_raw_fd(fd) })),
            Kind::Plain | Kind::Epoll => self.table.close(self.index),
        }
    }
}

/// A descriptor of this library with its identity at creation. A program may close all descriptors
/// and get the number for its own file. Then this descriptor no longer exists, and the library
/// neither uses nor closes the file.
///
/// Descriptors of anonymous inodes (`eventfd`, `epoll`, `signalfd`) all look alike. The library
/// only writes to pipes, sockets and files, and each of these has its own inode.
#[derive(Debug)]
pub struct OwnFd {
    fd: ManuallyDrop<OwnedFd>,
    is: FdEntry,
    seen: Seen,
}

impl From<OwnedFd> for OwnFd {
    fn from(fd: OwnedFd) -> Self {
        Self::numbered(fd, false)
    }
}

impl OwnFd {
    /// A descriptor never seen by the program. The library uses the descriptor often, so the
    /// descriptor gets a high number: see `set_aside`.
    #[must_use]
    pub fn aside(fd: OwnedFd) -> Self {
        let (fd, is_aside) = set_aside(fd.into_raw_fd());
        // SAFETY: the number is new, or is the descriptor given up above.
        Self::numbered(unsafe { OwnedFd::from_raw_fd(fd) }, is_aside)
    }

    fn numbered(fd: OwnedFd, is_aside: bool) -> Self {
        let is = FdEntry::of(fd.as_raw_fd());
        OwnFd { fd: ManuallyDrop::new(fd), is, seen: Seen::new(is_aside) }
    }

    /// As [`OwnFd::get`], for operations on each event: see `Seen`.
    #[must_use]
    pub fn get_lately(&self) -> Option<BorrowedFd<'_>> {
        self.seen.is_recent(|| self.is.own().is_some()).then(|| self.fd.as_fd())
    }

    /// The descriptor, unless the program has closed it. Costs one system call.
    #[must_use]
    pub fn get(&self) -> Option<BorrowedFd<'_>> {
        self.is.own().is_some().then(|| self.fd.as_fd())
    }

    /// As [`OwnFd::get`], with an error of the kernel.
    ///
    /// # Errors
    /// EBADF if the program has closed the descriptor.
    pub fn need(&self) -> io::Result<BorrowedFd<'_>> {
        self.get().ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))
    }

    /// Calls `with` with the descriptor's file.
    ///
    /// # Errors
    /// EBADF if the program has closed the descriptor; the error of `with`.
    pub fn as_file<T>(&self, with: impl FnOnce(&mut &File) -> io::Result<T>) -> io::Result<T> {
        let fd = self.need()?.as_raw_fd();
        // SAFETY: this descriptor stays open, because the value is not dropped.
        let file = ManuallyDrop::new(unsafe { File::from_raw_fd(fd) });
        with(&mut &*file)
    }

    /// The descriptor without a check, for calls without side effects. The number may belong to the
    /// program by now.
    #[must_use]
    pub fn unchecked(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The number, which may belong to the program by now.
    #[must_use]
    pub fn number(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl Drop for OwnFd {
    fn drop(&mut self) {
        if self.is.own().is_some() {
            // SAFETY: dropped once, here.
            unsafe { ManuallyDrop::drop(&mut self.fd) }
        }
    }
}

/// The lowest number of a descriptor set aside. A low limit of the process gives a lower one.
const ASIDE: u64 = 4096;

/// Gives a descriptor a high number, if the limit of the process has room for one. Returns the
/// number, and whether the number is high.
///
/// A program closing all descriptors gets the lowest numbers for its next files. So the program
/// does not get the numbers of the library, unless the program opens hundreds of files. A call of
/// the library with such a number then fails with EBADF, and does not affect a file of the program.
fn set_aside(fd: RawFd) -> (RawFd, bool) {
    let mut limit = MaybeUninit::<libc::rlimit>::zeroed();
    // SAFETY: the kernel writes the structure, and all zeroes is a valid value of the structure.
    let limit = unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, limit.as_mut_ptr());
        limit.assume_init().rlim_cur
    };
    let first = (limit / 4).saturating_mul(3).min(ASIDE) as RawFd;
    if fd >= first {
        return (fd, first > 0);
    }
    // SAFETY: all arguments are integers; the caller has given the old number up.
    let high = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, first) };
    if high < 0 {
        return (fd, false);
    }
    close(fd);
    (high, true)
}

/// The time at which a descriptor was last seen to be the library's.
///
/// A descriptor [set aside](set_aside) is checked once in each tick of the kernel (at most 4 ms),
/// by one system call. Reading the tick needs no system call. A descriptor with a low number is
/// checked before each use.
#[derive(Debug)]
struct Seen {
    is_aside: bool,
    tick: AtomicU64,
}

impl Seen {
    fn new(is_aside: bool) -> Self {
        Seen { is_aside, tick: AtomicU64::new(0) }
    }

    /// Whether the descriptor is the library's. `look` asks the kernel.
    fn is_recent(&self, look: impl FnOnce() -> bool) -> bool {
        let now = tick();
        if self.is_aside && self.tick.load(Ordering::Relaxed) == now {
            return true;
        }
        let found = look();
        if found {
            self.tick.store(now, Ordering::Relaxed);
        }
        found
    }
}

/// The kernel's tick, in nanoseconds; never 0.
fn tick() -> u64 {
    let mut now = MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: the C library writes the structure, and all zeroes is a valid value of the structure.
    let now = unsafe {
        libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, now.as_mut_ptr());
        now.assume_init()
    };
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32).as_nanos() as u64 | 1
}

/// The identity of a descriptor: 32 bits derived from its device and inode.
fn identity(fd: RawFd) -> u64 {
    // SAFETY: the kernel writes the structure, and all zeroes is a valid value of the structure.
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
mod tests;
