//! The requester: all work for the send queue (IBTA 9.7.2 to 9.7.7, 9.8.3).
//!
//! PSNs are kept *unwrapped* in 64 bits. The low 24 bits are the PSN on the wire. A PSN from the
//! wire is placed at or after the oldest unacknowledged PSN, so plain comparison gives the order.
//! `window` explains the flow window and the cost of a packet.
mod answer;
mod ends;
mod evidence;
mod host_request;
mod pace;
mod probe;
mod restart;
mod send;
mod state;
mod window;

pub(crate) use answer::AnswerEnv;
pub use host_request::HostRequest;
pub(crate) use send::{MAX_MSG, transport_of};
pub(crate) use state::{Requester, Step};
