//! What a process waits for, and why it fails: judged from the calls and the state of the device.
use crate::{Ledger, Scene};

impl Ledger {
    /// Examines a process that failed or hangs. [`Ledger::reports`] then returns the causes, the
    /// most certain first.
    pub fn examine(&mut self, scene: &Scene) {
        let _ = scene;
    }
}
