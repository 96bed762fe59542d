//! Tables under threads, forks, exhaustion and hostile owners.
#![allow(unsafe_code)]

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::ptr;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::thread;
use std::time::Duration;

use adverb_sync::Mutex;

use super::layout::{HAZARDS, QPS, WAYS, bucket};
use super::*;
use crate::{Consumer, ShmError};

const SHORT: Duration = Duration::from_millis(2);

fn key(key: u32, filler: u32) -> KeyEntry {
    let wide = u64::from(filler) << 32 | u64::from(filler);
    let (pd, access, how, qpn) = (filler, filler, filler as u8, filler);
    KeyEntry { key, pd, access, va: wide, len: wide, addr: wide, how, qpn }
}

fn tables() -> (Published, PeerTables) {
    let (ours, fd) = Published::create().unwrap();
    (ours, PeerTables::open(fd).unwrap())
}

/// A random number generator for random writes.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        self.0 ^ self.0 >> 29
    }
}

#[test]
fn peers_cannot_write_nor_take_pages_away() {
    let (ours, fd) = Published::create().unwrap();
    assert!(ours.set_key(&key(0x100, 5)));
    let file = File::from(fd);
    let len = file.metadata().unwrap().len();
    assert!(file.write_at(&[1], 0).is_err());
    assert!(file.set_len(0).is_err() && file.set_len(len + 1).is_err());
    let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: all arguments are integers.
    assert_eq!(unsafe { libc::fallocate(file.as_raw_fd(), punch, 0, len as i64) }, -1);
    let (prot, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    // SAFETY: a new mapping, which the kernel must refuse.
    let map = unsafe { libc::mmap(std::ptr::null_mut(), 4096, prot, shared, file.as_raw_fd(), 0) };
    assert_eq!(map, libc::MAP_FAILED);
    // Opening the file once more for writing does not help.
    let again =
        File::options().write(true).open(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
    assert!(again.write_at(&[1], 0).is_err());
    let theirs = PeerTables::open(file.into()).unwrap();
    assert_eq!(theirs.key(0x100).unwrap().0, key(0x100, 5));
}

#[test]
fn only_sealed_tables_are_opened() {
    let open = |fd: OwnedFd| PeerTables::open(fd).err();
    let (_consumer, ring) = Consumer::create().unwrap();
    // The seals of a ring let its producer write.
    assert!(matches!(open(ring), Some(ShmError::NotSealed { .. })));
    let (_ours, fd) = Published::create().unwrap();
    let len = File::from(fd).metadata().unwrap().len() as usize;
    for (size, right) in [(len, false), (len - 4096, true)] {
        let fd = crate::segment::create(size).unwrap();
        crate::segment::seal(std::os::fd::AsFd::as_fd(&fd), crate::segment::READ_ONLY).unwrap();
        match open(fd) {
            Some(ShmError::WrongFormat { found: 0, .. }) => assert!(!right),
            Some(ShmError::WrongSize { .. }) => assert!(right),
            other => panic!("{other:?}"),
        }
    }
}

/// Tables are large and mostly empty. Only used entries take memory, and looking up an absent entry
/// takes one page at most.
#[test]
fn empty_tables_take_little_memory() {
    let (ours, fd) = Published::create().unwrap();
    let file = File::from(fd.try_clone().unwrap());
    let used = || file.metadata().unwrap().blocks() * 512;
    assert!(used() <= 32 << 10, "{}", used());
    let before = used();
    assert!(ours.set_key(&key(0x100, 5)) && ours.set_key(&key(0x100, 6)));
    assert_eq!(used(), before + 4096);
    let theirs = PeerTables::open(fd).unwrap();
    assert!(theirs.key(0x100).is_some());
    assert_eq!(used(), before + 4096);
}

/// The number of mappings of a file in this process.
fn mappings_of(file: &File) -> usize {
    let inode = format!(" {} ", file.metadata().unwrap().ino());
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.contains("memfd:adverb") && line.contains(&inode)).count()
}

/// TRU-3: tables that were let go are no longer mapped, and are empty for threads still reading
/// them.
#[test]
fn tru_3_tables_that_are_let_go_are_empty() {
    let (ours, fd) = Published::create().unwrap();
    let file = File::from(fd.try_clone().unwrap());
    assert!(ours.set_key(&key(0x100, 5)));
    ours.set_sleeping(true);
    let theirs = PeerTables::open(fd).unwrap();
    let (entry, seen) = theirs.key(0x100).unwrap();
    assert_eq!((entry, mappings_of(&file)), (key(0x100, 5), 2));
    thread::scope(|scope| {
        let looking = scope.spawn(|| {
            while theirs.is_unchanged(&seen) {
                // The whole entry, or none.
                assert!(theirs.key(0x100).is_none_or(|(entry, _)| entry == key(0x100, 5)));
            }
        });
        thread::sleep(SHORT);
        theirs.let_go();
        looking.join().unwrap();
    });
    assert_eq!((theirs.key(0x100), theirs.key(0x200), theirs.sleeping()), (None, None, 0));
    assert!(theirs.wait_quiet(SHORT, || false));
    assert_eq!(mappings_of(&file), 1);
    drop(theirs);
    assert_eq!(mappings_of(&file), 1);
}

#[test]
fn a_full_bucket_says_so() {
    let (ours, theirs) = tables();
    let same: Vec<u32> =
        (1..).map(|n| n << 8).filter(|key| bucket(*key) == bucket(0x100)).take(WAYS + 1).collect();
    let (last, fit) = same.split_last().unwrap();
    assert!(fit.iter().all(|k| ours.set_key(&key(*k, 1))));
    assert!(!ours.set_key(&key(*last, 1)));
    assert_eq!(theirs.key(*last), None);
    assert!(ours.set_key(&key(fit[3], 2)), "a change needs no room");
    assert!(fit.iter().all(|k| theirs.key(*k).unwrap().0.key == *k));
    ours.remove_key(fit[0]);
    assert!(ours.set_key(&key(*last, 1)));
    assert_eq!(theirs.key(fit[0]), None);
    assert!(theirs.key(*last).is_some());
}

/// Keys that differ only in the eight bits of the consumer's choice are different keys.
#[test]
fn keys_are_whole() {
    let (ours, theirs) = tables();
    assert!(ours.set_key(&key(0x1201, 1)) && ours.set_key(&key(0x1202, 2)));
    assert_eq!(theirs.key(0x1201).unwrap().0, key(0x1201, 1));
    assert_eq!(theirs.key(0x1202).unwrap().0, key(0x1202, 2));
    assert_eq!(theirs.key(0x1203), None);
    ours.remove_key(0x1203);
    ours.remove_key(0x1201);
    assert_eq!(theirs.key(0x1201), None);
    assert_eq!(theirs.key(0x1202).unwrap().0, key(0x1202, 2));
}

/// A reader gets the values of one write, or nothing. What the reader has seen counts as unchanged
/// only until the next write.
#[test]
fn what_is_read_was_written_at_once() {
    let (ours, theirs) = tables();
    let stop = AtomicBool::new(false);
    assert!(ours.set_key(&key(0x100, 0)));
    thread::scope(|scope| {
        scope.spawn(|| {
            for filler in 1..200_000 {
                match filler % 16 {
                    0 => drop(ours.remove_key(0x100)),
                    _ => assert!(ours.set_key(&key(0x100, filler))),
                }
            }
            stop.store(true, Relaxed);
        });
        let mut last = 0;
        while !stop.load(Relaxed) {
            if let Some((found, seen)) = theirs.key(0x100) {
                assert_eq!(found, key(0x100, found.pd));
                assert!(found.pd >= last, "back in time");
                last = found.pd;
                if theirs.is_unchanged(&seen) {
                    assert!(theirs.key(0x100).is_none_or(|(next, _)| next.pd >= last));
                }
            }
        }
    });
}

/// A hostile owner may write anything anywhere in its tables while a peer reads them.
#[test]
fn a_hostile_owner_achieves_wrong_entries_at_most() {
    let (ours, theirs) = tables();
    let memory = ours.memory();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut dice = Dice(1);
            while !stop.load(Relaxed) {
                let value = dice.next();
                memory.any_word(dice.next() as usize).store(value, Relaxed);
                // The most sensitive words: sequences, which then look busy, the number of hazards,
                // and the hazards.
                memory.any_word(16).store(value, Relaxed);
                memory.any_word(24 + value as usize % (8 * HAZARDS)).store(value | 1, Relaxed);
            }
        });
        let mut dice = Dice(2);
        for _ in 0..200_000 {
            let number = dice.next() as u32;
            if let Some((entry, seen)) = theirs.key(number) {
                assert_eq!(entry.key, number);
                theirs.is_unchanged(&seen);
            }
            if let Some((entry, seen)) = theirs.qp(number) {
                assert_eq!(entry.qpn, number);
                theirs.is_unchanged(&seen);
            }
            theirs.sleeping();
        }
        for _ in 0..5 {
            theirs.wait_quiet(SHORT, || false);
            theirs.wait_quiet(Duration::MAX, || true);
        }
        stop.store(true, Relaxed);
    });
}

