//! The descriptors of a process's sockets, in a table that the child of a fork can close.
use super::ending::end_connection;
use std::fs::File;
use std::io;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// How many descriptors a table can hold.
pub const FD_LIMIT: usize = 2048;

/// All descriptors of one owner, readable without a lock, so that the child of a fork can close
/// them from a signal-safe context whatever the parent's threads held.
pub struct FdTable {
    entries: Box<[AtomicU64]>,
    /// Where the socket is that stands for those of the table whose inodes are not their own;
    /// `usize::MAX` for none.
    witness: AtomicUsize,
}

/// A descriptor and what it was when it came, in one word: a program that closes all descriptors
/// may have put its own under the number since. Two words would let an entry's next owner change
/// what its last owner compares with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    pub fn new() -> Arc<Self> {
        Self::with_room(FD_LIMIT)
    }

    /// A table of another size.
    pub fn with_room(limit: usize) -> Arc<Self> {
        Arc::new(FdTable {
            entries: (0..limit).map(|_| AtomicU64::new(Entry::FREE.0)).collect(),
            witness: AtomicUsize::new(usize::MAX),
        })
    }

    /// Takes the descriptor over; closes it when there is no room.
    pub fn register(self: &Arc<Self>, fd: RawFd) -> io::Result<Fd> {
        self.register_as(fd, Kind::Plain)
    }

    /// The same for a socket in which others may leave descriptors.
    pub(super) fn register_connection(self: &Arc<Self>, fd: RawFd) -> io::Result<Fd> {
        self.register_as(fd, Kind::Connection)
    }

    /// The same for an `epoll`, whose inode is that of every other one. A socket beside it is its
    /// witness: a program that closes all descriptors closes both.
    pub(super) fn register_epoll(self: &Arc<Self>, fd: RawFd) -> io::Result<Fd> {
        let any = self.register_as(fd, Kind::Epoll)?;
        // SAFETY: plain integers.
        let witness = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
        if witness < 0 {
            return Err(io::Error::last_os_error());
        }
        let mut witness = self.register(witness)?;
        self.witness.store(witness.index, Ordering::Release);
        witness.kind = Kind::Witness;
        Ok(any)
    }

    fn register_as(self: &Arc<Self>, fd: RawFd, kind: Kind) -> io::Result<Fd> {
        let (fd, is_aside) = set_aside(fd);
        let new = Entry::of(fd);
        for (index, entry) in self.entries.iter().enumerate() {
            if entry.compare_exchange(Entry::FREE.0, new.0, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                let seen = Seen::new(is_aside);
                return Ok(Fd { table: self.clone(), index, kind, seen });
            }
        }
        if kind == Kind::Connection {
            // SAFETY: the caller gave it up.
            end_connection(unsafe { OwnedFd::from_raw_fd(fd) });
        } else {
            close(fd);
        }
        Err(io::Error::from_raw_os_error(libc::E2BIG))
    }

    /// Has the program closed one of them?
    pub fn has_lost_one(&self) -> bool {
        self.entries.iter().any(|entry| {
            let there = Entry(entry.load(Ordering::Acquire));
            // One that was dropped meanwhile has been closed by its owner.
            there.fd().is_some() && there.own().is_none() && entry.load(Ordering::Acquire) == there.0
        })
    }

    /// Closes everything. Async-signal-safe: atomics, fstat(2) and close(2) only.
    pub fn close_all(&self) {
        (0..self.entries.len()).for_each(|index| self.close(index));
    }

    fn has_witness(&self) -> bool {
        let entry = self.entries.get(self.witness.load(Ordering::Acquire));
        entry.is_none_or(|entry| Entry(entry.load(Ordering::Relaxed)).own().is_some())
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

/// What is special about a descriptor.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain,
    /// Others may leave descriptors in it.
    Connection,
    Epoll,
    Witness,
}

impl Drop for FdTable {
    fn drop(&mut self) {
        self.close_all();
    }
}

/// A descriptor owned by a table: closed when dropped, unless the table closed it before.
pub struct Fd {
    table: Arc<FdTable>,
    index: usize,
    kind: Kind,
    seen: Seen,
}

impl Fd {
    /// The descriptor, and -1 if the program has closed it, which every call then answers with
    /// EBADF: the number may be that of a socket or file of the program's. One system call.
    pub fn own(&self) -> RawFd {
        if self.kind == Kind::Epoll && !self.table.has_witness() {
            return -1;
        }
        Entry(self.table.entries[self.index].load(Ordering::Relaxed)).own().unwrap_or(-1)
    }

