//! The carrier between queue pairs of one host, through shared memory. Packets and engines are the
//! same as on a network. Addresses, checksums and system calls are not needed.
//!
//! A record is a packet from the BTH on, without padding. A long payload stays in the sender's
//! memory, the record gives the place, and the receiver makes the only copy. READs, WRITEs and
//! atomics need no record: the initiator performs them in the peer's memory (`one_sided`).
mod ahead;
mod carrier;
mod fetch;
mod handshake;
mod leave;
mod one_sided;
mod parts;
mod placing;
mod publish;
mod receive;
mod record;
mod rings;
mod state;
mod withdraw;

pub(in crate::node) use ahead::Ahead;
pub(crate) use handshake::Handshake;
pub use one_sided::{PlainData, PlainOp, PlainPost};
pub(crate) use placing::{Near, Placing};
pub(crate) use rings::Rings;
pub(crate) use state::Connected;
pub(crate) use withdraw::{publish, settle, withdraw};
