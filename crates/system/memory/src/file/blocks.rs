//! Blocks: page-aligned allocations of the program that consist of the file's pages from the
//! beginning.
//!
//! A block belongs to its allocator throughout:
//!
//! 1. The program's allocator hands out whole pages. Before the program knows the address, the
//!    file's pages replace these pages.
//! 2. When the program frees the block, ordinary pages replace the file's pages, and then the
//!    allocator frees the memory. A registered block stays until its last registration ends.
//!
//! So an allocator never has pages of the file to hand out. Even if the program frees a block
//! without our knowledge, the allocator finds its own memory there.
//!
//! The program's calls of `free` and `madvise` look into the table. So this file never allocates or
//! frees while it holds the table's lock.
use super::classes::HUGE;
use super::index::{HELD, MARKED};
use super::{BLOCKS_FROM, SPAN, SharedFile};
use crate::maps::Vma;
use crate::sys::{self, At, RW};
use std::ffi::c_int;
use std::sync::atomic::Ordering;
use thiserror::Error;

/// The largest number of blocks at one time; further allocations stay private.
const BLOCKS: usize = 4096;
/// The largest number of file ranges kept for reuse.
const RANGES: usize = 1024;
/// The smallest range of a block in bytes. The part of the range behind the block is the block's
/// gap.
const RANGE: u64 = 1 << 34;

/// A block.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Block {
    /// The address in the program.
    pub start: u64,
    /// The length in bytes, whole pages.
    pub len: u64,
    /// The offset of the block's range in the file.
    pub offset: u64,
    /// The length of the range in bytes.
    pub range: u64,
    /// The address of the device's own mapping; 0 for none yet.
    pub alias: u64,
    /// The number of registrations on the block.
    pub holds: u32,
    /// A registration of the block ended while peers had the file. A peer may still hold a window
    /// on the range, so no other block gets the range.
    pub exposed: bool,
    /// The program has freed the block while it was registered. The allocator gets the block when
    /// the last registration ends.
    pub owed: bool,
    /// The block was freed without our knowledge. Its address may belong to other memory by now.
    pub unmapped: bool,
    /// The program has asked for huge pages.
    pub huge: bool,
}

impl Block {
    fn end(&self) -> u64 {
        self.start + self.len
    }
}

/// The largest number of mappings of the file that a child gets copies of. By default a process
/// cannot have as many mappings. Untouched room costs nothing.
pub(super) const PIECES: usize = 1 << 17;

/// A part of a mapping of the file at the time of a fork.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub start: u64,
    pub end: u64,
    pub offset: u64,
    pub prot: c_int,
    pub zeroes: bool,
    /// The address of a second mapping, inherited by the child when the file's descriptor is
    /// closed; 0 for none.
    pub beside: u64,
}

/// All blocks, and the ranges of the file.
#[derive(Debug)]
pub(super) struct Table {
    pub blocks: Vec<Block>,
    /// Unused ranges of [`RANGE`] bytes, never seen by a peer.
    free: Vec<u64>,
    next: u64,
    pub advised: super::advice::Advised,
    /// The pieces for a child of `fork` to copy; filled before the fork.
    pub copies: Vec<Piece>,
}

impl Table {
    pub fn new() -> Self {
        Table {
            blocks: Vec::with_capacity(BLOCKS),
            free: Vec::with_capacity(RANGES),
            next: BLOCKS_FROM,
            advised: super::advice::Advised::new(),
            copies: Vec::with_capacity(PIECES),
        }
    }

    /// Bytes of all blocks.
    pub fn bytes(&self) -> u64 {
        self.blocks.iter().map(|block| block.len).sum()
    }

    /// The block with the file offset in its range.
    pub fn within(&self, offset: u64) -> Option<Block> {
        self.blocks.iter().find(|b| (b.offset..b.offset + b.range).contains(&offset)).copied()
    }

    /// The index of the block with the file offset in its range, among blocks that the program has
    /// not freed.
    pub fn having(&self, offset: u64) -> Option<usize> {
        let has =
            |b: &Block| !b.unmapped && !b.owed && (b.offset..b.offset + b.range).contains(&offset);
        self.blocks.iter().position(has)
    }

    /// Whether the address lies in the device's own mapping of a block.
    pub fn is_alias(&self, start: u64) -> bool {
        self.blocks.iter().any(|b| b.alias != 0 && (b.alias..b.alias + b.len).contains(&start))
    }

    /// The block containing the whole range.
    fn holding(&self, start: u64, end: u64) -> Option<usize> {
        self.blocks.iter().rposition(|b| b.start <= start && end <= b.end())
    }

