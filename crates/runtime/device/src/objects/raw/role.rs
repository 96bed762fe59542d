//! Roles of a raw packet queue pair.
use super::port::Port;
use crate::node::AnyQp;
use crate::uses::Uses;
use adverb_steering::Hash;
use std::fmt::Debug;
use std::sync::Arc;

/// The role of a raw packet queue pair.
#[derive(Debug)]
pub(crate) enum Role {
    /// Sends and receives.
    Pair(Arc<Port>),
    /// The receiving half of a work queue, chosen by a spreading queue pair.
    Queue,
    /// Spreads its frames over work queues.
    Spread { port: Arc<Port>, over: Arc<dyn Spread>, hash: Hash },
}

/// The work queues over which frames are spread.
pub(crate) trait Spread: Debug + Send + Sync {
    /// The queue for a hash.
    fn choose(&self, hash: u32) -> Option<Arc<AnyQp>>;
    /// Queue pairs that spread over these work queues.
    fn uses(&self) -> &Uses;
}

impl Role {
    /// The port, if flows may name this queue pair.
    pub(crate) fn port(&self) -> Option<&Arc<Port>> {
        match self {
            Role::Pair(port) | Role::Spread { port, .. } => Some(port),
            Role::Queue => None,
        }
    }
}
