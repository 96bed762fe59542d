//! The carrier between queue pairs of one host, through shared memory: the same packets as on a
//! network, and the same engine at both ends, without addresses, checksums or system calls.
//!
//! A record is a packet from its BTH on, without padding; a long payload stays where it is, and the
//! record says where: whoever receives it copies it once, into place. One-sided requests need no
//! record: the initiator performs them in the peer's memory (`one_sided`). A short SEND for which
//! the peer offers a receive is a record of its own kind, without packet and answer (`message`).
mod ahead;
mod carrier;
mod fetch;
mod handshake;
mod leave;
mod message;
mod one_sided;
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
pub(crate) use withdraw::{
    offer_again, publish, settle, void_payloads, withdraw_key, withdraw_offers, withdraw_payloads,
};
