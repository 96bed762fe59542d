//! The memory file of this process: peers on this host may map its pages.
//!
//! Each process has one sparse file. Memory gets into the file in two ways, and is never moved
//! there:
//!
//! * **Pages of the device** ([`Pages::shared`](crate::Pages::shared)): device memory, and buffers
//!   of the native API.
//! * **Blocks of the program**: page-aligned allocations (`posix_memalign` and related calls),
//!   handed out by the preload of `adverb run`. A block consists of the file's pages before the
//!   program sees the address ([`SharedFile::share_fresh`]). So no byte is copied or lost on the
//!   way, and the preload sees all calls in the lifetime of the block.
//!
//! All other memory stays outside of the file. Peers reach it by `process_vm_readv` and
//! `process_vm_writev` ([`Cma`](crate::Cma)).
//!
//! # A block behaves like private memory
//!
//! | the program | effect, and mechanism |
//! |---|---|
//! | grows a block (`mremap`, raw or not) | zeroes: each block has its own range of the file, with a gap behind |
//! | grows a part that was cut off or split before | zeroes: the preload sees the call ([`remap`]) |
//! | moves, splits or protects a block | the bytes stay: the kernel is asked each time which part is mapped where |
//! | gives pages up (`madvise`) | zeroes: the preload sees the call, [`SharedFile::advise`] frees the file's pages |
//! | forks | a private copy in the child, made before `fork` returns ([`fork`]); other children have no such pages |
//! | waits on a futex | as always: the pages under the futex never change |
//! | asks for huge pages | huge private pages if the block is new, or huge pages of the file at registration ([`huge`]) |
//! | frees or reallocates a block | ordinary memory, given back to its allocator; if registered, after the last registration |
//! | unmaps a registered block | as with a NIC, keys still open the old pages, until they are deregistered |
//!
//! The device reaches a registered block through its own mapping ([`Placed::addr`]), which no call
//! of the program removes (MEM-4).
mod advice;
mod allocator;
mod blocks;
mod classes;
mod data;
mod fork;
mod hooks;
mod huge;
mod index;
mod pool;
mod remap;
#[cfg(test)]
mod tests;

pub use blocks::{Hold, Placed, Private};
pub(crate) use hooks::at_fork;
pub use huge::{OwnThread, all_memory_is_open};

use crate::maps::Maps;
use crate::sys::{self, FileId, ProcessIdentity};
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

/// The size of the file in bytes. Nearly all of it is never touched.
pub(crate) const SPAN: u64 = 1 << 62;
/// The seals of the file, which fix its size.
pub(crate) const SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
/// The offset of the first block's range. The device's own pages lie below.
const BLOCKS_FROM: u64 = 1 << 61;
/// The offset of the device's own pages. These pages are packed, so that one window of a peer
/// covers many.
const OWN_FROM: u64 = 1 << 30;

/// The memory file of this process. It lives as long as the process.
pub struct SharedFile {
    fd: OwnedFd,
    id: FileId,
    maps: Maps,
    /// Allocations of the program become blocks.
    sharing: AtomicBool,
    /// The owner of the file. No child, however it was made, takes the file for its own.
    process: ProcessIdentity,
    /// The thread that holds the table, 0 for none: its own allocations and frees meanwhile are no
    /// blocks. A thread-local variable would not do: its first access allocates, under the locks of
    /// the calling allocator.
    owner: AtomicUsize,
    /// The offset of the next pages of the device.
    next_own: AtomicU64,
    /// Bytes of the device's own pages that are mapped.
    own: AtomicU64,
    /// Bytes created since the last question for available memory.
    unasked: AtomicU64,
    /// Decides which allocations become blocks.
    credit: Credit,
    /// The start addresses of blocks, for readers without the lock.
    index: Index,
    /// Freed blocks.
    pool: Pool,
    table: Mutex<Table>,
}

/// The amount of memory in the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes with pages allocated by the kernel.
    pub resident: u64,
    /// Bytes of the device's own pages, touched or not.
    pub own: u64,
    /// Bytes of the program's blocks, touched or not.
    pub blocks: u64,
}

/// The locked table.
struct Locked<'a> {
    owner: &'a AtomicUsize,
    guard: MutexGuard<'a, Table>,
    /// Dropped last: signals come only after the unlock.
    quiet: Quiet,
}

/// Blocks all signals for this thread. A signal handler may free, give advice or fork, and needs a
/// consistent table (MEM-7).
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

