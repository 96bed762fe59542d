//! Memory that knows the permitted accesses, and panics at any other.
use adverb_engine::memory::RangeKind;
use adverb_engine::{AtomicOp, Memory, MemoryFault, Range};
use std::cell::{Cell, RefCell};

/// First address of the arena.
pub const BASE: u64 = 0x10_0000;
/// Size of the arena in bytes.
const SIZE: usize = 80 << 10;

/// A region of the arena: first byte and length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zone(pub u64, pub u32);

/// A peer may do anything here, while the region is registered.
pub const OPEN: Zone = Zone(BASE + (4 << 10), 16 << 10);
/// A peer may read here; pages may be missing.
pub const READ: Zone = Zone(BASE + (24 << 10), 8 << 10);
/// Only the queue pair's own requests and receives touch this zone.
pub const LOCAL: Zone = Zone(BASE + (36 << 10), 32 << 10);
/// Memory of another protection domain.
pub const OF_OTHER_PD: Zone = Zone(BASE + (72 << 10), 4 << 10);

impl Zone {
    fn holds(self, addr: u64, len: u32) -> bool {
        addr >= self.0 && addr + u64::from(len) <= self.0 + u64::from(self.1)
    }
}

/// A buffer of a posted request or receive, still open for writes.
#[derive(Clone, Copy, Debug)]
pub struct Buffer {
    pub id: u64,
    pub addr: u64,
    pub len: u32,
}

/// The memory of one side.
#[derive(Debug)]
pub struct Arena {
    bytes: RefCell<Vec<u8>>,
    pub buffers: RefCell<Vec<Buffer>>,
    /// [`OPEN`] is registered.
    pub open: Cell<bool>,
    /// The pages of [`READ`] are missing.
    pub hole: Cell<bool>,
}

impl Arena {
    pub fn new() -> Arena {
        Arena {
            bytes: RefCell::new(vec![0xa5; SIZE]),
            buffers: RefCell::default(),
            open: Cell::new(true),
            hole: Cell::new(false),
        }
    }

    /// May a peer's read get these bytes?
    pub fn is_readable_by_peer(&self, r: Range) -> bool {
        self.is_open(r) || READ.holds(r.addr, r.len)
    }

    fn is_open(&self, r: Range) -> bool {
        self.open.get() && OPEN.holds(r.addr, r.len)
    }

    fn index(r: Range) -> std::ops::Range<usize> {
        let at = (r.addr - BASE) as usize;
        at..at + r.len as usize
    }

    fn check_write(&self, r: Range) {
        let posted = |b: &Buffer| Zone(b.addr, b.len).holds(r.addr, r.len);
        let local = LOCAL.holds(r.addr, r.len) && self.buffers.borrow().iter().any(posted);
        assert!(self.is_open(r) || local, "a write to memory that is not open: {r:x?}");
    }
}

impl Memory for Arena {
    fn read(&self, from: Range, to: &mut [u8]) -> Result<(), MemoryFault> {
        assert_eq!(from.len as usize, to.len());
        if from.kind == RangeKind::OnDemand && self.hole.get() {
            return Err(MemoryFault { addr: from.addr });
        }
        let known = self.is_readable_by_peer(from) || LOCAL.holds(from.addr, from.len);
        assert!(known, "a read of memory that is not open: {from:x?}");
        to.copy_from_slice(&self.bytes.borrow()[Self::index(from)]);
        Ok(())
    }

    fn write(&self, to: Range, from: &[u8]) -> Result<(), MemoryFault> {
        assert_eq!(to.len as usize, from.len());
        if !from.is_empty() {
            self.check_write(to);
            self.bytes.borrow_mut()[Self::index(to)].copy_from_slice(from);
        }
        Ok(())
    }

    fn atomic(&self, at: Range, op: AtomicOp) -> Result<u64, MemoryFault> {
        assert!(
            at.len == 8 && at.addr.is_multiple_of(8) && self.is_open(at),
            "an atomic that is not allowed: {at:x?}"
        );
        self.check_write(at);
        let mut bytes = self.bytes.borrow_mut();
        let word = &mut bytes[Self::index(at)];
        let old = word.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b));
        let new = match op {
            AtomicOp::CompareSwap { compare, swap } if old == compare => swap,
            AtomicOp::CompareSwap { .. } => old,
            AtomicOp::FetchAdd { add } => old.wrapping_add(add),
            AtomicOp::Write { value } => value,
        };
        word.copy_from_slice(&new.to_le_bytes());
        Ok(old)
    }
}
