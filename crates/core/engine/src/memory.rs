//! Access to application memory as a trait: the engine checks keys and names ranges; the host reads
//! and writes.
use thiserror::Error;

/// A checked range of registered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Address in the host's own terms (a virtual address in the device, an arena offset in the
    /// simulator).
    pub addr: u64,
    /// Bytes.
    pub len: u32,
    /// How the host may reach the range.
    pub kind: RangeKind,
}

/// How the host may reach a [`Range`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeKind {
    /// Memory that the host keeps mapped: an access cannot fail.
    Mapped,
    /// Memory with pages that may be missing: on-demand regions, and all memory that a program may
    /// unmap. The host must fail softly.
    OnDemand,
    /// A null region: reads give zeros, writes vanish.
    Null,
    /// Pages of the fast-registered region with this key index; `addr` counts from the start of the
    /// first page. [`PagedMemory`](crate::keys::PagedMemory) translates such a range into pieces of
    /// kind [`Memory::page_kind`].
    Paged(u32),
}

/// The host could not reach the memory: the page is not mapped or not writable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("memory at {addr:#x} is not mapped, or not with the access needed")]
pub struct MemoryFault {
    /// First unreachable address.
    pub addr: u64,
}

impl MemoryFault {
    /// The payload is at fault and not the memory: the sender took the payload back during the
    /// copy. The packet is dropped.
    pub const WITHDRAWN: MemoryFault = MemoryFault { addr: u64::MAX };
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
    /// Store eight bytes atomically (RC ATOMIC WRITE); the returned old value is not used.
    Write {
        /// Value stored: the eight bytes from the wire, read in host order.
        value: u64,
    },
}

/// The host's memory. The [`KeyTable`](crate::KeyTable) has checked the ranges, and the host keeps
/// their regions alive during the call.
pub trait Memory {
    /// Copies `from` to `to`; `to.len() == from.len`.
    fn read(&self, from: Range, to: &mut [u8]) -> Result<(), MemoryFault>;
    /// Copies `from` to `to`; `from.len() == to.len`.
    fn write(&self, to: Range, from: &[u8]) -> Result<(), MemoryFault>;
    /// Performs `op` on the eight aligned bytes at `at`, and returns the old value. The operation
    /// is atomic with respect to the CPU's own atomics.
    fn atomic(&self, at: Range, op: AtomicOp) -> Result<u64, MemoryFault>;
    /// How the host reaches pages of fast-registered regions.
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
