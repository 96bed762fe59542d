//! Decides which allocations become blocks, by the size of an allocation.
//!
//! A block is created before the program knows its address, and so before a registration. Each
//! class of sizes has credit. A new block takes one unit of the credit, and a registration of a
//! block restores the whole credit. The allocations of a class without credit stay with the
//! program's allocator, until a page-aligned region of this size is registered. So a program that
//! registers no block pays only for the first few.
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// The number of blocks of a class created without a registration in between.
const CREDIT: u32 = 128;
/// The same for classes of blocks with room for a huge page, because the file's pages are small at
/// first. In these classes, reusing a block takes credit, too.
const LARGE_CREDIT: u32 = 16;
/// The length of a huge page in bytes.
pub(super) const HUGE: u64 = 2 << 20;
/// The number of classes: four between two powers of two.
pub(super) const CLASSES: usize = 212;

/// The credit used by each class.
#[derive(Debug)]
pub(super) struct Credit {
    taken: [AtomicU32; CLASSES],
    /// Memory of this class was registered.
    registered: [AtomicBool; CLASSES],
}

/// The class of a length, which is at least one byte.
pub(super) fn class(len: u64) -> usize {
    let units = len.div_ceil(4096);
    let bits = units.checked_ilog2().unwrap_or(0);
    if bits < 2 {
        units as usize
    } else {
        (bits * 4) as usize + ((units >> (bits - 2)) & 3) as usize - 4
    }
}

fn limit(len: u64) -> u32 {
    if len < HUGE { CREDIT } else { LARGE_CREDIT }
}

impl Credit {
    pub fn new() -> Self {
        Credit {
            taken: [const { AtomicU32::new(0) }; CLASSES],
            registered: [const { AtomicBool::new(false) }; CLASSES],
        }
    }

    /// Takes one unit for a new block of `len` bytes; returns whether it was the last.
    pub fn take(&self, len: u64) -> bool {
        self.taken[class(len)].fetch_add(1, Ordering::Relaxed) + 1 == limit(len)
    }

    /// Takes one unit for a reused block; returns whether it was the last.
    pub fn take_again(&self, len: u64) -> bool {
        len >= HUGE && self.take(len)
    }

    /// Restores the credit, because `len` bytes were registered: a block, or memory suitable as
    /// one.
    pub fn give(&self, len: u64) {
        self.taken[class(len)].store(0, Ordering::Relaxed);
        self.registered[class(len)].store(true, Ordering::Relaxed);
    }

    /// Takes all credit, because the program wants another kind of memory. Returns `false`, and
    /// takes nothing, if memory of this class was registered before.
    pub fn take_all(&self, len: u64) -> bool {
        let registers = self.registered[class(len)].load(Ordering::Relaxed);
        if !registers {
            self.taken[class(len)].store(limit(len), Ordering::Relaxed);
        }
        !registers
    }

    /// Whether the class of this length has no credit left.
    pub fn is_spent(&self, len: u64) -> bool {
        self.taken[class(len)].load(Ordering::Relaxed) >= limit(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_follow_each_other_and_are_narrow() {
        let mut last = (0, 1);
        for units in 1..(1_u64 << 16) {
            let class = class(units * 4096);
            assert!(class == last.0 || class == last.0 + 1, "{units} pages: class {class}");
            if class != last.0 {
                last = (class, units);
            }
            assert!(
                (units - last.1) * 4 <= last.1,
                "{units} and {} pages are of one class",
                last.1
            );
        }
        assert!(class(u64::MAX) < CLASSES);
        assert_eq!([1, 4096, 4097].map(class), [1, 1, 2]);
    }

    #[test]
    fn a_class_without_registrations_runs_dry() {
        let credit = Credit::new();
        for (len, count) in [(64 << 10, CREDIT), (4 << 20, LARGE_CREDIT)] {
            for _ in 0..2 {
                let mut blocks = 0;
                while !credit.is_spent(len) {
                    blocks += 1;
                    assert_eq!(credit.take(len), blocks == count);
                }
                assert_eq!(blocks, count);
                assert!(!credit.is_spent(len * 2));
                credit.give(len);
            }
        }
        assert!(!(0..1000).any(|_| credit.take_again(4096)) && !credit.is_spent(4096));
        assert!(credit.take_all(4096) && credit.is_spent(4096));
        credit.give(4096);
        assert!(!credit.take_all(4096) && !credit.is_spent(4096));
    }
}
