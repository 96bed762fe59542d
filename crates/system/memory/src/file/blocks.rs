//! Blocks: page-aligned allocations of the program that are made of the file's pages from birth.
//!
//! A block stays its allocator's. It is handed out by the allocator that the program has, of whole
//! pages, and only then are its pages replaced by the file's, before the program knows the address.
//! It goes back the same way: its pages become ordinary ones, and then its allocator frees it; one
//! that is registered stays until its last registration ends. So an allocator never has pages of
//! the file to hand out, and whichever way a program frees a block, past us or not, its allocator
//! finds memory of its own.
//!
//! The table is looked at from inside the program's calls of `free` and `madvise`. Nothing here
//! allocates or frees while it holds the table's lock.
use super::classes::HUGE;
use super::index::{HELD, MARKED};
use super::{BLOCKS_FROM, SPAN, SharedFile};
use crate::maps::Vma;
use crate::sys::{self, At, RW};
use std::ffi::c_int;
use std::fmt;
use std::sync::atomic::Ordering;

/// Blocks that live at one time; further ones stay private.
const BLOCKS: usize = 4096;
/// Ranges of the file kept to be used again.
const RANGES: usize = 1024;
/// Bytes of the least range a block gets; all behind the block is its gap.
const RANGE: u64 = 1 << 34;

/// A block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    /// Its address in the program.
    pub start: u64,
    /// Its bytes, whole pages.
    pub len: u64,
    /// Where its range of the file begins.
    pub offset: u64,
    /// Bytes of the range.
    pub range: u64,
    /// The device's own mapping of it; 0 for none yet.
    pub alias: u64,
    /// Registrations that stand on it.
    pub holds: u32,
    /// A key was made for it: a peer may hold a window on its range, which nobody else gets any
    /// more.
    pub exposed: bool,
    /// Its program has freed it while it was registered: its allocator gets it when the last
    /// registration ends.
    pub owed: bool,
    /// It was freed past us: what is at its address may be another's.
    pub gone: bool,
    /// Its program has asked for huge pages.
    pub huge: bool,
}

impl Block {
    fn end(&self) -> u64 {
        self.start + self.len
    }
}

/// Mappings of the file that a child gets a copy of; more than a process may have by default. Room
/// that nobody touches costs nothing.
pub(super) const PIECES: usize = 1 << 17;

/// A mapping of the file as of the fork.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub start: u64,
    pub end: u64,
    pub offset: u64,
    pub prot: c_int,
    pub zeroes: bool,
    /// A second mapping, which the child inherits, where the file's descriptor is gone; 0 for none.
    pub beside: u64,
}

/// All blocks, and the ranges of the file.
#[derive(Debug)]
pub(super) struct Table {
    blocks: Vec<Block>,
    /// Ranges of [`RANGE`] bytes that no peer ever saw.
    free: Vec<u64>,
    next: u64,
    pub advised: super::advice::Advised,
    /// What a child of `fork` is to copy; filled before the fork.
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

    /// The block whose range of the file an offset lies in.
    pub fn within(&self, offset: u64) -> Option<Block> {
        self.blocks.iter().find(|b| (b.offset..b.offset + b.range).contains(&offset)).copied()
    }

    /// Which block that its program has a place in the file belongs to.
    pub fn having(&self, offset: u64) -> Option<usize> {
        let has = |b: &Block| !b.gone && !b.owed && (b.offset..b.offset + b.range).contains(&offset);
        self.blocks.iter().position(has)
    }

    /// The block at a place in the table.
    pub fn block_mut(&mut self, at: usize) -> &mut Block {
        &mut self.blocks[at]
    }

    /// No block?
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Does the device map the file here for itself?
    pub fn is_alias(&self, start: u64) -> bool {
        self.blocks.iter().any(|b| b.alias != 0 && (b.alias..b.alias + b.len).contains(&start))
    }

    /// The block that holds the whole range.
    fn holding(&self, start: u64, end: u64) -> Option<usize> {
        let at = self.blocks.iter().rposition(|b| b.start <= start && end <= b.end())?;
        Some(at)
    }

    /// The block that begins at an address and that its program has.
    fn beginning(&self, start: u64) -> Option<usize> {
        self.blocks.iter().rposition(|b| b.start == start && !b.gone && !b.owed)
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

/// Why memory is not in the file: peers reach it by system calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Private {
    /// Sharing is off, or no preload hands memory out.
    Off,
    /// No page-aligned allocation of the program's holds all of it.
    NoBlock,
    /// The program has mapped something else there since.
    Replaced,
    /// The kernel refuses a mapping.
    Kernel(nix::errno::Errno),
}

impl Private {
    /// One word, for a counter.
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

impl fmt::Display for Private {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Private::Off => f.write_str("no allocations are shared (not started by adverb run, or ADVERB_ADOPT=off)"),
            Private::NoBlock => {
                f.write_str("it is no page-aligned allocation (posix_memalign, aligned_alloc) made since the device list was asked for")
            }
            Private::Replaced => f.write_str("the program has mapped something else there since it was allocated"),
            Private::Kernel(errno) => write!(f, "the kernel refuses a mapping: {}", errno.desc()),
        }
    }
}