    /// The same for what is done with each packet or event: see `Seen`.
    pub fn own_lately(&self) -> RawFd {
        if self.seen.is_recent(|| self.own() >= 0) { self.raw() } else { -1 }
    }

    /// [`Fd::own_lately`], borrowed.
    pub fn borrow_lately(&self) -> Option<BorrowedFd<'_>> {
        let fd = self.own_lately();
        // SAFETY: as in `borrow`.
        (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) })
    }

    /// The descriptor; -1 after [`FdTable::close_all`], which every call then answers with EBADF.
    /// It may be the program's by now: for a descriptor that is new, and for calls that change
    /// nothing.
    pub fn raw(&self) -> RawFd {
        Entry(self.table.entries[self.index].load(Ordering::Relaxed)).fd().unwrap_or(-1)
    }

    pub fn borrow(&self) -> Option<BorrowedFd<'_>> {
        let fd = self.own();
        // SAFETY: the entry owns the descriptor, and it is closed only by dropping `self` or in the
        // child of a fork, where nobody uses the table any more.
        (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) })
    }
}

impl Drop for Fd {
    fn drop(&mut self) {
        match self.kind {
            // Closed with the table alone.
            Kind::Witness => {}
            // SAFETY: it was this entry's, which forgets it.
            Kind::Connection => self
                .table
                .take(self.index)
                .map_or((), |fd| end_connection(unsafe { OwnedFd::from_raw_fd(fd) })),
            Kind::Plain | Kind::Epoll => self.table.close(self.index),
        }
    }
}

/// A descriptor of this library's that knows what it was of when it came. A program may close all
/// descriptors and get the number for a file of its own; then this one is gone, and the file is
/// neither used nor closed.
///
/// Descriptors of anonymous inodes (`eventfd`, `epoll`, `signalfd`) look all alike. What the
/// library writes to is a pipe, a socket or a file, of which each has an inode of its own.
#[derive(Debug)]
pub struct OwnFd {
    fd: ManuallyDrop<OwnedFd>,
    is: Entry,
    seen: Seen,
}

impl From<OwnedFd> for OwnFd {
    fn from(fd: OwnedFd) -> Self {
        Self::numbered(fd, false)
    }
}

impl OwnFd {
    /// A descriptor that the program never sees. The library uses it often, so it gets another
    /// number: see `set_aside`.
    #[must_use]
    pub fn aside(fd: OwnedFd) -> Self {
        let (fd, is_aside) = set_aside(fd.into_raw_fd());
        // SAFETY: the number is new, or the one that was given up above.
        Self::numbered(unsafe { OwnedFd::from_raw_fd(fd) }, is_aside)
    }

    fn numbered(fd: OwnedFd, is_aside: bool) -> Self {
        let is = Entry::of(fd.as_raw_fd());
        OwnFd { fd: ManuallyDrop::new(fd), is, seen: Seen::new(is_aside) }
    }

    /// The same as [`OwnFd::get`], for what is done with each event: see `Seen`.
    #[must_use]
    pub fn get_lately(&self) -> Option<BorrowedFd<'_>> {
        self.seen.is_recent(|| self.is.own().is_some()).then(|| self.fd.as_fd())
    }

    /// The descriptor, unless the program has closed it. One system call.
    #[must_use]
    pub fn get(&self) -> Option<BorrowedFd<'_>> {
        self.is.own().is_some().then(|| self.fd.as_fd())
    }

    /// The same as an error of the kernel's.
    ///
    /// # Errors
    /// EBADF.
    pub fn need(&self) -> io::Result<BorrowedFd<'_>> {
        self.get().ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))
    }

    /// Calls `with` with the file that it is of.
    ///
    /// # Errors
    /// EBADF if the program has closed it; what `with` answers.
    pub fn as_file<T>(&self, with: impl FnOnce(&mut &File) -> io::Result<T>) -> io::Result<T> {
        let fd = self.need()?.as_raw_fd();
        // SAFETY: this descriptor, which stays open; the value is not dropped.
        let file = ManuallyDrop::new(unsafe { File::from_raw_fd(fd) });
        with(&mut &*file)
    }

    /// The descriptor, which may be the program's by now: for calls that change nothing.
    #[must_use]
    pub fn unchecked(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The number, which may be the program's by now.
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

/// The lowest number of a descriptor that is set aside, at most.
const ASIDE: u64 = 4096;

/// Gives a descriptor a high number, if the limit of the process leaves room for one. Answers the
/// number, and whether it is high.
///
/// A program that closes all descriptors gets the lowest numbers for its next files. So it does not
/// get the numbers of the library, unless it opens hundreds of files. A call of the library with
/// such a number then fails with EBADF, and touches no file of the program's.
fn set_aside(fd: RawFd) -> (RawFd, bool) {
    let mut limit = MaybeUninit::<libc::rlimit>::zeroed();
    // SAFETY: the kernel writes the structure, of which all zeroes is a value too.
    let limit = unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, limit.as_mut_ptr());
        limit.assume_init().rlim_cur
    };
    let first = (limit / 4).saturating_mul(3).min(ASIDE) as RawFd;
    if fd >= first {
        return (fd, first > 0);
    }
    // SAFETY: plain integers; the caller gave the old number up.
    let high = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, first) };
    if high < 0 {
        return (fd, false);
    }
    close(fd);
    (high, true)
}

