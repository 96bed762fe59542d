//! Entries and hazards under a model checker, on the production code.
//!
//! Each test names changes of the code that make the test fail. Each of these changes was made and
//! seen to fail. Run by `make loom`. Loom supports SeqCst fences and no SeqCst accesses, so the
//! tests use the variant of `enter_barrier` with a fence.
use super::entry::TableEntry;
use super::hazards::{Hazard, Inside, Use};
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

/// A use of the key being taken back, and a use of another key.
const OURS: Use = Use { owner: 1, qpn: 2, key: 3 };
const OTHER: Use = Use { key: 4, ..OURS };

/// A process's published entry, and the hazard of a peer using the entry.
struct World {
    entry: TableEntry<1>,
    used: AtomicU64,
    hazards: [Hazard; 1],
    /// The memory behind the entry. Loom fails a test if it is written during a read.
    memory: UnsafeCell<u64>,
}

impl World {
    fn new(used: u64) -> Arc<World> {
        let world = World {
            entry: TableEntry::new(),
            used: AtomicU64::new(used),
            hazards: [Hazard::new()],
            memory: UnsafeCell::new(7),
        };
        world.entry.write(&[1]);
        Arc::new(world)
    }

    /// A peer's thread uses the memory if the entry is unchanged.
    fn use_it(&self, seen: u64) {
        self.hazards[0].enter(&OURS);
        self.use_inside(self.entry.is_unchanged(seen));
    }

    /// As [`World::use_it`], with the hazard already naming the use and a lock as the barrier.
    fn use_it_under_a_lock(&self, seen: u64) {
        let lock = AtomicU64::new(0);
        self.hazards[0].enter_by(|| lock.fetch_add(1, Acquire));
        self.use_inside(self.hazards[0].names(&OURS) && self.entry.is_unchanged(seen));
    }

    fn use_inside(&self, may: bool) {
        if may {
            // SAFETY: loom fails the test if another thread writes.
            self.memory.with(|memory| assert_eq!(unsafe { *memory }, 7, "freed memory was used"));
        }
        self.hazards[0].leave();
    }

    /// The owner takes the memory back and reuses it.
    fn take_back(&self) {
        self.entry.write(&[0]);
        let mut inside = Inside::now(&self.used, &self.hazards, |at| at.key == OURS.key);
        while !inside.is_over(&self.hazards) {
            thread::yield_now();
        }
        // SAFETY: loom fails the test if another thread accesses the memory.
        self.memory.with_mut(|memory| unsafe { *memory = 0 });
    }
}

/// A peer's thread does `uses` with the entry as it has seen it, while the owner takes the memory
/// back.
fn taken_back(
    preemptions: usize,
    used: u64,
    uses: impl Fn(&World, u64) + Copy + Send + Sync + 'static,
) {
    model(preemptions, move || {
        let world = World::new(used);
        let (_, seen) = world.entry.read().expect("nobody writes yet");
        let peers = world.clone();
        let user = thread::spawn(move || uses(&peers, seen));
        world.take_back();
        user.join().unwrap();
    });
}

/// No thread uses the memory after its owner has waited.
///
/// Fails without the barrier of `enter`, or without the barrier of `Inside::now`; if `leave` is
/// relaxed; without the fence at the end of `Inside::is_over`; if `Inside::now` finds no hazard.
#[test]
fn loom_hazards_hold_the_owner_until_the_last_use() {
    taken_back(4, 1, |world, seen| {
        world.use_it(seen);
        world.use_it(seen);
    });
}

/// The same with taking a lock as the barrier.
///
/// Fails if `enter_barrier_by` has no fence; if the thread uses the memory although the hazard
/// names another key.
#[test]
fn loom_hazards_are_set_by_the_barrier_of_a_lock() {
    taken_back(4, 1, |world, seen| {
        for first in [OURS, OTHER] {
            world.hazards[0].enter(&first);
            world.hazards[0].leave();
            world.use_it_under_a_lock(seen);
        }
    });
}

/// The same for a thread using its hazard for the first time.
///
/// Fails if `used` is raised after `enter`.
#[test]
fn loom_hazards_are_counted_before_they_are_set() {
    taken_back(4, 0, |world, seen| {
        world.used.store(1, Relaxed); // as `Inner::claim` does
        world.use_it(seen);
    });
}

/// A hazard names first another key, then this key. The owner recognises the use of this key.
///
/// Fails if `enter` writes the name after its barrier; if the barrier is not a release; without the
/// release fence of `enter` and the second load of `Hazard::read`.
#[test]
fn loom_hazards_name_what_is_used() {
    taken_back(3, 1, |world, seen| {
        world.hazards[0].enter(&OTHER);
        world.hazards[0].leave();
        world.use_it(seen);
        world.hazards[0].enter(&OTHER);
        world.hazards[0].leave();
    });
}

/// A reader gets the values of one write.
///
/// Fails without the fence of `write`, without the fence of `read`, or if the last store of `write`
/// is relaxed.
#[test]
fn loom_entries_are_read_whole() {
    model(3, || {
        let entry = Arc::new(TableEntry::<2>::new());
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

/// A process announces its sleep, looks once more, and misses nothing: either it finds the message,
/// or the sender finds the process asleep.
///
/// Fails without the barrier of `set_sleeping`, or without the barrier of `sleeping`.
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
