//! Which socket of an address's reuseport group gets the packets of which slot, by the last
//! measurement.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use adverb_sync::Mutex;

use adverb_local::Slot;

/// The state of one address's group.
#[derive(Default)]
pub(crate) struct SteerState {
    pub(crate) known: Mutex<Known>,
    pub(crate) wanted: AtomicBool,
}

/// The result and the time of the last measurement.
#[derive(Default)]
pub(crate) struct Known {
    /// Slots, and the index of each slot's socket.
    pub(crate) table: Vec<(Slot, u32)>,
    pub(crate) measured: Option<Instant>,
    pub(crate) interval: Duration,
}
