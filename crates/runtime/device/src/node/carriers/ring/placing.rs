//! Where the payload of a packet is, and how it comes into the memory of this process.
use adverb_engine::memory::RangeKind;
use adverb_engine::{AtomicOp, Memory, MemoryFault, Range};
use adverb_memory::{Guard, HostMemory};

/// Where the payload of a packet is that came through a ring.
#[derive(Clone, Copy)]
pub(crate) enum Near<'a> {
    /// In the ring.
    Copied,
    /// In the sender's memory, which is open while the guard holds.
    Fetched(&'a Guard<'a>),
}

/// This process's memory. A payload that was copied out of a peer's memory counts if the guard
/// still holds behind the copy.
pub(crate) struct Placing<'a>(pub(crate) Option<&'a Guard<'a>>);

impl Memory for Placing<'_> {
    #[inline]
    fn read(&self, from: Range, to: &mut [u8]) -> Result<(), MemoryFault> {
        HostMemory.read(from, to)
    }
    #[inline]
    fn write(&self, to: Range, from: &[u8]) -> Result<(), MemoryFault> {
        HostMemory.write(to, from)?;
        if self.0.is_none_or(Guard::holds) { Ok(()) } else { Err(MemoryFault::WITHDRAWN) }
    }
    fn atomic(&self, at: Range, op: AtomicOp) -> Result<u64, MemoryFault> {
        HostMemory.atomic(at, op)
    }
    fn page_kind(&self) -> RangeKind {
        HostMemory.page_kind()
    }
}
