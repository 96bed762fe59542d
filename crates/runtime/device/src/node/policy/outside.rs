//! The guess whether a program sleeps in a call that does not drive. Such calls are raw system
//! calls, `io_uring`, waits of Go, tasks, and every wait of a program without the preloaded
//! library.
//!
//! Such a program shows its sleeps only by its arms. A program that sleeps on the descriptors does
//! so after an arm. A thread that repeatedly arms idly, and has not slept meanwhile, looks at the
//! descriptors in a loop: this thread spins. Each wait that drives ends the guess.
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// After more arms than this without a wait that drives, the program counts as asleep.
pub(super) const ARMS: u8 = 8;

/// The guess. The values are not exact if several threads arm at once, and need not be.
#[derive(Debug, Default)]
pub(crate) struct Outside {
    /// Arms since the last wait that drives, up to one more than [`ARMS`].
    arms: AtomicU8,
    /// Consecutive arms of an already armed queue, up to [`ARMS`], and the number of sleeps of the
    /// arming thread at the first of these arms.
    idle_arms: AtomicU8,
    sleeps: AtomicU64,
    /// Arms so far, and waits of tasks. The background thread watches the number change.
    armed: AtomicU64,
}

impl Outside {
    /// Does the program count as asleep?
    pub(super) fn sleeps(&self) -> bool {
        self.arms.load(Ordering::Relaxed) > ARMS
    }

    /// How often the program has armed a queue so far.
    pub(super) fn armed(&self) -> u64 {
        self.armed.load(Ordering::Relaxed)
    }

    /// The program armed a queue. `idly`: the queue was armed already, so no event has come since
    /// the last arm. `sleeps`: how often the calling thread has slept so far. `true`: the program
    /// is about to sleep.
    pub(crate) fn arms(&self, idly: bool, sleeps: impl Fn() -> u64) -> bool {
        self.armed.fetch_add(1, Ordering::Relaxed);
        let arms = self.arms.load(Ordering::Relaxed);
        if !idly {
            self.idle_arms.store(0, Ordering::Relaxed);
            self.arms.store((arms + 1).min(ARMS + 1), Ordering::Relaxed);
            return arms >= ARMS;
        }
        if arms == 0 {
            return false;
        }
        let row = self.idle_arms.load(Ordering::Relaxed);
        if (1..ARMS).contains(&row) {
            self.idle_arms.store(row + 1, Ordering::Relaxed);
            return false;
        }
        let (before, now) = (self.sleeps.load(Ordering::Relaxed), sleeps());
        if row == ARMS && now == before {
            self.ends();
        }
        self.idle_arms.store(1, Ordering::Relaxed);
        self.sleeps.store(now, Ordering::Relaxed);
        false
    }

    /// A task waits without a thread of its own.
    pub(crate) fn task_waits(&self) {
        self.armed.fetch_add(1, Ordering::Relaxed);
        self.arms.store(ARMS + 1, Ordering::Relaxed);
    }

    /// A thread of the program waits and drives, or polls.
    #[inline]
    pub(crate) fn ends(&self) {
        if self.arms.load(Ordering::Relaxed) != 0 {
            self.arms.store(0, Ordering::Relaxed);
        }
    }
}
