//! The lock order, as debug builds check it.
use crate::tests::forked;
use crate::{Condvar, Ranked, RankedRw, RawMutex, RawRwLock};
use std::mem::{ManuallyDrop, size_of};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

crate::ranks! {
    /// Taken first.
    Outer = "the house";
    /// Taken in the house.
    Middle = "a room";
    /// Taken in a room.
    Inner = "a drawer";
}

struct All {
    outer: Ranked<u32, Outer>,
    middle: RankedRw<u32, Middle>,
    inner: Ranked<u32, Inner>,
}

static FREE: All = new();

const fn new() -> All {
    All { outer: Ranked::new(0), middle: RankedRw::new(0), inner: Ranked::new(0) }
}

#[test]
fn a_rank_takes_no_room() {
    assert_eq!(size_of::<Ranked<(), Outer>>(), size_of::<RawMutex>());
    assert_eq!(size_of::<RankedRw<(), Outer>>(), size_of::<RawRwLock>());
}

#[test]
fn in_order_and_let_go_in_any() {
    for _ in 0..3 {
        let all = new();
        let outer = all.outer.lock();
        let middle = all.middle.read();
        let inner = all.inner.lock();
        drop(outer);
        drop(inner);
        let inner = all.inner.lock();
        drop(middle);
        drop(inner);
        drop((all.middle.write(), all.inner.lock()));
    }
}

/// Does `work`, in which a thread takes the lock of `takes` while it has that of `has`. Debug
/// builds refuse this.
fn out_of_order(takes: &str, has: &str, work: impl FnOnce()) {
    let ended = catch_unwind(AssertUnwindSafe(work));
    assert_eq!(ended.is_err(), cfg!(debug_assertions), "{takes} after {has}");
    if let Err(said) = ended {
        let said = said.downcast::<String>().expect("a text");
        let expected = format!("takes the lock of {takes} while it has that of {has}");
        assert!(said.contains(&expected), "{said}");
    }
}

#[test]
fn a_lock_after_one_of_its_rank_or_further_in() {
    let (all, other) = (new(), new());
    let inner = all.inner.lock();
    out_of_order("the house", "a drawer", || drop(all.outer.lock()));
    assert!(cfg!(not(debug_assertions)) || !all.outer.is_locked(), "a refused lock is not taken");
    out_of_order("the house", "a drawer", || drop(FREE.outer.lock()));
    out_of_order("a drawer", "a drawer", || drop(other.inner.lock()));
    out_of_order("a room", "a drawer", || drop(all.middle.write()));
    drop(inner);
    let reading = all.middle.read();
    out_of_order("a room", "a room", || drop(all.middle.read()));
    drop(reading);
    drop((all.outer.lock(), all.inner.lock()));
}

/// A try never waits, so it may be out of order. A successful try counts.
#[test]
fn trying_never_panics_but_counts() {
    let (all, other) = (new(), new());
    let inner = all.inner.try_lock().expect("free");
    let outer = all.outer.try_lock_for(Duration::ZERO).expect("free");
    let middle = (all.middle.try_read().expect("free"), other.middle.try_write().expect("free"));
    assert!(all.inner.try_lock().is_none(), "held, and not counted");
    let second = other.inner.try_lock().expect("free");
    drop((outer, middle, inner));
    // `second`, another lock of the rank `Inner`, is still held.
    out_of_order("a room", "a drawer", || drop(all.middle.write()));
    drop(second);
}

/// Each thread has its own count. A thread that waits on a condition variable has released the
/// lock.
#[test]
fn threads_and_waiting() {
    let (all, changed) = (new(), Condvar::new());
    thread::scope(|s| {
        s.spawn(|| {
            let mut middle = all.middle.write();
            let mut inner = all.inner.lock();
            while *inner == 0 {
                changed.wait_for(&mut inner, Duration::from_millis(1));
            }
            *middle = *inner;
        });
        *all.inner.lock() = 1;
        changed.notify_all();
    });
    assert_eq!(*all.middle.read(), 1);
}

/// The condition variable takes the lock again while the thread holds an inner lock.
#[test]
fn waiting_under_an_inner_lock() {
    let all = new();
    out_of_order("the house", "a drawer", || {
        let mut outer = all.outer.lock();
        let _inner = all.inner.lock();
        Condvar::new().wait_for(&mut outer, Duration::from_millis(1));
    });
}

struct AtEnd;

impl Drop for AtEnd {
    fn drop(&mut self) {
        drop((FREE.outer.lock(), FREE.inner.lock()));
        ENDED.store(true, Ordering::SeqCst);
    }
}

static ENDED: AtomicBool = AtomicBool::new(false);

thread_local! {
    static AT_END: AtEnd = const { AtEnd };
}

/// Destructors of thread-local values take locks.
#[test]
fn as_the_thread_ends() {
    thread::spawn(|| AT_END.with(|_| ())).join().unwrap();
    assert!(ENDED.load(Ordering::SeqCst));
}

static HANDLED: AtomicBool = AtomicBool::new(false);

extern "C" fn handler(_: i32) {
    let all = const { new() };
    drop((all.middle.read(), all.inner.lock()));
    HANDLED.store(true, Ordering::SeqCst);
}

/// A signal handler takes inner locks. The counts of the thread are unchanged afterwards.
#[test]
fn in_a_signal_handler() {
    let all = new();
    let outer = all.outer.lock();
    // SAFETY: the handler only takes locks of its own and stores to a static.
    unsafe { libc::signal(libc::SIGUSR2, handler as *const () as libc::sighandler_t) };
    // SAFETY: the signal goes to this thread, which has the handler above.
    unsafe { libc::raise(libc::SIGUSR2) };
    assert!(HANDLED.load(Ordering::SeqCst));
    drop((all.middle.read(), all.inner.lock()));
    drop(outer);
    drop(all.outer.lock());
}

/// The child holds the same locks as its thread at the fork, and releases them.
#[test]
fn in_the_child_of_a_fork() {
    let all = new();
    let held = ManuallyDrop::new(all.middle.write());
    let ended = forked(|| {
        drop(all.inner.lock());
        // SAFETY: this thread holds the lock, and the guard is never dropped.
        unsafe { all.middle.force_unlock_write() };
        drop((all.outer.lock(), all.middle.read(), all.inner.lock()));
        0
    });
    assert_eq!(ended, 0, "how the child ended");
    drop(ManuallyDrop::into_inner(held));
    drop(all.outer.lock());
}
