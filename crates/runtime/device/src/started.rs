//! Does this process have a node? Process-wide choices have to be made before.
use crate::error::Error;
use adverb_memory::ProcessIdentity;
use nix::errno::Errno;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The process with a node, plus one. The child of a fork has no node yet. No lock, because a child
/// must not meet a locked lock.
static STARTED: AtomicU64 = AtomicU64::new(0);

fn number_of(process: ProcessIdentity) -> u64 {
    u64::from(process.number()) + 1
}

/// This process has a node from now on.
pub(crate) fn set_started(process: ProcessIdentity) {
    STARTED.store(number_of(process), Ordering::SeqCst);
}

/// Does this process (not its parent) have a node?
fn is_started() -> bool {
    STARTED.load(Ordering::SeqCst) == number_of(ProcessIdentity::current())
}

/// Makes a choice for the process: `value` for `what`.
///
/// # Errors
/// EBUSY if the choice was made already, or the process has a node.
pub(crate) fn choose<T>(choice: &OnceLock<T>, value: T, what: &str) -> Result<(), Error> {
    if is_started() || choice.set(value).is_err() {
        let text = format!("{what} chosen once, before the first device is opened");
        return Err(Error::new(Errno::EBUSY, text));
    }
    Ok(())
}