#[test]
fn hazards_are_as_many_as_threads_at_one_time() {
    let (ours, theirs) = tables();
    // More threads than hazards, one after the other.
    for _ in 0..HAZARDS + 10 {
        thread::scope(|scope| {
            scope.spawn(|| assert!(ours.enter(&Use::default()).is_some())).join().unwrap()
        });
    }
    // The end of a thread clears a hazard that the thread has forgotten.
    thread::scope(|scope| {
        scope.spawn(|| std::mem::forget(ours.enter(&Use::default()).unwrap())).join().unwrap()
    });
    assert!(theirs.wait_quiet(Duration::ZERO, || false));
    // All at once.
    let barrier = std::sync::Barrier::new(HAZARDS + 1);
    thread::scope(|scope| {
        for _ in 0..HAZARDS {
            scope.spawn(|| {
                let busy = ours.enter(&Use::default());
                barrier.wait();
                barrier.wait();
                assert!(busy.is_some());
            });
        }
        barrier.wait();
        assert!(ours.enter(&Use::default()).is_none());
        assert!(!theirs.wait_quiet(SHORT, || false));
        barrier.wait();
    });
    assert!(ours.enter(&Use::default()).is_some());
    assert!(theirs.wait_quiet(Duration::ZERO, || false));
}

/// A thread has a hazard in each set of tables of its process. Hazards of dropped tables are
/// forgotten.
#[test]
fn hazards_of_several_tables() {
    let (a, see_a) = tables();
    let quiet = |theirs: &PeerTables| theirs.wait_quiet(Duration::ZERO, || false);
    for _ in 0..3 {
        let (b, see_b) = tables();
        let busy_a = a.enter(&Use::default()).unwrap();
        assert!(!quiet(&see_a) && quiet(&see_b));
        let busy_b = b.enter(&Use::default()).unwrap();
        assert!(!quiet(&see_a) && !quiet(&see_b));
        drop(busy_a);
        assert!(quiet(&see_a) && !quiet(&see_b));
        assert!(!see_b.wait_quiet(Duration::MAX, || true), "its process has ended");
        drop(busy_b);
        assert!(quiet(&see_b));
    }
}

