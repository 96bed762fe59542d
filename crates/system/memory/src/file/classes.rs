//! Which allocations become blocks: a guess by the size of an allocation.
//!
//! A block is made before the program knows its address, so before it is known whether the program
//! will register the block. Each class of sizes has credit. A new block takes one of it, and a
//! registration of a block gives all back. A class without credit leaves its allocations to the
//! program's allocator, until a page-aligned region of its size is registered. So a program that
//! registers no block pays for the first few alone.
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Blocks of a class that are made without a registration in between.
const CREDIT: u32 = 128;
/// The same for classes whose blocks have room for a huge page, which the file's pages are not at
/// first. Here a block that is handed out again counts, too.
const LARGE_CREDIT: u32 = 16;
/// Bytes of a huge page.
pub(super) const HUGE: u64 = 2 << 20;
/// Classes: four between a power of two and the next.
pub(super) const CLASSES: usize = 212;

/// What the classes have taken of their credit.
#[derive(Debug)]
pub(super) struct Credit {
    taken: [AtomicU32; CLASSES],
    /// Memory of this class was registered.
    registered: [AtomicBool; CLASSES],
}

/// The class of a length of at least a byte.
pub(super) fn class(len: u64) -> usize {
    let units = len.div_ceil(4096);
    let bits = units.checked_ilog2().unwrap_or(0);
    if bits < 2 { units as usize } else { (bits * 4) as usize + ((units >> (bits - 2)) & 3) as usize - 4 }
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

    /// Takes one for a new block of `len` bytes; answers whether it was the last.
    pub fn take(&self, len: u64) -> bool {
        self.taken[class(len)].fetch_add(1, Ordering::Relaxed) + 1 == limit(len)
    }

    /// Takes one for a block that is handed out again; answers whether it was the last.
    pub fn take_again(&self, len: u64) -> bool {
        len >= HUGE && self.take(len)
    }

    /// Memory of `len` bytes was registered: a block, or what might have been one.
    pub fn give(&self, len: u64) {
        self.taken[class(len)].store(0, Ordering::Relaxed);
        self.registered[class(len)].store(true, Ordering::Relaxed);
    }

    /// Takes all: the program wants memory of another kind. `false`: it registers memory of this
    /// class, and nothing is taken.
    pub fn take_all(&self, len: u64) -> bool {
        let registers = self.registered[class(len)].load(Ordering::Relaxed);
        if !registers {
            self.taken[class(len)].store(limit(len), Ordering::Relaxed);
        }
        !registers
    }

    /// Has the class of this length none left?
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
            assert!((units - last.1) * 4 <= last.1, "{units} and {} pages are of one class", last.1);
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