/// Registered memory that lies in the file.
#[derive(Debug)]
pub struct Placed {
    /// The device's own address of it, which the program cannot take away.
    pub addr: u64,
    /// Where it is in the file.
    pub offset: u64,
    /// Keeps it there.
    pub hold: Hold,
}

/// A registration that stands on a block.
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
        if let Some(about) = self.file.index.find(block.start).filter(|_| !block.gone && !block.owed) {
            about.clear(HELD);
        }
        if block.gone {
            self.file.retire_if_gone(&mut table, at);
        } else if block.owed && self.file.make_ordinary(&mut table, at) {
            drop(table);
            super::allocator::free(block.start, block.len);
        }
    }
}

impl SharedFile {
    /// Makes fresh memory of the program's a block: its pages become pages of the file. `false`: it
    /// stays as it is.
    ///
    /// # Safety
    /// The range is whole pages of memory that was just allocated, of which nobody but the caller
    /// knows, and which is private and anonymous; its contents are lost.
    pub unsafe fn share_fresh(&'static self, start: u64, len: u64) -> bool {
        if !self.sharing.load(Ordering::Acquire) || self.is_stale() || len == 0 {
            return false;
        }
        let mut table = self.table();
        self.forget_overlapping(&mut table, start, start + len);
        if table.blocks.len() == table.blocks.capacity() {
            return false;
        }
        if !self.index.add(start, len) {
            return false;
        }
        let Some((offset, range)) = table.take_range(len) else {
            self.index.remove(start);
            return false;
        };
        // Huge pages are where they would be in private memory: both lie on multiples.
        let skew = start % HUGE;
        let block = Block {
            start,
            len,
            offset: offset + skew,
            range: range - skew,
            alias: 0,
            holds: 0,
            exposed: false,
            owed: false,
            gone: false,
            huge: false,
        };
        // SAFETY: the caller's range; a mapping that fails leaves the old one in place.
        let mapped = unsafe {
            sys::map(At::Over(start), len, RW, libc::MAP_SHARED, Some((self.raw_fd(), block.offset)))
        };
        if mapped.is_err() {
            self.index.remove(start);
            table.give_range(&block);
            return false;
        }
        // A child that no handler of ours sees has no such pages, rather than its parent's.
        // SAFETY: concerns children alone.
        let _ = unsafe { sys::advise(start, len, libc::MADV_DONTFORK) };
        table.blocks.push(block);
        true
    }

    /// Bytes of the block that begins at an address; 0 if none does. One at least where a child
    /// misses one of its parent's.
    #[must_use]
    pub fn block_at(&'static self, start: u64) -> u64 {
        match self.index.find(start) {
            Some(about) => about.len(),
            None => self.is_missing(start).into(),
        }
    }

    /// The program does not have a block any more: it has freed it, here or past us.
    fn part_with(&self, block: &mut Block, owed: bool) {
        self.index.remove(block.start);
        (block.owed, block.gone) = (block.owed || owed, block.gone || !owed);
    }

    /// Is there nothing at an address, in a process that descends from one that had this file, or
    /// another? A child that no handler saw has no page of its parent's blocks, and its allocator
    /// is not to look at one.
    pub(crate) fn is_missing(&self, start: u64) -> bool {
        self.life.is_child() && !sys::is_mapped(start)
    }

    /// The memory that begins at an address is about to be freed; `usable` is what its allocator
    /// says of its bytes. If it is a block its pages become ordinary ones. `false`: it is
    /// registered, or could not be changed, and is not to be freed: its allocator gets it later.
    pub fn release(&'static self, start: u64, usable: u64) -> bool {
        if self.is_stale() {
            return true;
        }
        let mut table = self.table();
        let Some(at) = table.beginning(start) else { return !self.is_missing(start) };
        let block = table.blocks[at];
        if usable < block.len {
            // What is here now is another: not ours to change.
            self.part_with(&mut table.blocks[at], false);
            return true;
        }
        if block.holds > 0 {
            self.part_with(&mut table.blocks[at], true);
            return false;
        }
        self.make_ordinary(&mut table, at)
    }

    /// Makes a block's pages private ones, and forgets the block.
    pub(super) fn make_ordinary(&'static self, table: &mut Table, at: usize) -> bool {
        let block = table.blocks[at];
        // Nothing of it can be elsewhere, short of a second mapping that the program made of a
        // whole block.
        let whole = self.maps_straight(&block, block.start, block.end());
        let mut failed = false;
        // What the program has mapped there itself stays.
        self.each_own(block.start, block.end(), |vma| {
            // SAFETY: the program gives these pages up, and its allocator takes any contents.
            let private =
                unsafe { sys::map(At::Over(vma.start), vma.end - vma.start, RW, libc::MAP_PRIVATE, None) };
            failed |= private.is_err();
        });
        self.part_with(&mut table.blocks[at], failed);
        if failed {
            return false;
        }
        if whole {
            self.retire(table, at);
        } else {
            self.retire_if_gone(table, at);
        }
        true
    }

