//! The file whose pages peers on this host may map, and what of this process's memory lies in it.
//!
//! There is one sparse file a process. Memory gets there in two ways, and never by being moved:
//!
//! * **Pages of our own** ([`Pages::shared`](crate::Pages::shared)): device memory, buffers of the
//!   native API.
//! * **Blocks of the program**: page-aligned allocations (`posix_memalign` and its like) that the
//!   preload of `adverb run` hands out. A block is made of the file's pages before the program sees
//!   its address ([`SharedFile::share_fresh`]), so no byte is ever copied or lost on the way, and
//!   its whole life passes through us.
//!
//! All else stays where it is. Peers reach it by `process_vm_readv` and `process_vm_writev`
//! ([`Cma`](crate::Cma)).
//!
//! # A block is as private memory is
//!
//! | what the program does | what it sees, and why |
//! |---|---|
//! | grows it (`mremap`, raw or not) | zeroes: each block has a range of the file of its own, with a gap behind it |
//! | grows what it cut off or split before | zeroes: the preload sees the call ([`remap`]) |
//! | moves, splits or protects it | its bytes: what is where is asked of the kernel, never remembered |
//! | gives pages up (`madvise`) | zeroes: the preload sees the call, [`SharedFile::advise`] frees the file's pages |
//! | forks | a private copy in the child, made before `fork` returns ([`fork`]); a child made in another way has no such pages |
//! | waits on a futex | as ever: the pages never change |
//! | asks for huge pages | huge pages of private memory if the block is new, or of the file when it is registered ([`huge`]) |
//! | frees or reallocates it | ordinary memory, given back to its allocator, whose block it always was: when its last registration ends |
//! | unmaps it while it is registered | as with a NIC, keys go on opening the old pages, until they are deregistered |
//!
//! The device itself reaches a registered block by a mapping of its own ([`Placed::addr`]), which
//! no call of the program takes away (MEM-4).
mod advice;
mod allocator;
mod blocks;
mod classes;
mod data;
mod door;
mod fork;
mod huge;
mod index;
mod pool;
mod remap;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_huge;
#[cfg(test)]
mod tests_left;
#[cfg(test)]
mod tests_pool;

pub use blocks::{Hold, Placed, Private};
pub(crate) use door::at_fork;
pub use huge::{OwnThread, all_memory_is_open};

use crate::maps::Maps;
use crate::sys::{self, At, Life, RW};
use adverb_sync::{Mutex, MutexGuard};
use blocks::Table;
use classes::Credit;
use index::Index;
use nix::errno::Errno;
use pool::Pool;
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

/// Bytes of the file, all but a few of which are never touched.
pub(crate) const SPAN: u64 = 1 << 62;
/// The seals of the file: its size is for ever.
pub(crate) const SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
/// Where the ranges of blocks begin; pages of our own lie before.
const BLOCKS_FROM: u64 = 1 << 61;
/// Pages of our own are packed, so that a peer maps many of them at once.
const OWN_FROM: u64 = 1 << 30;

/// The file of this process, which lives as long as the process does.
#[derive(Debug)]
pub struct SharedFile {
    fd: OwnedFd,
    /// Device and inode.
    id: ((u32, u32), u64),
    maps: Maps,
    /// Blocks of the program are shared.
    sharing: AtomicBool,
    /// The process that it belongs to: no child, however it was made, takes it for its own.
    life: Life,
    /// The thread that has the table, 0 for none: what it allocates or frees meanwhile is no block.
    /// A variable of each thread's own would be allocated when it is first looked at, under locks
    /// of the allocator that asks.
    owner: AtomicUsize,
    /// Where the next pages of our own go.
    next_own: AtomicU64,
    /// Bytes of our own pages that live.
    own: AtomicU64,
    /// Bytes made since the machine was last asked what it has left.
    unasked: AtomicU64,
    /// Which allocations become blocks.
    credit: Credit,
    /// Where blocks begin, for who has no lock.
    index: Index,
    /// Blocks that were freed.
    pool: Pool,
    table: Mutex<Table>,
}

