//! The responder: executes what the peer asks for, and answers.
//!
//! A packet that fails any check never touches memory. On reliable transports it draws a NAK;
//! elsewhere it is dropped and counted. Answers wait in [`responses`] until the host asks for them.
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