/// When a descriptor was last seen to be the library's.
///
/// A descriptor that is [set aside](set_aside) is looked at once a tick of the kernel (4 ms at
/// most), by one system call. The tick itself is read without one. A descriptor with a low number
/// is looked at before each use.
#[derive(Debug)]
struct Seen {
    is_aside: bool,
    tick: AtomicU64,
}

impl Seen {
    fn new(is_aside: bool) -> Self {
        Seen { is_aside, tick: AtomicU64::new(0) }
    }

    /// Is it the library's? `look` asks the kernel.
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
    // SAFETY: the C library writes the structure, of which all zeroes is a value too.
    let now = unsafe {
        libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, now.as_mut_ptr());
        now.assume_init()
    };
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32).as_nanos() as u64 | 1
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

    /// A program that closes all descriptors does not get a number of ours for its next files.
    #[test]
    fn a_number_set_aside_is_not_the_next_one() {
        let (_, writer) = nix::unistd::pipe().unwrap();
        let low = writer.as_raw_fd();
        let own = OwnFd::aside(writer);
        assert!(own.number() >= 256, "{} of a limit of 1024 at least", own.number());
        assert!(own.get_lately().is_some() && own.seen.is_aside);
        let table = FdTable::new();
        let (_, other) = nix::unistd::pipe().unwrap();
        let fd = table.register(other.into_raw_fd()).unwrap();
        assert!(fd.raw() >= 256 && fd.raw() != own.number());
        // The program's files get numbers from the lowest on.
        let next = nix::unistd::dup(std::io::stdin()).unwrap();
        assert!(next.as_raw_fd() < 256, "{low} was free again");
    }

    /// Without room for high numbers each use is looked at.
    #[test]
    fn a_low_number_is_looked_at_each_time() {
        let low = Seen::new(false);
        let mut looks = 0;
        (0..10).for_each(|_| {
            assert!(low.is_recent(|| {
                looks += 1;
                true
            }))
        });
        assert_eq!(looks, 10);
        assert!(!Seen::new(true).is_recent(|| false), "a high one is looked at first");
    }

    /// What the program has put under a number of ours is neither used nor closed.
    #[test]
    fn what_the_program_has_taken_is_not_used() {
        let (reader, writer) = nix::unistd::pipe().unwrap();
        let (theirs, their_writer) = nix::unistd::pipe().unwrap();
        let number = writer.as_raw_fd();
        let own = OwnFd::from(writer);
        assert!(own.get().is_some());
        // SAFETY: the number is the library's, which does not notice.
        let mut taken = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(number) });
        nix::unistd::dup2(&their_writer, &mut taken).unwrap();
        assert!(own.get().is_none() && own.need().is_err());
        drop((own, their_writer));
        nix::unistd::write(&*taken, b"x").unwrap();
        assert_eq!(nix::unistd::read(&theirs, &mut [0]), Ok(1));
        assert_eq!(nix::unistd::read(&reader, &mut [0]), Ok(0), "no writer is left");
        drop(ManuallyDrop::into_inner(taken));
    }

    /// What the program has put under a number of ours stays open.
    #[test]
    fn what_the_program_has_taken_stays_open() {
        let table = FdTable::new();
        let (_, ours) = nix::unistd::pipe().unwrap();
        let (theirs, writer) = nix::unistd::pipe().unwrap();
        let fd = table.register(ours.into_raw_fd()).unwrap();
        let number = fd.raw();
        assert!(!table.has_lost_one());
        // SAFETY: the number is the table's, which does not notice.
        let mut taken = unsafe { OwnedFd::from_raw_fd(number) };
        nix::unistd::dup2(&writer, &mut taken).unwrap();
        assert!(table.has_lost_one());
        assert_eq!((fd.own(), fd.own_lately(), fd.borrow().is_none()), (-1, -1, true));
        drop(fd);
        drop(writer);
        nix::unistd::write(&taken, b"x").unwrap();
        assert_eq!(nix::unistd::read(&theirs, &mut [0]), Ok(1));
    }
}