/// What lies in the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes that the kernel has pages for.
    pub resident: u64,
    /// Bytes of our own pages, touched or not.
    pub own: u64,
    /// Bytes of the program's blocks, touched or not.
    pub blocks: u64,
}

/// The table, locked.
struct Locked<'a> {
    owner: &'a AtomicUsize,
    guard: MutexGuard<'a, Table>,
    /// Goes last: signals come when the lock is free.
    quiet: Quiet,
}

/// While it lives this thread takes no signals: a handler may free, give advice or fork, and needs
/// the table whole (MEM-7).
struct Quiet {
    before: u64,
}

impl Quiet {
    fn begin() -> Self {
        Quiet { before: sys::mask_signals(u64::MAX) }
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        sys::mask_signals(self.before);
    }
}

/// A number of this thread's.
fn this_thread() -> usize {
    // SAFETY: asks.
    unsafe { libc::pthread_self() as usize }
}

impl Deref for Locked<'_> {
    type Target = Table;
    fn deref(&self) -> &Table {
        &self.guard
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Table {
        &mut self.guard
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.owner.store(0, Ordering::Relaxed);
    }
}

/// Another process was given the file.
static PEERS: AtomicBool = AtomicBool::new(false);

fn has_peers() -> bool {
    PEERS.load(Ordering::Relaxed)
}

static CURRENT: AtomicPtr<SharedFile> = AtomicPtr::new(std::ptr::null_mut());

