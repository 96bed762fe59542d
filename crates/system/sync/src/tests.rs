use crate::{Condvar, Mutex, RwLock, RwLockReadGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

#[test]
fn as_small_as_said() {
    assert_eq!(size_of::<Mutex<()>>(), 4);
    assert_eq!(size_of::<RwLock<()>>(), 8);
    assert_eq!(size_of::<Condvar>(), 4);
}

#[test]
fn eight_threads_count_right() {
    let (count, shared) = (Mutex::new(0_u64), RwLock::new([0_u64; 2]));
    thread::scope(|s| {
        for n in 0..8 {
            let (count, shared) = (&count, &shared);
            s.spawn(move || {
                for i in 0..20_000 {
                    *count.lock() += 1;
                    if (i + n) % 8 == 0 {
                        let mut pair = shared.write();
                        pair[0] += 1;
                        pair[1] += 1;
                    } else {
                        let pair = shared.read();
                        assert_eq!(pair[0], pair[1], "a reader beside a writer");
                    }
                }
            });
        }
    });
    assert_eq!(*count.lock(), 160_000);
    assert_eq!(*shared.read(), [20_000; 2]);
}

#[test]
fn waiting_ends_at_the_deadline() {
    let lock = Mutex::new(());
    let held = lock.lock();
    let started = Instant::now();
    assert!(lock.try_lock_for(Duration::from_millis(20)).is_none());
    assert!(started.elapsed() >= Duration::from_millis(20));
    assert!(lock.try_lock().is_none() && lock.is_locked());
    drop(held);
    assert!(lock.try_lock_for(Duration::ZERO).is_some());
    // The word may still say that a thread sleeps. This has no effect.
    assert!(lock.try_lock().is_some());
    let mut guard = lock.lock();
    let changed = Condvar::new();
    let started = Instant::now();
    assert!(changed.wait_for(&mut guard, Duration::from_millis(20)));
    assert!(started.elapsed() >= Duration::from_millis(20));
}

#[test]
fn a_deadline_past_the_end_of_time_is_none() {
    let lock = Arc::new(Mutex::new(()));
    let held = lock.lock();
    let other = lock.clone();
    let waits = thread::spawn(move || other.try_lock_for(Duration::MAX).is_some());
    thread::sleep(Duration::from_millis(20));
    drop(held);
    assert!(waits.join().unwrap());
}

/// A reader that releases the lock for a moment lets a waiting writer in.
#[test]
fn bumping_lets_the_writer_in() {
    let lock = RwLock::new(0);
    let asked = AtomicBool::new(false);
    let mut reading = lock.read();
    thread::scope(|s| {
        s.spawn(|| {
            asked.store(true, Ordering::Release);
            *lock.write() += 1;
        });
        let started = Instant::now();
        while *reading == 0 {
            assert!(
                started.elapsed() < Duration::from_secs(60),
                "the writer starves, asked {asked:?}"
            );
            RwLockReadGuard::bump(&mut reading);
        }
        assert!(asked.load(Ordering::Acquire));
    });
    assert_eq!(*reading, 1);
}

#[test]
fn a_waiter_hears_of_the_change() {
    let (lock, changed) = (Mutex::new(0), Condvar::new());
    thread::scope(|s| {
        for _ in 0..3 {
            s.spawn(|| {
                let mut guard = lock.lock();
                while *guard == 0 {
                    changed.wait(&mut guard);
                }
            });
        }
        thread::sleep(Duration::from_millis(5));
        *lock.lock() = 1;
        changed.notify_all();
    });
}

/// Does `work`, which uses only locks, threads and the heap, in the child of a fork. Returns how
/// the child ended.
pub(crate) fn forked(work: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the C library handles the locks of the heap at a fork, and the child ends by `_exit`.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: `alarm` only takes a number.
        unsafe { libc::alarm(120) };
        let ended = work();
        // SAFETY: `_exit` does not return.
        unsafe { libc::_exit(ended) };
    }
    let mut status = 0;
    // SAFETY: `pid` is a child of this process, and the status is on the stack.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    status
}

/// Uses inherited locks and new locks in the child of a fork. Returns the number of the first check
/// that failed.
fn in_child(held: &Mutex<u32>, free: &Mutex<u32>, changed: &Condvar) -> i32 {
    if free.try_lock().is_none() {
        return 1;
    }
    // This thread held the lock when it forked. Threads of the parent, which do not exist here,
    // sleep on the lock. SAFETY: this thread holds the lock, and the child never uses the guard.
    unsafe { held.force_unlock() };
    changed.notify_all();
    let rounds = AtomicU32::new(0);
    let (own, told) = (Mutex::new(0), Condvar::new());
    thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                for _ in 0..200 {
                    for lock in [held, free, &own] {
                        let mut guard = lock.lock();
                        *guard += 1;
                        told.wait_for(&mut guard, Duration::from_micros(1));
                    }
                    told.notify_all();
                    changed.notify_all();
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    if rounds.load(Ordering::Relaxed) != 800 {
        return 2;
    }
    if [held, free, &own].map(|lock| *lock.lock()) != [800; 3] {
        return 3;
    }
    0
}

/// With a table of waiting threads for the whole process, as in `parking_lot`, children crashed or
/// hung here.
#[test]
fn a_forked_child_uses_locks_that_its_parents_threads_wait_for() {
    let (held, free, changed) = (Mutex::new(0), Mutex::new(0), Condvar::new());
    let more = Mutex::new(());
    let done = AtomicBool::new(false);
    thread::scope(|s| {
        let guard = held.lock();
        let more_held = more.lock();
        for n in 0..64 {
            let (held, free, changed, done, more) = (&held, &free, &changed, &done, &more);
            s.spawn(move || match n % 3 {
                0 => drop(held.lock()),
                1 => drop(more.lock()),
                _ => {
                    let mut guard = free.lock();
                    while !done.load(Ordering::Acquire) {
                        changed.wait(&mut guard);
                    }
                }
            });
        }
        thread::sleep(Duration::from_millis(20));
        let mut results = Vec::new();
        for _ in 0..20 {
            // No thread of this test holds `free` at the fork: the threads that use `free` sleep.
            let nobody = free.lock();
            results.push(forked(|| {
                // SAFETY: this thread holds the lock.
                unsafe { free.force_unlock() };
                in_child(&held, &free, &changed)
            }));
            drop(nobody);
        }
        drop((guard, more_held));
        done.store(true, Ordering::Release);
        drop(free.lock());
        changed.notify_all();
        assert_eq!(results, [0; 20], "children ended with these states");
    });
}
