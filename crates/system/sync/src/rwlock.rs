use crate::futex::{LOOKS, Word, pause};
use crate::mutex::RawMutex;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// A writer holds the lock, or waits until the readers leave. No reader enters.
const WRITER: u32 = 1 << 31;
/// A thread may sleep on the word. Set only together with `WRITER`, and cleared with it.
const AWAITED: u32 = 1 << 30;
/// The other bits count the readers.
const READERS: u32 = AWAITED - 1;

/// Many readers or one writer. Writers queue at a mutex. The first writer of the queue keeps new
/// readers out.
#[derive(Debug)]
pub struct RawRwLock {
    word: Word,
    writers: RawMutex,
}

impl RawRwLock {
    #[cfg(all(test, loom))]
    pub(crate) fn new() -> Self {
        RawRwLock { word: Word::new(0), writers: RawMutex::new() }
    }

    #[inline]
    pub(crate) fn try_read(&self) -> bool {
        let mut seen = self.word.load(Relaxed);
        while seen & WRITER == 0 && seen & READERS < READERS {
            match self.word.compare_exchange_weak(seen, seen + 1, Acquire, Relaxed) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        false
    }

    #[inline]
    pub(crate) fn read(&self) {
        while !self.try_read() {
            self.sleep_while(|word| word & WRITER != 0);
        }
    }

    #[inline]
    pub(crate) fn leave_read(&self) {
        if self.word.fetch_sub(1, Release) & (READERS | AWAITED) == 1 | AWAITED {
            // Wake all sleepers, because the waiting writer may be one of them. Only the writer can
            // go on now.
            self.word.wake(i32::MAX);
        }
    }

    pub(crate) fn try_write(&self) -> bool {
        if !self.writers.try_acquire() {
            return false;
        }
        let free = self.word.compare_exchange(0, WRITER, Acquire, Relaxed).is_ok();
        if !free {
            self.writers.release();
        }
        free
    }

    pub(crate) fn write(&self) {
        self.writers.acquire();
        self.word.fetch_or(WRITER, Relaxed);
        while self.word.load(Acquire) & READERS != 0 {
            self.sleep_while(|word| word & READERS != 0);
        }
    }

    pub(crate) fn leave_write(&self) {
        if self.word.swap(0, Release) & AWAITED != 0 {
            self.word.wake(i32::MAX);
        }
        self.writers.release();
    }

    /// Spins for a while, then sleeps once if `waits` still holds. May return early without a
    /// reason.
    #[cold]
    fn sleep_while(&self, waits: impl Fn(u32) -> bool) {
        for _ in 0..LOOKS {
            if !waits(self.word.load(Relaxed)) {
                return;
            }
            pause();
        }
        let seen = self.word.load(Relaxed);
        let marked = seen | AWAITED;
        if waits(seen)
            && (seen == marked
                || self.word.compare_exchange(seen, marked, Relaxed, Relaxed).is_ok())
        {
            self.word.wait(marked, None);
        }
    }
}

// SAFETY: no reader is counted while `WRITER` is set and the writer holds the lock. The writer goes
// on only when no reader is left. All other writers wait at their mutex.
#[cfg(not(all(test, loom)))]
unsafe impl lock_api::RawRwLock for RawRwLock {
    const INIT: Self =
        RawRwLock { word: Word::new(0), writers: <RawMutex as lock_api::RawMutex>::INIT };
    type GuardMarker = lock_api::GuardNoSend;

    #[inline]
    fn lock_shared(&self) {
        self.read();
    }
    #[inline]
    fn try_lock_shared(&self) -> bool {
        self.try_read()
    }
    #[inline]
    unsafe fn unlock_shared(&self) {
        self.leave_read();
    }
    #[inline]
    fn lock_exclusive(&self) {
        self.write();
    }
    #[inline]
    fn try_lock_exclusive(&self) -> bool {
        self.try_write()
    }
    #[inline]
    unsafe fn unlock_exclusive(&self) {
        self.leave_write();
    }
}

// SAFETY: as for `lock_api::RawRwLock`.
#[cfg(not(all(test, loom)))]
unsafe impl lock_api::RawRwLockFair for RawRwLock {
    #[inline]
    unsafe fn unlock_shared_fair(&self) {
        self.leave_read();
    }
    unsafe fn unlock_exclusive_fair(&self) {
        self.leave_write();
    }
    /// Lets a waiting writer in between.
    #[inline]
    unsafe fn bump_shared(&self) {
        if self.word.load(Relaxed) & WRITER != 0 {
            self.leave_read();
            self.read();
        }
    }
}
