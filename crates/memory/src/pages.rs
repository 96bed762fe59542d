//! Memory of our own that keys can open: device memory, buffers.
use crate::shadow::{OwnPages, Shadow};
use adverb_engine::memory::RangeKind;
use adverb_engine::{Memory, Range};
use nix::errno::Errno;
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::num::NonZeroUsize;
use std::ptr::NonNull;

/// Zeroed pages, unmapped on drop: private, or such as peers may map. Reached only by address through
/// [`HostMemory`](crate::HostMemory), so that concurrent access follows the rules of registered memory.
#[derive(Debug)]
pub struct Pages {
    kind: Kind,
    len: usize,
}

#[derive(Debug)]
enum Kind {
    Private { start: NonNull<libc::c_void>, mapped: usize },
    Shared(OwnPages),
}

// SAFETY: the pages are plain memory that is only ever copied from and to by address; the struct owns the mapping.
unsafe impl Send for Pages {}
// SAFETY: as for Send; no reference to the contents is ever given out.
unsafe impl Sync for Pages {}

impl Pages {
    /// Maps at least `len` bytes, aligned to a page.
    ///
    /// # Errors
    /// The errno of `mmap`, usually ENOMEM.
    pub fn new(len: usize) -> Result<Self, Errno> {
        let mapped = len.max(1).checked_next_multiple_of(4096).ok_or(Errno::ENOMEM)?;
        let size = NonZeroUsize::new(mapped).ok_or(Errno::EINVAL)?;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice disturbs nothing.
        let start = unsafe {
            mmap_anonymous(None, size, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_PRIVATE)
        }?;
        Ok(Pages { kind: Kind::Private { start, mapped }, len })
    }
    /// The same where peers may map it, aligned to `align`, a power of two, as well, and brought in at once.
    ///
    /// # Errors
    /// The errno of the kernel, usually ENOMEM; EINVAL if `align` is no power of two.
    pub fn shared(shadow: &'static Shadow, len: usize, align: usize) -> Result<Self, Errno> {
        Ok(Pages { kind: Kind::Shared(shadow.pages(len, align)?), len })
    }
    /// May peers map them?
    #[must_use]
    pub fn is_shared(&self) -> bool {
        matches!(self.kind, Kind::Shared(_))
    }
    /// First address.
    #[must_use]
    pub fn addr(&self) -> u64 {
        match &self.kind {
            Kind::Private { start, .. } => start.as_ptr() as u64,
            Kind::Shared(pages) => pages.addr(),
        }
    }
    /// Bytes asked for.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }
    /// No bytes asked for?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
    fn range(&self, offset: usize, len: usize) -> Option<Range> {
        let end = offset.checked_add(len)?;
        if end > self.len {
            return None;
        }
        Some(Range {
            addr: self.addr() + offset as u64,
            len: u32::try_from(len).ok()?,
            kind: RangeKind::Mapped,
        })
    }
    /// Copies in; `false` if the range leaves the pages.
    #[must_use]
    pub fn write_at(&self, offset: usize, from: &[u8]) -> bool {
        self.range(offset, from.len()).is_some_and(|r| crate::HostMemory.write(r, from).is_ok())
    }
    /// Copies out; `false` if the range leaves the pages.
    #[must_use]
    pub fn read_at(&self, offset: usize, to: &mut [u8]) -> bool {
        self.range(offset, to.len()).is_some_and(|r| crate::HostMemory.read(r, to).is_ok())
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        if let Kind::Private { start, mapped } = self.kind {
            // SAFETY: unmaps exactly the mapping made in `new`; no reference into it was ever given out.
            let _ = unsafe { munmap(start, mapped) };
        }
    }
}
