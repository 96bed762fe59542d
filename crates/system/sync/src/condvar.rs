use crate::futex::Word;
#[cfg(not(all(test, loom)))]
use lock_api::MutexGuard;
use std::sync::atomic::Ordering::Relaxed;
#[cfg(not(all(test, loom)))]
use std::time::{Duration, Instant};

/// A condition variable: a thread waits for a change that another thread makes under a
/// [`crate::Mutex`] or a [`crate::Ranked`]. A wait may end without a reason.
#[derive(Debug)]
pub struct Condvar {
    /// Counts the notifications.
    word: Word,
}

#[cfg(not(all(test, loom)))]
impl Default for Condvar {
    fn default() -> Self {
        Self::new()
    }
}

impl Condvar {
    #[cfg(not(all(test, loom)))]
    #[must_use]
    pub const fn new() -> Self {
        Condvar { word: Word::new(0) }
    }
    #[cfg(all(test, loom))]
    pub(crate) fn new() -> Self {
        Condvar { word: Word::new(0) }
    }

    /// Wakes all waiting threads. The caller must have made the change under the lock.
    pub fn notify_all(&self) {
        self.word.fetch_add(1, Relaxed);
        self.word.wake(i32::MAX);
    }

    /// Releases the lock, waits, and takes the lock again.
    #[cfg(not(all(test, loom)))]
    pub fn wait<L: lock_api::RawMutex, T: ?Sized>(&self, guard: &mut MutexGuard<'_, L, T>) {
        let seen = self.word.load(Relaxed);
        MutexGuard::unlocked(guard, || self.word.wait(seen, None));
    }

    /// As [`Condvar::wait`], for at most `timeout`. Returns true if the timeout has passed, even if
    /// the condition variable was notified too.
    #[cfg(not(all(test, loom)))]
    pub fn wait_for<L: lock_api::RawMutex, T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, L, T>,
        timeout: Duration,
    ) -> bool {
        let deadline = Instant::now().checked_add(timeout);
        let seen = self.word.load(Relaxed);
        MutexGuard::unlocked(guard, || self.word.wait(seen, deadline));
        deadline.is_some_and(|at| Instant::now() >= at)
    }

    #[cfg(all(test, loom))]
    pub(crate) fn wait_raw(&self, lock: &crate::RawMutex) {
        let seen = self.word.load(Relaxed);
        lock.release();
        self.word.wait(seen, None);
        lock.acquire();
    }
}