    /// The block starting at an address, if the program has not freed it.
    fn beginning(&self, start: u64) -> Option<usize> {
        self.blocks.iter().rposition(|b| b.start == start && !b.unmapped && !b.owed)
    }

    fn take_range(&mut self, len: u64) -> Option<(u64, u64)> {
        let range = len.checked_next_power_of_two()?.checked_mul(2)?.max(RANGE);
        if range == RANGE
            && let Some(offset) = self.free.pop()
        {
            return Some((offset, range));
        }
        let end = self.next.checked_add(range).filter(|end| *end <= SPAN)?;
        let offset = std::mem::replace(&mut self.next, end);
        Some((offset, range))
    }

    fn give_range(&mut self, block: &Block) {
        let skew = block.offset % HUGE;
        if !block.exposed && block.range + skew == RANGE && self.free.len() < self.free.capacity() {
            self.free.push(block.offset - skew);
        }
    }
}

/// Why memory is not in the file. Peers reach private memory by system calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Private {
    /// Sharing is off, or no preload hands out memory.
    #[error("no allocations are shared (not started by adverb run, or ADVERB_ADOPT=off)")]
    Off,
    /// No page-aligned allocation of the program contains all of the memory.
    #[error(
        "not a page-aligned allocation (posix_memalign, aligned_alloc) made after the request for \
         the device list"
    )]
    NoBlock,
    /// The program has mapped other memory there since.
    #[error("the program has mapped other memory there after the allocation")]
    Replaced,
    /// The kernel refuses a mapping.
    #[error("the kernel refuses a mapping: {}", .0.desc())]
    Kernel(nix::errno::Errno),
}

impl Private {
    /// The reason as one word, for a counter.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Private::Off => "off",
            Private::NoBlock => "not_aligned",
            Private::Replaced => "replaced",
            Private::Kernel(_) => "kernel",
        }
    }
}

/// Registered memory in the file.
#[derive(Debug)]
pub struct Placed {
    /// The address in the device's own mapping, which the program cannot unmap.
    pub addr: u64,
    /// The offset in the file.
    pub offset: u64,
    /// Keeps the block in the file.
    pub hold: Hold,
}

/// A registration on a block.
#[derive(Debug)]
#[must_use = "dropped, the block may go"]
pub struct Hold {
    file: &'static SharedFile,
    offset: u64,
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.file.is_stale() {
            return;
        }
        let mut table = self.file.table();
        let Some(at) = table.blocks.iter().position(|b| b.offset == self.offset) else { return };
        table.blocks[at].holds -= 1;
        table.blocks[at].exposed |= super::has_peers();
        let block = table.blocks[at];
        if block.holds > 0 {
            return;
        }
        if let Some(about) =
            self.file.index.find(block.start).filter(|_| !block.unmapped && !block.owed)
        {
            about.clear(HELD);
        }
        if block.unmapped {
            self.file.retire_if_unmapped(&mut table, at);
        } else if block.owed && self.file.make_ordinary(&mut table, at) {
            drop(table);
            super::allocator::free(block.start, block.len);
        }
    }
}

impl SharedFile {
    /// Turns fresh memory of the program into a block: pages of the file replace its pages. Returns
    /// `false` if the memory stays private.
    ///
    /// # Safety
    /// The range consists of whole pages of private anonymous memory. It was just allocated, and
    /// only the caller knows of it. Its contents are lost.
    pub unsafe fn share_fresh(&'static self, start: u64, len: u64) -> bool {
        if !self.sharing.load(Ordering::Acquire) || self.is_stale() || len == 0 {
            return false;
        }
        let mut table = self.table();
        self.forget_overlapping(&mut table, start, start + len);
        if table.blocks.len() == table.blocks.capacity() || !self.index.add(start, len) {
            return false;
        }
        let Some((offset, range)) = table.take_range(len) else {
            self.index.remove(start);
            return false;
        };
        // The offset equals the address modulo the huge page size, so huge pages lie as in private
        // memory.
        let skew = start % HUGE;
        let block =
            Block { start, len, offset: offset + skew, range: range - skew, ..Block::default() };
        let from = Some((self.raw_fd(), block.offset));
        // SAFETY: the caller's range; a failed mapping leaves the old mapping in place.
        let mapped = unsafe { sys::map(At::Over(start), len, RW, libc::MAP_SHARED, from) };
        if mapped.is_err() {
            self.index.remove(start);
            table.give_range(&block);
            return false;
        }
        // SAFETY: affects only children. A child made without our handlers then has no such pages,
        // instead of its parent's.
        let _ = unsafe { sys::advise(start, len, libc::MADV_DONTFORK) };
        table.blocks.push(block);
        true
    }

