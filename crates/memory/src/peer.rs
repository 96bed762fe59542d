//! Another process's memory, mapped: what its [`Shadow`](crate::Shadow) holds.
use crate::shadow::{SEALS, SPAN, Shadow};
use crate::{HostMemory, copy};
use adverb_engine::memory::RangeKind;
use adverb_engine::{AtomicOp, Memory, MemoryFault, Range};
use nix::errno::Errno;
use std::fmt;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;

/// A descriptor that is not what a peer's file must be, or a window that cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerError {
    /// Not a file in memory, or it could still shrink: touching it might end this process.
    NotSealed,
    /// Its size is not that of the address space.
    Size(u64),
    /// It is this process's own.
    Own,
    /// The window is empty or leaves the file.
    Bounds,
    /// The kernel refuses.
    Kernel(Errno),
}

impl fmt::Display for PeerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PeerError::NotSealed => f.write_str("the peer's file is no memory, or its size is not sealed"),
            PeerError::Size(size) => {
                write!(f, "the peer's file has {size} bytes, which is not the address space")
            }
            PeerError::Own => f.write_str("the file is this process's own"),
            PeerError::Bounds => f.write_str("the window is empty or leaves the address space"),
            PeerError::Kernel(errno) => write!(f, "the kernel refuses: {}", errno.desc()),
        }
    }
}

impl std::error::Error for PeerError {}

/// The file of a peer.
///
/// It was checked to be what can do no harm: memory whose size can never change. Whatever its owner does with it, holes included,
/// touching it in a window gives bytes of some kind and no signal.
#[derive(Debug)]
pub struct PeerMemory {
    fd: OwnedFd,
}

impl PeerMemory {
    /// Takes what a peer sent.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn new(fd: OwnedFd) -> Result<Self, PeerError> {
        // SAFETY: asks.
        let seals = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GET_SEALS) };
        // Huge pages could run out, which is a signal.
        let kind = nix::sys::statfs::fstatfs(&fd).map_err(PeerError::Kernel)?.filesystem_type();
        if seals < 0 || seals & SEALS != SEALS || kind != nix::sys::statfs::TMPFS_MAGIC {
            return Err(PeerError::NotSealed);
        }
        let about = nix::sys::stat::fstat(&fd).map_err(PeerError::Kernel)?;
        if about.st_size.cast_unsigned() != SPAN {
            return Err(PeerError::Size(about.st_size.cast_unsigned()));
        }
        if Shadow::current().is_some_and(|own| own.is_file(&about)) {
            return Err(PeerError::Own);
        }
        Ok(PeerMemory { fd })
    }

    /// Maps `len` bytes at the peer's address `addr`.
    ///
    /// # Errors
    /// Out of bounds, or what the kernel refuses.
    pub fn window(&self, addr: u64, len: u64) -> Result<Window, PeerError> {
        let page = crate::page_size();
        let start = addr & !(page - 1);
        let end = addr.checked_add(len).filter(|end| len > 0 && *end <= SPAN).ok_or(PeerError::Bounds)?;
        let mapped = (end.next_multiple_of(page) - start) as usize;
        let (prot, fd) = (libc::PROT_READ | libc::PROT_WRITE, self.fd.as_raw_fd());
        // Not populated: holes would be filled, with as much memory as the peer cares to name.
        // SAFETY: a new mapping at an address of the kernel's choice disturbs nothing.
        let base = unsafe {
            libc::mmap(std::ptr::null_mut(), mapped, prot, libc::MAP_SHARED, fd, start.cast_signed())
        };
        let base = NonNull::new(base.cast::<u8>())
            .filter(|base| base.as_ptr().cast() != libc::MAP_FAILED)
            .ok_or_else(|| PeerError::Kernel(Errno::last()))?;
        for advice in [libc::MADV_DONTFORK, libc::MADV_DONTDUMP] {
            // SAFETY: our own mapping; neither changes what it holds. Straight to the kernel: it is no program's business.
            unsafe { libc::syscall(libc::SYS_madvise, base.as_ptr(), mapped, advice) };
        }
        Ok(Window { base, mapped, skip: (addr - start) as usize, len, owner: std::process::id() })
    }
}

/// An access that a window does not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowFault {
    /// It leaves the window, or an atomic is not aligned.
    Bounds,
    /// The memory on this side cannot be reached.
    Local(MemoryFault),
}

impl fmt::Display for WindowFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WindowFault::Bounds => f.write_str("the access leaves the window, or is not aligned"),
            WindowFault::Local(fault) => fault.fmt(f),
        }
    }
}

impl std::error::Error for WindowFault {}

/// A piece of a peer's memory, mapped here. Bytes are copied, never borrowed: the peer may write to them at any time.
///
/// A child of `fork` has no windows: using one of its parent's there is a fault.
#[derive(Debug)]
pub struct Window {
    base: NonNull<u8>,
    mapped: usize,
    skip: usize,
    len: u64,
    owner: u32,
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

