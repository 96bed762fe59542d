//! The requester: everything about the send queue (IBTA 9.7.2 to 9.7.7, 9.8.3).
//!
//! PSNs are kept *unwrapped* in 64 bits: the low 24 bits are those on the wire, and a PSN from the
//! wire is placed at or after the oldest unacknowledged one. Order is then plain comparison. The
//! flow window and the cost of a packet are explained in `window`.
mod answer;
mod direct;
mod ends;
mod pace;
mod probe;
mod restart;
mod send;
mod state;
mod window;

pub(crate) use answer::AnswerEnv;
pub use direct::Direct;
pub(crate) use send::{MAX_MSG, transport_of};
pub(crate) use state::{Requester, Step};
