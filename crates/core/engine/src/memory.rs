//! Access to application memory, as a trait: the engine checks keys and names ranges, the host
//! reads and writes.
use core::fmt;

/// A checked piece of registered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Address in the host's own terms (a virtual address in the device, an arena offset in the
    /// simulator).
    pub addr: u64,
    /// Bytes.
    pub len: u32,
    /// How the range may be reached.
    pub kind: RangeKind,
}

/// How a [`Range`] may be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeKind {
    /// Memory that the host keeps mapped itself: an access cannot fail.
    Mapped,
    /// Memory whose pages may be missing, on-demand regions and all that a program may unmap; the
    /// host must fail softly.
    OnDemand,
    /// A null region: reads give zeros, writes vanish.
    Null,
    /// Pages of the fast-registered region with this key index; `addr` counts from the start of the
    /// first one. [`PagedMemory`](crate::keys::PagedMemory) turns it into pieces of the kind that
    /// [`Memory::page_kind`] says.
    Paged(u32),
}

/// The host could not reach the memory: the page is not mapped or not writable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryFault {
    /// First address that could not be reached.
    pub addr: u64,
}

impl MemoryFault {
    /// Not the memory is at fault, but the payload: its sender has taken it back while it was
    /// copied. The packet is dropped.
    pub const WITHDRAWN: MemoryFault = MemoryFault { addr: u64::MAX };
}

impl fmt::Display for MemoryFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "memory at {:#x} is not mapped, or not with the access needed", self.addr)
    }
}

/// A 64-bit atomic on host-order memory (IBTA 9.4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicOp {
    /// Write `swap` if the memory equals `compare`.
    CompareSwap {
        /// Value expected.
        compare: u64,
        /// Value written.
        swap: u64,
    },
    /// Add, wrapping.
    FetchAdd {
        /// Value added.
        add: u64,
    },
    /// Store eight bytes atomically (RC ATOMIC WRITE); the old value is returned but not used.
    Write {
        /// Value stored, as the eight bytes stand on the wire read in host order.
        value: u64,
    },
}

/// The host's memory. Ranges were checked by the [`KeyTable`](crate::KeyTable) and the host keeps
/// their region alive during the call.
pub trait Memory {
    /// Copies `from` to `to`; `to.len() == from.len`.
    fn read(&self, from: Range, to: &mut [u8]) -> Result<(), MemoryFault>;
    /// Copies `from` to `to`; `from.len() == to.len`.
    fn write(&self, to: Range, from: &[u8]) -> Result<(), MemoryFault>;
    /// Performs `op` on the eight aligned bytes at `at`, atomically towards the CPU's own atomics,
    /// and returns the old value.
    fn atomic(&self, at: Range, op: AtomicOp) -> Result<u64, MemoryFault>;
    /// How pages of fast-registered regions are reached.
    fn page_kind(&self) -> RangeKind {
        RangeKind::Mapped
    }
}

impl<M: Memory + ?Sized> Memory for &M {
    #[inline]
    fn read(&self, from: Range, to: &mut [u8]) -> Result<(), MemoryFault> {
        (**self).read(from, to)
    }
    #[inline]
    fn write(&self, to: Range, from: &[u8]) -> Result<(), MemoryFault> {
        (**self).write(to, from)
    }
    fn atomic(&self, at: Range, op: AtomicOp) -> Result<u64, MemoryFault> {
        (**self).atomic(at, op)
    }
    fn page_kind(&self) -> RangeKind {
        (**self).page_kind()
    }
}
