//! Rings and tables opened through their descriptors, as two processes use them.
//!
//! A child is this test binary, started again with one test selected. `CHILD` tells this test to be
//! the child, and holds the path of the descriptor to open.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use adverb_shm::{
    Broken, Consumer, KeyEntry, PeerTables, Producer, Published, Pushed, QpEntry, Use,
};

const CHILD: &str = "ADVERB_SHM_TEST_CHILD";
/// How long a test waits for its other process on a busy machine.
const HANG_LIMIT: Duration = Duration::from_secs(120);

fn key(key: u32) -> KeyEntry {
    KeyEntry {
        key,
        pd: 3,
        access: 7,
        va: 1 << 40,
        len: 4096,
        addr: 0x7f00_0000_1000,
        how: 1,
        qpn: 9,
    }
}

#[test]
fn tables_tell_what_was_published() {
    let (ours, fd) = Published::create().unwrap();
    let theirs = PeerTables::open(fd).unwrap();
    assert_eq!(ours.identity(), theirs.identity());
    assert_eq!(ours.identity().pid, std::process::id());
    assert_ne!(ours.identity().start_time, 0);
    let qp = QpEntry {
        qpn: 0x12_3456,
        peer_qpn: 0x65_4321,
        peer_nonce: 5,
        epoch: 7,
        pd: 1,
        access: 2,
        ready: true,
    };
    assert_eq!(theirs.qp(qp.qpn), None);
    assert!(ours.set_qp(&qp));
    let same_place = QpEntry { qpn: qp.qpn ^ 1 << 14, ..qp };
    assert!(!ours.set_qp(&same_place), "another has the place");
    ours.remove_qp(same_place.qpn);
    assert!(theirs.qp(qp.qpn).is_some());
    let (found, seen) = theirs.qp(qp.qpn).unwrap();
    assert_eq!(found, qp);
    assert_eq!(theirs.qp(qp.qpn ^ 1 << 20), None, "another slot's queue pair at the same index");
    assert!(theirs.is_unchanged(&seen));
    ours.set_failure(qp.qpn, [1; 5]);
    assert_eq!(theirs.failure(qp.qpn), None, "the queue pair is still published");
    ours.remove_qp(qp.qpn);
    assert!(!theirs.is_unchanged(&seen));
    assert_eq!(theirs.qp(qp.qpn), None);
    ours.set_failure(qp.qpn, [1, 2, 3, 4, u64::MAX]);
    assert_eq!(theirs.qp(qp.qpn), None);
    assert_eq!(theirs.failure(qp.qpn), Some([1, 2, 3, 4, u64::MAX]));
    assert_eq!(theirs.failure(same_place.qpn), None);
    assert!(ours.set_qp(&same_place), "the place is free");
    assert_eq!(theirs.failure(qp.qpn), None);

    assert!(ours.set_key(&key(0x100)));
    let (found, seen) = theirs.key(0x100).unwrap();
    assert_eq!(found, key(0x100));
    assert!(theirs.is_unchanged(&seen));
    assert!(ours.set_key(&KeyEntry { access: 1, ..key(0x100) }));
    assert!(!theirs.is_unchanged(&seen));
    assert_eq!(theirs.key(0x100).unwrap().0.access, 1);
    ours.remove_key(0x100);
    assert_eq!(theirs.key(0x100), None);
}

/// A random number generator for sizes, bytes and positions.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        self.0 ^ self.0 >> 29
    }

    /// Mostly short, sometimes as long as possible.
    fn len(&mut self) -> usize {
        let most = match self.next() % 16 {
            0..=9 => 64,
            10..=13 => 600,
            14 => 10_000,
            _ => Producer::MAX_BODY + 1,
        };
        self.next() as usize % most
    }
}

/// The bytes of record `number`.
fn fill(number: u64, body: &mut [u8]) {
    let mut dice = Dice(number);
    for chunk in body.chunks_mut(8) {
        let word = dice.next().to_ne_bytes();
        chunk.copy_from_slice(&word[..chunk.len()]);
    }
}

fn tag(number: u64) -> u32 {
    number as u32 & 0xff_ffff
}

/// Starts this binary again as the child of the test. `CHILD` holds the path of a descriptor of
/// this process.
fn child(test: &str, fd: &impl AsRawFd) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(CHILD, format!("/proc/{}/fd/{}", std::process::id(), fd.as_raw_fd()))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// In the child: opens the descriptor named by its parent.
fn inherited() -> Option<File> {
    let path = std::env::var_os(CHILD)?;
    Some(File::options().read(true).write(true).open(path).unwrap())
}

/// Pushes `count` records. Panics when the parent has ended.
fn produce(ring: File, count: u64) {
    let mut producer = Producer::open(ring.into()).unwrap();
    let mut dice = Dice(1);
    let parent = std::os::unix::process::parent_id();
    for number in 0..count {
        let len = dice.len();
        let write = |body: &mut [u8]| {
            fill(number, body);
            true
        };
        while producer.push(tag(number), len, write).unwrap() != Pushed::Done {
            assert_eq!(std::os::unix::process::parent_id(), parent, "the parent is gone");
            thread::yield_now();
        }
    }
}

/// Takes the next record, and compares every byte with its expected value. False: there is no
/// record.
fn check(consumer: &mut Consumer, number: u64, dice: &mut Dice, expected: &mut Vec<u8>) -> bool {
    let taken = consumer.take(|seen, body| {
        expected.resize(dice.len(), 0);
        fill(number, expected);
        assert_eq!((seen, body.len()), (tag(number), expected.len()), "record {number}");
        assert!(body == expected, "bytes of record {number}");
    });
    taken.unwrap().is_some()
}

