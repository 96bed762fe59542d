use super::*;
use adverb_device::engine::{self, WcOpcode};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;

#[derive(Default)]
struct Count(AtomicUsize);
impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn completion(id: u64) -> Completion {
    Completion::new(engine::Completion::success(id, 0, WcOpcode::Send))
}

#[test]
fn places_are_given_in_the_order_of_asking() {
    let mut places = Places::new(1);
    let mut woken = Woken::new();
    let noop = Waker::noop();
    assert!(places.enter(1, noop, &mut woken));
    let second = Arc::new(Count::default());
    assert!(!places.enter(2, &second.clone().into(), &mut woken));
    assert!(!places.enter(3, noop, &mut woken));
    places.done(completion(1), &mut woken);
    assert!(!places.enter(3, noop, &mut woken), "the second comes first");
    woken.drain(..).for_each(Waker::wake);
    assert_eq!(second.0.load(Ordering::SeqCst), 1);
    assert!(places.enter(2, noop, &mut woken));
    assert!(places.take(1, noop).is_some());
    assert!(places.take(2, noop).is_none());
}

#[test]
fn whoever_leaves_the_line_calls_the_next() {
    let mut places = Places::new(1);
    let mut woken = Woken::new();
    assert!(places.enter(1, Waker::noop(), &mut woken));
    assert!(!places.enter(2, Waker::noop(), &mut woken));
    let third = Arc::new(Count::default());
    assert!(!places.enter(3, &third.clone().into(), &mut woken));
    places.refuse(1, &mut woken);
    // The second future was woken, and is dropped before it takes its place.
    woken.clear();
    places.leave(2, &mut woken);
    woken.drain(..).for_each(Waker::wake);
    assert_eq!(third.0.load(Ordering::SeqCst), 1);
    assert!(places.enter(3, Waker::noop(), &mut woken));
}

#[test]
fn a_dropped_request_keeps_its_place_until_it_completes() {
    let mut places = Places::new(1);
    let mut woken = Woken::new();
    assert!(places.enter(1, Waker::noop(), &mut woken));
    places.abandon(1);
    assert!(!places.enter(2, Waker::noop(), &mut woken));
    places.done(completion(1), &mut woken);
    assert!(places.enter(2, Waker::noop(), &mut woken));
    places.done(completion(7), &mut woken);
    assert!(!places.enter(3, Waker::noop(), &mut woken), "nobody's completion frees no place");
    assert!(places.under_way.len() == 1);
}
