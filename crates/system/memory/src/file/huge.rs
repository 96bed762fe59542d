//! Huge pages for blocks.
//!
//! The kernel gives huge pages to private memory, but mostly not to pages of the file
//! (`shmem_enabled`). So a request for huge pages (`MADV_HUGEPAGE`) for a block has one of two
//! effects:
//!
//! * The program has registered no memory of this class: the block becomes private memory. No data
//!   is lost, because the block is not registered, holds nothing yet, and no other thread can write
//!   to it meanwhile. Further allocations of the class stay private until one of them is
//!   registered.
//! * Otherwise the block stays a block. When the block is registered, its present pages are merged
//!   into huge pages (`MADV_COLLAPSE`).
use super::SharedFile;
use super::blocks::Block;
use super::classes::{HUGE, class};
use super::data::each_data;
use super::index::{HELD, MARKED};
use crate::maps::Vma;
use crate::{sys, text};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// `MADV_COLLAPSE` (Linux 6.1).
const COLLAPSE: i32 = 25;

/// The device's own threads, each with its process id, because a child of `fork` does not have
/// these threads. They never write to unregistered memory.
static OURS: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];
/// All memory of the program is registered, and others may write to any of it.
static OPEN: AtomicBool = AtomicBool::new(false);

/// A number for a thread of this process.
fn name(thread: u64) -> u64 {
    (u64::from(sys::pid()) << 32) | thread
}

/// The kernel's number of this thread.
fn this_thread() -> u64 {
    // SAFETY: no preconditions.
    unsafe { sys::call(libc::SYS_gettid, [0; 6]) }.unwrap_or(0)
}

/// Marks the current thread as the device's own, while the value lives.
#[derive(Debug)]
#[must_use = "dropped, the thread counts as the program's"]
pub struct OwnThread(Option<&'static AtomicU64>);

impl OwnThread {
    /// Marks the calling thread as the device's own.
    pub fn this() -> Self {
        let me = name(this_thread());
        let takes = |place: &&AtomicU64| {
            place.compare_exchange(0, me, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        };
        OwnThread(OURS.iter().find(takes))
    }
}

impl Drop for OwnThread {
    fn drop(&mut self) {
        if let Some(place) = self.0 {
            place.store(0, Ordering::Relaxed);
        }
    }
}

/// Records that others may write to memory of the program outside of registered blocks.
pub fn all_memory_is_open() {
    OPEN.store(true, Ordering::Release);
}

/// Whether only this thread can write to unregistered memory.
fn is_alone() -> bool {
    let me = this_thread();
    let (mut seen_me, mut others) = (false, false);
    text::numbers_in(c"/proc/self/task", |id| {
        seen_me |= id == me;
        others |= id != me && !OURS.iter().any(|ours| ours.load(Ordering::Relaxed) == name(id));
    });
    seen_me && !others && !OPEN.load(Ordering::Acquire)
}

impl SharedFile {
    /// Handles the program's request for huge pages where a block is mapped; `vma` is of the file.
    pub(super) fn want_huge(&'static self, vma: &Vma) {
        let mut table = self.table();
        let Some(at) = table.having(vma.offset) else { return };
        let block = &mut table.blocks[at];
        if block.holds > 0 || block.len < HUGE {
            return;
        }
        block.huge = true;
        let block = *block;
        if !self.credit.take_all(block.len) {
            return;
        }
        let plain = self.index.find(block.start).is_some_and(|about| !about.has(HELD | MARKED));
        let is_empty =
            || each_data(self.raw_fd(), block.offset, block.offset + block.len, |_, _| false);
        if plain && is_alone() && self.is_as_made(block.start, block.len) && is_empty() {
            self.make_ordinary(&mut table, at);
        }
        drop(table);
        self.empty(class(block.len));
    }

    /// Merges the present pages of a registered block into huge pages, for each whole huge page. If
    /// the kernel refuses, the pages stay as they are.
    pub(super) fn collapse(&self, block: &Block) {
        each_data(self.raw_fd(), block.offset, block.offset + block.len, |from, until| {
            let (from, until) = (from.next_multiple_of(HUGE), until & !(HUGE - 1));
            if from < until {
                let start = block.alias + (from - block.offset);
                // SAFETY: the device's own mapping of the block; the bytes stay.
                let _ = unsafe { sys::advise(start, until - from, COLLAPSE) };
            }
            true
        });
    }
}
