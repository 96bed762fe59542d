//! Copies to and from memory accessed by other threads or processes.
//!
//! Programs poll the last byte of a buffer to see whether all bytes have arrived. So the last byte
//! is written last: a reader of the last byte also sees the bytes before it. Two, four or eight
//! aligned bytes, or one byte, are one load or one store.
use adverb_engine::AtomicOp;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// Up to this length, words are copied one by one.
pub(crate) const FEW: usize = 16;

/// Copies `n` bytes to memory possibly read by others.
///
/// # Safety
/// `n` bytes can be read at `from` and written at `to`, and the two do not overlap. Others may
/// change either meanwhile.
#[inline]
pub(crate) unsafe fn put(to: *mut u8, from: *const u8, n: usize) {
    // SAFETY: the contract of this function, in parts.
    unsafe {
        if n == 8 && to.addr().is_multiple_of(8) {
            AtomicU64::from_ptr(to.cast())
                .store(from.cast::<u64>().read_unaligned(), Ordering::Release);
            return;
        }
        if n <= FEW {
            return put_words(to, from, n);
        }
        // All bytes before the word with the last byte. This last word is stored after the others.
        let most = ((to.addr() + n - 1) & !7) - to.addr();
        std::ptr::copy_nonoverlapping(from, to, most);
        let (to, from, rest) = (to.add(most), from.add(most), n - most);
        if rest == 8 && to.addr().is_multiple_of(8) {
            AtomicU64::from_ptr(to.cast())
                .store(from.cast::<u64>().read_unaligned(), Ordering::Release);
        } else {
            put_words(to, from, rest);
        }
    }
}

/// Stores in the order of addresses, each as large as its address allows.
///
/// # Safety
/// As for [`put`].
#[inline]
unsafe fn put_words(mut to: *mut u8, mut from: *const u8, mut n: usize) {
    macro_rules! store {
        ($word:ty, $atomic:ty) => {
            // SAFETY: enough bytes are left, and the address was checked for alignment.
            unsafe {
                <$atomic>::from_ptr(to.cast())
                    .store(from.cast::<$word>().read_unaligned(), Ordering::Release);
                to = to.add(size_of::<$word>());
                from = from.add(size_of::<$word>());
                n -= size_of::<$word>();
            }
        };
    }
    while n > 0 {
        let at = to.addr();
        if n >= 8 && at.is_multiple_of(8) {
            store!(u64, AtomicU64);
        } else if n >= 4 && at.is_multiple_of(4) {
            store!(u32, AtomicU32);
        } else if n >= 2 && at.is_multiple_of(2) {
            store!(u16, AtomicU16);
        } else {
            store!(u8, AtomicU8);
        }
    }
}

/// Copies `n` bytes from memory possibly written by others.
///
/// # Safety
/// As for [`put`].
#[inline]
pub(crate) unsafe fn get(to: *mut u8, from: *const u8, n: usize) {
    // SAFETY: the contract of this function.
    unsafe {
        match n {
            8 if from.addr().is_multiple_of(8) => {
                to.cast::<u64>().write_unaligned(
                    AtomicU64::from_ptr(from.cast_mut().cast()).load(Ordering::Acquire),
                );
            }
            4 if from.addr().is_multiple_of(4) => {
                to.cast::<u32>().write_unaligned(
                    AtomicU32::from_ptr(from.cast_mut().cast()).load(Ordering::Acquire),
                );
            }
            2 if from.addr().is_multiple_of(2) => {
                to.cast::<u16>().write_unaligned(
                    AtomicU16::from_ptr(from.cast_mut().cast()).load(Ordering::Acquire),
                );
            }
            _ => std::ptr::copy_nonoverlapping(from, to, n),
        }
    }
}

/// A CPU atomic on a word of eight bytes; returns the old value.
///
/// # Safety
/// Eight bytes, aligned to eight, can be read and written at `word`.
#[inline]
pub(crate) unsafe fn atomic(word: *mut u64, op: AtomicOp) -> u64 {
    // SAFETY: the contract of this function. All access here is atomic. A program sharing the word
    // accesses the word by atomics, too, as with a NIC.
    let word = unsafe { AtomicU64::from_ptr(word) };
    match op {
        AtomicOp::CompareSwap { compare, swap } => word
            .compare_exchange(compare, swap, Ordering::SeqCst, Ordering::SeqCst)
            .unwrap_or_else(|v| v),
        AtomicOp::FetchAdd { add } => word.fetch_add(add, Ordering::SeqCst),
        AtomicOp::Write { value } => word.swap(value, Ordering::SeqCst),
    }
}
