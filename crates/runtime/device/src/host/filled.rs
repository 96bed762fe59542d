//! Where a peer's file holds memory.
//!
//! Whoever looks into a hole of a file by a mapping fills it, and pays for it. A peer that points
//! at holes of its own would have its readers pay for as much as it likes (TRU-3). So the kernel is
//! asked whether there are any; which takes a call, so what was seen without is remembered. A peer
//! may take memory away that was seen: then it gets back what it had at most.
use adverb_memory::Window;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a page. Where the kernel's are larger it answers for all of a page at once.
const PAGE: u64 = 4096;
/// Pages of a piece: those that have a bit in a word.
const PAGES: u64 = 16;
/// Pieces that are remembered.
const REMEMBERED: usize = 1024;

/// Pages that were seen to be there: a bit each in the low 16 of a word, of the piece whose number
/// plus one is in the others.
pub(super) struct Filled(Box<[AtomicU64]>);

impl Default for Filled {
    fn default() -> Self {
        Filled((0..REMEMBERED).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Filled {
    /// Are there no holes in `len` bytes (one at least) at `addr` of the file, which a window shows
    /// at `off`?
    #[inline]
    pub(super) fn covers(&self, window: &Window, off: u64, addr: u64, len: u32) -> bool {
        let end = addr + u64::from(len);
        let mut at = addr;
        while at < end {
            let piece = at / (PAGE * PAGES);
            let until = end.min((piece + 1) * PAGE * PAGES);
            let page = |at: u64| (at / PAGE) % PAGES;
            let pages = (u64::MAX >> (63 - page(until - 1))) & (u64::MAX << page(at));
            let place = &self.0[piece as usize % REMEMBERED];
            let word = place.load(Ordering::Relaxed);
            let seen = if word >> PAGES == piece + 1 { word } else { (piece + 1) << PAGES };
            if seen & pages != pages {
                if !window.is_filled(off + (at - addr), (until - at) as usize) {
                    return false;
                }
                place.store(seen | pages, Ordering::Relaxed);
            }
            at = until;
        }
        true
    }
}
