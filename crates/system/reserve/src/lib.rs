//! The allocator of the drop-in libraries. Allocations come from the C library, and from a reserve
//! while the C library has no memory left.
//!
//! A C program expects ENOMEM of a call that finds no memory. But Rust ends the process when a
//! small allocation fails. So two rules hold in the drop-in libraries:
//!
//! 1. Memory that grows with a number of the program (queues, tables) is allocated by a call that
//!    can fail, and the verb fails with ENOMEM.
//! 2. All other allocations are small. When the C library refuses a small allocation, the reserve
//!    serves it. From then on every call that creates something first asks [`is_ready`], which
//!    returns `false` until the C library has memory again. So the reserve serves only the calls
//!    that are under way.
//!
//! The reserve is a static of the library. Unused pages cost nothing. The reserve has no lock, so
//! the child of a fork can use it.
#![allow(unsafe_code, reason = "an allocator")]
#![deny(missing_docs)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How many bytes the C library must be able to allocate before a call creates something again.
const HEADROOM: usize = 256 << 10;
/// The alignment of each block in bytes.
const ALIGN: usize = 64;

/// `WORDS * 64` blocks of `SIZE` bytes each. A bit for each block says whether the block is taken.
#[repr(C, align(64))]
struct Blocks<const SIZE: usize, const WORDS: usize> {
    memory: UnsafeCell<[[[u8; SIZE]; 64]; WORDS]>,
    taken: [AtomicU64; WORDS],
}

// SAFETY: only the thread that set the bit of a block uses the block, and `taken` is atomic.
unsafe impl<const SIZE: usize, const WORDS: usize> Sync for Blocks<SIZE, WORDS> {}

impl<const SIZE: usize, const WORDS: usize> Blocks<SIZE, WORDS> {
    const fn new() -> Self {
        assert!(SIZE.is_multiple_of(ALIGN));
        Blocks {
            memory: UnsafeCell::new([[[0; SIZE]; 64]; WORDS]),
            taken: [const { AtomicU64::new(0) }; WORDS],
        }
    }

    fn start(&self) -> *mut u8 {
        self.memory.get().cast()
    }

    /// Takes a block, if `layout` fits into a block and a block is free.
    fn take(&self, layout: Layout) -> Option<*mut u8> {
        if layout.size() > SIZE || layout.align() > ALIGN {
            return None;
        }
        for (at, word) in self.taken.iter().enumerate() {
            let mut now = word.load(Ordering::Relaxed);
            while now != u64::MAX {
                let bit = now.trailing_ones() as usize;
                match word.compare_exchange_weak(
                    now,
                    now | 1 << bit,
                    Ordering::Acquire,
                    Ordering::Relaxed,
                ) {
                    // SAFETY: block `at * 64 + bit` lies in the memory.
                    Ok(_) => return Some(unsafe { self.start().add((at * 64 + bit) * SIZE) }),
                    Err(other) => now = other,
                }
            }
        }
        None
    }

    /// Frees a block. Returns `false` if the pointer belongs to no block.
    fn give(&self, pointer: *mut u8) -> bool {
        let offset = (pointer as usize).wrapping_sub(self.start() as usize);
        if offset >= SIZE * 64 * WORDS {
            return false;
        }
        let block = offset / SIZE;
        self.taken[block / 64].fetch_and(!(1 << (block % 64)), Ordering::Release);
        true
    }

    fn has(&self, pointer: *mut u8) -> bool {
        (pointer as usize).wrapping_sub(self.start() as usize) < SIZE * 64 * WORDS
    }
}

static SMALL: Blocks<256, 32> = Blocks::new();
static MIDDLE: Blocks<2048, 4> = Blocks::new();
/// Large blocks are for buffers of fixed size: for a datagram, for a netlink reply.
static LARGE: Blocks<65536, 1> = Blocks::new();

/// Whether the C library has refused an allocation since the last successful trial of [`HEADROOM`]
/// bytes.
static REFUSED: AtomicBool = AtomicBool::new(false);

/// The allocator of each library or program that links this crate.
#[global_allocator]
static ALLOCATOR: Reserve = Reserve;

#[derive(Debug)]
struct Reserve;

#[cold]
fn from_reserve(layout: Layout) -> *mut u8 {
    REFUSED.store(true, Ordering::Relaxed);
    let block = SMALL.take(layout).or_else(|| MIDDLE.take(layout)).or_else(|| LARGE.take(layout));
    block.unwrap_or(std::ptr::null_mut())
}

fn is_reserve(pointer: *mut u8) -> bool {
    SMALL.has(pointer) || MIDDLE.has(pointer) || LARGE.has(pointer)
}

