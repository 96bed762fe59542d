//! The locks in all interleavings of two or three threads (`make loom`).
use crate::{Condvar, RawMutex, RawRwLock};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

fn model(preemptions: usize, check: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(check);
}

/// The data of a lock. Loom ends the model if two threads are in it at the same time.
struct Guarded<L> {
    lock: L,
    value: UnsafeCell<u32>,
}

// SAFETY: the models check that the value is used only under the lock.
unsafe impl<L> Sync for Guarded<L> {}
// SAFETY: as for `Sync`.
unsafe impl<L> Send for Guarded<L> {}

impl<L> Guarded<L> {
    fn new(lock: L) -> Arc<Self> {
        Arc::new(Guarded { lock, value: UnsafeCell::new(0) })
    }
    fn add(&self) {
        // SAFETY: loom checks the access.
        self.value.with_mut(|value| unsafe { *value += 1 });
    }
    fn get(&self) -> u32 {
        // SAFETY: loom checks the access.
        self.value.with(|value| unsafe { *value })
    }
}

fn add(g: &Guarded<RawMutex>) {
    g.lock.acquire();
    g.add();
    g.lock.release();
}

fn read(g: &Guarded<RawRwLock>) -> u32 {
    g.lock.read();
    let seen = g.get();
    g.lock.leave_read();
    seen
}

/// Three threads add 1 each. No thread sleeps forever (loom reports a model in which all threads
/// wait), and never are two threads in the lock at the same time.
#[test]
fn loom_sync_mutex_excludes_and_wakes() {
    model(3, || {
        let g = Guarded::new(RawMutex::new());
        let others = [g.clone(), g.clone()].map(|g| thread::spawn(move || add(&g)));
        add(&g);
        others.into_iter().for_each(|t| t.join().unwrap());
        assert_eq!(g.get(), 3);
    });
}

/// A writer, a reader that releases the lock and takes it again, and another reader or writer.
#[test]
fn loom_sync_rwlock_excludes_and_wakes() {
    for second_writes in [false, true] {
        model(3, move || {
            let g = Guarded::new(RawRwLock::new());
            let writer = |g: Arc<Guarded<RawRwLock>>| {
                g.lock.write();
                g.add();
                g.lock.leave_write();
            };
            let (a, b) = (g.clone(), g.clone());
            let first = thread::spawn(move || writer(a));
            let second = thread::spawn(move || {
                if second_writes {
                    writer(b);
                } else {
                    read(&b);
                }
            });
            let before = read(&g);
            assert!(read(&g) >= before, "a value was taken back");
            first.join().unwrap();
            second.join().unwrap();
            assert_eq!(read(&g), 1 + u32::from(second_writes));
        });
    }
}

/// A try never waits, and a failed try leaves no trace.
#[test]
fn loom_sync_trying_leaves_nothing_behind() {
    model(3, || {
        let g = Guarded::new(RawRwLock::new());
        let a = g.clone();
        let other = thread::spawn(move || _ = read(&a));
        if g.lock.try_write() {
            g.add();
            g.lock.leave_write();
        }
        other.join().unwrap();
        assert!(g.lock.try_write(), "somebody is still counted");
        g.lock.leave_write();
        assert!(g.lock.try_read());
        g.lock.leave_read();
    });
}

/// A thread that finds nothing under the lock and waits is woken by the change.
#[test]
fn loom_sync_condvar_loses_no_change() {
    model(3, || {
        let g = Guarded::new(RawMutex::new());
        let changed = Arc::new(Condvar::new());
        let (a, c) = (g.clone(), changed.clone());
        let other = thread::spawn(move || {
            add(&a);
            c.notify_all();
        });
        g.lock.acquire();
        while g.get() == 0 {
            changed.wait_raw(&g.lock);
        }
        g.lock.release();
        other.join().unwrap();
    });
}
