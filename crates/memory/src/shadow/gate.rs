//! Where the library's own threads wait while pages move.
use super::Refusal;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const CLOSED: u32 = 1 << 31;
/// Longest wait for a thread to leave. Whoever holds a lock that the thread wants would wait for ever.
const PATIENCE: Duration = Duration::from_millis(20);

/// Open or closed, and how many threads are inside. It lies in pages that never move, so that a thread may come to it, and
/// wait, while others do.
#[derive(Debug, Default)]
pub(super) struct Gate(AtomicU32);

impl Gate {
    /// Goes in; waits while the gate is closed.
    pub fn enter(&self) {
        loop {
            let now = self.0.load(Ordering::Relaxed);
            if now & CLOSED != 0 {
                wait(&self.0, now, None);
            } else if self.0.compare_exchange_weak(now, now + 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                return;
            }
        }
    }

    /// Goes out.
    pub fn leave(&self) {
        if self.0.fetch_sub(1, Ordering::Release) == CLOSED | 1 {
            wake(&self.0);
        }
    }

    /// Closes the gate and waits until nobody is inside.
    pub fn close(&self) -> Result<Closed<'_>, Refusal> {
        let mut now = self.0.fetch_or(CLOSED, Ordering::Acquire) | CLOSED;
        let closed = Closed(self);
        let since = Instant::now();
        while now != CLOSED {
            let left = PATIENCE.checked_sub(since.elapsed()).ok_or(Refusal::Busy)?;
            wait(&self.0, now, Some(left));
            now = self.0.load(Ordering::Acquire);
        }
        Ok(closed)
    }
}

/// A closed gate; dropped, it opens.
#[derive(Debug)]
pub(super) struct Closed<'a>(&'a Gate);

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_and(!CLOSED, Ordering::Release);
        wake(&self.0.0);
    }
}

fn wait(word: &AtomicU32, value: u32, at_most: Option<Duration>) {
    let time = at_most.map(|left| libc::timespec {
        tv_sec: left.as_secs().cast_signed(),
        tv_nsec: i64::from(left.subsec_nanos()),
    });
    let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let op = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word and the time outlive the call, which only reads them.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), op, value, time) };
}

fn wake(word: &AtomicU32) {
    let op = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: waking touches no memory.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), op, i32::MAX) };
}