/// A number identifying this thread.
fn this_thread() -> usize {
    // SAFETY: no preconditions.
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

/// Another process has been given the file.
static PEERS: AtomicBool = AtomicBool::new(false);

fn has_peers() -> bool {
    PEERS.load(Ordering::Relaxed)
}

static CURRENT: AtomicPtr<SharedFile> = AtomicPtr::new(std::ptr::null_mut());

impl SharedFile {
    /// The file of this process, created at the first call, and once more in a child of `fork`.
    ///
    /// # Errors
    /// An error of the kernel for descriptors, memory or `/proc`, or a limit on the size of files.
    pub fn of_process() -> io::Result<&'static SharedFile> {
        let known = CURRENT.load(Ordering::Acquire);
        if let Some(file) = Self::current() {
            return Ok(file);
        }
        hooks::at_fork(None);
        let made: &'static SharedFile = Box::leak(Box::new(SharedFile::make()?));
        // No lock, because a child of `fork` might inherit a held lock.
        let new = std::ptr::from_ref(made).cast_mut();
        match CURRENT.compare_exchange(known, new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => {
                let _locked = made.table();
                // If no pipe can be made now, each fork tries again.
                fork::has_pipe();
                Ok(made)
            }
            Err(other) => {
                // SAFETY: leaked above, and no other thread has seen this pointer. The file in
                // `CURRENT` is never freed.
                unsafe {
                    drop(Box::from_raw(new));
                    Ok(&*other)
                }
            }
        }
    }

    /// As [`current`](Self::current); `None` if this thread holds the table.
    pub(crate) fn outside() -> Option<&'static SharedFile> {
        Self::current().filter(|file| file.owner.load(Ordering::Relaxed) != this_thread())
    }

    /// The file of this process, if it was created. A child does not see the file of its parent.
    pub(crate) fn current() -> Option<&'static SharedFile> {
        // SAFETY: null, or leaked and never freed.
        let file = unsafe { CURRENT.load(Ordering::Acquire).as_ref() }?;
        (!file.is_stale()).then_some(file)
    }

    /// The file of this process, or of an ancestor.
    pub(crate) fn inherited() -> Option<&'static SharedFile> {
        // SAFETY: as in `current`.
        unsafe { CURRENT.load(Ordering::Acquire).as_ref() }
    }

    fn make() -> io::Result<SharedFile> {
        if !unlimited_files() {
            let why = "a limit on the size of files (RLIMIT_FSIZE) stands in the way";
            return Err(io::Error::other(why));
        }
        let create = |flags| {
            // SAFETY: the name is NUL-terminated, and the flags are integers.
            Errno::result(unsafe { libc::memfd_create(c"adverb-memory".as_ptr(), flags) })
        };
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // MFD_NOEXEC_SEAL exists since Linux 6.3; without this flag some distributions log a
        // warning.
        let fd = create(flags | libc::MFD_NOEXEC_SEAL).or_else(|_| create(flags))?;
        // SAFETY: a new descriptor with no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: all arguments are integers.
        unsafe {
            Errno::result(libc::ftruncate(fd.as_raw_fd(), SPAN.cast_signed()))?;
            Errno::result(libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, SEALS))?;
        }
        Ok(SharedFile {
            id: FileId::of(&sys::attributes(fd.as_raw_fd())?),
            fd,
            maps: Maps::open()?,
            sharing: AtomicBool::new(false),
            process: ProcessIdentity::current(),
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

    /// Turns sharing of the program's page-aligned allocations on or off. Takes effect if a preload
    /// hands the allocations out.
    pub fn share_allocations(&'static self, on: bool) {
        let strict = on && crate::room::is_strict();
        if strict {
            log::debug!(
                "vm.overcommit_memory is 2: allocations stay private, for which memory is set aside"
            );
        }
        self.sharing.store(on && !strict, Ordering::Release);
    }

    /// The descriptor, for a peer. From now on a peer may keep windows on registered memory.
    ///
    /// # Errors
    /// EBADF if the program has closed the descriptor. The number may belong to a file of the
    /// program by now, which no peer may get.
    pub fn fd(&self) -> io::Result<BorrowedFd<'_>> {
        if self.raw_fd() < 0 {
            return Err(io::Error::from_raw_os_error(libc::EBADF));
        }
        PEERS.store(true, Ordering::Relaxed);
        Ok(self.fd.as_fd())
    }

    /// The descriptor if it still belongs to the file, else -1. A program that closes all
    /// descriptors closes this one, too, and may reuse the number for its own file.
    fn raw_fd(&self) -> RawFd {
        let fd = self.fd.as_raw_fd();
        if sys::identity(fd) == Some(self.id) { fd } else { -1 }
    }

    fn table(&self) -> Locked<'_> {
        let quiet = Quiet::begin();
        let guard = self.table.lock();
        self.owner.store(this_thread(), Ordering::Relaxed);
        Locked { owner: &self.owner, guard, quiet }
    }

    /// Prevents forks while the result lives, because [`fork::before`] waits for the table. The
    /// caller must not allocate meanwhile: a forking thread may hold the allocator's locks.
    pub(crate) fn no_fork() -> Option<impl Sized> {
        Self::outside().map(SharedFile::table)
    }

    pub(crate) fn is_stale(&self) -> bool {
        self.process.is_over()
    }

    /// Whether a descriptor with these attributes refers to this file.
    pub(crate) fn is_file(&self, about: &nix::sys::stat::FileStat) -> bool {
        FileId::of(about) == self.id
    }

    /// The amount of the machine's memory in the file.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let resident = nix::sys::stat::fstat(&self.fd)
            .map_or(0, |about| about.st_blocks.cast_unsigned() * 512);
        let blocks = self.table().bytes();
        Usage { resident, own: self.own.load(Ordering::Relaxed), blocks }
    }

    /// At least `len` zeroed bytes in the file, aligned to `align`. The kernel allocates a page at
    /// its first access.
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

    /// Counts `len` more bytes. Fails if the machine cannot hold them together with all untouched
    /// memory created before.
    fn reserve(&self, len: u64) -> Result<(), Errno> {
        /// Bytes created without asking the kernel for available memory.
        const STEP: u64 = 16 << 20;
        let own = self.own.fetch_add(len, Ordering::Relaxed).checked_add(len);
        let unasked = self.unasked.fetch_add(len, Ordering::Relaxed).saturating_add(len);
        if unasked < STEP && own.is_some() {
            return Ok(());
        }
        self.unasked.store(0, Ordering::Relaxed);
        let Usage { resident, own: mapped, blocks } = self.usage();
        let untouched = mapped.saturating_add(blocks).saturating_sub(resident);
        if own.is_none() || untouched > crate::room::available() {
            self.own.fetch_sub(len, Ordering::Relaxed);
            return Err(Errno::ENOMEM);
        }
        Ok(())
    }

    fn map_own(&'static self, len: u64, align: u64) -> Result<OwnPages, Errno> {
        let page = crate::page_size();
        // An offset in the file is never used twice, because a peer may still hold a window there.
        // A gap of one page follows.
        let offset = self.next_own.fetch_add(len + page, Ordering::Relaxed);
        if offset.checked_add(len).is_none_or(|end| end > BLOCKS_FROM) {
            self.next_own.fetch_sub(len + page, Ordering::Relaxed);
            return Err(Errno::ENOMEM);
        }
        // A child forked in between would write to this process's pages.
        let _no_fork = Self::no_fork();
        let start = sys::map_aligned(len, align, 0, (self.raw_fd(), offset))?;
        // SAFETY: only advice on the mapping made just now, or its end.
        unsafe {
            // A child gets a copy or nothing, and never these pages. qemu-user does not know the
            // advice (EINVAL); there, too, the fork handlers make a copy for a child of `fork`.
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

impl std::fmt::Debug for SharedFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedFile").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Pages of the device in the file. Dropping them unmaps the pages and frees their memory.
#[derive(Debug)]
pub(crate) struct OwnPages {
    file: &'static SharedFile,
    /// The first address.
    pub start: u64,
    len: u64,
    /// The offset in the file.
    pub offset: u64,
}

impl Drop for OwnPages {
    fn drop(&mut self) {
        // A child may have a copy, nothing, or another mapping here by now, and must leave it
        // alone.
        if self.file.is_stale() {
            return;
        }
        // SAFETY: the mapping made above; no reference into it was given out.
        let _ = unsafe { sys::unmap(self.start, self.len) };
        let _ = sys::punch(self.file.raw_fd(), self.offset, self.len);
        self.file.own.fetch_sub(self.len, Ordering::Relaxed);
    }
}

/// Whether files have no size limit. With a limit, the kernel would end the process by SIGXFSZ.
fn unlimited_files() -> bool {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes the structure.
    let rc = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) };
    rc == 0 && limit.rlim_cur >= SPAN
}
