//! The node, which a process has once: the link, the queue pairs by number, the keys, the timers,
//! and the progress of all.
//!
//! *A waiting thread makes progress.* Polling, posting and waiting calls drive [`Node::progress`]
//! inline. A background thread sleeps in `epoll` and drives when the program does not (see
//! `thread`).
mod addresses;
mod batch;
pub(crate) mod carriers;
mod clock;
mod core;
mod costs;
mod counters;
mod drivers;
mod due;
mod exit;
mod groups;
mod held_keys;
pub(crate) mod inject;
mod listed;
mod loopback;
mod mad_handler;
mod mads;
mod multicast;
mod numbers;
mod object_list;
mod outage;
mod policy;
pub(crate) mod ports;
mod poster;
mod pump;
mod queue_pair;
mod random;
pub(crate) mod reach;
mod receive;
mod registry;
mod rendezvous;
mod shown;
#[cfg(feature = "sim")]
mod simulated;
mod sleep;
mod spin;
mod start;
mod stats;
#[cfg(all(test, not(loom)))]
mod tests;
mod thread;
mod timers;
mod traffic;
mod tx;
mod wake;

pub use carriers::ring::{PlainData, PlainOp, PlainPost};
pub(crate) use carriers::udp::scope_of;
pub use carriers::wire::{SimulatedWire, Wire};
pub use core::Node;
pub use counters::{Counted, Stats};
pub(crate) use groups::{MOST_ATTACHED, MOST_GROUPS};
pub use mad_handler::{Arrival, MAD_LEN, MadHandler};
pub(crate) use object_list::{ListPlace, Listed};
pub use ports::{GidEntry, PortState};
pub use queue_pair::QueuePair;
pub(crate) use queue_pair::{AnyQp, CompletionQueue, FramePort, Owner, QpInner, SharedQueue};
pub(crate) use random::random_u32;
pub(crate) use rendezvous::make_room;
pub use shown::of_this_process;
#[cfg(feature = "sim")]
pub use simulated::{Rest, SimulatedNode, Work};
pub(crate) use sleep::Asleep;
pub(crate) use spin::Spin;
pub(crate) use timers::{Deadline, NEVER, Timed};
