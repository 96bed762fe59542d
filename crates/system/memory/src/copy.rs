//! Copies to and from memory that others look at.
//!
//! Programs poll the last byte of a buffer to see that all of it has come, so it is written last:
//! whoever sees it sees what lies before it. Up to eight bytes at an address that is a multiple of
//! their number are one load or one store.
use adverb_engine::AtomicOp;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// Up to here words are copied one by one.
pub(crate) const FEW: usize = 16;

/// Copies `n` bytes to where others look.
///
/// # Safety
/// `n` bytes can be read at `from` and written at `to`, and the two do not overlap. Others may
/// change either meanwhile.
#[inline]
pub(crate) unsafe fn put(to: *mut u8, from: *const u8, n: usize) {
    // SAFETY: the caller's, in parts.
    unsafe {
        if n == 8 && to.addr().is_multiple_of(8) {
            AtomicU64::from_ptr(to.cast()).store(from.cast::<u64>().read_unaligned(), Ordering::Release);
            return;
        }
        if n <= FEW {
            return put_words(to, from, n);
        }
        // All but the word that the last byte lies in, which is stored when the others are.
        let most = ((to.addr() + n - 1) & !7) - to.addr();
        std::ptr::copy_nonoverlapping(from, to, most);
        let (to, from, rest) = (to.add(most), from.add(most), n - most);
        if rest == 8 && to.addr().is_multiple_of(8) {
            AtomicU64::from_ptr(to.cast()).store(from.cast::<u64>().read_unaligned(), Ordering::Release);
        } else {
            put_words(to, from, rest);
        }
    }
}

/// Stores in the order of their addresses, each as large as its address allows.
///
/// # Safety
/// As for [`put`].
#[inline]
unsafe fn put_words(mut to: *mut u8, mut from: *const u8, mut n: usize) {
    macro_rules! store {
        ($word:ty, $atomic:ty) => {
            // SAFETY: as many bytes are left, and the address was found to be a multiple.
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

/// Copies `n` bytes from where others write.
///
/// # Safety
/// As for [`put`].
#[inline]
pub(crate) unsafe fn get(to: *mut u8, from: *const u8, n: usize) {
    // SAFETY: the caller's.
    unsafe {
        match n {
            8 if from.addr().is_multiple_of(8) => {
                to.cast::<u64>()
                    .write_unaligned(AtomicU64::from_ptr(from.cast_mut().cast()).load(Ordering::Acquire));
            }
            4 if from.addr().is_multiple_of(4) => {
                to.cast::<u32>()
                    .write_unaligned(AtomicU32::from_ptr(from.cast_mut().cast()).load(Ordering::Acquire));
            }
            2 if from.addr().is_multiple_of(2) => {
                to.cast::<u16>()
                    .write_unaligned(AtomicU16::from_ptr(from.cast_mut().cast()).load(Ordering::Acquire));
            }
            _ => std::ptr::copy_nonoverlapping(from, to, n),
        }
    }
}

/// The CPU's own atomic on a word of eight bytes; answers what it held.
///
/// # Safety
/// Eight bytes, aligned to eight, can be read and written at `word`.
#[inline]
pub(crate) unsafe fn atomic(word: *mut u64, op: AtomicOp) -> u64 {
    // SAFETY: the caller's. All access here is atomic; a program's own is if it means to share the
    // word, as with a NIC.
    let word = unsafe { AtomicU64::from_ptr(word) };
    match op {
        AtomicOp::CompareSwap { compare, swap } => {
            word.compare_exchange(compare, swap, Ordering::SeqCst, Ordering::SeqCst).unwrap_or_else(|v| v)
        }
        AtomicOp::FetchAdd { add } => word.fetch_add(add, Ordering::SeqCst),
        AtomicOp::Write { value } => word.swap(value, Ordering::SeqCst),
    }
}
