//! Whether this process has a node: what is chosen once for a process is chosen before.
use adverb_memory::Life;
use std::sync::atomic::{AtomicU64, Ordering};

/// The process that has one, plus one; the child of a fork has none yet. No lock: it must not meet
/// one that is held.
static STARTED: AtomicU64 = AtomicU64::new(0);

fn mark_of(life: Life) -> u64 {
    u64::from(life.number()) + 1
}

/// This process has a node from now on.
pub(crate) fn set_started(life: Life) {
    STARTED.store(mark_of(life), Ordering::SeqCst);
}

/// Has this process (not its parent) a node?
pub(crate) fn is_started() -> bool {
    STARTED.load(Ordering::SeqCst) == mark_of(Life::current())
}
