//! Which socket of the reuseport group of an address gets the packets of which slot, as it was
//! measured last.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use adverb_sync::Mutex;

use adverb_local::Slot;

/// What is known of one address's group.
#[derive(Default)]
pub(crate) struct SteerState {
    pub(crate) known: Mutex<Known>,
    pub(crate) wanted: AtomicBool,
}

/// What was measured, and when.
#[derive(Default)]
pub(crate) struct Known {
    /// Slot and index of its socket, as measured last.
    pub(crate) table: Vec<(Slot, u32)>,
    pub(crate) measured: Option<Instant>,
    pub(crate) interval: Duration,
}
