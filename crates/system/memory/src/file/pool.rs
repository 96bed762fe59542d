//! Freed blocks, kept for the next allocations.
//!
//! Creating and ending a block costs several system calls. The pool keeps freed blocks unchanged:
//! the program's allocator still counts them as allocated, and the next allocation of the same
//! class gets one without a system call. The pool is bounded ([`BOUND`]). A block without room in
//! the pool goes back to its allocator, and so do all blocks of a class without credit
//! ([`Credit`]).
//!
//! The pool has shards, each with a lock. A thread starts at its own shard, and takes the first
//! free lock. Lock order: a shard's lock before the table's lock, never after it. Under a shard's
//! lock no code allocates, frees or makes a system call. A signal handler may interrupt a thread
//! that holds such a lock: for this thread the pool is then empty.
//!
//! [`Credit`]: super::classes::Credit
use super::SharedFile;
use super::classes::class;
use super::index::{HELD, Index, MARKED, POOLED};
use crate::maps::{READ, WRITE};
use crate::sys::{self, At, RW};
use nix::errno::Errno;
use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// The limit for the bytes of all blocks in the pool.
pub(super) const BOUND: u64 = 32 << 20;
/// The largest block in the pool, in bytes.
const LARGEST: u64 = 8 << 20;
/// The largest number of blocks of a class in a shard.
const DEPTH: usize = 64;
const SHARDS: usize = 8;
/// A shard reserves bytes of [`BOUND`] in units of at least this size, and keeps one unit beyond
/// its blocks.
const PIECE: u64 = 1 << 20;
/// The number of classes up to the class of [`LARGEST`].
const LISTS: usize = 41;
/// The number of blocks checked for a suitable alignment.
const LOOKS: usize = 8;
/// From this length on, an allocator may give a block its own mapping, and the program may have
/// changed the mapping before freeing the block (`M_MMAP_THRESHOLD`). So the kernel is asked
/// whether the mapping is unchanged.
const ASKED: u64 = 128 << 10;

/// The pool.
pub(super) struct Pool {
    shards: &'static [Shard],
    /// Bytes of [`BOUND`] reserved by shards.
    granted: AtomicU64,
}

/// A part of the pool.
#[repr(align(128))]
struct Shard {
    lock: OwnedLock,
    /// The number of blocks in each list, to be read without the lock.
    counts: [AtomicUsize; LISTS],
    /// Accessed only by the thread holding the lock.
    lists: UnsafeCell<Lists>,
}

// SAFETY: `lists` is accessed only under the lock.
unsafe impl Sync for Shard {}

struct Lists {
    bytes: u64,
    /// Bytes reserved by the shard.
    granted: u64,
    blocks: [[Kept; DEPTH]; LISTS],
}

/// A lock with the holding thread in its word. One compare-exchange takes the lock and one store
/// releases the lock, so a signal handler always sees whether its thread holds the lock.
#[derive(Debug)]
struct OwnedLock {
    owner: AtomicUsize,
    /// The number of threads that sleep or are about to.
    waiters: AtomicU32,
    /// Incremented by a release while threads sleep.
    turn: AtomicU32,
}

impl OwnedLock {
    /// Takes the lock if it is free. `Err` says whether this thread holds it already.
    fn try_take(&self) -> Result<(), bool> {
        let me = super::this_thread();
        let taken = self.owner.compare_exchange(0, me, Ordering::SeqCst, Ordering::SeqCst);
        taken.map(drop).map_err(|owner| owner == me)
    }

    /// Waits for the lock. Returns `false` if this thread holds it already.
    fn take(&self) -> bool {
        /// Attempts before the thread sleeps.
        const SPINS: usize = 100;
        let mut looks = 0;
        loop {
            match self.try_take() {
                Ok(()) => return true,
                Err(true) => return false,
                Err(false) if looks < SPINS => std::hint::spin_loop(),
                Err(false) => self.sleep(),
            }
            looks += 1;
        }
    }

    /// Sleeps until the lock is released.
    ///
    /// 1. This thread increments `waiters`.
    /// 2. It reads `turn`.
    /// 3. It reads `owner` again, and returns if the lock is free.
    /// 4. It sleeps while `turn` is unchanged.
    ///
    /// The releasing thread stores `owner` and then reads `waiters`. All accesses are SeqCst, so at
    /// least one of the two threads sees the other.
    fn sleep(&self) {
        self.waiters.fetch_add(1, Ordering::SeqCst);
        let turn = self.turn.load(Ordering::SeqCst);
        if self.owner.load(Ordering::SeqCst) != 0 {
            self.futex(libc::FUTEX_WAIT, turn);
        }
        self.waiters.fetch_sub(1, Ordering::SeqCst);
    }