    /// The length of the block starting at an address; 0 if there is no such block. At least 1 in a
    /// child without its parent's block at this address.
    #[must_use]
    pub fn block_at(&'static self, start: u64) -> u64 {
        match self.index.find(start) {
            Some(about) => about.len(),
            None => self.is_missing(start).into(),
        }
    }

    /// The program no longer has the block: it has freed the block, with our knowledge (`owed`) or
    /// without.
    fn part_with(&self, block: &mut Block, owed: bool) {
        self.index.remove(block.start);
        (block.owed, block.unmapped) = (block.owed || owed, block.unmapped || !owed);
    }

    /// Whether nothing is mapped at an address in a process with an ancestor that had such a file.
    /// A child made without our handlers has no pages of its parent's blocks, and its allocator
    /// must not access them.
    pub(crate) fn is_missing(&self, start: u64) -> bool {
        self.process.is_child() && !sys::is_mapped(start)
    }

    /// Called before the memory at `start` is freed; `usable` is the allocator's size of the
    /// memory. Turns a block into ordinary pages. Returns `false` if the allocator must not free
    /// the memory now, because the block is registered or could not be changed. The allocator gets
    /// such a block later.
    pub fn release(&'static self, start: u64, usable: u64) -> bool {
        if self.is_stale() {
            return true;
        }
        let mut table = self.table();
        let Some(at) = table.beginning(start) else { return !self.is_missing(start) };
        let block = table.blocks[at];
        if usable < block.len {
            // Other, shorter memory starts here now: not ours to change.
            self.part_with(&mut table.blocks[at], false);
            return true;
        }
        if block.holds > 0 {
            self.part_with(&mut table.blocks[at], true);
            return false;
        }
        self.make_ordinary(&mut table, at)
    }

    /// Replaces a block's pages by private pages, and removes the block from the table.
    pub(super) fn make_ordinary(&'static self, table: &mut Table, at: usize) -> bool {
        let block = table.blocks[at];
        // With the whole block in place, no part can be mapped elsewhere, except by a second
        // mapping of the whole block made by the program.
        let whole = self.maps_straight(&block, block.start, block.end());
        let mut failed = false;
        // Memory that the program mapped there itself stays.
        self.each_own(block.start, block.end(), |vma| {
            // SAFETY: the program gives these pages up, and its allocator accepts any contents.
            failed |= unsafe { sys::map_zeroes(vma.start, vma.len(), RW) }.is_err();
        });
        self.part_with(&mut table.blocks[at], failed);
        if failed {
            return false;
        }
        if whole {
            self.retire(table, at);
        } else {
            self.retire_if_unmapped(table, at);
        }
        true
    }

    /// Copies the first `len` bytes of a block to new memory, and touches only the pages with data.
    /// Returns the number of bytes copied: 0 without such a block, if the program has mapped other
    /// memory there, or if the descriptor is closed.
    pub fn copy_touched(&'static self, start: u64, to: u64, len: u64) -> u64 {
        let table = self.table();
        let Some(at) = table.beginning(start) else { return 0 };
        let block = table.blocks[at];
        drop(table);
        let (fd, len) = (self.raw_fd(), len.min(block.len));
        if fd < 0 || !self.maps_straight(&block, start, start + len) {
            return 0;
        }
        clear(to, len);
        if super::data::fill(fd, to, block.offset, len) { len } else { 0 }
    }

    /// Marks the block at a file offset: when freed, it goes back to its allocator instead of the
    /// pool.
    pub(super) fn mark(&self, table: &Table, offset: u64) {
        if let Some(at) = table.having(offset) {
            self.index.mark(table.blocks[at].start, MARKED);
        }
    }

    /// Whether the block containing an address is registered.
    pub fn holds(&'static self, addr: u64) -> bool {
        let vma = self.maps.first(addr, addr.saturating_add(1)).filter(|vma| vma.shares(self.id));
        let block = vma.and_then(|vma| self.table().within(vma.offset + (addr - vma.start)));
        block.is_some_and(|block| block.holds > 0)
    }

    /// Makes memory private on which a thread or a child is about to run. The contents stay.
    /// Registered blocks stay blocks.
    pub fn run_on(&'static self, start: u64, len: u64) {
        let end = start.saturating_add(len);
        let table = self.table();
        for block in
            table.blocks.iter().filter(|b| b.start < end && b.end() > start && b.holds == 0)
        {
            self.index.mark(block.start, MARKED);
            self.each_own(block.start, block.end(), |vma| self.make_own(vma));
        }
    }