// SAFETY: memory comes from the C library, or is a whole block with enough room and alignment for
// the layout. Memory goes back to its origin.
unsafe impl GlobalAlloc for Reserve {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `alloc`.
        let pointer = unsafe { System.alloc(layout) };
        if pointer.is_null() { from_reserve(layout) } else { pointer }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        let pointer = unsafe { System.alloc_zeroed(layout) };
        if !pointer.is_null() {
            return pointer;
        }
        let pointer = from_reserve(layout);
        if !pointer.is_null() {
            // SAFETY: the block has at least `layout.size()` bytes, and only this call uses it.
            unsafe { pointer.write_bytes(0, layout.size()) };
        }
        pointer
    }

    #[inline]
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        if is_reserve(pointer) {
            let _ = SMALL.give(pointer) || MIDDLE.give(pointer) || LARGE.give(pointer);
            return;
        }
        // SAFETY: the pointer is from `System` with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !is_reserve(pointer) {
            // SAFETY: the pointer is from `System`, and the caller keeps the contract of
            // `realloc`.
            let moved = unsafe { System.realloc(pointer, layout, size) };
            if !moved.is_null() {
                return moved;
            }
        }
        // SAFETY: the caller guarantees that the size is not 0 and fits with the alignment.
        let new = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        // SAFETY: the size is not 0.
        let moved = unsafe { self.alloc(new) };
        if !moved.is_null() {
            // SAFETY: both allocations have at least this many bytes, and they do not overlap.
            unsafe { moved.copy_from_nonoverlapping(pointer, layout.size().min(size)) };
            // SAFETY: the caller guarantees pointer and layout. The old memory is not used any
            // more.
            unsafe { self.dealloc(pointer, layout) };
        }
        moved
    }
}

/// Whether a call may create something. `false` means that the C library has no memory, and the
/// call must fail with ENOMEM.
#[must_use]
pub fn is_ready() -> bool {
    !REFUSED.load(Ordering::Relaxed) || recovers()
}

/// Whether the C library has memory again.
#[cold]
fn recovers() -> bool {
    let Ok(layout) = Layout::from_size_align(HEADROOM, ALIGN) else { return false };
    // SAFETY: the size is not 0.
    let trial = unsafe { System.alloc(layout) };
    if trial.is_null() {
        return false;
    }
    // SAFETY: the memory was allocated just now with this layout.
    unsafe { System.dealloc(std::hint::black_box(trial), layout) };
    REFUSED.store(false, Ordering::Relaxed);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(size: usize) -> Layout {
        Layout::from_size_align(size, 16).unwrap()
    }

    /// OBJ-10: blocks do not overlap, are aligned, and can be freed.
    #[test]
    fn blocks_are_taken_once_and_given_back() {
        static BLOCKS: Blocks<128, 2> = Blocks::new();
        for _ in 0..3 {
            let all: Vec<_> = std::iter::from_fn(|| BLOCKS.take(layout(100))).collect();
            assert_eq!(all.len(), 128);
            let mut sorted: Vec<_> = all.iter().map(|p| *p as usize).collect();
            sorted.sort_unstable();
            assert!(sorted.windows(2).all(|pair| pair[1] - pair[0] == 128));
            assert!(sorted.iter().all(|at| at.is_multiple_of(64)));
            assert!(all.iter().all(|p| BLOCKS.has(*p) && BLOCKS.give(*p)));
        }
        assert!(BLOCKS.take(layout(129)).is_none());
        assert!(BLOCKS.take(Layout::from_size_align(1, 128).unwrap()).is_none());
        assert!(!BLOCKS.give(std::ptr::dangling_mut()) && !BLOCKS.has(std::ptr::dangling_mut()));
    }

    /// OBJ-10: memory of the reserve can grow into memory of the C library, with all bytes kept.
    #[test]
    fn memory_of_the_reserve_moves_and_is_given_back() {
        let pointer = from_reserve(layout(200));
        assert!(is_reserve(pointer));
        // SAFETY: the test owns these 200 bytes, and each layout is the layout of its allocation.
        unsafe {
            pointer.write_bytes(7, 200);
            let moved = Reserve.realloc(pointer, layout(200), 100_000);
            assert!(!is_reserve(moved));
            assert_eq!(std::slice::from_raw_parts(moved, 200), [7; 200]);
            Reserve.dealloc(moved, layout(100_000));
            assert!(is_ready(), "the C library has memory");
            let zeroed = Reserve.alloc_zeroed(layout(64));
            Reserve.dealloc(zeroed, layout(64));
        }
        assert!(from_reserve(layout(65537)).is_null());
    }
}
