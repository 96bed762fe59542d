use super::*;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, raise, sigaction};
use std::sync::atomic::AtomicUsize;

static POSTPONED: AtomicUsize = AtomicUsize::new(0);
static ARRIVED: AtomicUsize = AtomicUsize::new(0);

extern "C" fn handler(signal: c_int) {
    let count = if postpone(signal) { &POSTPONED } else { &ARRIVED };
    count.fetch_add(1, Ordering::SeqCst);
}

fn counts() -> (usize, usize) {
    (POSTPONED.load(Ordering::SeqCst), ARRIVED.load(Ordering::SeqCst))
}

/// CHK-15: a signal in such a part comes at the end of the outermost part, once, and elsewhere at
/// once. A thread in a part does not delay the signals of other threads.
#[test]
fn chk_15_a_signal_comes_at_the_end_of_the_part() {
    turn_on();
    let action = SigAction::new(SigHandler::Handler(handler), SaFlags::SA_RESTART, SigSet::empty());
    // SAFETY: the handler makes one system call and changes atomics.
    unsafe { sigaction(Signal::SIGUSR2, &action) }.unwrap();
    raise(Signal::SIGUSR2).unwrap();
    assert_eq!(counts(), (0, 1));
    let outer = Uninterrupted::begin();
    let inner = Uninterrupted::begin();
    raise(Signal::SIGUSR2).unwrap();
    drop(inner);
    assert_eq!(counts(), (1, 1));
    std::thread::spawn(|| raise(Signal::SIGUSR2).unwrap()).join().unwrap();
    assert_eq!(counts(), (1, 2));
    drop(outer);
    assert_eq!(counts(), (1, 3));
    raise(Signal::SIGUSR2).unwrap();
    assert_eq!(counts(), (1, 4));
}

/// More threads than places: each gets its turn.
#[test]
fn threads_without_a_place_wait() {
    turn_on();
    let all: Vec<_> = (0..3 * PLACES)
        .map(|_| std::thread::spawn(|| (0..100).for_each(|_| drop(Uninterrupted::begin()))))
        .collect();
    all.into_iter().for_each(|thread| thread.join().unwrap());
}
