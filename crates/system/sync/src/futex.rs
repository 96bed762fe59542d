//! A word that threads can sleep on.
#[cfg(not(all(test, loom)))]
pub(crate) use kernel::Word;
#[cfg(all(test, loom))]
pub(crate) use model::Word;

/// How often a thread spins before it sleeps, because the holder is likely to be done soon.
pub(crate) const LOOKS: u32 = if cfg!(all(test, loom)) { 1 } else { 100 };

pub(crate) fn pause() {
    #[cfg(all(test, loom))]
    loom::thread::yield_now();
    #[cfg(not(all(test, loom)))]
    std::hint::spin_loop();
}

#[cfg(not(all(test, loom)))]
mod kernel {
    use std::ops::Deref;
    use std::ptr;
    use std::sync::atomic::AtomicU32;
    use std::time::Instant;

    /// A futex: see futex(2).
    #[derive(Debug)]
    #[repr(transparent)]
    pub(crate) struct Word(AtomicU32);

    impl Word {
        pub(crate) const fn new(value: u32) -> Self {
            Word(AtomicU32::new(value))
        }

        /// Sleeps if the word is `value`. The sleep ends when another thread wakes this one, at
        /// `deadline`, or without a reason. Returns false if the deadline has passed before the
        /// call.
        pub(crate) fn wait(&self, value: u32, deadline: Option<Instant>) -> bool {
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return false;
            }
            let timeout = left.map(|left| libc::timespec {
                tv_sec: left.as_secs().try_into().unwrap_or(libc::time_t::MAX),
                tv_nsec: left.subsec_nanos().into(),
            });
            let timeout = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
            // SAFETY: the word belongs to this process and lives during the call. The timeout is
            // null or a `timespec` on the stack.
            unsafe { libc::syscall(libc::SYS_futex, self.0.as_ptr(), WAIT, value, timeout) };
            true
        }

        pub(crate) fn wake(&self, threads: i32) {
            // SAFETY: the kernel uses the address as a key, and neither reads nor writes the word.
            unsafe { libc::syscall(libc::SYS_futex, self.0.as_ptr(), WAKE, threads) };
        }
    }

    const WAIT: i32 = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    const WAKE: i32 = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;

    impl Deref for Word {
        type Target = AtomicU32;
        fn deref(&self) -> &AtomicU32 {
            &self.0
        }
    }
}

#[cfg(all(test, loom))]
mod model {
    use loom::sync::atomic::AtomicU32;
    use loom::sync::{Condvar, Mutex};
    use std::ops::Deref;
    use std::time::Instant;

    /// For a waking thread, the check of the word and the sleep are one step, as in the kernel.
    #[derive(Debug)]
    pub(crate) struct Word {
        value: AtomicU32,
        bucket: Mutex<()>,
        woken: Condvar,
    }

    impl Word {
        pub(crate) fn new(value: u32) -> Self {
            Word { value: AtomicU32::new(value), bucket: Mutex::new(()), woken: Condvar::new() }
        }
        pub(crate) fn wait(&self, value: u32, _deadline: Option<Instant>) -> bool {
            let bucket = self.bucket.lock().expect("a model that panics ends at once");
            if self.value.load(loom::sync::atomic::Ordering::SeqCst) == value {
                drop(self.woken.wait(bucket));
            }
            true
        }
        pub(crate) fn wake(&self, threads: i32) {
            let _bucket = self.bucket.lock().expect("a model that panics ends at once");
            if threads == 1 { self.woken.notify_one() } else { self.woken.notify_all() }
        }
    }

    impl Deref for Word {
        type Target = AtomicU32;
        fn deref(&self) -> &AtomicU32 {
            &self.value
        }
    }
}
