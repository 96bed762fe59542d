//! Another process's memory, mapped: what its [`SharedFile`](crate::SharedFile) holds.
use crate::HostMemory;
use crate::file::{SEALS, SPAN, SharedFile};
use crate::kernel::{self, Cut};
use crate::restart::{Guard, Withdrawn};
use crate::sys::{self, At, Life, RW};
use adverb_engine::memory::RangeKind;
use adverb_engine::{AtomicOp, Memory, MemoryFault, Range};
use nix::errno::Errno;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use thiserror::Error;

/// A descriptor that is not what a peer's file must be, or a window that cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PeerError {
    /// Not a file in memory, or it could still shrink: touching it might end this process.
    #[error("the peer's file is no memory, or its size is not sealed")]
    NotSealed,
    /// Its size is not that of such a file.
    #[error("the peer's file has {0} bytes instead of {SPAN}")]
    Size(u64),
    /// It is this process's own.
    #[error("the file is this process's own")]
    Own,
    /// The window is empty or leaves the file.
    #[error("the window is empty or leaves the file")]
    Bounds,
    /// The kernel refuses.
    #[error("the kernel refuses: {}", .0.desc())]
    Kernel(Errno),
}

/// What keeps the descriptor of a peer's file.
pub trait KeepsFd: std::fmt::Debug + Send + Sync {
    /// The descriptor. `None` if it was closed, as in the child of a fork.
    fn fd(&self) -> Option<BorrowedFd<'_>>;
}

impl KeepsFd for OwnedFd {
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.as_fd())
    }
}

/// The file of a peer.
///
/// It was checked to be what can do no harm: memory whose size can never change. Whatever its owner
/// does with it, holes included, touching it in a window gives bytes of some kind and no signal.
#[derive(Debug)]
pub struct PeerMemory {
    keeper: Box<dyn KeepsFd>,
}

impl PeerMemory {
    /// Takes what a peer sent.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn new(keeper: impl KeepsFd + 'static) -> Result<Self, PeerError> {
        let fd = keeper.fd().ok_or(PeerError::Kernel(Errno::EBADF))?;
        // SAFETY: asks.
        let seals = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GET_SEALS) };
        // Huge pages could run out, which is a signal.
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
    /// Out of bounds, or what the kernel refuses.
    pub fn window(&self, offset: u64, len: u64) -> Result<Window, PeerError> {
        let page = crate::page_size();
        let start = offset & !(page - 1);
        let end = offset.checked_add(len).filter(|end| len > 0 && *end <= SPAN).ok_or(PeerError::Bounds)?;
        let mapped = end.next_multiple_of(page) - start;
        // Not populated: holes would be filled, with as much memory as the peer cares to name.
        let from = Some((self.fd()?.as_raw_fd(), start));
        // No other thread forks between the two calls: a child would inherit the mapping.
        let _no_fork = SharedFile::no_fork();
        // SAFETY: a new mapping at an address of the kernel's choice; neither advice changes what
        // it holds.
        let base = unsafe {
            let base =
                sys::map(At::Anywhere, mapped, RW, libc::MAP_SHARED, from).map_err(PeerError::Kernel)?;
            for advice in [libc::MADV_DONTFORK, libc::MADV_DONTDUMP] {
                let _ = sys::advise(base, mapped, advice);
            }
            base
        };
        let base = NonNull::new(base as *mut u8).ok_or(PeerError::Bounds)?;
        Ok(Window { base, mapped, skip: (offset - start) as usize, len, owner: Life::current() })
    }

    /// Copies bytes at `offset` out, zeros where the file has a hole, which stays one: through a
    /// [`Window`] it would be filled, at the expense of whoever looks.
    ///
    /// # Errors
    /// Out of bounds, or what the kernel refuses.
    pub fn read(&self, offset: u64, to: &mut [u8]) -> Result<(), PeerError> {
        let mut done = 0;
        while done < to.len() {
            let at = offset.checked_add(done as u64).filter(|at| *at < SPAN).ok_or(PeerError::Bounds)?;
            match nix::sys::uio::pread(self.fd()?, &mut to[done..], at.cast_signed()) {
                Ok(0) => return Err(PeerError::Bounds),
                Ok(n) => done += n,
                Err(nix::errno::Errno::EINTR) => {}
                Err(e) => return Err(PeerError::Kernel(e)),
            }
        }
        Ok(())
    }
}

