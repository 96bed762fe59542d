//! Memory of the device that keys can open: device memory, buffers.
use crate::file::{OwnPages, SharedFile};
use crate::sys::{self, At, RW};
use adverb_engine::memory::RangeKind;
use adverb_engine::{Memory, Range};
use nix::errno::Errno;

/// Zeroed pages, private or shareable with peers. The kernel allocates them at the first access;
/// they are unmapped on drop. The device accesses them only by address through
/// [`HostMemory`](crate::HostMemory), so that concurrent access follows the rules of registered
/// memory.
#[derive(Debug)]
pub struct Pages {
    kind: Kind,
    len: usize,
}

/// `of_program`: mapped as memory of a program, for tests.
#[derive(Debug)]
enum Kind {
    Private { start: u64, mapped: u64, of_program: bool },
    Shared(OwnPages),
}

impl Pages {
    /// Maps at least `len` bytes, aligned to a page.
    ///
    /// # Errors
    /// The errno of `mmap`; ENOMEM if the machine or a control group cannot hold as much.
    pub fn new(len: usize) -> Result<Self, Errno> {
        let mapped = (len.max(1) as u64)
            .checked_next_multiple_of(crate::page_size())
            .ok_or(Errno::ENOMEM)?;
        /// Shorter lengths are not checked here: the kernel may refuse them.
        const MUCH: u64 = 16 << 20;
        if mapped > MUCH && mapped > crate::room::available() {
            return Err(Errno::ENOMEM);
        }
        // SAFETY: a new anonymous mapping at an address of the kernel's choice disturbs nothing.
        let start = unsafe { sys::map(At::Anywhere, mapped, RW, libc::MAP_PRIVATE, None) }?;
        Ok(Pages { kind: Kind::Private { start, mapped, of_program: false }, len })
    }
    /// As [`Pages::new`], shareable with peers, and aligned to `align`, a power of two, as well.
    ///
    /// # Errors
    /// The errno of the kernel; ENOMEM if the machine or a control group cannot hold the pages in
    /// addition to untouched memory created before; EINVAL if `align` is no power of two.
    pub fn shared(file: &'static SharedFile, len: usize, align: usize) -> Result<Self, Errno> {
        Ok(Pages { kind: Kind::Shared(file.pages(len, align)?), len })
    }
    /// Memory as a program has it, for tests: an allocation of whole pages. The memory becomes a
    /// block if a file is given and takes it; the result says so.
    ///
    /// # Errors
    /// As [`Pages::new`].
    pub fn of_program(
        len: usize,
        file: Option<&'static SharedFile>,
    ) -> Result<(Self, bool), Errno> {
        let mut pages = Pages::new(len)?;
        let Kind::Private { start, mapped, of_program } = &mut pages.kind else {
            return Err(Errno::EINVAL);
        };
        *of_program = true;
        // SAFETY: mapped just now, anonymous, and not known to any other code.
        let shared = file.is_some_and(|file| unsafe { file.share_fresh(*start, *mapped) });
        Ok((pages, shared))
    }
    /// The kind of ranges in these pages.
    #[must_use]
    pub fn range_kind(&self) -> RangeKind {
        match self.kind {
            Kind::Private { of_program: true, .. } => RangeKind::OnDemand,
            _ => RangeKind::Mapped,
        }
    }
    /// The offset in the shared file, if the pages lie there.
    #[must_use]
    pub fn offset(&self) -> Option<u64> {
        match &self.kind {
            Kind::Private { .. } => None,
            Kind::Shared(pages) => Some(pages.offset),
        }
    }
    /// The first address.
    #[must_use]
    pub fn addr(&self) -> u64 {
        match &self.kind {
            Kind::Private { start, .. } => *start,
            Kind::Shared(pages) => pages.start,
        }
    }
    /// The length requested, in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }
    /// Whether the length requested is 0.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
    fn range(&self, offset: usize, len: usize) -> Option<Range> {
        offset.checked_add(len).filter(|end| *end <= self.len)?;
        let (addr, len) = (self.addr() + offset as u64, u32::try_from(len).ok()?);
        Some(Range { addr, len, kind: self.range_kind() })
    }
    /// Copies bytes in; `false` if the range exceeds the pages.
    #[must_use]
    pub fn write_at(&self, offset: usize, from: &[u8]) -> bool {
        self.range(offset, from.len()).is_some_and(|r| crate::HostMemory.write(r, from).is_ok())
    }
    /// Copies bytes out; `false` if the range exceeds the pages.
    #[must_use]
    pub fn read_at(&self, offset: usize, to: &mut [u8]) -> bool {
        self.range(offset, to.len()).is_some_and(|r| crate::HostMemory.read(r, to).is_ok())
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        if let Kind::Private { start, mapped, of_program } = self.kind
            && (!of_program || SharedFile::current().is_none_or(|file| file.release(start, mapped)))
        {
            // SAFETY: exactly the mapping made in `new`, or its replacement; no reference into it
            // was given out.
            let _ = unsafe { sys::unmap(start, mapped) };
        }
    }
}