impl SharedFile {
    /// The file of this process, made on first use, and again in a child of `fork`.
    ///
    /// # Errors
    /// What the kernel refuses: descriptors, memory, `/proc`, a limit on the size of files.
    pub fn of_process() -> io::Result<&'static SharedFile> {
        let known = CURRENT.load(Ordering::Acquire);
        if let Some(file) = Self::current() {
            return Ok(file);
        }
        door::at_fork(None);
        let made: &'static SharedFile = Box::leak(Box::new(SharedFile::make()?));
        // No lock: a child of `fork` might find it held.
        let new = std::ptr::from_ref(made).cast_mut();
        match CURRENT.compare_exchange(known, new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => {
                let _locked = made.table();
                // One that cannot be had now is asked for again by each fork.
                fork::has_pipe();
                Ok(made)
            }
            Err(other) => {
                // SAFETY: leaked above and seen by nobody else; whatever is in `CURRENT` is never
                // freed.
                unsafe {
                    drop(Box::from_raw(new));
                    Ok(&*other)
                }
            }
        }
    }

    /// The same, unless this thread is inside its table.
    pub(crate) fn outside() -> Option<&'static SharedFile> {
        Self::current().filter(|file| file.owner.load(Ordering::Relaxed) != this_thread())
    }

    /// The file of this process, if it was made; a child does not see its parent's.
    pub(crate) fn current() -> Option<&'static SharedFile> {
        // SAFETY: null, or leaked and never freed.
        let file = unsafe { CURRENT.load(Ordering::Acquire).as_ref() }?;
        (!file.is_stale()).then_some(file)
    }

    /// The file of this process, or the one that it descends from had.
    pub(crate) fn inherited() -> Option<&'static SharedFile> {
        // SAFETY: as in `current`.
        unsafe { CURRENT.load(Ordering::Acquire).as_ref() }
    }

    fn make() -> io::Result<SharedFile> {
        if !unlimited_files() {
            return Err(io::Error::other("a limit on the size of files (RLIMIT_FSIZE) stands in the way"));
        }
        let create = |flags| {
            // SAFETY: a terminated name and flags.
            Errno::result(unsafe { libc::memfd_create(c"adverb-memory".as_ptr(), flags) })
        };
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // The flag is of Linux 6.3; without it some distributions log a warning.
        let fd = create(flags | libc::MFD_NOEXEC_SEAL).or_else(|_| create(flags))?;
        // SAFETY: a new descriptor that nobody else owns.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: plain integers.
        unsafe {
            Errno::result(libc::ftruncate(fd.as_raw_fd(), SPAN.cast_signed()))?;
            Errno::result(libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, SEALS))?;
        }
        let about = nix::sys::stat::fstat(&fd)?;
        let dev = (libc::major(about.st_dev), libc::minor(about.st_dev));
        Ok(SharedFile {
            fd,
            id: (dev, about.st_ino),
            maps: Maps::open()?,
            sharing: AtomicBool::new(false),
            life: Life::current(),
            owner: AtomicUsize::new(0),
            next_own: AtomicU64::new(OWN_FROM),
            own: AtomicU64::new(0),
            unasked: AtomicU64::new(0),
            credit: Credit::new(),
            index: Index::new()?,
            pool: Pool::new()?,
            table: Mutex::new(Table::new()),
        })
    }

    /// Has page-aligned allocations of the program come from the file from now on, if a preload
    /// hands them out.
    pub fn share_allocations(&'static self, on: bool) {
        let strict = on && crate::room::is_strict();
        if strict {
            log::debug!("vm.overcommit_memory is 2: allocations stay private, for which memory is set aside");
        }
        self.sharing.store(on && !strict, Ordering::Release);
    }

    /// The descriptor, for a peer. Whoever has it may keep windows on what is registered from now
    /// on.
    ///
    /// # Errors
    /// EBADF if the program has closed it: the number may be that of a file of its own, which no
    /// peer is to get.
    pub fn fd(&self) -> io::Result<BorrowedFd<'_>> {
        if self.raw_fd() < 0 {
            return Err(io::Error::from_raw_os_error(libc::EBADF));
        }
        PEERS.store(true, Ordering::Relaxed);
        Ok(self.fd.as_fd())
    }

    /// The descriptor if it is the file's still, -1 if not: a program that closes all descriptors
    /// closes this one, too, and the number may be that of a file of its own.
    fn raw_fd(&self) -> RawFd {
        let fd = self.fd.as_raw_fd();
        let is_ours = sys::identity(fd)
            .is_some_and(|(dev, inode)| ((libc::major(dev), libc::minor(dev)), inode) == self.id);
        if is_ours { fd } else { -1 }
    }

    fn table(&self) -> Locked<'_> {
        let quiet = Quiet::begin();
        let guard = self.table.lock();
        self.owner.store(this_thread(), Ordering::Relaxed);
        Locked { owner: &self.owner, guard, quiet }
    }

    /// No fork begins while the result lives, as [`fork::before`] waits for the table. Nothing may
    /// be allocated meanwhile: the allocator's locks may be in the hands of a thread that forks.
    pub(crate) fn no_fork() -> Option<impl Sized> {
        Self::outside().map(SharedFile::table)
    }

    pub(crate) fn is_stale(&self) -> bool {
        self.life.is_over()
    }

    /// Is a descriptor with these attributes this file?
    pub(crate) fn is_file(&self, about: &nix::sys::stat::FileStat) -> bool {
        let dev = (libc::major(about.st_dev), libc::minor(about.st_dev));
        (dev, about.st_ino) == self.id
    }

    /// How much of the machine's memory lies in the file.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let resident =
            nix::sys::stat::fstat(&self.fd).map_or(0, |about| about.st_blocks.cast_unsigned() * 512);
        let blocks = self.table().bytes();
        Usage { resident, own: self.own.load(Ordering::Relaxed), blocks }
    }

    /// At least `len` zeroed bytes in the file, aligned to `align`: pages that come when they are
    /// touched.
    pub(crate) fn pages(&'static self, len: usize, align: usize) -> Result<OwnPages, Errno> {
        let page = crate::page_size();
        if !align.is_power_of_two() || self.is_stale() {
            return Err(Errno::EINVAL);
        }
        let align = (align as u64).max(page);
        let len = (len.max(1) as u64).checked_next_multiple_of(page).ok_or(Errno::ENOMEM)?;
        self.reserve(len)?;
        let made = self.map_own(len, align);
        if made.is_err() {
            self.own.fetch_sub(len, Ordering::Relaxed);
        }
        made
    }

    /// Counts `len` bytes more, if the machine can hold them with all that was made before and not
    /// touched yet.
    fn reserve(&self, len: u64) -> Result<(), Errno> {
        /// So many bytes are made without a question.
        const STEP: u64 = 16 << 20;
        let own = self.own.fetch_add(len, Ordering::Relaxed).checked_add(len);
        let unasked = self.unasked.fetch_add(len, Ordering::Relaxed).saturating_add(len);
        if unasked < STEP && own.is_some() {
            return Ok(());
        }
        self.unasked.store(0, Ordering::Relaxed);
        let untouched = self.usage();
        let untouched = (untouched.own.saturating_add(untouched.blocks)).saturating_sub(untouched.resident);
        if own.is_none() || untouched > crate::room::available() {
            self.own.fetch_sub(len, Ordering::Relaxed);
            return Err(Errno::ENOMEM);
        }
        Ok(())
    }

    fn map_own(&'static self, len: u64, align: u64) -> Result<OwnPages, Errno> {
        let page = crate::page_size();
        // A place in the file is never given twice: a peer may still hold a window on it. Behind it
        // is a page's gap.
        let offset = self.next_own.fetch_add(len + page, Ordering::Relaxed);
        if offset.checked_add(len).is_none_or(|end| end > BLOCKS_FROM) {
            self.next_own.fetch_sub(len + page, Ordering::Relaxed);
            return Err(Errno::ENOMEM);
        }
        let room = len.checked_add(align - page).ok_or(Errno::ENOMEM)?;
        // A child of a fork in between would write to this process's pages.
        let _no_fork = Self::no_fork();
        // SAFETY: a new mapping at an address of the kernel's choice; the parts that are cut off
        // are its own.
        unsafe {
            let at =
                sys::map(At::Anywhere, room, libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_NORESERVE, None)?;
            let start = at.next_multiple_of(align);
            let mapped = sys::map(At::Over(start), len, RW, libc::MAP_SHARED, Some((self.raw_fd(), offset)));
            let _ = if start > at { sys::unmap(at, start - at) } else { Ok(()) };
            let end = start + len;
            let _ = if at + room > end { sys::unmap(end, at + room - end) } else { Ok(()) };
            if let Err(errno) = mapped {
                let _ = sys::unmap(start, len);
                return Err(errno);
            }
            // A child gets a copy, or nothing; never this. qemu-user does not know the advice
            // (EINVAL): a child of `fork` gets its copy there too, by the handlers.
            match sys::advise(start, len, libc::MADV_DONTFORK) {
                Ok(()) | Err(Errno::EINVAL) => {}
                Err(errno) => {
                    let _ = sys::unmap(start, len);
                    return Err(errno);
                }
            }
            Ok(OwnPages { file: self, start, len, offset })
        }
    }
}

/// Pages of our own in the file. Dropped, they are unmapped, and their memory is given back.
#[derive(Debug)]
pub(crate) struct OwnPages {
    file: &'static SharedFile,
    start: u64,
    len: u64,
    offset: u64,
}

impl OwnPages {
    /// First address.
    pub fn addr(&self) -> u64 {
        self.start
    }
    /// Where they begin in the file.
    pub fn offset(&self) -> u64 {
        self.offset
    }
}

impl Drop for OwnPages {
    fn drop(&mut self) {
        // A child may have a copy here, or nothing, or something else by now: it leaves it.
        if self.file.is_stale() {
            return;
        }
        // SAFETY: the mapping made above; no reference into it was given out.
        let _ = unsafe { sys::unmap(self.start, self.len) };
        let _ = sys::punch(self.file.raw_fd(), self.offset, self.len);
        self.file.own.fetch_sub(self.len, Ordering::Relaxed);
    }
}

/// A limit on the size of files would end the process by SIGXFSZ.
fn unlimited_files() -> bool {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes the structure.
    let rc = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) };
    rc == 0 && limit.rlim_cur >= SPAN
}
