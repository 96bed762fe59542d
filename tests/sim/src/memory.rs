//! Memory of a device: an arena with a record of every write, for the oracle.
use adverb_engine::packet::Data;
use adverb_engine::{AtomicOp, Memory, MemoryFault, Range, memory::RangeKind};
use std::cell::{Cell, RefCell};

/// Bytes of the shared area, which the keys for peers open. The area is at the front of the arena.
pub(crate) const SHARED: u64 = 16 * 1024;

/// The bytes of a packet's payload.
pub(crate) fn owned(payload: &Data<'_>, memory: &impl Memory) -> Result<Vec<u8>, MemoryFault> {
    let mut bytes = vec![0; payload.len()];
    match payload {
        Data::Bytes(from) => bytes.copy_from_slice(from),
        Data::Gather(ranges) => {
            let mut rest = &mut bytes[..];
            for range in *ranges {
                let (to, behind) = rest.split_at_mut(range.len as usize);
                memory.read(*range, to)?;
                rest = behind;
            }
        }
    }
    Ok(bytes)
}

/// A change of memory by the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Touch {
    Write { addr: u64, data: Vec<u8>, old: Vec<u8> },
    Atomic { addr: u64, op: AtomicOp, old: u64 },
}

#[derive(Debug)]
pub(crate) struct Arena {
    pub(crate) base: u64,
    bytes: RefCell<Vec<u8>>,
    touches: RefCell<Vec<Touch>>,
    /// Addresses without a page, for on-demand access.
    holes: RefCell<Vec<u64>>,
    /// An access outside of the allocated memory.
    stray: Cell<Option<Range>>,
}

impl Arena {
    pub(crate) fn new(base: u64) -> Arena {
        let bytes = RefCell::new(vec![0; SHARED as usize]);
        Arena {
            base,
            bytes,
            touches: RefCell::default(),
            holes: RefCell::default(),
            stray: Cell::new(None),
        }
    }

    /// Allocates new bytes with this content, at a multiple of 8.
    pub(crate) fn alloc(&self, fill: &[u8]) -> u64 {
        let mut bytes = self.bytes.borrow_mut();
        let at = bytes.len().next_multiple_of(8);
        bytes.resize(at, 0);
        bytes.extend_from_slice(fill);
        self.base + at as u64
    }

    pub(crate) fn get(&self, addr: u64, len: usize) -> Vec<u8> {
        let at = (addr - self.base) as usize;
        self.bytes.borrow()[at..at + len].to_vec()
    }

    /// Makes a hole.
    pub(crate) fn punch(&self, addr: u64) {
        self.holes.borrow_mut().push(addr);
    }

    /// Is there a hole in these bytes?
    pub(crate) fn has_hole(&self, addr: u64, len: u32) -> bool {
        self.holes.borrow().iter().any(|h| (addr..addr + u64::from(len)).contains(h))
    }

    /// The whole content.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.bytes.borrow().clone()
    }

    /// The engine's changes since the last call.
    pub(crate) fn take_touches(&self) -> Vec<Touch> {
        self.touches.take()
    }

    pub(crate) fn stray(&self) -> Option<Range> {
        self.stray.get()
    }

    fn find(&self, r: Range) -> Result<core::ops::Range<usize>, MemoryFault> {
        let end = self.base + self.bytes.borrow().len() as u64;
        let known = matches!(r.kind, RangeKind::Mapped | RangeKind::OnDemand);
        if r.kind == RangeKind::OnDemand && self.has_hole(r.addr, r.len) {
            return Err(MemoryFault { addr: r.addr });
        }
        if !known || r.addr < self.base || r.addr + u64::from(r.len) > end {
            self.stray.set(Some(r));
            return Err(MemoryFault { addr: r.addr });
        }
        let at = (r.addr - self.base) as usize;
        Ok(at..at + r.len as usize)
    }
}

impl Memory for Arena {
    fn read(&self, from: Range, to: &mut [u8]) -> Result<(), MemoryFault> {
        let range = self.find(from)?;
        to.copy_from_slice(&self.bytes.borrow()[range]);
        Ok(())
    }

    fn write(&self, to: Range, from: &[u8]) -> Result<(), MemoryFault> {
        if to.len == 0 {
            return Ok(());
        }
        let range = self.find(to)?;
        let mut bytes = self.bytes.borrow_mut();
        let old = bytes[range.clone()].to_vec();
        bytes[range].copy_from_slice(from);
        self.touches.borrow_mut().push(Touch::Write { addr: to.addr, data: from.to_vec(), old });
        Ok(())
    }

    fn atomic(&self, at: Range, op: AtomicOp) -> Result<u64, MemoryFault> {
        let range = self.find(at)?;
        let mut bytes = self.bytes.borrow_mut();
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[range.clone()]);
        let old = u64::from_ne_bytes(word);
        let new = apply(old, op);
        bytes[range].copy_from_slice(&new.to_ne_bytes());
        self.touches.borrow_mut().push(Touch::Atomic { addr: at.addr, op, old });
        Ok(old)
    }
}

/// The value after an atomic.
pub(crate) fn apply(old: u64, op: AtomicOp) -> u64 {
    match op {
        AtomicOp::CompareSwap { compare, swap } => {
            if old == compare {
                swap
            } else {
                old
            }
        }
        AtomicOp::FetchAdd { add } => old.wrapping_add(add),
        AtomicOp::Write { value } => value,
    }
}
