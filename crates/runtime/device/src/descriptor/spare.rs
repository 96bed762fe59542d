//! Pipes made in advance. A connection takes three, and making one costs a dozen system calls. A
//! thread that waits for its peer has the time to make those of the next connection.
//!
//! Only a process that makes connections has any: a pipe is made in advance for each time that one
//! was wanted and there was none, up to [`MOST`]. Nobody but the library has had a spare pipe
//! before it becomes an event queue's.
use crate::ranks;
use adverb_memory::Life;
use adverb_os::OwnFd;
use adverb_sync::Ranked;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Spare pipes at most: those of a connection, and one more.
const MOST: usize = 4;

/// Both ends of a pipe that no event queue has yet.
pub(super) struct Spare {
    /// To read from. It has a high number; the program gets a duplicate.
    pub(super) reads: OwnFd,
    /// What is to be [`Descriptor::own`](super::Descriptor).
    pub(super) own: OwnFd,
}

/// The spare pipes of a process.
struct Spares {
    /// Whose they are. Those of a parent are the parent's.
    life: Option<u32>,
    pipes: Vec<Spare>,
}

/// Only tried: where another thread has it, or had it at a fork, a pipe is made afresh.
static SPARES: Ranked<Spares, ranks::SparePipes> = Ranked::new(Spares { life: None, pipes: Vec::new() });
/// As many are to be there.
static WANTED: AtomicUsize = AtomicUsize::new(0);

/// Calls `with` with the spare pipes of this process.
fn with<R>(with: impl FnOnce(&mut Vec<Spare>) -> R) -> Option<R> {
    let mut spares = SPARES.try_lock()?;
    let life = Life::current().number();
    if spares.life != Some(life) {
        // The descriptors of the parent's are closed neither here nor there.
        std::mem::forget(std::mem::take(&mut spares.pipes));
        spares.life = Some(life);
    }
    Some(with(&mut spares.pipes))
}

/// Takes one. If there is none, there is to be one more from now on.
pub(super) fn take() -> Option<Spare> {
    let spare = with(Vec::pop).flatten();
    if spare.is_none() {
        let more = |wanted: usize| (wanted < MOST).then_some(wanted + 1);
        let _ = WANTED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
    }
    spare
}

/// Makes one, if one is missing. `false`: there are enough, or none can be made.
pub(super) fn prepare(make: impl FnOnce() -> nix::Result<Spare>) -> bool {
    let is_missing = |pipes: &mut Vec<Spare>| pipes.len() < WANTED.load(Ordering::Relaxed);
    if with(is_missing) != Some(true) {
        return false;
    }
    let Ok(spare) = make() else { return false };
    with(|pipes| pipes.push(spare)).is_some()
}