/// An access that a window does not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum WindowFault {
    /// It leaves the window, or an atomic is not aligned.
    #[error("the access leaves the window, or is not aligned")]
    Bounds,
    /// The memory on this side cannot be reached.
    #[error("{0}")]
    Local(MemoryFault),
    /// The peer has taken back what the guard looks at. Of a copy a part may have happened.
    #[error("the peer has taken the memory back")]
    Withdrawn,
}

impl From<Withdrawn> for WindowFault {
    fn from(Withdrawn: Withdrawn) -> Self {
        WindowFault::Withdrawn
    }
}

/// A piece of a peer's memory, mapped here. Bytes are copied, never borrowed: the peer may write to
/// them at any time.
///
/// A child of `fork` has no windows: using one of its parent's there is a fault.
#[derive(Debug)]
pub struct Window {
    base: NonNull<u8>,
    mapped: u64,
    skip: usize,
    len: u64,
    owner: Life,
}

// SAFETY: plain memory, only ever copied from and to; the struct owns the mapping.
unsafe impl Send for Window {}
// SAFETY: as for Send; no reference to the contents is ever given out.
unsafe impl Sync for Window {}

impl Window {
    /// Bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Never: a window has a byte at least.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline(always)]
    fn at(&self, offset: u64, len: usize) -> Result<*mut u8, WindowFault> {
        if offset > self.len || len as u64 > self.len - offset {
            return Err(WindowFault::Bounds);
        }
        // SAFETY: inside of the mapping, which has `skip + len` bytes at least.
        Ok(unsafe { self.base.as_ptr().add(self.skip + offset as usize) })
    }

    /// Is every page there at which bytes from `offset` on lie? At most [`Window::LOOKS`] pages are
    /// looked at; of more the answer is no. The peer may take them away afterwards.
    #[must_use]
    pub fn is_filled(&self, offset: u64, len: usize) -> bool {
        let Ok(first) = self.at(offset, len) else { return false };
        let page = crate::page_size() as usize;
        let skip = first as usize & (page - 1);
        let mut there = [0_u8; Self::LOOKS];
        let pages = (skip + len).div_ceil(page);
        if pages > there.len() {
            return false;
        }
        // SAFETY: whole pages of the mapping, which begins and ends with a page; one byte for each
        // of at most LOOKS pages.
        let asked = unsafe { libc::mincore(first.wrapping_sub(skip).cast(), skip + len, there.as_mut_ptr()) };
        asked == 0 && there[..pages].iter().all(|page| page & 1 == 1)
    }

    /// Pages that [`Window::is_filled`] looks at.
    pub const LOOKS: usize = 32;

    /// Copies `from` to `offset`, while the guard holds. Its last byte becomes visible last, and
    /// what is one word is one store.
    ///
    /// # Errors
    /// Out of bounds; nothing was written. Or the guard does not hold.
    #[inline(always)]
    pub fn write(&self, guard: &Guard<'_>, offset: u64, from: &[u8]) -> Result<(), WindowFault> {
        let to = self.at(offset, from.len())?;
        // SAFETY: checked; a slice of ours does not lie in a peer's file.
        unsafe { guard.put(to, from.as_ptr(), from.len()) }.map_err(WindowFault::from)
    }

    /// Copies out, while the guard holds.
    ///
    /// # Errors
    /// Out of bounds; nothing was read. Or the guard does not hold.
    #[inline]
    pub fn read(&self, guard: &Guard<'_>, offset: u64, to: &mut [u8]) -> Result<(), WindowFault> {
        let from = self.at(offset, to.len())?;
        // SAFETY: as in `write`.
        unsafe { guard.get(to.as_mut_ptr(), from, to.len()) }.map_err(WindowFault::from)
    }