    /// Copies the beginning of a block to new memory, of which it touches what it must; answers how
    /// many bytes that were. None, if the program has mapped something else there, or the
    /// descriptor is gone.
    pub fn copy_touched(&'static self, start: u64, to: u64, len: u64) -> u64 {
        let table = self.table();
        let Some(at) = table.beginning(start) else { return 0 };
        let block = table.blocks[at];
        drop(table);
        let (fd, len) = (self.raw_fd(), len.min(block.len));
        let straight = fd >= 0 && self.maps_straight(&block, start, start + len);
        if !straight {
            return 0;
        }
        clear(to, len);
        if super::data::fill(fd, to, block.offset, len) { len } else { 0 }
    }

    /// Has the block that a place in the file belongs to go back to its allocator when it is freed.
    pub(super) fn mark(&self, table: &Table, offset: u64) {
        if let Some(at) = table.having(offset) {
            self.index.mark(table.blocks[at].start, MARKED);
        }
    }

    /// Is a registration on the block that an address lies in?
    pub fn holds(&'static self, addr: u64) -> bool {
        let mut offset = None;
        let _ = self.maps.walk(addr, addr.saturating_add(1), |vma| {
            offset = vma.is_of(self.id).then(|| vma.offset + (addr - vma.start));
            false
        });
        offset.is_some_and(|offset| self.table().within(offset).is_some_and(|block| block.holds > 0))
    }

    /// A thread or a child is to run on memory: it becomes private, unless it is registered, and
    /// keeps its contents.
    pub fn run_on(&'static self, start: u64, len: u64) {
        let end = start.saturating_add(len);
        let table = self.table();
        for block in table.blocks.iter().filter(|b| b.start < end && b.end() > start && b.holds == 0) {
            self.index.mark(block.start, MARKED);
            self.each_own(block.start, block.end(), |vma| self.make_own(vma));
        }
    }

    /// Finds the block that a registration lies in, and keeps it.
    ///
    /// # Errors
    /// Why the memory is reached in another way.
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
        if let Some(about) = self.index.find(block.start).filter(|_| !block.gone) {
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

    /// Does the kernel map the block's part of the file at `[start, end)`, all of it, shared?
    fn maps_straight(&self, block: &Block, start: u64, end: u64) -> bool {
        let mut at = start;
        let straight = |vma: &Vma| {
            vma.is_of(self.id) && vma.offset.wrapping_sub(vma.start) == block.offset.wrapping_sub(block.start)
        };
        let walked = self.maps.walk(start, end, |vma| {
            let fits = vma.start <= at && straight(vma);
            at = if fits { vma.end } else { at };
            fits
        });
        walked.is_ok() && at >= end
    }

    /// Memory that an allocator hands out anew cannot be of an older block: that was freed past us.
    fn forget_overlapping(&'static self, table: &mut Table, start: u64, end: u64) {
        let mut at = 0;
        while at < table.blocks.len() {
            let block = table.blocks[at];
            if block.start < end && block.end() > start {
                self.part_with(&mut table.blocks[at], false);
                if block.holds == 0 && self.retire_if_gone(table, at) {
                    continue;
                }
            }
            at += 1;
        }
    }

    /// Gives the memory of a freed block back if the program maps it nowhere any more.
    fn retire_if_gone(&'static self, table: &mut Table, at: usize) -> bool {
        let block = table.blocks[at];
        let mut mapped = false;
        let looked = self.maps.files(|vma| {
            let overlaps =
                vma.offset < block.offset + block.range && vma.offset + (vma.end - vma.start) > block.offset;
            mapped |= vma.is_of_file(self.id) && overlaps && vma.start != block.alias;
        });
        let gone = looked.is_ok() && !mapped;
        if gone {
            self.retire(table, at);
        }
        gone
    }

    fn retire(&'static self, table: &mut Table, at: usize) {
        let block = table.blocks.remove(at);
        if block.alias != 0 {
            // SAFETY: our own mapping; with no registration left nobody uses it.
            let _ = unsafe { sys::unmap(block.alias, block.len) };
        }
        table.advised.forget(block.offset, block.offset + block.range);
        // With the gap: the program may have grown into it.
        let _ = sys::punch(self.raw_fd(), block.offset, block.range);
        table.give_range(&block);
    }
}

/// Makes zeroes of new memory. What is zero already is only read, which brings no page in.
fn clear(to: u64, len: u64) {
    let (mut at, end) = (to, to + len);
    while at < end {
        let n = (end - at).min(4096);
        // SAFETY: memory of the caller's, which nobody else knows of yet.
        unsafe {
            if std::slice::from_raw_parts(at as *const u8, n as usize).iter().any(|b| *b != 0) {
                std::ptr::write_bytes(at as *mut u8, 0, n as usize);
            }
        }
        at += n;
    }
}