/// Two threads use an object by `uses` again and again, while its owner takes the object back by
/// `take_back`, changes it, and gives it again. Here the object is a word that says whether it is
/// valid. A thread has a place for an entry that it has seen.
fn taken_back_again_and_again(
    uses: impl Fn(&mut Option<EntrySeen>, &dyn Fn()) + Sync,
    take_back: impl Fn(),
    give: impl Fn(u32),
) {
    const TURNS: u32 = 3_000;
    let (valid, stop) = (AtomicBool::new(true), AtomicBool::new(false));
    let count = AtomicU64::new(0);
    let use_it = || {
        (0..20).for_each(|_| assert!(valid.load(Relaxed), "used what was taken back"));
        count.fetch_add(1, Relaxed);
    };
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut seen = None;
                while !stop.load(Relaxed) {
                    uses(&mut seen, &use_it);
                }
            });
        }
        for turn in 0..TURNS {
            take_back();
            valid.store(false, Relaxed);
            std::hint::spin_loop();
            valid.store(true, Relaxed);
            give(turn);
            while count.load(Relaxed) == 0 {
                thread::yield_now();
            }
        }
        stop.store(true, Relaxed);
    });
}

/// No thread uses an object after its owner has taken it back and waited.
#[test]
fn nobody_uses_what_was_taken_back() {
    // The owner of the memory, and the peer using the memory, each with a view of the other's
    // tables.
    let (owner, owners) = tables();
    let (user, users) = tables();
    assert!(owner.set_key(&key(0x100, 1)));
    taken_back_again_and_again(
        |cached, use_it| {
            let _busy = user.enter(&Use::default()).unwrap();
            let known = cached.filter(|seen| owners.is_unchanged(seen));
            *cached = known.or_else(|| Some(owners.key(0x100)?.1));
            if cached.is_some() {
                use_it();
            }
        },
        || {
            owner.remove_key(0x100);
            assert!(users.wait_quiet(Duration::from_secs(60), || false));
        },
        |turn| assert!(owner.set_key(&key(0x100, turn))),
    );
}

/// The same for memory of the user's own process. Its threads check before each use whether the
/// memory was taken back, and set their hazards by a lock. An odd number of changes means: being
/// taken back, not to be found by any thread.
#[test]
fn no_thread_of_the_process_uses_what_was_taken_back() {
    let (user, _) = tables();
    let taken_back = AtomicU64::new(0);
    taken_back_again_and_again(
        |_, use_it| {
            let lock = Mutex::new(());
            let seen = taken_back.load(Acquire);
            if seen % 2 == 1 {
                return;
            }
            let (busy, _guard) = user.enter_by(|| lock.try_lock());
            assert!(busy.as_ref().is_some_and(|busy| busy.names(&Use::default())));
            if taken_back.load(Relaxed) == seen {
                use_it();
            }
        },
        || {
            taken_back.fetch_add(1, Relaxed);
            user.wait_quiet();
        },
        |_| {
            taken_back.fetch_add(1, Release);
        },
    );
}

