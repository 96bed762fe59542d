//! The queue pair.
//!
//! `queue_pair` has [`Qp`]. `congestion`, `ending`, `input`, `inside`, `modify` and `output` add
//! methods to [`Qp`]. The halves, `requester` and `responder`, do not know [`Qp`].
mod ack;
mod config;
mod congestion;
mod context;
mod counters;
mod ecn;
mod ending;
mod env;
mod input;
mod inside;
mod modify;
mod output;
mod queue_pair;
mod recv_queue;
mod reorder;
mod requester;
mod responder;
mod send_queue;
#[cfg(test)]
mod tests;
mod verdict;

pub use ack::AckOrder;
pub use config::QpConfig;
pub use counters::{Counters, DropReason};
pub use env::{Env, NoRecv, NoSrq, RecvSource};
#[doc(hidden)]
pub use inside::Inside;
pub use queue_pair::Qp;
pub use reorder::{Kept, ReorderMemory};
pub use requester::HostRequest;
pub use responder::Course;
