//! Entries and marks by model checking, on the code that production uses.
//!
//! Each test names changes of the code that make it fail; each of these was made and seen to fail.
//! Run by `make loom`. Loom knows fences of sequential consistency, not such accesses, and takes
//! the way of `enter_barrier` that has a fence.
use super::entry::Entry;
use super::marks::{Mark, Set, Use};
use crate::sync::{AtomicU64, full_barrier};
use loom::cell::UnsafeCell;
use loom::thread;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

fn model(preemptions: usize, test: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.check(test);
}

/// A use of the key that is taken back, and a use of another key.
const OURS: Use = Use { owner: 1, qpn: 2, key: 3, restarts: false };
const OTHER: Use = Use { key: 4, ..OURS };

/// What a process publishes and takes back, and the marks of a peer that uses it.
struct World {
    entry: Entry<1>,
    used: AtomicU64,
    marks: [Mark; 1],
    /// The memory behind the entry: loom fails a test in which it is written while it is read.
    memory: UnsafeCell<u64>,
}

impl World {
    fn new(used: u64) -> Arc<World> {
        let world = World {
            entry: Entry::new(),
            used: AtomicU64::new(used),
            marks: [Mark::new()],
            memory: UnsafeCell::new(7),
        };
        world.entry.write(&[1]);
        Arc::new(world)
    }

    /// A peer's thread: uses the memory if the entry is as it was.
    fn use_it(&self, seen: u64) {
        self.marks[0].enter(&OURS);
        if self.entry.is_unchanged(seen) {
            // SAFETY: loom fails the test if anybody writes.
            self.memory.with(|memory| assert_eq!(unsafe { *memory }, 7, "freed memory was used"));
        }
        self.marks[0].leave();
    }

    /// As [`World::use_it`], where the mark names the use already and a lock is taken.
    fn use_it_under_a_lock(&self, seen: u64) {
        let lock = AtomicU64::new(0);
        self.marks[0].enter_by(|| lock.fetch_add(1, Acquire));
        if self.marks[0].names(&OURS) && self.entry.is_unchanged(seen) {
            // SAFETY: loom fails the test if anybody writes.
            self.memory.with(|memory| assert_eq!(unsafe { *memory }, 7, "freed memory was used"));
        }
        self.marks[0].leave();
    }

    /// The owner: takes the memory back and gives it to somebody else.
    fn take_back(&self) {
        self.entry.write(&[0]);
        let mut inside = Set::now(&self.used, &self.marks, |at| at.key == OURS.key);
        while !inside.is_over(&self.marks) {
            thread::yield_now();
        }
        // SAFETY: loom fails the test if anybody else is there.
        self.memory.with_mut(|memory| unsafe { *memory = 0 });
    }
}

/// Memory taken back is used by nobody, once its owner has waited.
///
/// Fails without the barrier of `enter`, or that of `Set::now`; if `leave` is relaxed; without the
/// fence at the end of `Set::is_over`; if `Set::now` finds no mark.
#[test]
fn loom_marks_hold_the_owner_until_the_last_use() {
    model(4, || {
        let world = World::new(1);
        let (_, seen) = world.entry.read().expect("nobody writes yet");
        let user = thread::spawn({
            let world = world.clone();
            move || {
                world.use_it(seen);
                world.use_it(seen);
            }
        });
        world.take_back();
        user.join().unwrap();
    });
}

/// The same for a use whose barrier is that of a lock which the thread takes.
///
/// Fails if `enter_barrier_by` has no fence; if the thread uses the memory although the mark names
/// another key.
#[test]
fn loom_marks_are_set_by_the_barrier_of_a_lock() {
    model(4, || {
        let world = World::new(1);
        let (_, seen) = world.entry.read().expect("nobody writes yet");
        let user = thread::spawn({
            let world = world.clone();
            move || {
                for first in [OURS, OTHER] {
                    world.marks[0].enter(&first);
                    world.marks[0].leave();
                    world.use_it_under_a_lock(seen);
                }
            }
        });
        world.take_back();
        user.join().unwrap();
    });
}

/// The same for a thread whose mark is used for the first time.
///
/// Fails if `used` is raised behind `enter`.
#[test]
fn loom_marks_are_counted_before_they_are_set() {
    model(4, || {
        let world = World::new(0);
        let (_, seen) = world.entry.read().expect("nobody writes yet");
        let user = thread::spawn({
            let world = world.clone();
            move || {
                world.used.store(1, Relaxed); // as `Inner::claim` does
                world.use_it(seen);
            }
        });
        world.take_back();
        user.join().unwrap();
    });
}

/// A mark that names another key, and then this key: the owner takes a use of this key for a use of
/// this key.
///
/// Fails if `enter` writes the name behind its barrier; if the barrier is not a release; without
/// the release fence of `enter` and the second look of `Mark::read`.
#[test]
fn loom_marks_name_what_is_used() {
    model(3, || {
        let world = World::new(1);
        let (_, seen) = world.entry.read().expect("nobody writes yet");
        let user = thread::spawn({
            let world = world.clone();
            move || {
                world.marks[0].enter(&OTHER);
                world.marks[0].leave();
                world.use_it(seen);
                world.marks[0].enter(&OTHER);
                world.marks[0].leave();
            }
        });
        world.take_back();
        user.join().unwrap();
    });
}

/// What a reader gets is of one write.
///
/// Fails without the fence of `write`, without that of `read`, or if the last store of `write` is
/// relaxed.
#[test]
fn loom_entries_are_read_whole() {
    model(3, || {
        let entry = Arc::new(Entry::<2>::new());
        let writer = thread::spawn({
            let entry = entry.clone();
            move || {
                entry.write(&[1; 2]);
                entry.write(&[2; 2]);
            }
        });
        if let Some((words, _)) = entry.read() {
            assert!(words[0] == words[1], "torn: {words:?}");
        }
        writer.join().unwrap();
    });
}

/// A process that says it sleeps and then looks once more misses nothing: either it sees what was
/// sent, or the sender sees it asleep.
///
/// Fails without the barrier of `set_sleeping`, or that of `sleeping`.
#[test]
fn loom_a_sleeper_is_seen_or_sees() {
    model(4, || {
        let [sleeping, header] = [(); 2].map(|()| Arc::new(AtomicU64::new(0)));
        let sender = thread::spawn({
            let (sleeping, header) = (sleeping.clone(), header.clone());
            move || {
                header.store(1, Release); // `Producer::push`
                full_barrier(); // `PeerTables::sleeping`
                sleeping.load(Relaxed) == 1
            }
        });
        sleeping.store(1, Relaxed); // `Published::set_sleeping`
        full_barrier();
        let found = header.load(Acquire) == 1; // `Consumer::is_empty`
        assert!(sender.join().unwrap() || found, "nobody wakes the sleeper");
    });
}
