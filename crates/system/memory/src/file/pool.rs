//! Blocks that their programs have freed, kept to be handed out again.
//!
//! To make a block and to end one costs several system calls. The pool keeps freed blocks as they
//! are: the program's allocator still counts them as allocated, and the next allocation of the same
//! class gets one, without a system call. The pool is bounded ([`BOUND`]); what finds no room goes
//! back to its allocator, and so does all of a class whose credit is spent ([`Credit`]).
//!
//! The pool has shards, each with a lock. A thread takes the first lock that is free, from a shard
//! of its own on. These locks are taken before the table's, never after it. Nothing is allocated,
//! freed or asked of the kernel under one. A signal handler may come while its thread has one: for
//! that thread there is no pool then.
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

/// Bytes of all blocks in the pool.
pub(super) const BOUND: u64 = 32 << 20;
/// Bytes of the largest block in it.
const LARGEST: u64 = 8 << 20;
/// Blocks of a class in a shard.
const DEPTH: usize = 64;
const SHARDS: usize = 8;
/// A shard takes the right to hold bytes in pieces of so many at least, and keeps one.
const PIECE: u64 = 1 << 20;
/// Classes up to the one of [`LARGEST`].
const LISTS: usize = 41;
/// Blocks that are looked at for one of the right alignment.
const LOOKS: usize = 8;
/// From so many bytes on an allocator may map a block by itself, and the program do with the
/// mapping what it likes before it frees the block (`M_MMAP_THRESHOLD`). So the kernel is asked
/// whether all is as it was made.
const ASKED: u64 = 128 << 10;

/// The pool.
pub(super) struct Pool {
    shards: &'static [Shard],
    /// Bytes that shards may hold, of [`BOUND`].
    granted: AtomicU64,
}

/// A part of the pool.
#[repr(align(128))]
struct Shard {
    lock: OwnedLock,
    /// How many blocks are in each list, for a look without the lock.
    counts: [AtomicUsize; LISTS],
    /// Of who has the lock.
    lists: UnsafeCell<Lists>,
}

// SAFETY: `lists` is used under the lock alone.
unsafe impl Sync for Shard {}

struct Lists {
    bytes: u64,
    /// Bytes that the shard may hold.
    granted: u64,
    blocks: [[Kept; DEPTH]; LISTS],
}

/// A lock whose word is the thread that has it. It is taken and let go by one store each, so a
/// signal handler always sees whether its thread has it.
#[derive(Debug)]
struct OwnedLock {
    owner: AtomicUsize,
    /// Threads that sleep, or are about to.
    waiters: AtomicU32,
    /// Changes when the lock was let go while threads slept.
    turn: AtomicU32,
}

impl OwnedLock {
    /// Takes the lock if it is free: `Ok`. Else whether this thread has it.
    fn try_take(&self) -> Result<(), bool> {
        let me = super::this_thread();
        let taken = self.owner.compare_exchange(0, me, Ordering::SeqCst, Ordering::SeqCst);
        taken.map(drop).map_err(|owner| owner == me)
    }

    /// Waits for the lock. `false` if this thread has it.
    fn take(&self) -> bool {
        /// Looks at the lock before a thread sleeps.
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

    /// Sleeps until the lock is let go. 1. This thread counts itself. 2. It reads the turn. 3. It
    /// looks at the owner again. 4. It sleeps while the turn is the same. Who lets go stores the
    /// owner and reads the count after that, so either sees the other.
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
        // SAFETY: a word that lives as long as the process; no time is given.
        let _ =
            unsafe { sys::call(libc::SYS_futex, [self.turn.as_ptr() as u64, what, value.into(), 0, 0, 0]) };
    }
}

