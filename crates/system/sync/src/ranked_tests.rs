//! The lock order, as debug builds check it.
use crate::{Condvar, Ranked, RankedRw, RawMutex, RawRwLock};
use std::mem::{ManuallyDrop, size_of};
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

#[test]
#[cfg_attr(
    debug_assertions,
    should_panic(expected = "takes the lock of the house while it has that of a drawer")
)]
fn an_outer_lock_after_an_inner_one() {
    let _inner = FREE.inner.lock();
    let all = new();
    let _outer = all.outer.lock();
}

#[test]
#[cfg_attr(
    debug_assertions,
    should_panic(expected = "takes the lock of a drawer while it has that of a drawer")
)]
fn two_of_one_rank() {
    let (a, b) = (new(), new());
    let _one = a.inner.lock();
    let _other = b.inner.lock();
}

#[test]
#[cfg_attr(
    debug_assertions,
    should_panic(expected = "takes the lock of a room while it has that of a room")
)]
fn two_readers_in_one_thread() {
    let all = new();
    let _one = all.middle.read();
    let _other = all.middle.read();
}

#[test]
#[cfg_attr(
    debug_assertions,
    should_panic(expected = "takes the lock of a room while it has that of a drawer")
)]
fn a_writer_after_an_inner_lock() {
    let all = new();
    let _inner = all.inner.lock();
    let _middle = all.middle.write();
}

/// A try never waits, so it may be out of order. A successful try counts.
#[test]
#[cfg_attr(
    debug_assertions,
    should_panic(expected = "takes the lock of a room while it has that of a drawer")
)]
fn trying_never_panics_but_counts() {
    let (all, other) = (new(), new());
    let inner = all.inner.try_lock().expect("free");
    let outer = all.outer.try_lock_for(Duration::ZERO).expect("free");
    let middle = (all.middle.try_read().expect("free"), other.middle.try_write().expect("free"));
    assert!(all.inner.try_lock().is_none(), "held, and not counted");
    let second = other.inner.try_lock().expect("free");
    drop((outer, middle, inner));
    // `second`, another lock of the rank `Inner`, is still held.
    let _second = second;
    drop(all.middle.write());
}

/// After the panic, the thread does not hold the refused lock.
#[test]
#[cfg(debug_assertions)]
fn a_refused_lock_is_not_taken() {
    let all = new();
    let inner = all.inner.lock();
    let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(all.outer.lock())));
    assert!(refused.is_err() && !all.outer.is_locked());
    drop(inner);
    drop((all.outer.lock(), all.inner.lock()));
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
#[cfg_attr(
    debug_assertions,
    should_panic(expected = "takes the lock of the house while it has that of a drawer")
)]
fn waiting_under_an_inner_lock() {
    let all = new();
    let mut outer = all.outer.lock();
    let _inner = all.inner.lock();
    Condvar::new().wait_for(&mut outer, Duration::from_millis(1));
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
    // SAFETY: the child uses only these locks and ends by `_exit`.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        drop(all.inner.lock());
        // SAFETY: this thread holds the lock, and the guard is never dropped.
        unsafe { all.middle.force_unlock_write() };
        drop((all.outer.lock(), all.middle.read(), all.inner.lock()));
        // SAFETY: `_exit` does not return.
        unsafe { libc::_exit(0) };
    }
    assert!(pid > 0);
    let mut status = 0;
    // SAFETY: `pid` is a child of this process, and the status is on the stack.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    assert_eq!(status, 0, "how the child ended");
    drop(ManuallyDrop::into_inner(held));
    drop(all.outer.lock());
}
