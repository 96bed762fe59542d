//! The state of a queue pair for UDP.
use adverb_engine::{AddressVector, Time};
use adverb_link::Route;

/// The state of a queue pair for the UDP carrier.
#[derive(Debug, Default)]
pub(crate) struct Sending {
    /// The route of the last used address vector.
    pub(in crate::node) route: Option<(AddressVector, Route)>,
    /// Time of the last pump. Only for UC and UD.
    pub(in crate::node) pumped: Time,
}

impl Sending {
    /// Time of the last pump. Only for UC and UD.
    pub(crate) fn pumped(&self) -> Time {
        self.pumped
    }
}
