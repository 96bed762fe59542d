//! Where the payload of a packet is, and how the payload gets into the memory of this process.
use adverb_engine::memory::RangeKind;
use adverb_engine::{AtomicOp, Memory, MemoryFault, Range};
use adverb_memory::{Cma, CmaError, Guard, HostMemory};
use std::cell::Cell;

/// Where the payload of a packet from a ring is.
#[derive(Clone, Copy)]
pub(crate) enum Near<'a> {
    /// In the ring.
    Copied,
    /// In the sender's memory, which is open while the guard holds.
    Fetched(&'a Guard<'a>),
    /// In the sender's private memory. The packet carries a stand-in instead.
    Away(&'a Away<'a>),
}

/// A payload in the sender's private memory, copied straight to the destination.
pub(crate) struct Away<'a> {
    /// The sender's memory is open while the guard holds.
    pub(super) guard: &'a Guard<'a>,
    pub(super) cma: Cma,
    /// Address of the payload in the sender's process.
    pub(super) addr: u64,
    /// The payload of the packet as the engine sees it: as many bytes, without meaning.
    pub(super) stand_in: &'a [u8],
    /// The payload was copied to this address ahead of its packet.
    pub(super) placed: Option<u64>,
    /// The engine wants the payload at another address. Payloads copied ahead of other packets may
    /// be misplaced as well.
    pub(super) astray: Cell<bool>,
    /// The kernel does not give access to the sender's memory.
    pub(super) unreached: Cell<bool>,
}

impl Away<'_> {
    /// Copies the part of the payload behind `part` of the stand-in.
    fn place(&self, to: Range, part: &[u8]) -> Result<(), MemoryFault> {
        let skip = (part.as_ptr() as u64).wrapping_sub(self.stand_in.as_ptr() as u64);
        let len = self.stand_in.len() as u64;
        debug_assert!(skip <= len && u64::from(to.len) <= len - skip, "a part of the stand-in");
        let is_placed = self.placed.and_then(|placed| placed.checked_add(skip)) == Some(to.addr)
            && matches!(to.kind, RangeKind::Mapped | RangeKind::OnDemand);
        self.astray.set(self.astray.get() || self.placed.is_some() && !is_placed);
        if !is_placed && to.kind != RangeKind::Null {
            // The peer chooses the address of its payload, so the sum may overflow.
            let from = self.addr.checked_add(skip).ok_or_else(|| self.unreached())?;
            match self.cma.fetch(self.guard, to, from) {
                Ok(()) => {}
                Err(CmaError::Withdrawn) => return Err(MemoryFault::WITHDRAWN),
                Err(_) => self.place_by_buffer(to, from)?,
            }
        }
        if self.guard.holds() { Ok(()) } else { Err(MemoryFault::WITHDRAWN) }
    }

    /// Copies through a buffer, after the kernel refused the direct copy. So the error shows which
    /// of the two memories is at fault.
    #[cold]
    #[inline(never)]
    fn place_by_buffer(&self, to: Range, from: u64) -> Result<(), MemoryFault> {
        let mut bytes = vec![0; to.len as usize];
        let here = Range { addr: bytes.as_mut_ptr() as u64, len: to.len, kind: RangeKind::Mapped };
        match self.cma.fetch(self.guard, here, from) {
            Ok(()) => HostMemory.write(to, &bytes),
            Err(CmaError::Withdrawn) => Err(MemoryFault::WITHDRAWN),
            Err(_) => Err(self.unreached()),
        }
    }

    /// Marks the sender's memory as unreachable. The packet is dropped.
    #[cold]
    fn unreached(&self) -> MemoryFault {
        self.unreached.set(true);
        MemoryFault::WITHDRAWN
    }
}

/// This process's memory. A payload from a peer's memory counts only if the guard still holds after
/// the copy.
pub(crate) struct Placing<'a>(pub(crate) Option<Near<'a>>);

impl Memory for Placing<'_> {
    #[inline]
    fn read(&self, from: Range, to: &mut [u8]) -> Result<(), MemoryFault> {
        HostMemory.read(from, to)
    }
    #[inline]
    fn write(&self, to: Range, from: &[u8]) -> Result<(), MemoryFault> {
        match self.0 {
            Some(Near::Away(away)) => away.place(to, from),
            Some(Near::Fetched(guard)) => {
                HostMemory.write(to, from)?;
                if guard.holds() { Ok(()) } else { Err(MemoryFault::WITHDRAWN) }
            }
            Some(Near::Copied) | None => HostMemory.write(to, from),
        }
    }
    fn atomic(&self, at: Range, op: AtomicOp) -> Result<u64, MemoryFault> {
        HostMemory.atomic(at, op)
    }
    fn page_kind(&self) -> RangeKind {
        HostMemory.page_kind()
    }
}
