//! Memory that keys may open, and that stays as long as a key opens it.
use crate::error::Error;
use adverb_engine::memory::RangeKind;
use adverb_engine::{AtomicOp, Memory, Range};
use adverb_memory::{FdPages, HostMemory, Pages};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Set when a DMA-BUF was registered in this process.
static DMA_BUF: AtomicBool = AtomicBool::new(false);

/// May memory of the device be a DMA-BUF? The kernel does not copy a DMA-BUF to other processes.
pub(crate) fn dma_buf_was_registered() -> bool {
    DMA_BUF.load(Ordering::Acquire)
}

/// A range of this process's memory, cheap to clone: pages of the library, or bytes guaranteed by
/// the program. Code that opens the memory to keys keeps a clone, so that the library's pages
/// outlive every key.
#[derive(Clone, Debug)]
pub struct Mapping(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Pages(Arc<Pages>),
    Fd(Arc<FdPages>),
    Vouched {
        addr: u64,
        len: u64,
    },
    /// Pieces side by side in the address space.
    Joined {
        addr: u64,
        len: u64,
        parts: Arc<[Mapping]>,
    },
}

impl Mapping {
    /// Zeroed pages of the library, at least `len` bytes.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn alloc(len: usize) -> Result<Self, Error> {
        Ok(Mapping::pages(Arc::new(crate::memory::pages(len)?)))
    }

    /// Pages of the library.
    #[must_use]
    pub fn pages(pages: Arc<Pages>) -> Self {
        Mapping(Kind::Pages(pages))
    }

    /// Memory of a descriptor.
    #[must_use]
    pub fn of_fd(pages: FdPages) -> Self {
        if pages.dma_buf {
            DMA_BUF.store(true, Ordering::Release);
        }
        Mapping(Kind::Fd(Arc::new(pages)))
    }

    /// `len` bytes of the program at `addr`.
    ///
    /// # Safety
    /// The bytes stay mapped, readable and writable, until all their registrations have ended. The
    /// device and peers may read and write them at any time until then.
    #[allow(unsafe_code, reason = "the caller vouches for the memory; nothing unsafe is done here")]
    #[must_use]
    pub unsafe fn vouched(addr: u64, len: u64) -> Self {
        Mapping(Kind::Vouched { addr, len })
    }

    /// Joins pieces side by side in the address space. Each piece is a mapping, an offset in the
    /// mapping and a length. `None` if there is no piece, if a piece leaves its mapping, or if the
    /// pieces are not contiguous.
    #[must_use]
    pub fn joined(pieces: &[(Mapping, u64, u64)]) -> Option<Self> {
        let (first, offset, _) = pieces.first()?;
        let addr = first.addr().checked_add(*offset)?;
        let mut end = addr;
        for (mapping, offset, len) in pieces {
            if mapping.addr().checked_add(*offset)? != end || !mapping.contains(end, *len) {
                return None;
            }
            end = end.checked_add(*len)?;
        }
        let parts = pieces.iter().map(|(mapping, ..)| mapping.clone()).collect();
        Some(Mapping(Kind::Joined { addr, len: end - addr, parts }))
    }

    /// First address.
    #[must_use]
    pub fn addr(&self) -> u64 {
        match &self.0 {
            Kind::Pages(pages) => pages.addr(),
            Kind::Fd(pages) => pages.addr,
            Kind::Vouched { addr, .. } | Kind::Joined { addr, .. } => *addr,
        }
    }

    /// Bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        match &self.0 {
            Kind::Pages(pages) => pages.len() as u64,
            Kind::Fd(pages) => pages.len,
            Kind::Vouched { len, .. } | Kind::Joined { len, .. } => *len,
        }
    }

    /// Is the mapping empty?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How the bytes are reached. Memory guaranteed by the program may still go.
    pub(crate) fn kind(&self) -> RangeKind {
        match &self.0 {
            Kind::Pages(pages) => pages.range_kind(),
            Kind::Fd(pages) => pages.range_kind(),
            Kind::Vouched { .. } => RangeKind::OnDemand,
            Kind::Joined { parts, .. } if parts.iter().all(|p| p.kind() == RangeKind::Mapped) => {
                RangeKind::Mapped
            }
            Kind::Joined { .. } => RangeKind::OnDemand,
        }
    }

    /// File offset of the byte at an address, in the file that peers map. `None` for other memory.
    pub(crate) fn file_offset(&self, addr: u64) -> Option<u64> {
        match &self.0 {
            Kind::Pages(pages) => Some(pages.offset()? + addr.checked_sub(pages.addr())?),
            Kind::Fd(_) | Kind::Vouched { .. } | Kind::Joined { .. } => None,
        }
    }

    /// Is the memory a DMA-BUF, to and from which neither the kernel nor a peer can copy?
    pub(crate) fn is_dma_buf(&self) -> bool {
        matches!(&self.0, Kind::Fd(pages) if pages.dma_buf)
    }

    /// Do `len` bytes at the address `addr` lie inside?
    #[must_use]
    pub fn contains(&self, addr: u64, len: u64) -> bool {
        addr.checked_sub(self.addr())
            .is_some_and(|offset| len <= self.len() && offset <= self.len() - len)
    }

    fn range(&self, offset: usize, len: usize) -> Option<Range> {
        let addr = self.addr().checked_add(offset as u64)?;
        let range = Range { addr, len: u32::try_from(len).ok()?, kind: self.kind() };
        self.contains(addr, len as u64).then_some(range)
    }

    /// Copies in; `false` if the range leaves the memory.
    #[must_use]
    pub fn write_at(&self, offset: usize, from: &[u8]) -> bool {
        self.range(offset, from.len()).is_some_and(|r| HostMemory.write(r, from).is_ok())
    }

    /// Copies out; `false` if the range leaves the memory.
    #[must_use]
    pub fn read_at(&self, offset: usize, to: &mut [u8]) -> bool {
        self.range(offset, to.len()).is_some_and(|r| HostMemory.read(r, to).is_ok())
    }

    /// Changes the eight bytes at `offset` like the device's atomics, and answers the old value in
    /// host order. `None` if the bytes leave the memory or their address is no multiple of 8.
    #[must_use]
    pub fn atomic_at(&self, offset: usize, op: AtomicOp) -> Option<u64> {
        self.range(offset, 8).and_then(|r| HostMemory.atomic(r, op).ok())
    }
}
