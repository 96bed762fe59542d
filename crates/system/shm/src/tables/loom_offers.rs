//! Offers under a model checker, on the production code.
//!
//! Each test names changes of the code with which the test fails. Each of these changes was made
//! and seen to fail. Run by `make loom`.
use super::entry::TableEntry;
use super::hazards::{Hazard, Set, Use};
use super::offers::Offers;
use crate::sync::AtomicU64;
use loom::thread;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};

/// The use of a thread sending a message.
const MESSAGE: Use = Use { owner: 1, qpn: 2, key: 0, restarts: false };

fn model(test: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(4));
    builder.check(test);
}

/// A closing queue pair takes each message completed by its sender.
///
/// Fails if the sender checks the entry before setting its hazard, or clears the hazard before the
/// record is in the ring. Fails also if the owner does not wait, or reads the ring before waiting.
#[test]
fn loom_a_message_is_taken_before_the_end() {
    model(|| {
        let entry = TableEntry::<1>::new();
        entry.write(&[1]);
        let (_, seen) = entry.read().expect("nobody writes yet");
        let world = Arc::new((entry, [Hazard::new()], AtomicU64::new(1), AtomicU64::new(0)));
        let sender = thread::spawn({
            let world = world.clone();
            move || {
                let (entry, hazards, _, ring) = &*world;
                hazards[0].enter(&MESSAGE);
                let sends = entry.is_unchanged(seen);
                if sends {
                    ring.store(1, Release); // `Producer::push`
                }
                hazards[0].leave();
                sends
            }
        });
        let (entry, hazards, used, ring) = &*world;
        entry.write(&[0]);
        let mut inside = Set::now(used, hazards, |at| at.qpn == MESSAGE.qpn);
        while !inside.is_over(hazards) {
            thread::yield_now();
        }
        let taken = ring.load(Acquire) == 1; // `Consumer::is_empty`
        assert_eq!(sender.join().unwrap(), taken, "a message is lost");
    });
}

/// A sender first finds no offer, and then finds all earlier messages taken. At its next look the
/// sender finds the offers made meanwhile.
///
/// Fails if the owner publishes `taken` before making the offer; if either store is relaxed.
#[test]
fn loom_offers_come_before_the_count_of_what_is_taken() {
    model(|| {
        let offers = Arc::new(Offers::new());
        let owner = thread::spawn({
            let offers = offers.clone();
            move || {
                offers.set(1, 0, Some(8));
                offers.set_taken(1);
            }
        });
        if offers.get(1, 0).is_none() && offers.taken() == 1 {
            assert_eq!(offers.get(1, 0), Some(8), "the offer is not seen");
        }
        owner.join().unwrap();
    });
}
