//! Rings and tables through their descriptors, as two processes use them.

use adverb_link::shm::{Consumer, KeyEntry, PeerTables, Producer, Published, Pushed, QpEntry};
use std::time::Duration;

#[test]
fn a_record_crosses_a_ring() {
    let (mut consumer, fd) = Consumer::create().unwrap();
    let mut producer = Producer::open(fd).unwrap();
    assert!(consumer.is_empty());
    assert_eq!(consumer.take(|_, _| ()), Ok(None));
    let fill = |bytes: &mut [u8]| {
        bytes.copy_from_slice(b"hello");
        true
    };
    assert_eq!(producer.push(7, 5, fill), Ok(Pushed::Done));
    assert!(!consumer.is_empty());
    assert_eq!(consumer.take(|tag, body| (tag, body.to_vec())), Ok(Some((7, b"hello".to_vec()))));
    assert!(consumer.is_empty());
}

fn key(key: u32) -> KeyEntry {
    KeyEntry { key, pd: 3, access: 7, va: 1 << 40, len: 4096, addr: 0x7f00_0000_1000, how: 1, qpn: 9 }
}

#[test]
fn tables_tell_what_was_published() {
    let (ours, fd) = Published::create().unwrap();
    let theirs = PeerTables::open(fd).unwrap();
    assert_eq!(ours.identity(), theirs.identity());
    assert_eq!(ours.identity().pid, std::process::id());
    assert_ne!(ours.identity().start_time, 0);
    let qp = QpEntry { qpn: 0x12_3456, peer_qpn: 0x65_4321, peer_nonce: 5, pd: 1, access: 2, ready: true };
    assert_eq!(theirs.qp(qp.qpn), None);
    assert!(ours.set_qp(&qp));
    let same_place = QpEntry { qpn: qp.qpn ^ 1 << 14, ..qp };
    assert!(!ours.set_qp(&same_place), "another has the place");
    ours.remove_qp(same_place.qpn);
    assert!(theirs.qp(qp.qpn).is_some());
    let (found, seen) = theirs.qp(qp.qpn).unwrap();
    assert_eq!(found, qp);
    assert_eq!(theirs.qp(qp.qpn ^ 1 << 20), None, "another slot's queue pair at the same index");
    assert!(theirs.qp_unchanged(&seen));
    ours.remove_qp(qp.qpn);
    assert!(!theirs.qp_unchanged(&seen));
    assert_eq!(theirs.qp(qp.qpn), None);

    assert!(ours.set_key(&key(0x100)));
    let (found, seen) = theirs.key(0x100).unwrap();
    assert_eq!(found, key(0x100));
    assert!(theirs.key_unchanged(&seen));
    assert!(ours.set_key(&KeyEntry { access: 1, ..key(0x100) }));
    assert!(!theirs.key_unchanged(&seen));
    assert_eq!(theirs.key(0x100).unwrap().0.access, 1);
    ours.remove_key(0x100);
    assert_eq!(theirs.key(0x100), None);
}

#[test]
fn marks_hold_an_owner_back() {
    // `user` uses what somebody published; `watched` is how that owner sees its marks.
    let (user, fd) = Published::create().unwrap();
    let watched = PeerTables::open(fd).unwrap();
    let quiet = || watched.wait_quiet(Duration::from_millis(5), || false);
    assert!(quiet());
    let busy = user.enter().unwrap();
    let again = user.enter().unwrap();
    assert!(!quiet());
    drop(busy);
    assert!(!quiet(), "entered twice");
    drop(again);
    assert!(quiet());
    let _busy = user.enter().unwrap();
    assert!(!watched.wait_quiet(Duration::MAX, || true), "gone");
}

#[test]
fn each_announcement_of_sleep_is_another() {
    let (ours, fd) = Published::create().unwrap();
    let theirs = PeerTables::open(fd).unwrap();
    assert!(theirs.sleeping().is_multiple_of(2), "awake at first");
    ours.set_sleeping(false);
    let awake = theirs.sleeping();
    ours.set_sleeping(true);
    let first = theirs.sleeping();
    // Said again while it sleeps: whoever has rung for the first rings once more.
    ours.set_sleeping(true);
    let second = theirs.sleeping();
    assert!(awake.is_multiple_of(2) && first % 2 == 1 && second % 2 == 1, "{awake} {first} {second}");
    assert_ne!(first, second);
    ours.set_sleeping(false);
    let last = theirs.sleeping();
    ours.set_sleeping(false);
    assert!(last.is_multiple_of(2) && last != awake && theirs.sleeping() == last);
}
