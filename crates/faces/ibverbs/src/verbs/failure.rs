//! Why calls fail, kept for the reports of a check.
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};

static KEPT: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Of this thread's last call that failed.
    static LAST: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Reasons are kept from here on.
pub fn keep() {
    KEPT.store(true, Ordering::Relaxed);
}

/// A call fails.
#[cold]
pub fn note(why: &dyn std::fmt::Display) {
    if KEPT.load(Ordering::Relaxed) {
        LAST.with(|place| *place.borrow_mut() = why.to_string());
    }
}

/// Why this thread's last call failed, once.
pub fn last() -> String {
    LAST.with(|place| std::mem::take(&mut *place.borrow_mut()))
}