    /// Finds the block of a registration, and keeps the block in the file.
    ///
    /// # Errors
    /// Why the memory stays private.
    pub fn place(&'static self, addr: u64, len: u64) -> Result<Placed, Private> {
        if !self.sharing.load(Ordering::Acquire) || self.is_stale() {
            return Err(Private::Off);
        }
        let end = addr.checked_add(len).filter(|end| *end > addr).ok_or(Private::NoBlock)?;
        let mut table = self.table();
        let Some(at) = table.holding(addr, end) else {
            if addr.is_multiple_of(crate::page_size()) {
                self.credit.give(len);
            }
            return Err(Private::NoBlock);
        };
        let block = table.blocks[at];
        if !self.maps_straight(&block, addr, end) {
            return Err(Private::Replaced);
        }
        if block.alias == 0 {
            let from = (self.raw_fd(), block.offset);
            let align = if block.huge { HUGE } else { crate::page_size() };
            // SAFETY: a new mapping at an address of the kernel's choice; neither advice changes
            // contents.
            unsafe {
                let alias = sys::map_aligned(block.len, align, block.offset % align, from)
                    .map_err(Private::Kernel)?;
                for advice in [libc::MADV_DONTFORK, libc::MADV_DONTDUMP] {
                    let _ = sys::advise(alias, block.len, advice);
                }
                table.blocks[at].alias = alias;
            }
        }
        let block = &mut table.blocks[at];
        block.holds += 1;
        if let Some(about) = self.index.find(block.start).filter(|_| !block.unmapped) {
            about.set(HELD);
            self.credit.give(block.len);
        }
        let skip = addr - block.start;
        let hold = Hold { file: self, offset: block.offset };
        let block = *block;
        drop(table);
        if block.huge {
            self.collapse(&block);
        }
        Ok(Placed { addr: block.alias + skip, offset: block.offset + skip, hold })
    }

    /// Whether the kernel maps exactly the block's part of the file at all of `[start, end)`,
    /// shared.
    fn maps_straight(&self, block: &Block, start: u64, end: u64) -> bool {
        let mut at = start;
        let straight = |vma: &Vma| {
            vma.shares(self.id)
                && vma.offset.wrapping_sub(vma.start) == block.offset.wrapping_sub(block.start)
        };
        let walked = self.maps.walk(start, end, |vma| {
            let fits = vma.start <= at && straight(vma);
            at = if fits { vma.end } else { at };
            fits
        });
        walked.is_ok() && at >= end
    }

    /// Newly allocated memory cannot be part of an older block, so such a block was freed without
    /// our knowledge.
    fn forget_overlapping(&'static self, table: &mut Table, start: u64, end: u64) {
        let mut at = 0;
        while at < table.blocks.len() {
            let block = table.blocks[at];
            if block.start < end && block.end() > start {
                self.part_with(&mut table.blocks[at], false);
                if block.holds == 0 && self.retire_if_unmapped(table, at) {
                    continue;
                }
            }
            at += 1;
        }
    }

    /// Frees the memory of a freed block if the program has no mapping of the block left.
    fn retire_if_unmapped(&'static self, table: &mut Table, at: usize) -> bool {
        let block = table.blocks[at];
        let mut mapped = false;
        let looked = self.maps.files(|vma| {
            let overlaps = vma.shows(block.offset, block.offset + block.range);
            mapped |= vma.file == self.id && overlaps && vma.start != block.alias;
        });
        let unmapped = looked.is_ok() && !mapped;
        if unmapped {
            self.retire(table, at);
        }
        unmapped
    }

    fn retire(&'static self, table: &mut Table, at: usize) {
        let block = table.blocks.remove(at);
        if block.alias != 0 {
            // SAFETY: the device's own mapping; without a registration no thread uses it.
            let _ = unsafe { sys::unmap(block.alias, block.len) };
        }
        table.advised.forget(block.offset, block.offset + block.range);
        // Together with the gap, because the program may have grown the block into the gap.
        let _ = sys::punch(self.raw_fd(), block.offset, block.range);
        table.give_range(&block);
    }
}

/// Zeroes new memory. Bytes that are zero already are only read, which allocates no page.
fn clear(to: u64, len: u64) {
    let (mut at, end) = (to, to + len);
    while at < end {
        let n = (end - at).min(4096);
        // SAFETY: memory of the caller, not known to any other code yet.
        unsafe {
            if std::slice::from_raw_parts(at as *const u8, n as usize).iter().any(|b| *b != 0) {
                std::ptr::write_bytes(at as *mut u8, 0, n as usize);
            }
        }
        at += n;
    }
}
