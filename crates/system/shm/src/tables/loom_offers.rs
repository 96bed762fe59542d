//! Offers by model checking, on the code that production uses.
//!
//! Each test names changes of the code that make it fail; each of these was made and seen to fail.
//! Run by `make loom`.
use super::entry::Entry;
use super::marks::{Mark, Set, Use};
use super::offers::Offers;
use crate::sync::AtomicU64;
use loom::thread;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};

/// The use that a message makes.
const MESSAGE: Use = Use { owner: 1, qpn: 2, key: 0, restarts: false };

fn model(test: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(4));
    builder.check(test);
}

/// A queue pair that ends takes each message whose sender has completed it.
///
/// Fails if the sender looks at the entry before it sets its mark, or takes the mark away before
/// its record is in the ring; if the owner does not wait, or looks at its ring before it has
/// waited.
#[test]
fn loom_a_message_is_taken_before_the_end() {
    model(|| {
        let entry = Entry::<1>::new();
        entry.write(&[1]);
        let (_, seen) = entry.read().expect("nobody writes yet");
        let world = Arc::new((entry, [Mark::new()], AtomicU64::new(1), AtomicU64::new(0)));
        let sender = thread::spawn({
            let world = world.clone();
            move || {
                let (entry, marks, _, ring) = &*world;
                marks[0].enter(&MESSAGE);
                let sends = entry.is_unchanged(seen);
                if sends {
                    ring.store(1, Release); // `Producer::push`
                }
                marks[0].leave();
                sends
            }
        });
        let (entry, marks, used, ring) = &*world;
        entry.write(&[0]);
        let mut inside = Set::now(used, marks, |at| at.qpn == MESSAGE.qpn);
        while !inside.is_over(marks) {
            thread::yield_now();
        }
        let taken = ring.load(Acquire) == 1; // `Consumer::is_empty`
        assert_eq!(sender.join().unwrap(), taken, "a message is lost");
    });
}

/// A sender that finds no offer, and then that its peer has taken all messages, finds the offers
/// that there are at its next look.
///
/// Fails if the owner says what it has taken before it makes the offer; if either store is relaxed.
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
