//! The state of a queue pair for UDP.
use adverb_engine::{AddressVector, Time, Transmit};
use adverb_link::Route;

/// The state of a queue pair for the UDP carrier.
#[derive(Debug, Default)]
pub(crate) struct Sending {
    /// The route of the last packet.
    pub(in crate::node) route: Option<KnownRoute>,
    /// Time of the last pump. Only for UC and UD.
    pub(crate) pumped: Time,
}

/// A route, and what it was found for.
#[derive(Debug)]
pub(in crate::node) struct KnownRoute {
    pub(super) path: AddressVector,
    /// The queue pair's source port, which changes with its destination queue pair.
    pub(super) source_port: u16,
    /// The version of the machine's list of addresses. Packets to this host have another source
    /// port.
    pub(super) addresses: u64,
    pub(super) route: Route,
}

impl KnownRoute {
    /// Is this the route of the packet, with this version of the machine's list of addresses?
    #[inline]
    pub(super) fn is_of(&self, t: &Transmit<'_>, addresses: u64) -> bool {
        self.source_port == t.source_port && self.addresses == addresses && self.path == *t.path
    }
}
