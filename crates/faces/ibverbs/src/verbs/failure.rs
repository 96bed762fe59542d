//! The reasons for failed calls, kept for the reports of a check.
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};

static KEPT: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// The reason of this thread's last failed call.
    static LAST: RefCell<String> = const { RefCell::new(String::new()) };
}

/// From here on, reasons are kept.
pub fn keep() {
    KEPT.store(true, Ordering::Relaxed);
}

/// Records why a call fails.
#[cold]
pub fn note(why: &dyn std::fmt::Display) {
    if KEPT.load(Ordering::Relaxed) {
        LAST.with(|place| *place.borrow_mut() = why.to_string());
    }
}

/// Takes the reason of this thread's last failed call.
pub fn last() -> String {
    LAST.with(|place| std::mem::take(&mut *place.borrow_mut()))
}
