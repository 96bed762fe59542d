//! What a raw packet queue pair is.
use super::port::Port;
use crate::node::{AnyQp, FramePort};
use crate::uses::Uses;
use adverb_steering::Hash;
use std::fmt::Debug;
use std::sync::Arc;

/// What a raw packet queue pair is.
#[derive(Debug)]
pub(crate) enum Role {
    /// Sends and receives.
    Pair(Arc<Port>),
    /// A work queue: what a spreading queue pair chooses it for.
    Queue,
    /// Spreads what it is given over work queues.
    Spread { port: Arc<Port>, over: Arc<dyn Spread>, hash: Hash },
}

/// The work queues that frames are spread over.
pub(crate) trait Spread: Debug + Send + Sync {
    /// The queue of a hash.
    fn choose(&self, hash: u32) -> Option<Arc<AnyQp>>;
    /// Queue pairs that spread over it.
    fn uses(&self) -> &Uses;
}

impl Role {
    /// The port whose flows may name it.
    pub(crate) fn port(&self) -> Option<&Arc<Port>> {
        match self {
            Role::Pair(port) | Role::Spread { port, .. } => Some(port),
            Role::Queue => None,
        }
    }

    /// The port that its frames leave by.
    pub(crate) fn sends_by(&self) -> Option<Arc<dyn FramePort>> {
        match self {
            Role::Pair(port) => {
                let port: Arc<Port> = port.clone();
                Some(port)
            }
            Role::Queue | Role::Spread { .. } => None,
        }
    }
}
