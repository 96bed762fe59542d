//! Raw packet queue pairs: whole Ethernet frames, flow steering and receive side scaling.
//!
//! On an interface that leaves the machine frames go through a packet socket (`AF_PACKET`), which
//! takes the right to open one (CAP_NET_RAW). On the loopback device no right is needed: a frame
//! reaches all raw packet queue pairs of the same user there whose flows take it. What a queue pair
//! sends to a group or to the interface's own address its process's other queue pairs hear as well,
//! as by the switch inside a NIC.
mod flow;
mod port;
mod spread;

pub use adverb_steering as steering;
pub use flow::{Flow, MAX_FLOWS};
pub(crate) use port::{Port, Ports};
pub use spread::{IndTable, MAX_TABLE, MAX_TABLES, Wq, WqState};

use adverb_steering::Hash;
use std::sync::Arc;

/// What a raw packet queue pair is.
#[derive(Debug)]
pub(crate) enum Role {
    /// Sends and receives.
    Pair(Arc<Port>),
    /// A work queue: what a spreading queue pair chooses it for.
    Queue,
    /// Spreads what it is given over work queues.
    Spread { port: Arc<Port>, table: Arc<IndTable>, hash: Hash },
}

impl Role {
    /// The port whose flows may name it.
    pub(crate) fn port(&self) -> Option<&Arc<Port>> {
        match self {
            Role::Pair(port) | Role::Spread { port, .. } => Some(port),
            Role::Queue => None,
        }
    }
}
