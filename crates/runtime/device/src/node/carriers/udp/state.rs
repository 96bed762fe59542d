//! What a queue pair keeps for UDP.
use adverb_engine::{AddressVector, Time};
use adverb_link::Route;

/// What a queue pair keeps for this carrier.
#[derive(Debug, Default)]
pub(crate) struct Sending {
    /// The route of the address vector used last.
    pub(in crate::node) route: Option<(AddressVector, Route)>,
    /// When it was pumped last; of UC and UD alone.
    pub(in crate::node) pumped: Time,
}

impl Sending {
    /// When it was pumped last; of UC and UD alone.
    pub(crate) fn pumped(&self) -> Time {
        self.pumped
    }
}
