//! The state of a queue pair for its carriers.
use super::frames::KeptFrames;
use super::relay::Waiting;
use super::ring::Connected;
use super::udp::Sending;

/// The state of a queue pair for its carriers.
#[derive(Debug, Default)]
pub(crate) struct Carried {
    pub(crate) udp: Sending,
    pub(in crate::node) relay: Waiting,
    pub(crate) ring: Connected,
    pub(in crate::node) frames: KeptFrames,
}

/// The reason for disconnecting a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DisconnectReason {
    /// RESET: the queue pair may be connected again. Unsent packets are dropped.
    Reset,
    /// Destruction: unsent packets are still sent.
    Destroyed,
}
