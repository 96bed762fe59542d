//! The mapped memory of another process: the contents of its [`SharedFile`](crate::SharedFile).
use crate::HostMemory;
use crate::file::{SEALS, SPAN, SharedFile};
use crate::kernel::{CopyDirection, Cut, copy_guarded};
use crate::restart::{Guard, Withdrawn};
use crate::sys::{self, At, ProcessIdentity, RW};
use adverb_engine::memory::RangeKind;
use adverb_engine::{AtomicOp, Memory, MemoryFault, Range};
use nix::errno::Errno;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use thiserror::Error;

/// Why a peer's descriptor was refused, or why a window could not be mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PeerError {
    /// Not a file in memory, or not sealed against shrinking: an access might then end this
    /// process.
    #[error("the peer's file is no memory, or its size is not sealed")]
    NotSealed,
    /// The size is not that of a shared file.
    #[error("the peer's file has {0} bytes instead of {SPAN}")]
    Size(u64),
    /// The file is this process's own.
    #[error("the file is this process's own")]
    Own,
    /// The window is empty or exceeds the file.
    #[error("the window is empty or leaves the file")]
    Bounds,
    /// The kernel refuses.
    #[error("the kernel refuses: {}", .0.desc())]
    Kernel(Errno),
}

/// The keeper of a peer file's descriptor.
pub trait KeepsFd: std::fmt::Debug + Send + Sync {
    /// The descriptor. `None` if it was closed, as in the child of a fork.
    fn fd(&self) -> Option<BorrowedFd<'_>>;
}

impl KeepsFd for OwnedFd {
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.as_fd())
    }
}

/// The shared file of a peer.
///
/// The file was checked to be harmless: memory with a fixed size. Whatever its owner does with the
/// file, for example punching holes, an access in a window gives some bytes and no signal.
#[derive(Debug)]
pub struct PeerMemory {
    keeper: Box<dyn KeepsFd>,
}

impl PeerMemory {
    /// Checks and keeps a descriptor sent by a peer.
    ///
    /// # Errors
    /// Why the descriptor is refused.
    pub fn new(keeper: impl KeepsFd + 'static) -> Result<Self, PeerError> {
        let fd = keeper.fd().ok_or(PeerError::Kernel(Errno::EBADF))?;
        // SAFETY: no memory is passed.
        let seals = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GET_SEALS) };
        // Huge pages could run out, and an access would then raise a signal.
        let kind = nix::sys::statfs::fstatfs(fd).map_err(PeerError::Kernel)?.filesystem_type();
        if seals < 0 || seals & SEALS != SEALS || kind != nix::sys::statfs::TMPFS_MAGIC {
            return Err(PeerError::NotSealed);
        }
        let about = nix::sys::stat::fstat(fd).map_err(PeerError::Kernel)?;
        if about.st_size.cast_unsigned() != SPAN {
            return Err(PeerError::Size(about.st_size.cast_unsigned()));
        }
        if SharedFile::current().is_some_and(|own| own.is_file(&about)) {
            return Err(PeerError::Own);
        }
        Ok(PeerMemory { keeper: Box::new(keeper) })
    }

    fn fd(&self) -> Result<BorrowedFd<'_>, PeerError> {
        self.keeper.fd().ok_or(PeerError::Kernel(Errno::EBADF))
    }

    /// Maps `len` bytes at `offset` of the file.
    ///
    /// # Errors
    /// The window exceeds the file, or the kernel refuses.
    pub fn window(&self, offset: u64, len: u64) -> Result<Window, PeerError> {
        let page = crate::page_size();
        let start = offset & !(page - 1);
        let end = offset
            .checked_add(len)
            .filter(|end| len > 0 && *end <= SPAN)
            .ok_or(PeerError::Bounds)?;
        let mapped = end.next_multiple_of(page) - start;
        // Not populated: populating fills holes, and a peer could name any amount of memory.
        let from = Some((self.fd()?.as_raw_fd(), start));
        // Prevents another thread's fork between the two calls: its child would inherit the
        // mapping.
        let _no_fork = SharedFile::no_fork();
        // SAFETY: a new mapping at an address of the kernel's choice; neither advice changes
        // contents.
        let base = unsafe {
            let base = sys::map(At::Anywhere, mapped, RW, libc::MAP_SHARED, from)
                .map_err(PeerError::Kernel)?;
            for advice in [libc::MADV_DONTFORK, libc::MADV_DONTDUMP] {
                let _ = sys::advise(base, mapped, advice);
            }
            base
        };
        let base = NonNull::new(base as *mut u8).ok_or(PeerError::Bounds)?;
        let (skip, owner) = ((offset - start) as usize, ProcessIdentity::current());
        Ok(Window { base, mapped, skip, len, owner })
    }

    /// Copies bytes at `offset` out. A hole reads as zeroes and stays a hole. Reading through a
    /// [`Window`] would fill the hole, at the expense of the reading process.
    ///
    /// # Errors
    /// The range exceeds the file, or the kernel refuses.
    pub fn read(&self, offset: u64, to: &mut [u8]) -> Result<(), PeerError> {
        let mut done = 0;
        while done < to.len() {
            let at =
                offset.checked_add(done as u64).filter(|at| *at < SPAN).ok_or(PeerError::Bounds)?;
            match nix::sys::uio::pread(self.fd()?, &mut to[done..], at.cast_signed()) {
                Ok(0) => return Err(PeerError::Bounds),
                Ok(n) => done += n,
                Err(Errno::EINTR) => {}
                Err(e) => return Err(PeerError::Kernel(e)),
            }
        }
        Ok(())
    }
}

