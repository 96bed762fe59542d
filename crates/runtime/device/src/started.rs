//! Does this process have a node? Process-wide choices have to be made before.
use adverb_memory::Life;
use std::sync::atomic::{AtomicU64, Ordering};

/// The process with a node, plus one. The child of a fork has no node yet. No lock, because a child
/// must not meet a locked lock.
static STARTED: AtomicU64 = AtomicU64::new(0);

fn mark_of(life: Life) -> u64 {
    u64::from(life.number()) + 1
}

/// This process has a node from now on.
pub(crate) fn set_started(life: Life) {
    STARTED.store(mark_of(life), Ordering::SeqCst);
}

/// Does this process (not its parent) have a node?
pub(crate) fn is_started() -> bool {
    STARTED.load(Ordering::SeqCst) == mark_of(Life::current())
}
