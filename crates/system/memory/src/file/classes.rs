//! Which allocations become blocks: a guess by the size of an allocation.
//!
//! A block is made before the program knows its address, so before it is known whether the program
//! will register the block. Each class of sizes has credit. An allocation that becomes a block
//! takes one of it, the first registration of a block gives two back. A class without credit leaves
//! its allocations to the program's allocator, until a page-aligned region of its size is
//! registered. So a program that registers no block pays for the first few alone.
use std::sync::atomic::{AtomicU32, Ordering};

/// Blocks of a class that may go without a registration.
const CREDIT: u32 = 128;
/// The same for classes whose blocks have room for a huge page, which pages of the file are not.
const LARGE_CREDIT: u32 = 16;
/// Bytes of a huge page.
const HUGE: u64 = 2 << 20;
/// What a registration of private memory gives a class without credit.
const AGAIN: u32 = 8;
/// Classes: four between a power of two and the next.
pub(super) const CLASSES: usize = 212;

/// What the classes have taken of their credit.
#[derive(Debug)]
pub(super) struct Credit([AtomicU32; CLASSES]);

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
        Credit([const { AtomicU32::new(0) }; CLASSES])
    }

    /// Takes one for an allocation of `len` bytes. `false`: it is not to become a block.
    pub fn take(&self, len: u64) -> bool {
        let taken = &self.0[class(len)];
        if taken.load(Ordering::Relaxed) >= limit(len) {
            return false;
        }
        taken.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// A block was registered, for the first time since its program has it.
    pub fn give(&self, len: u64) {
        let taken = &self.0[class(len)];
        let _ = taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(2).or(Some(0)));
    }

    /// Private memory was registered that might have been a block.
    pub fn give_again(&self, len: u64) {
        self.0[class(len)].fetch_min(limit(len) - AGAIN, Ordering::Relaxed);
    }

    /// Has the class of this length none left?
    pub fn is_spent(&self, len: u64) -> bool {
        self.0[class(len)].load(Ordering::Relaxed) >= limit(len)
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
        let len = 64 << 10;
        assert_eq!((0..1000).filter(|_| credit.take(len)).count(), CREDIT as usize);
        assert!(credit.is_spent(len) && !credit.is_spent(4096));
        credit.give_again(len);
        assert_eq!((0..1000).filter(|_| credit.take(len)).count(), AGAIN as usize);
        // Each registered: it never ends.
        credit.give_again(len);
        assert!((0..1000).all(|_| {
            let took = credit.take(len);
            credit.give(len);
            took
        }));
    }
}