/// Why a window refuses an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum WindowFault {
    /// The access exceeds the window, or an atomic is not aligned.
    #[error("the access leaves the window, or is not aligned")]
    Bounds,
    /// The memory on this side cannot be reached.
    #[error("{0}")]
    Local(MemoryFault),
    /// The peer has taken the memory back, by the guard. A part of a copy may have happened.
    #[error("the peer has taken the memory back")]
    Withdrawn,
}

impl From<Withdrawn> for WindowFault {
    fn from(Withdrawn: Withdrawn) -> Self {
        WindowFault::Withdrawn
    }
}

/// A mapped part of a peer's memory. Bytes are copied, never borrowed, because the peer may write
/// to them at any time.
///
/// A child of `fork` has no windows: using a window of the parent there is a fault.
#[derive(Debug)]
pub struct Window {
    base: NonNull<u8>,
    mapped: u64,
    skip: usize,
    len: u64,
    owner: ProcessIdentity,
}

// SAFETY: plain memory, only ever copied from and to; the struct owns the mapping.
unsafe impl Send for Window {}
// SAFETY: as for Send; no reference to the contents is given out.
unsafe impl Sync for Window {}

impl Window {
    /// The length in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Always false: a window has at least one byte.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline(always)]
    fn at(&self, offset: u64, len: usize) -> Result<*mut u8, WindowFault> {
        if offset > self.len || len as u64 > self.len - offset {
            return Err(WindowFault::Bounds);
        }
        // SAFETY: within the mapping, which has at least `skip + len` bytes.
        Ok(unsafe { self.base.as_ptr().add(self.skip + offset as usize) })
    }

    /// Whether every page of the `len` bytes at `offset` is present. Returns false for more than
    /// [`Window::LOOKS`] pages. The peer may remove the pages afterwards.
    #[must_use]
    pub fn is_filled(&self, offset: u64, len: usize) -> bool {
        let Ok(first) = self.at(offset, len) else { return false };
        let page = crate::page_size() as usize;
        let skip = first.addr() & (page - 1);
        let mut there = [0_u8; Self::LOOKS];
        let pages = (skip + len).div_ceil(page);
        sys::in_memory((first.addr() - skip) as u64, (skip + len) as u64, &mut there).is_ok()
            && there[..pages].iter().all(|page| page & 1 == 1)
    }

    /// The largest number of pages checked by [`Window::is_filled`].
    pub const LOOKS: usize = 32;

    /// Copies `from` to `offset`, while the guard holds. The last byte becomes visible last, and a
    /// single word is one store.
    ///
    /// # Errors
    /// The range exceeds the window, and nothing was written; or the guard does not hold.
    #[inline(always)]
    pub fn write(&self, guard: &Guard<'_>, offset: u64, from: &[u8]) -> Result<(), WindowFault> {
        let to = self.at(offset, from.len())?;
        // SAFETY: checked by `at`; a slice of this process does not lie in a peer's file.
        unsafe { guard.put(to, from.as_ptr(), from.len()) }.map_err(WindowFault::from)
    }

    /// Copies bytes at `offset` out, while the guard holds.
    ///
    /// # Errors
    /// The range exceeds the window, and nothing was read; or the guard does not hold.
    #[inline]
    pub fn read(&self, guard: &Guard<'_>, offset: u64, to: &mut [u8]) -> Result<(), WindowFault> {
        let from = self.at(offset, to.len())?;
        // SAFETY: as in `write`.
        unsafe { guard.get(to.as_mut_ptr(), from, to.len()) }.map_err(WindowFault::from)
    }

