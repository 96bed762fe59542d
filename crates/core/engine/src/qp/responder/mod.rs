//! The responder executes requests of the peer and answers them.
//!
//! A packet that fails a check never touches memory. On reliable transports such a packet draws a
//! NAK; on UC and UD the responder drops and counts it. Answers wait in [`responses`] until the
//! host polls for output.
mod ends;
mod frames;
mod inbound;
mod input;
mod messages;
mod output;
mod reliable;
mod repeat;
mod responses;
mod state;
mod straight;
mod unreliable;

pub(crate) use state::Responder;
pub use straight::Course;
