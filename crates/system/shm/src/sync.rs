//! The atomics of this crate: the standard library's, or loom's in the tests of `make loom`.
//!
//! # Two rules
//!
//! Loads of words in a read-only mapping are `Relaxed`, with a fence behind them where order
//! matters. Of all atomic loads, only relaxed loads are certain to write nothing.
//!
//! Suppose one side writes A and reads B, the other side writes B and reads A, and one of them must
//! see the other's write. Then both sides have a full barrier between their write and their read
//! ([`enter_barrier`], [`enter_barrier_by`], [`full_barrier`]).
#[cfg(not(all(test, loom)))]
pub(super) use std::sync::atomic::{AtomicU64, fence};

#[cfg(all(test, loom))]
pub(super) use loom::sync::atomic::{AtomicU64, fence};

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
#[cfg(all(target_arch = "x86_64", not(all(test, loom))))]
use std::sync::atomic::compiler_fence;

/// Adds one to `word`, after all earlier writes, and puts a full barrier behind the addition.
#[inline]
pub(super) fn enter_barrier(word: &AtomicU64) {
    // On x86 a locked instruction is a full barrier, at half the price of the variant with a fence.
    #[cfg(all(target_arch = "x86_64", not(all(test, loom))))]
    word.fetch_add(1, SeqCst);
    #[cfg(not(all(target_arch = "x86_64", not(all(test, loom)))))]
    {
        word.fetch_add(1, Release);
        fence(SeqCst);
    }
}

/// As [`enter_barrier`], for a `step` with an atomic read-modify-write, such as taking a lock. On
/// x86 the locked instruction of `step` is the barrier.
#[inline]
pub(super) fn enter_barrier_by<R>(word: &AtomicU64, step: impl FnOnce() -> R) -> R {
    // Only the hazard's own thread writes the word.
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

/// Orders earlier writes before later reads.
#[inline]
pub(super) fn full_barrier() {
    fence(SeqCst);
}

/// A load with acquire ordering. Never writes.
#[inline]
pub(super) fn load_acquire(word: &AtomicU64) -> u64 {
    let value = word.load(Relaxed);
    fence(Acquire);
    value
}
