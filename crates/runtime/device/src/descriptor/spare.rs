//! Pipes made in advance. A connection needs three pipes, and making a pipe costs a dozen system
//! calls. A thread that waits for its peer has the time to make the pipes of the next connection.
//!
//! Only a process that makes connections has spare pipes. Each time a pipe is wanted and there is
//! none, one more is made in advance from then on, up to [`MOST`]. No code outside the library has
//! seen a spare pipe before an event queue uses it.
use crate::ranks;
use adverb_memory::ProcessIdentity;
use adverb_os::OwnFd;
use adverb_sync::Ranked;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Most spare pipes: the pipes of a connection, and one more.
const MOST: usize = 4;

/// Both ends of a pipe that no event queue has yet.
pub(super) struct Spare {
    /// The read end. It has a high number; the program gets a duplicate.
    pub(super) reads: OwnFd,
    /// The future [`Descriptor::own`](super::Descriptor).
    pub(super) own: OwnFd,
}

/// The spare pipes of a process.
struct Spares {
    /// The owning process. Pipes of the parent belong to the parent.
    process: Option<u32>,
    pipes: Vec<Spare>,
}

/// This lock is only tried. If another thread holds the lock, or held it at a fork, a new pipe is
/// made.
static SPARES: Ranked<Spares, ranks::SparePipes> =
    Ranked::new(Spares { process: None, pipes: Vec::new() });
/// The wanted number of spare pipes.
static WANTED: AtomicUsize = AtomicUsize::new(0);

/// Calls `with` with the spare pipes of this process.
fn with<R>(with: impl FnOnce(&mut Vec<Spare>) -> R) -> Option<R> {
    let mut spares = SPARES.try_lock()?;
    let process = ProcessIdentity::current().number();
    if spares.process != Some(process) {
        // The parent's descriptors are not closed here, because they belong to the parent.
        std::mem::forget(std::mem::take(&mut spares.pipes));
        spares.process = Some(process);
    }
    Some(with(&mut spares.pipes))
}

/// Takes a spare pipe. If there is none, one more is wanted from now on.
pub(super) fn take() -> Option<Spare> {
    let spare = with(Vec::pop).flatten();
    if spare.is_none() {
        let more = |wanted: usize| (wanted < MOST).then_some(wanted + 1);
        let _ = WANTED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
    }
    spare
}

/// Makes a spare pipe if a pipe is missing. `false`: there are enough, or none can be made.
pub(super) fn prepare(make: impl FnOnce() -> nix::Result<Spare>) -> bool {
    let is_missing = |pipes: &mut Vec<Spare>| pipes.len() < WANTED.load(Ordering::Relaxed);
    if with(is_missing) != Some(true) {
        return false;
    }
    let Ok(spare) = make() else { return false };
    with(|pipes| pipes.push(spare)).is_some()
}