    /// Shows `f` the bytes at `offset`. The peer may write to them meanwhile: whoever looks copies
    /// them, once, and decides nothing on what they hold.
    ///
    /// # Errors
    /// Out of bounds; `f` was not called.
    #[inline]
    pub fn with_bytes<R>(
        &self,
        offset: u64,
        len: usize,
        f: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, WindowFault> {
        let from = self.at(offset, len)?;
        // SAFETY: checked; the mapping lives through the call. Bytes have no invalid values, so a
        // peer that writes meanwhile gives `f` bytes of some kind; that nothing is decided on them
        // twice is the contract above.
        Ok(f(unsafe { std::slice::from_raw_parts(from, len) }))
    }

    /// Copies registered memory of this process to `offset`, straight, while the guard holds.
    ///
    /// # Errors
    /// Out of bounds, the memory is not there, or the guard does not hold.
    #[inline(always)]
    pub fn write_from(&self, guard: &Guard<'_>, offset: u64, from: Range) -> Result<(), WindowFault> {
        let to = self.at(offset, from.len as usize)?;
        match from.kind {
            RangeKind::Mapped => {
                // SAFETY: the key table vouches for the range (crate docs), and the window was
                // checked. They do not overlap: a window is of another process's file.
                unsafe { guard.put(to, from.addr as *const u8, from.len as usize) }.map_err(WindowFault::from)
            }
            RangeKind::OnDemand => {
                let copied = kernel::copy_to_peer(guard, from.addr, to as u64, from.len.into());
                self.go_on(guard, offset, from, copied, true)
            }
            _ => self.by_parts(guard, offset, from, true),
        }
    }

    /// Copies to registered memory of this process, straight, while the guard holds.
    ///
    /// # Errors
    /// Out of bounds, the memory is not there, or the guard does not hold.
    #[inline(always)]
    pub fn read_to(&self, guard: &Guard<'_>, offset: u64, to: Range) -> Result<(), WindowFault> {
        let from = self.at(offset, to.len as usize)?;
        match to.kind {
            RangeKind::Mapped => {
                // SAFETY: as in `write_from`; the peer's bytes go where the local program may look.
                unsafe { guard.get(to.addr as *mut u8, from, to.len as usize) }.map_err(WindowFault::from)
            }
            RangeKind::OnDemand => {
                let copied = kernel::copy_from_peer(guard, to.addr, from as u64, to.len.into());
                self.go_on(guard, offset, to, copied, false)
            }
            _ => self.by_parts(guard, offset, to, false),
        }
    }

    /// Where the kernel forbids what copies straight, the rest goes over a buffer.
    #[inline(never)]
    fn go_on(
        &self,
        guard: &Guard<'_>,
        offset: u64,
        local: Range,
        copied: Result<(), Cut>,
        write: bool,
    ) -> Result<(), WindowFault> {
        match copied {
            Ok(()) => Ok(()),
            Err(Cut::Withdrawn) => Err(WindowFault::Withdrawn),
            Err(Cut::Fault(fault)) => Err(WindowFault::Local(fault)),
            Err(Cut::Forbidden(done)) => {
                let rest = Range { addr: local.addr + done, len: local.len - done as u32, ..local };
                self.by_parts(guard, offset + done, rest, write)
            }
        }
    }

    /// Over a buffer, for memory that is not simply mapped: to the peer's (`write`), or from there.
    #[cold]
    #[inline(never)]
    fn by_parts(&self, guard: &Guard<'_>, offset: u64, local: Range, write: bool) -> Result<(), WindowFault> {
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

    /// The CPU's own atomic on the eight bytes at `offset`; answers what they held.
    ///
    /// # Errors
    /// Out of bounds, the address is no multiple of eight, or the guard does not hold; nothing was
    /// done.
    #[inline]
    pub fn atomic(&self, guard: &Guard<'_>, offset: u64, op: AtomicOp) -> Result<u64, WindowFault> {
        let word = self.at(offset, 8)?;
        if !word.addr().is_multiple_of(8) {
            return Err(WindowFault::Bounds);
        }
        // SAFETY: eight bytes, checked, aligned.
        unsafe { guard.atomic(word.cast(), op) }.map_err(WindowFault::from)
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // In a child there is no window here, and may be something else.
        if !self.owner.is_over() {
            // SAFETY: exactly our mapping; no reference into it was ever given out.
            let _ = unsafe { sys::unmap(self.base.as_ptr() as u64, self.mapped) };
        }
    }
}
