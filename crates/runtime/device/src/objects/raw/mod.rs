//! Raw packet queue pairs: whole Ethernet frames, flow steering and receive side scaling.
//!
//! On an interface that leaves the machine frames go through a packet socket (`AF_PACKET`), which
//! requires CAP_NET_RAW. The loopback device needs no right: a frame reaches all raw packet queue
//! pairs of the same user with a matching flow. Frames that a queue pair sends to a group or to the
//! interface's own address also reach other queue pairs of its process, as through the switch
//! inside a NIC.
mod flow;
mod port;
mod role;
mod spread;

pub use adverb_steering as steering;
pub use flow::{Flow, MAX_FLOWS};
pub(crate) use port::Port;
pub(crate) use role::Role;
pub use spread::{IndTable, MAX_TABLE, MAX_TABLES, Wq, WqState};