    fn let_go(&self) {
        self.owner.store(0, Ordering::SeqCst);
        if self.waiters.load(Ordering::SeqCst) > 0 {
            self.turn.fetch_add(1, Ordering::SeqCst);
            self.futex(libc::FUTEX_WAKE, 1);
        }
    }

    fn futex(&self, what: i32, value: u32) {
        let what = (what | libc::FUTEX_PRIVATE_FLAG) as u64;
        // SAFETY: the word lives as long as the process; no timeout is given.
        let _ = unsafe {
            sys::call(libc::SYS_futex, [self.turn.as_ptr() as u64, what, value.into(), 0, 0, 0])
        };
    }
}

/// The lists, for the thread holding the lock.
struct Locked(&'static Shard);

impl Deref for Locked {
    type Target = Lists;
    fn deref(&self) -> &Lists {
        // SAFETY: this thread holds the lock, and has no other guard.
        unsafe { &*self.0.lists.get() }
    }
}

impl DerefMut for Locked {
    fn deref_mut(&mut self) -> &mut Lists {
        // SAFETY: as above.
        unsafe { &mut *self.0.lists.get() }
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        self.0.lock.let_go();
    }
}

/// A block in the pool: the address, and in the low bits of the page-aligned address the length in
/// units of 4 KiB.
#[derive(Clone, Copy, Debug)]
struct Kept(u64);

impl Kept {
    fn new(start: u64, len: u64) -> Self {
        Kept(start | (len >> 12))
    }
    fn start(self) -> u64 {
        self.0 & !4095
    }
    fn len(self) -> u64 {
        (self.0 & 4095) << 12
    }
}

impl Shard {
    fn count(&self, list: usize) -> usize {
        self.counts[list].load(Ordering::Relaxed)
    }

    /// Takes the newest block of a list for which `fits(address, length)` is true.
    fn pop(&self, lists: &mut Lists, list: usize, fits: impl Fn(u64, u64) -> bool) -> Option<Kept> {
        let (count, blocks) = (self.count(list), &mut lists.blocks[list]);
        let fits = |at: &usize| fits(blocks[*at].start(), blocks[*at].len());
        let found = (count.saturating_sub(LOOKS)..count).rev().find(fits)?;
        let block = blocks[found];
        blocks[found] = blocks[count - 1];
        lists.bytes -= block.len();
        self.counts[list].store(count - 1, Ordering::Relaxed);
        Some(block)
    }
}

impl Pool {
    /// Room for all shards; untouched room costs nothing.
    pub fn new() -> Result<Self, Errno> {
        let bytes = size_of::<Shard>() * SHARDS;
        // SAFETY: a new mapping, aligned to a page and kept as long as the process. All zeroes are
        // shards without blocks and with free locks.
        let shards = unsafe {
            let at = sys::map(At::Anywhere, bytes as u64, RW, libc::MAP_PRIVATE, None)?;
            std::slice::from_raw_parts(at as *const Shard, SHARDS)
        };
        Ok(Pool { shards, granted: AtomicU64::new(0) })
    }

    /// All shards, beginning with this thread's own.
    fn shards(&self) -> impl Iterator<Item = &'static Shard> + use<> {
        let hash = (super::this_thread() as u64 >> 6).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let (shards, home) = (self.shards, (hash >> 32) as usize);
        (0..SHARDS).map(move |n| &shards[(home + n) % SHARDS])
    }

    /// Locks one of the shards for which `fits` is true: the first with a free lock, else waits for
    /// one. `None` if there is no such shard, or if this thread holds a lock already.
    fn lock(&self, fits: impl Fn(&Shard) -> bool) -> Option<Locked> {
        let mut busy = None;
        for shard in self.shards().filter(|shard| fits(shard)) {
            match shard.lock.try_take() {
                Ok(()) => return Some(Locked(shard)),
                Err(true) => return None,
                Err(false) => busy = busy.or(Some(shard)),
            }
        }
        let busy = busy?;
        busy.lock.take().then(|| Locked(busy))
    }

    /// Takes all locks for a fork. Returns `false`, and takes none, if this thread holds one
    /// already. The child then continues with it.
    pub fn hold(&self) -> bool {
        for (n, shard) in self.shards.iter().enumerate() {
            if !shard.lock.take() {
                self.shards[..n].iter().for_each(|shard| shard.lock.let_go());
                return false;
            }
        }
        true
    }

    /// Releases the locks taken by [`Pool::hold`], in the parent or in the child.
    pub fn let_go(&self) {
        self.shards.iter().for_each(|shard| shard.lock.let_go());
    }

    /// Takes a block for which `fits(address, length)` is true. A block missing in the index was
    /// freed twice, without our knowledge, and is skipped.
    fn pop(
        &self,
        index: &Index,
        list: usize,
        fits: impl Fn(u64, u64) -> bool,
    ) -> Option<(u64, u64)> {
        if list >= LISTS {
            return None;
        }
        let mut locked = self.lock(|shard| shard.count(list) > 0)?;
        loop {
            let shard = locked.0;
            let block = shard.pop(&mut locked, list, &fits)?;
            self.give_back(&mut locked);
            // Under the lock: a fork in between would treat the block as part of the pool.
            if let Some(about) = index.find(block.start()).filter(|about| about.has(POOLED)) {
                about.clear(POOLED);
                return Some((block.start(), block.len()));
            }
        }
    }

    /// Adds a block if there is room and `may` returns true.
    fn push(&self, start: u64, len: u64, may: impl Fn() -> bool) -> bool {
        let list = class(len);
        let Some(mut locked) = self.lock(|shard| shard.count(list) < DEPTH) else { return false };
        let count = locked.0.count(list);
        // Another thread may have added a block in between.
        if count == DEPTH || !self.grant(&mut locked, len) || !may() {
            return false;
        }
        locked.blocks[list][count] = Kept::new(start, len);
        locked.bytes += len;
        locked.0.counts[list].store(count + 1, Ordering::Relaxed);
        true
    }

    /// Reserves `len` more bytes for a shard.
    fn grant(&self, lists: &mut Lists, len: u64) -> bool {
        let Some(lacks @ 1..) = (lists.bytes + len).checked_sub(lists.granted) else { return true };
        let piece = lacks.max(PIECE);
        if self.granted.fetch_add(piece, Ordering::Relaxed) + piece > BOUND {
            self.granted.fetch_sub(piece, Ordering::Relaxed);
            return false;
        }
        lists.granted += piece;
        true
    }

    /// Returns a shard's reserve beyond its blocks and one unit, so that other shards can have it.
    fn give_back(&self, lists: &mut Lists) {
        let least = lists.bytes + PIECE;
        if lists.granted > least {
            self.granted.fetch_sub(lists.granted - least, Ordering::Relaxed);
            lists.granted = least;
        }
    }
}