/// The lists, of who has the lock.
struct Locked(&'static Shard);

impl Deref for Locked {
    type Target = Lists;
    fn deref(&self) -> &Lists {
        // SAFETY: this thread has the lock, and no other guard.
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

/// A block in the pool: its address, which is whole pages, and in the bits below how many pages of
/// 4 KiB it has.
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

    /// Takes the newest block of a list that `fits`, which is asked with its address and its bytes.
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
    /// Room for all shards; what is not touched costs nothing.
    pub fn new() -> Result<Self, Errno> {
        let bytes = size_of::<Shard>() * SHARDS;
        // SAFETY: a new mapping, which stays as long as the process, aligned to a page. All zeroes
        // are shards without blocks, whose locks are free.
        let shards = unsafe {
            let at = sys::map(At::Anywhere, bytes as u64, RW, libc::MAP_PRIVATE, None)?;
            std::slice::from_raw_parts(at as *const Shard, SHARDS)
        };
        Ok(Pool { shards, granted: AtomicU64::new(0) })
    }

    /// All shards, those of this thread first.
    fn shards(&self) -> impl Iterator<Item = &'static Shard> + use<> {
        let hash = (super::this_thread() as u64 >> 6).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let (shards, home) = (self.shards, (hash >> 32) as usize);
        (0..SHARDS).map(move |n| &shards[(home + n) % SHARDS])
    }

    /// Locks a shard of those that `fit`: the first that is free, or waits for one. `None` if there
    /// is none, or this thread has a lock.
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

    /// Takes all locks over a fork. `false`: this thread has one, and its child goes on with it;
    /// none is taken.
    pub fn hold(&self) -> bool {
        for (n, shard) in self.shards.iter().enumerate() {
            if !shard.lock.take() {
                self.shards[..n].iter().for_each(|shard| shard.lock.let_go());
                return false;
            }
        }
        true
    }

    /// Ends what [`Pool::hold`] began, in the parent or in the child.
    pub fn let_go(&self) {
        self.shards.iter().for_each(|shard| shard.lock.let_go());
    }

    /// Takes a block out that `fits`, which is asked with its address and its bytes. One that is
    /// not in the index was freed a second time, past us, and is left out.
    fn pop(&self, index: &Index, list: usize, fits: impl Fn(u64, u64) -> bool) -> Option<(u64, u64)> {
        if list >= LISTS {
            return None;
        }
        let mut locked = self.lock(|shard| shard.count(list) > 0)?;
        loop {
            let shard = locked.0;
            let block = shard.pop(&mut locked, list, &fits)?;
            self.give_back(&mut locked);
            // Under the lock: a fork in between would take it for one of the pool.
            if let Some(about) = index.find(block.start()).filter(|about| about.has(POOLED)) {
                about.clear(POOLED);
                return Some((block.start(), block.len()));
            }
        }
    }

    /// Puts a block in, if there is room, and `may` allows it.
    fn push(&self, start: u64, len: u64, may: impl Fn() -> bool) -> bool {
        let list = class(len);
        let Some(mut locked) = self.lock(|shard| shard.count(list) < DEPTH) else { return false };
        let count = locked.0.count(list);
        // Another thread may have come in between.
        if count == DEPTH || !self.grant(&mut locked, len) || !may() {
            return false;
        }
        locked.blocks[list][count] = Kept::new(start, len);
        locked.bytes += len;
        locked.0.counts[list].store(count + 1, Ordering::Relaxed);
        true
    }

    /// Sees to it that a shard may hold `len` bytes more.
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

    /// Gives back what an empty shard may hold beyond a piece.
    fn give_back(&self, lists: &mut Lists) {
        if lists.bytes == 0 && lists.granted > PIECE {
            self.granted.fetch_sub(lists.granted - PIECE, Ordering::Relaxed);
            lists.granted = PIECE;
        }
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("granted", &self.granted).finish_non_exhaustive()
    }
}

/// What is to become of an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// The program's allocator makes it, and it stays as it is.
    Private,
    /// The program's allocator makes it of whole pages, and it becomes a block.
    Block,
    /// It is this block, which was freed before.
    Pooled(u64),
}

impl SharedFile {
    /// Decides about an allocation of `len` bytes at an address that is a multiple of `align`.
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

    /// A block is about to be freed; `usable` is what its allocator says of its bytes. `true`: it
    /// is in the pool now, and is not to be freed.
    pub(super) fn keep(&'static self, start: u64, usable: u64) -> bool {
        let Some(about) = self.index.find(start) else { return false };
        let len = about.len();
        if about.has(HELD | MARKED) || usable < len || len > LARGEST || self.credit.is_spent(len) {
            return false;
        }
        if len >= ASKED && !self.is_as_made(start, len) {
            return false;
        }
        // One that is freed twice is in the pool once.
        about.has(POOLED) || self.pool.push(start, len, || about.set(POOLED))
    }

    /// Is a block one mapping of the file, for reading and writing, as it was made?
    pub(super) fn is_as_made(&self, start: u64, len: u64) -> bool {
        let mut whole = false;
        let _ = self.maps.walk(start, start + len, |vma| {
            let rights = vma.flags & (READ | WRITE) == READ | WRITE;
            whole = vma.is_of(self.id) && rights && vma.start <= start && vma.end >= start + len;
            false
        });
        whole
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