#[test]
fn every_byte_crosses_between_processes() {
    const RECORDS: u64 = 5_000;
    if let Some(ring) = inherited() {
        return produce(ring, RECORDS);
    }
    let (mut consumer, fd) = Consumer::create().unwrap();
    let mut child = child("every_byte_crosses_between_processes", &fd);
    let (mut dice, mut expected) = (Dice(1), Vec::new());
    let mut last = Instant::now();
    let mut number = 0;
    while number < RECORDS {
        if check(&mut consumer, number, &mut dice, &mut expected) {
            (number, last) = (number + 1, Instant::now());
        } else {
            assert!(last.elapsed() < HANG_LIMIT, "record {number} does not come");
            thread::yield_now();
        }
    }
    assert!(child.wait().unwrap().success());
    assert_eq!(consumer.take(|_, _| ()), Ok(None));
}

/// A killed producer leaves whole records, and then nothing.
#[test]
fn a_killed_producer_leaves_whole_records() {
    if let Some(ring) = inherited() {
        return produce(ring, u64::MAX);
    }
    for turn in 0..10 {
        let (mut consumer, fd) = Consumer::create().unwrap();
        let mut child = child("a_killed_producer_leaves_whole_records", &fd);
        let (mut dice, mut expected) = (Dice(1), Vec::new());
        let start = Instant::now();
        let mut number = 0;
        while number < turn * 10 + 1 {
            if check(&mut consumer, number, &mut dice, &mut expected) {
                number += 1;
            } else {
                assert!(start.elapsed() < HANG_LIMIT);
                thread::yield_now();
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
        while check(&mut consumer, number, &mut dice, &mut expected) {
            number += 1;
        }
        assert!(consumer.is_empty());
    }
}

/// A process was killed while using published objects. The owner learns this from the end of the
/// process, not from the hazard.
#[test]
fn a_killed_user_does_not_hold_an_owner_for_ever() {
    if let Some(peer) = inherited() {
        drop(peer);
        let (tables, fd) = Published::create().unwrap();
        let _busy = tables.enter(&Use::default()).unwrap();
        println!("fd {}", fd.as_raw_fd());
        std::io::stdout().flush().unwrap();
        thread::sleep(HANG_LIMIT);
        return;
    }
    let null = File::open("/dev/null").unwrap();
    let mut child = child("a_killed_user_does_not_hold_an_owner_for_ever", &null);
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let number =
        lines.filter_map(|line| line.strip_prefix("fd ").map(str::to_owned)).next().unwrap();
    let path = format!("/proc/{}/fd/{number}", child.id());
    let theirs =
        PeerTables::open(File::options().read(true).write(true).open(path).unwrap().into())
            .unwrap();
    assert_eq!(theirs.identity().pid, child.id());
    let mut asked = 0;
    let mut ended = || {
        asked += 1;
        if asked == 3 {
            child.kill().unwrap();
        }
        child.try_wait().unwrap().is_some()
    };
    assert!(!theirs.wait_quiet(HANG_LIMIT, &mut ended));
    assert!(asked >= 3);
}

/// A third process with the descriptor writes random words all over the ring while both ends use
/// it. Each end gets wrong records or an error, and nothing else.
#[test]
fn a_scribbled_ring_is_garbage_or_broken() {
    let (mut consumers, mut producers, mut records) = (0, 0, 0);
    for turn in 0..40 {
        let (mut consumer, fd) = Consumer::create().unwrap();
        let file = File::from(fd.try_clone().unwrap());
        let mut producer = Producer::open(fd).unwrap();
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let (mut dice, len) = (Dice(turn), file.metadata().unwrap().len());
                while !stop.load(Relaxed) {
                    // Anywhere; the consumer's position; the first records.
                    let place = match dice.next() % 8 {
                        0 if turn % 2 == 0 => 64,
                        1..4 => 4096 + dice.next() % 64 * 64,
                        _ => dice.next() % (len / 8) * 8,
                    };
                    // Any word; words resembling a header or a position.
                    let word = match dice.next() % 4 {
                        0 => dice.next(),
                        1 => dice.next() % 8192,
                        2 => 2 << 56,
                        _ => (1 << 56) | (dice.next() % 200_000),
                    };
                    file.write_all_at(&word.to_ne_bytes(), place).unwrap();
                }
            });
            let mut dice = Dice(!turn);
            for round in 0..500 {
                if round == 400 {
                    // The random writes may have missed the words read next; this write does not.
                    let mut garbage = vec![0; 256 << 10];
                    fill(turn, &mut garbage);
                    file.write_all_at(&garbage, [4096, 64][turn as usize % 2]).unwrap();
                }
                let number = dice.next();
                let write = |body: &mut [u8]| {
                    fill(number, body);
                    true
                };
                let pushed = producer.push(tag(number), dice.len(), write);
                // To make the producer read the consumer's position, the consumer falls behind
                // here.
                let taken = if turn % 2 == 1 && number.is_multiple_of(2) {
                    Ok(None)
                } else {
                    consumer.take(|tag, body| {
                        assert!(tag < 1 << 24 && body.len() <= Producer::MAX_BODY);
                        body.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte))
                    })
                };
                records += u64::from(matches!(taken, Ok(Some(_))));
                producers += u64::from(pushed == Err(Broken));
                consumers += u64::from(taken == Err(Broken));
                if pushed.is_err() || taken.is_err() {
                    break;
                }
            }
            stop.store(true, Relaxed);
        });
    }
    assert!(consumers > 0 && producers > 0 && records > 0, "{consumers} {producers} {records}");
}