    #[inline]
    fn at(&self, offset: u64, len: usize) -> Result<*mut u8, WindowFault> {
        if offset > self.len || len as u64 > self.len - offset {
            return Err(WindowFault::Bounds);
        }
        // SAFETY: inside of the mapping, which has `skip + len` bytes at least.
        Ok(unsafe { self.base.as_ptr().add(self.skip + offset as usize) })
    }

    /// Copies `from` to `offset`. Its last byte becomes visible last, and what is one word is one store.
    ///
    /// # Errors
    /// Out of bounds; nothing was written.
    #[inline]
    pub fn write(&self, offset: u64, from: &[u8]) -> Result<(), WindowFault> {
        let to = self.at(offset, from.len())?;
        // SAFETY: checked; a slice of ours does not lie in a peer's file.
        unsafe { copy::put(to, from.as_ptr(), from.len()) };
        Ok(())
    }

    /// Copies out.
    ///
    /// # Errors
    /// Out of bounds; nothing was read.
    #[inline]
    pub fn read(&self, offset: u64, to: &mut [u8]) -> Result<(), WindowFault> {
        let from = self.at(offset, to.len())?;
        // SAFETY: as in `write`.
        unsafe { copy::get(to.as_mut_ptr(), from, to.len()) };
        Ok(())
    }

    /// Shows `f` the bytes at `offset`. The peer may write to them meanwhile: whoever looks copies them, once, and decides nothing
    /// on what they hold.
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
        // SAFETY: checked; the mapping lives through the call. Bytes have no invalid values, so a peer that writes meanwhile gives
        // `f` bytes of some kind; that nothing is decided on them twice is the contract above.
        Ok(f(unsafe { std::slice::from_raw_parts(from, len) }))
    }

    /// Copies registered memory of this process to `offset`, straight.
    ///
    /// # Errors
    /// Out of bounds, or the memory is not there.
    #[inline]
    pub fn write_from(&self, offset: u64, from: Range) -> Result<(), WindowFault> {
        let to = self.at(offset, from.len as usize)?;
        match from.kind {
            RangeKind::Mapped => {
                // SAFETY: the key table vouches for the range (crate docs), and the window was checked. They do not overlap: a
                // window is of another process's file.
                unsafe { copy::put(to, from.addr as *const u8, from.len as usize) };
                Ok(())
            }
            _ => self.by_parts(offset, from, |part, room| {
                HostMemory.read(part, room)?;
                Ok(true)
            }),
        }
    }

    /// Copies to registered memory of this process, straight.
    ///
    /// # Errors
    /// Out of bounds, or the memory is not there.
    #[inline]
    pub fn read_to(&self, offset: u64, to: Range) -> Result<(), WindowFault> {
        let from = self.at(offset, to.len as usize)?;
        match to.kind {
            RangeKind::Mapped => {
                // SAFETY: as in `write_from`; the peer's bytes go where the local program may look.
                unsafe { copy::put(to.addr as *mut u8, from, to.len as usize) };
                Ok(())
            }
            _ => self.by_parts(offset, to, |part, room| {
                HostMemory.write(part, room)?;
                Ok(false)
            }),
        }
    }

    /// Over a buffer, for memory that is not simply mapped: `local` fills it, for a write (`true`), or takes from it.
    fn by_parts(
        &self,
        offset: u64,
        local: Range,
        mut step: impl FnMut(Range, &mut [u8]) -> Result<bool, MemoryFault>,
    ) -> Result<(), WindowFault> {
        let mut room = [0; 4096];
        let mut done = 0;
        while done < local.len {
            let n = (local.len - done).min(room.len() as u32);
            let part = Range { addr: local.addr + u64::from(done), len: n, ..local };
            let room = &mut room[..n as usize];
            self.read(offset + u64::from(done), room)?;
            if step(part, room).map_err(WindowFault::Local)? {
                self.write(offset + u64::from(done), room)?;
            }
            done += n;
        }
        Ok(())
    }

    /// The CPU's own atomic on the eight bytes at `offset`; answers what they held.
    ///
    /// # Errors
    /// Out of bounds, or the address is no multiple of eight; nothing was done.
    #[inline]
    pub fn atomic(&self, offset: u64, op: AtomicOp) -> Result<u64, WindowFault> {
        let word = self.at(offset, 8)?;
        if !word.addr().is_multiple_of(8) {
            return Err(WindowFault::Bounds);
        }
        // SAFETY: eight bytes, checked, aligned.
        Ok(unsafe { copy::atomic(word.cast(), op) })
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // In a child there is no window here, and may be something else.
        if self.owner == std::process::id() {
            // SAFETY: exactly our mapping; no reference into it was ever given out.
            unsafe { libc::munmap(self.base.as_ptr().cast(), self.mapped) };
        }
    }
}
