//! Blocks that their programs have freed, kept to be handed out again.
//!
//! To make a block and to end one costs several system calls. The pool keeps freed blocks as they
//! are: the program's allocator still counts them as allocated, and the next allocation of the same
//! class gets one, without a system call. The pool is bounded ([`BOUND`]); what finds no room goes
//! back to its allocator, and so does all of a class whose credit is spent ([`Credit`]).
//!
//! The pool's lock is taken before the table's, never after it. Nothing is allocated, freed or
//! asked of the kernel under it. A signal handler may come while its thread has the lock: for that
//! thread there is no pool then.
//!
//! [`Credit`]: super::classes::Credit
use super::SharedFile;
use super::classes::class;
use super::index::{HELD, Index, MARKED, POOLED};
use crate::maps::{READ, WRITE};
use crate::sys;
use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// Bytes of all blocks in the pool.
pub(super) const BOUND: u64 = 32 << 20;
/// Bytes of the largest block in it.
const LARGEST: u64 = 8 << 20;
/// Blocks of a class.
const DEPTH: usize = 64;
/// Classes up to the one of [`LARGEST`].
const LISTS: usize = 41;
/// Blocks that are looked at for one of the right alignment.
const LOOKS: usize = 8;
/// From so many bytes on an allocator may map a block by itself, and the program do with the
/// mapping what it likes before it frees the block (`M_MMAP_THRESHOLD`). So the kernel is asked
/// whether all is as it was made.
const ASKED: u64 = 128 << 10;

/// The pool.
#[derive(Debug)]
pub(super) struct Pool {
    lock: OwnedLock,
    /// How many blocks are in each list, for a look without the lock.
    counts: [AtomicUsize; LISTS],
    /// Of who has the lock.
    lists: UnsafeCell<Lists>,
}

// SAFETY: `lists` is used under the lock alone.
unsafe impl Sync for Pool {}

#[derive(Debug)]
struct Lists {
    bytes: u64,
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
    const fn new() -> Self {
        OwnedLock { owner: AtomicUsize::new(0), waiters: AtomicU32::new(0), turn: AtomicU32::new(0) }
    }

    /// `false` if this thread has the lock.
    fn take(&self) -> bool {
        /// Looks at the lock before a thread sleeps.
        const SPINS: usize = 100;
        let me = super::this_thread();
        for turn in 0.. {
            match self.owner.compare_exchange(0, me, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return true,
                Err(owner) if owner == me => return false,
                Err(_) if turn < SPINS => std::hint::spin_loop(),
                Err(_) => self.sleep(),
            }
        }
        unreachable!("the loop has no end")
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
struct Locked<'a>(&'a Pool);

impl Deref for Locked<'_> {
    type Target = Lists;
    fn deref(&self) -> &Lists {
        // SAFETY: this thread has the lock, and no other guard.
        unsafe { &*self.0.lists.get() }
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Lists {
        // SAFETY: as above.
        unsafe { &mut *self.0.lists.get() }
    }
}

impl Drop for Locked<'_> {
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

impl Pool {
    pub fn new() -> Self {
        Pool {
            lock: OwnedLock::new(),
            counts: [const { AtomicUsize::new(0) }; LISTS],
            lists: UnsafeCell::new(Lists { bytes: 0, blocks: [[Kept(0); DEPTH]; LISTS] }),
        }
    }

    /// `None` if this thread has the lock.
    fn lock(&self) -> Option<Locked<'_>> {
        self.lock.take().then(|| Locked(self))
    }

    /// Takes the lock over a fork. `false`: this thread has it, and its child goes on with it.
    pub fn hold(&self) -> bool {
        self.lock.take()
    }

    /// Ends what [`Pool::hold`] began, in the parent or in the child.
    pub fn let_go(&self) {
        self.lock.let_go();
    }

    /// Takes a block out of a list: the newest that `fits`, which is asked with its address and its
    /// bytes. One that is not in the index was freed a second time, past us, and is left out.
    fn pop(&self, index: &Index, list: usize, fits: impl Fn(u64, u64) -> bool) -> Option<(u64, u64)> {
        let kept = self.counts.get(list)?;
        if kept.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut locked = self.lock()?;
        loop {
            let lists = &mut *locked;
            let (count, blocks) = (kept.load(Ordering::Relaxed), &mut lists.blocks[list]);
            let fits = |at: &usize| fits(blocks[*at].start(), blocks[*at].len());
            let found = (count.saturating_sub(LOOKS)..count).rev().find(fits)?;
            let block = blocks[found];
            blocks[found] = blocks[count - 1];
            lists.bytes -= block.len();
            kept.store(count - 1, Ordering::Relaxed);
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
        let Some(mut locked) = self.lock() else { return false };
        let lists = &mut *locked;
        let count = self.counts[list].load(Ordering::Relaxed);
        if count == DEPTH || lists.bytes + len > BOUND || !may() {
            return false;
        }
        lists.blocks[list][count] = Kept::new(start, len);
        lists.bytes += len;
        self.counts[list].store(count + 1, Ordering::Relaxed);
        true
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
        let list = class(len);
        if self.credit.is_spent(len) {
            self.empty(list);
            return Plan::Private;
        }
        let fits = |start: u64, bytes| bytes >= len && start.is_multiple_of(align);
        if let Some((start, _)) = self.pool.pop(&self.index, list, fits) {
            self.credit.take_again(len);
            return Plan::Pooled(start);
        }
        self.credit.take(len);
        Plan::Block
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
    fn empty(&'static self, list: usize) {
        while let Some((start, len)) = self.pool.pop(&self.index, list, |_, _| true) {
            if self.release(start, len) {
                super::allocator::free(start, len);
            }
        }
    }
}
