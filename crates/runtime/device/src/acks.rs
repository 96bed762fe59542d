//! Acknowledgement of events.
use crate::ranks;
use adverb_sync::Condvar;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Counts events read and events acknowledged. Destroying an object waits until both are equal
/// (CHN-4).
#[derive(Debug, Default)]
pub struct Acks {
    read: AtomicU32,
    acked: AtomicU32,
    waiting: AtomicBool,
    lock: adverb_sync::Ranked<(), ranks::Acknowledgements>,
    changed: Condvar,
}

impl Acks {
    /// An event was handed to the program.
    pub fn note_read(&self) {
        self.read.fetch_add(1, Ordering::Relaxed);
    }
    /// The program acknowledges `n` events at once. Takes the lock only if a thread waits.
    pub fn ack(&self, n: u32) {
        self.acked.fetch_add(n, Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) {
            let _guard = self.lock.lock();
            self.changed.notify_all();
        }
    }
    /// Events read and not acknowledged.
    #[must_use]
    pub fn outstanding(&self) -> u32 {
        self.read.load(Ordering::Relaxed).wrapping_sub(self.acked.load(Ordering::SeqCst))
    }
    /// Waits until every event read is acknowledged. After a second logs the reason of the wait
    /// (EXT-5).
    pub fn wait_all(&self, what: impl Fn() -> String) {
        let started = Instant::now();
        self.waiting.store(true, Ordering::SeqCst);
        let mut told = false;
        let mut guard = self.lock.lock();
        while self.outstanding() as i32 > 0 {
            let timed_out = self.changed.wait_for(&mut guard, Duration::from_secs(1));
            if timed_out && !told && started.elapsed() >= Duration::from_secs(1) {
                told = true;
                log::warn!(
                    "destroying {} waits for {} event(s) that were read and not acknowledged (since {:?})",
                    what(),
                    self.outstanding(),
                    started.elapsed()
                );
            }
        }
        self.waiting.store(false, Ordering::SeqCst);
    }
}
