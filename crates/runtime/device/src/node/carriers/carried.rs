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