/// A hazard set by a lock's barrier keeps the name of its last use.
#[test]
fn a_hazard_keeps_its_name() {
    let (ours, theirs) = tables();
    let [one, other] = [Use { key: 5, ..Use::default() }, Use { qpn: 6, ..Use::default() }];
    drop(ours.enter(&one));
    let (busy, result) = ours.enter_by(|| 7);
    let busy = busy.unwrap();
    assert!(busy.names(&one) && !busy.names(&other));
    assert_eq!(result, 7);
    assert!(ours.enter(&other).is_none(), "a thread has one mark");
    assert!(ours.enter_by(|| ()).0.is_none(), "a thread has one mark");
    let mut inside = theirs.inside(|at| *at == one);
    assert!(!theirs.are_out(&mut inside));
    drop(busy);
    assert!(theirs.are_out(&mut inside));
}

/// The child of a fork has no mapping. Dropping inherited objects touches neither the parent's
/// tables nor a later mapping of the child at the same addresses.
#[test]
fn a_child_drops_what_it_inherited_unharmed() {
    let (ours, theirs) = tables();
    let (consumer, _fd) = Consumer::create().unwrap();
    let _busy = ours.enter(&Use::default()).unwrap();
    let at = ours.memory().any_word(0).as_ptr().cast::<u8>();
    // SAFETY: the child makes only system calls and drops objects; the drops only make system calls
    // and free memory.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let fixed = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        // SAFETY: a new mapping where there is none; then a write to its first byte. `_exit` ends
        // the child, so no object is dropped twice.
        unsafe {
            let map = libc::mmap(at.cast(), 4096, libc::PROT_READ | libc::PROT_WRITE, fixed, -1, 0);
            if map != at.cast() {
                libc::_exit(10); // inherited
            }
            *at = 77;
            ours.end_thread();
            drop((ptr::read(&ours), ptr::read(&theirs), ptr::read(&consumer)));
            libc::_exit(i32::from(*at));
        }
    }
    assert!(child > 0);
    let mut status = 0;
    // SAFETY: `status` has room for the answer.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert!(libc::WIFEXITED(status), "status {status:#x}");
    assert_eq!(libc::WEXITSTATUS(status), 77);
    assert!(!theirs.wait_quiet(Duration::ZERO, || false), "the parent's thread is still within");
}

#[test]
fn sleeping_is_odd() {
    let (ours, theirs) = tables();
    assert_eq!(theirs.sleeping() % 2, 0);
    let first = ours.set_sleeping(true);
    assert_eq!((first % 2, theirs.sleeping()), (1, first));
    // A second announcement during sleep is a new announcement.
    let second = ours.set_sleeping(true);
    assert_eq!((second % 2, theirs.sleeping()), (1, second));
    assert_ne!(second, first);
    let awake = ours.set_sleeping(false);
    assert_eq!((awake % 2, theirs.sleeping()), (0, awake));
    assert_eq!((ours.set_sleeping(false), theirs.sleeping()), (awake, awake));
    assert_ne!(ours.set_sleeping(true), first);
}

#[test]
fn every_index_of_a_queue_pair_has_a_place() {
    let (ours, theirs) = tables();
    let entry = |qpn| QpEntry {
        qpn,
        peer_qpn: !qpn,
        peer_nonce: 9,
        epoch: 3,
        pd: qpn,
        access: 1,
        ready: qpn % 2 == 0,
    };
    let qpn = |index: usize| 5 << 14 | index as u32;
    for index in (0..QPS).step_by(97) {
        assert!(ours.set_qp(&entry(qpn(index))));
    }
    for index in 0..QPS {
        let found = theirs.qp(qpn(index)).map(|(found, _)| found);
        assert_eq!(found, index.is_multiple_of(97).then(|| entry(qpn(index))));
    }
}

/// An owner can wait for several processes at once. Only threads inside at one moment count, not
/// threads that enter later (MEM-2).
#[test]
fn who_was_inside_is_out_once_it_has_left_and_be_it_inside_again() {
    let ((a, see_a), (b, see_b)) = (tables(), tables());
    let (busy_a, busy_b) = (a.enter(&Use::default()).unwrap(), b.enter(&Use::default()).unwrap());
    let (mut in_a, mut in_b) = (see_a.inside(|_| true), see_b.inside(|_| true));
    assert!(!see_a.are_out(&mut in_a) && !see_b.are_out(&mut in_b));
    drop(busy_a);
    let again = a.enter(&Use::default()).unwrap();
    assert!(see_a.are_out(&mut in_a) && !see_b.are_out(&mut in_b));
    assert!(!see_a.are_out(&mut see_a.inside(|_| true)));
    drop((again, busy_b));
    assert!(see_b.are_out(&mut in_b) && see_a.are_out(&mut see_a.inside(|_| true)));
}