/// The decision for an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// The program's allocator makes the allocation, which stays as it is.
    Private,
    /// The program's allocator makes the allocation of whole pages, which becomes a block.
    Block,
    /// The allocation is this freed block.
    Pooled(u64),
}

impl SharedFile {
    /// Decides on an allocation of `len` bytes, aligned to `align`.
    pub(super) fn plan(&'static self, align: u64, len: u64) -> Plan {
        if !self.sharing.load(Ordering::Acquire) || !align.is_power_of_two() {
            return Plan::Private;
        }
        if self.credit.is_spent(len) {
            return Plan::Private;
        }
        let fits = |start: u64, bytes| bytes >= len && start.is_multiple_of(align);
        let pooled = self.pool.pop(&self.index, class(len), fits);
        let is_last = match pooled {
            Some(_) => self.credit.take_again(len),
            None => self.credit.take(len),
        };
        if is_last {
            self.empty(class(len));
        }
        pooled.map_or(Plan::Block, |(start, _)| Plan::Pooled(start))
    }

    /// Called before a block is freed; `usable` is the allocator's size of the block. Returns
    /// `true` if the pool has taken the block, so that it must not be freed.
    pub(super) fn keep(&'static self, start: u64, usable: u64) -> bool {
        let Some(about) = self.index.find(start) else { return false };
        let len = about.len();
        if about.has(HELD | MARKED) || usable < len || len > LARGEST || self.credit.is_spent(len) {
            return false;
        }
        if len >= ASKED && !self.is_as_made(start, len) {
            return false;
        }
        // A block freed twice is in the pool once.
        about.has(POOLED) || self.pool.push(start, len, || about.set(POOLED))
    }

    /// Whether a block is still one shared mapping of the file with read and write access, as
    /// created.
    pub(super) fn is_as_made(&self, start: u64, len: u64) -> bool {
        self.maps.first(start, start + len).is_some_and(|vma| {
            let rights = vma.flags & (READ | WRITE) == READ | WRITE;
            vma.shares(self.id) && rights && vma.start <= start && vma.end >= start + len
        })
    }

    /// Gives all blocks of a list back to their allocator.
    pub(super) fn empty(&'static self, list: usize) {
        while let Some((start, len)) = self.pool.pop(&self.index, list, |_, _| true) {
            if self.release(start, len) {
                super::allocator::free(start, len);
            }
        }
    }
}
