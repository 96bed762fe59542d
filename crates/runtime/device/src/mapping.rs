//! Memory that keys may open, and that stays as long as one does.
use crate::error::Error;
use adverb_engine::memory::RangeKind;
use adverb_engine::{AtomicOp, Memory, Range};
use adverb_memory::{FdPages, HostMemory, Pages};
use nix::errno::Errno;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A DMA-BUF was registered in this process.
static DMA_BUF: AtomicBool = AtomicBool::new(false);

/// May memory of the device's own be a DMA-BUF, which the kernel does not copy to other processes?
pub(crate) fn dma_buf_was_registered() -> bool {
    DMA_BUF.load(Ordering::Acquire)
}

/// A piece of this process's memory, cheap to clone: pages of our own, or bytes that the program
/// vouches for. Whoever opens it to keys keeps a clone, so that pages of our own outlive every key.
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
    /// Pieces side by side.
    Joined {
        addr: u64,
        len: u64,
        parts: Arc<[Mapping]>,
    },
}

impl Mapping {
    /// Zeroed pages of our own, at least `len` bytes.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn alloc(len: usize) -> Result<Self, Error> {
        let pages = crate::memory::pages(len).map_err(|e| {
            Error::new(Errno::ENOMEM, format!("{len} bytes of memory cannot be had: {}", e.desc()))
        })?;
        Ok(Mapping::pages(Arc::new(pages)))
    }

    /// Pages of our own.
    #[must_use]
    pub fn pages(pages: Arc<Pages>) -> Self {
        Mapping(Kind::Pages(pages))
    }

    /// Memory of a descriptor.
    #[must_use]
    pub fn of_fd(pages: FdPages) -> Self {
        if pages.is_dma_buf() {
            DMA_BUF.store(true, Ordering::Release);
        }
        Mapping(Kind::Fd(Arc::new(pages)))
    }

    /// `len` bytes of the program's at `addr`.
    ///
    /// # Safety
    /// The bytes stay mapped, readable and writable, until every registration of them has ended;
    /// the device and peers may read and write them at any time meanwhile.
    #[allow(unsafe_code, reason = "the caller vouches for the memory; nothing unsafe is done here")]
    #[must_use]
    pub unsafe fn vouched(addr: u64, len: u64) -> Self {
        Mapping(Kind::Vouched { addr, len })
    }

    /// Pieces that lie side by side in the address space, as one: each is a mapping, an offset in
    /// it and a length. `None` if there are none, one leaves its mapping, or they are not
    /// contiguous.
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
            Kind::Fd(pages) => pages.addr(),
            Kind::Vouched { addr, .. } | Kind::Joined { addr, .. } => *addr,
        }
    }

    /// Bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        match &self.0 {
            Kind::Pages(pages) => pages.len() as u64,
            Kind::Fd(pages) => pages.len(),
            Kind::Vouched { len, .. } | Kind::Joined { len, .. } => *len,
        }
    }

    /// No bytes?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How its bytes are reached: what the program vouches for may go all the same.
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

    /// Where the byte at an address of it is in the file that peers map, if it lies there.
    pub(crate) fn file_offset(&self, addr: u64) -> Option<u64> {
        match &self.0 {
            Kind::Pages(pages) => Some(pages.offset()? + addr.checked_sub(pages.addr())?),
            Kind::Fd(_) | Kind::Vouched { .. } | Kind::Joined { .. } => None,
        }
    }

    /// Can neither the kernel nor a peer copy to and from it?
    pub(crate) fn is_dma_buf(&self) -> bool {
        matches!(&self.0, Kind::Fd(pages) if pages.is_dma_buf())
    }

    /// Do `len` bytes at the address `addr` lie inside?
    #[must_use]
    pub fn contains(&self, addr: u64, len: u64) -> bool {
        addr.checked_sub(self.addr()).is_some_and(|offset| len <= self.len() && offset <= self.len() - len)
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

    /// Changes the eight bytes at `offset` as the device's atomics do, and answers what they were,
    /// in host order; `None` if they leave the memory or their address is no multiple of 8.
    #[must_use]
    pub fn atomic_at(&self, offset: usize, op: AtomicOp) -> Option<u64> {
        self.range(offset, 8).and_then(|r| HostMemory.atomic(r, op).ok())
    }
}
