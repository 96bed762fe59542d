use crate::futex::{LOOKS, Word, pause};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
#[cfg(not(all(test, loom)))]
use std::time::Duration;
use std::time::Instant;

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and a thread may sleep on the word.
const AWAITED: u32 = 2;

/// A lock without data, for callers that lock in one call and unlock in another.
#[derive(Debug)]
#[repr(transparent)]
pub struct RawMutex(Word);

impl RawMutex {
    #[cfg(all(test, loom))]
    pub(crate) fn new() -> Self {
        RawMutex(Word::new(FREE))
    }

    /// Returns false if the deadline passed first.
    #[cold]
    fn lock_slowly(&self, deadline: Option<Instant>) -> bool {
        if self.look() == FREE && self.take(HELD) {
            return true;
        }
        // From here on the thread takes the lock as `AWAITED`, because other threads may sleep as
        // well. So the next unlock wakes a thread.
        loop {
            if self.look() != AWAITED && self.0.swap(AWAITED, Acquire) == FREE {
                return true;
            }
            if !self.0.wait(AWAITED, deadline) {
                return false;
            }
        }
    }

    /// Spins while the lock is `HELD`, and returns the last value. Does not spin for `AWAITED`,
    /// because a sleeping thread was first.
    fn look(&self) -> u32 {
        for _ in 0..LOOKS {
            match self.0.load(Relaxed) {
                HELD => pause(),
                other => return other,
            }
        }
        HELD
    }

    #[inline]
    fn take(&self, as_: u32) -> bool {
        self.0.compare_exchange(FREE, as_, Acquire, Relaxed).is_ok()
    }

    #[inline]
    pub(crate) fn acquire(&self) {
        self.acquire_until(None);
    }
    #[inline]
    pub(crate) fn try_acquire(&self) -> bool {
        self.take(HELD)
    }
    #[inline]
    pub(crate) fn acquire_until(&self, deadline: Option<Instant>) -> bool {
        self.take(HELD) || self.lock_slowly(deadline)
    }
    #[inline]
    pub(crate) fn release(&self) {
        if self.0.swap(FREE, Release) == AWAITED {
            self.0.wake(1);
        }
    }
}

// SAFETY: one thread's exchange changes `FREE` to another value. The word becomes `FREE` again only
// when the same thread unlocks.
#[cfg(not(all(test, loom)))]
unsafe impl lock_api::RawMutex for RawMutex {
    const INIT: Self = RawMutex(Word::new(FREE));
    type GuardMarker = lock_api::GuardNoSend;

    #[inline]
    fn lock(&self) {
        self.acquire();
    }
    #[inline]
    fn try_lock(&self) -> bool {
        self.try_acquire()
    }
    #[inline]
    unsafe fn unlock(&self) {
        self.release();
    }
    #[inline]
    fn is_locked(&self) -> bool {
        self.0.load(Relaxed) != FREE
    }
}

// SAFETY: as for `lock_api::RawMutex`. A thread that gives up has not taken the lock.
#[cfg(not(all(test, loom)))]
unsafe impl lock_api::RawMutexTimed for RawMutex {
    type Duration = Duration;
    type Instant = Instant;

    fn try_lock_for(&self, timeout: Duration) -> bool {
        // A free lock needs no look at the clock. A deadline beyond the range of the clock means no
        // deadline.
        self.try_acquire() || self.acquire_until(Instant::now().checked_add(timeout))
    }
    fn try_lock_until(&self, deadline: Instant) -> bool {
        self.acquire_until(Some(deadline))
    }
}