    /// Gives the bytes at `offset` to `f`. The peer may write to them meanwhile: `f` must copy them
    /// once, and must not base a decision on bytes in place.
    ///
    /// # Errors
    /// The range exceeds the window; `f` was not called.
    #[inline]
    pub fn with_bytes<R>(
        &self,
        offset: u64,
        len: usize,
        f: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, WindowFault> {
        let from = self.at(offset, len)?;
        // SAFETY: checked by `at`; the mapping lives through the call. All bytes are valid values,
        // so a peer writing meanwhile only changes what `f` reads. By the contract above `f`
        // decides nothing on bytes read twice.
        Ok(f(unsafe { std::slice::from_raw_parts(from, len) }))
    }

    /// Copies registered memory of this process directly to `offset`, while the guard holds.
    ///
    /// # Errors
    /// The range exceeds the window, the memory is missing, or the guard does not hold.
    #[inline(always)]
    pub fn write_from(
        &self,
        guard: &Guard<'_>,
        offset: u64,
        from: Range,
    ) -> Result<(), WindowFault> {
        let to = self.at(offset, from.len as usize)?;
        match from.kind {
            RangeKind::Mapped => {
                // SAFETY: the key table guarantees the range (crate docs), and the window was
                // checked. The two do not overlap, because a window is of another process's file.
                unsafe { guard.put(to, from.addr as *const u8, from.len as usize) }
                    .map_err(WindowFault::from)
            }
            RangeKind::OnDemand => {
                let (way, len) = (CopyDirection::Out, from.len.into());
                let copied = copy_guarded(guard, way, from.addr, to as u64, len);
                self.go_on(guard, offset, from, copied, true)
            }
            _ => self.by_parts(guard, offset, from, true),
        }
    }

    /// Copies bytes at `offset` directly to registered memory of this process, while the guard
    /// holds.
    ///
    /// # Errors
    /// The range exceeds the window, the memory is missing, or the guard does not hold.
    #[inline(always)]
    pub fn read_to(&self, guard: &Guard<'_>, offset: u64, to: Range) -> Result<(), WindowFault> {
        let from = self.at(offset, to.len as usize)?;
        match to.kind {
            RangeKind::Mapped => {
                // SAFETY: as in `write_from`; the peer's bytes go to memory that the local program
                // may be reading.
                unsafe { guard.get(to.addr as *mut u8, from, to.len as usize) }
                    .map_err(WindowFault::from)
            }
            RangeKind::OnDemand => {
                let (way, len) = (CopyDirection::In, to.len.into());
                let copied = copy_guarded(guard, way, to.addr, from as u64, len);
                self.go_on(guard, offset, to, copied, false)
            }
            _ => self.by_parts(guard, offset, to, false),
        }
    }

    /// If the kernel forbids the direct copy, copies the rest through a buffer.
    #[inline(never)]
    fn go_on(
        &self,
        guard: &Guard<'_>,
        offset: u64,
        local: Range,
        copied: Result<(), Cut<Withdrawn>>,
        write: bool,
    ) -> Result<(), WindowFault> {
        match copied {
            Ok(()) => Ok(()),
            Err(Cut::Withdrawn(Withdrawn)) => Err(WindowFault::Withdrawn),
            Err(Cut::Fault(fault)) => Err(WindowFault::Local(fault)),
            Err(Cut::Forbidden(done)) => {
                let rest = Range { addr: local.addr + done, len: local.len - done as u32, ..local };
                self.by_parts(guard, offset + done, rest, write)
            }
        }
    }

    /// Copies through a buffer, for memory that is not simply mapped: to the peer (`write`), or
    /// from the peer.
    #[cold]
    #[inline(never)]
    fn by_parts(
        &self,
        guard: &Guard<'_>,
        offset: u64,
        local: Range,
        write: bool,
    ) -> Result<(), WindowFault> {
        let mut room = [0; 4096];
        let mut done = 0;
        while done < local.len {
            let n = (local.len - done).min(room.len() as u32);
            let part = Range { addr: local.addr + u64::from(done), len: n, ..local };
            let (room, at) = (&mut room[..n as usize], offset + u64::from(done));
            if write {
                HostMemory.read(part, room).map_err(WindowFault::Local)?;
                self.write(guard, at, room)?;
            } else {
                self.read(guard, at, room)?;
                HostMemory.write(part, room).map_err(WindowFault::Local)?;
            }
            done += n;
        }
        Ok(())
    }

    /// A CPU atomic on the eight bytes at `offset`; returns the old value.
    ///
    /// # Errors
    /// The range exceeds the window, the address is no multiple of eight, or the guard does not
    /// hold. Nothing was done.
    #[inline]
    pub fn atomic(&self, guard: &Guard<'_>, offset: u64, op: AtomicOp) -> Result<u64, WindowFault> {
        let word = self.at(offset, 8)?;
        if !word.addr().is_multiple_of(8) {
            return Err(WindowFault::Bounds);
        }
        // SAFETY: eight bytes within the window, aligned.
        unsafe { guard.atomic(word.cast(), op) }.map_err(WindowFault::from)
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // A child has no window here, and may have another mapping by now.
        if !self.owner.is_over() {
            // SAFETY: exactly our mapping; no reference into it was given out.
            let _ = unsafe { sys::unmap(self.base.as_ptr() as u64, self.mapped) };
        }
    }
}
