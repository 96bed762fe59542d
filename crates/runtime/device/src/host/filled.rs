//! Which pages of a peer's file hold memory.
//!
//! A read of a hole through a mapping fills the hole, at the expense of the reading process. A
//! malicious peer could point at holes of its file to use up its readers' memory (TRU-3). So the
//! kernel is asked whether a range has holes. The question is a system call, so pages without holes
//! are remembered. If the peer later punches a hole into such a page, a read returns at most the
//! memory that the peer had before.
use adverb_memory::Window;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a page. A kernel with larger pages answers for the whole page.
const PAGE: u64 = 4096;
/// Pages of a piece. Each page has a bit in the piece's word.
const PAGES: u64 = 16;
/// Pieces that are remembered.
const REMEMBERED: usize = 1024;

/// Pages that were seen to hold memory. The low 16 bits of a word are the pages of a piece. The
/// other bits are the number of the piece plus 1.
pub(super) struct Filled(Box<[AtomicU64]>);

impl Default for Filled {
    fn default() -> Self {
        Filled((0..REMEMBERED).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Filled {
    /// Is the range of `len` bytes (at least 1) at `addr` of the file free of holes? The window
    /// shows the range at `off`.
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
