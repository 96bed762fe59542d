//! The list of instruments.
use super::call::{Call, CallOutcome, Event, Fork};
use super::check::Checking;
use super::hunt::Hunting;
use super::observer::{ListedObserver, When};
use super::trace::Tracing;
use crate::errno;
use core::sync::atomic::{AtomicBool, Ordering};

/// The instruments, outermost first.
pub(super) static LIST: &[&dyn ListedObserver] = &[
    &Tracing,
    &Checking,
    &Hunting,
    #[cfg(test)]
    &super::tests::Fourth,
];

/// Is an instrument on? The trampolines of exported functions read this byte.
pub static ON: AtomicBool = AtomicBool::new(false);

/// Is an instrument on?
#[inline]
pub fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// Begins the instruments for which the process asks. Answers whether any is on.
pub fn begin(when: When) -> bool {
    LIST.iter().for_each(|entry| entry.begin(when));
    let on = LIST.iter().any(|entry| entry.is_on());
    if on {
        ON.store(true, Ordering::Relaxed);
    }
    on
}

/// Makes a call with `plain`, surrounded by the instruments. `errno` stays as the call left it.
pub fn observe(call: &Call<'_>, plain: &mut dyn FnMut() -> CallOutcome) -> CallOutcome {
    if !is_on() {
        return plain();
    }
    let outcome = nest(LIST, call, plain);
    errno::set(outcome.errno);
    outcome
}

/// Makes a call with `plain`, surrounded by the instruments of a list.
pub(super) fn nest(
    list: &[&dyn ListedObserver],
    call: &Call<'_>,
    plain: &mut dyn FnMut() -> CallOutcome,
) -> CallOutcome {
    match list.split_first() {
        Some((first, rest)) if first.is_on() => first.around(call, &mut || nest(rest, call, plain)),
        Some((_, rest)) => nest(rest, call, plain),
        None => plain(),
    }
}

/// Tells the instruments. In a process without instruments this only reads one word.
#[inline]
pub fn tell(mut event: Event<'_>) {
    if is_on() {
        tell_each(LIST, &mut event);
    }
}

/// Tells the instruments of a list in order, and after a fork in the reverse order. Allocates
/// nothing.
#[cold]
pub(super) fn tell_each(list: &[&dyn ListedObserver], event: &mut Event<'_>) {
    let reversed = matches!(event, Event::Fork(Fork::Parent | Fork::Child));
    let told = |entry: &&dyn ListedObserver| {
        if entry.is_on() {
            entry.told(event);
        }
    };
    if reversed {
        list.iter().rev().for_each(told);
    } else {
        list.iter().for_each(told);
    }
}
