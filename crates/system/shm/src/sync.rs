//! The atomics of this module: the standard library's, but loom's in the tests of `make loom`.
//!
//! # Two rules
//!
//! Loads of words that a process has mapped read-only are `Relaxed`, with a fence behind them where
//! order matters: of all atomic loads these alone are certain to write nothing.
//!
//! Where one side writes A and reads B, while the other writes B and reads A, and one of them must
//! see the other's write, both have a full barrier in between ([`enter_barrier`],
//! [`enter_barrier_by`], [`full_barrier`]).
#[cfg(not(all(test, loom)))]
pub(super) use std::sync::atomic::{AtomicU64, fence};

#[cfg(all(test, loom))]
pub(super) use loom::sync::atomic::{AtomicU64, fence};

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
#[cfg(all(target_arch = "x86_64", not(all(test, loom))))]
use std::sync::atomic::compiler_fence;

/// Adds one, behind all that was written before, and puts a full barrier behind it.
#[inline]
pub(super) fn enter_barrier(word: &AtomicU64) {
    // On x86 a locked instruction is the barrier by itself, at half the price of one with a fence.
    #[cfg(all(target_arch = "x86_64", not(all(test, loom))))]
    word.fetch_add(1, SeqCst);
    #[cfg(not(all(target_arch = "x86_64", not(all(test, loom)))))]
    {
        word.fetch_add(1, Release);
        fence(SeqCst);
    }
}

/// As [`enter_barrier`], where `step` makes an atomic change that reads what it changes, as taking
/// a lock does. On x86 that locked instruction is the barrier.
#[inline]
pub(super) fn enter_barrier_by<R>(word: &AtomicU64, step: impl FnOnce() -> R) -> R {
    // Only the thread that has the mark writes the word.
    word.store(word.load(Relaxed).wrapping_add(1), Release);
    #[cfg(all(target_arch = "x86_64", not(all(test, loom))))]
    {
        compiler_fence(SeqCst);
        let result = step();
        compiler_fence(SeqCst);
        result
    }
    #[cfg(not(all(target_arch = "x86_64", not(all(test, loom)))))]
    {
        let result = step();
        fence(SeqCst);
        result
    }
}

/// Orders what was written before with what is read behind.
#[inline]
pub(super) fn full_barrier() {
    fence(SeqCst);
}

/// A load that sees all that happened before the store it reads from. Never writes.
#[inline]
pub(super) fn load_acquire(word: &AtomicU64) -> u64 {
    let value = word.load(Relaxed);
    fence(Acquire);
    value
}
