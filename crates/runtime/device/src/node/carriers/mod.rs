//! Carriers of packets between queue pairs.
//!
//! A carrier sends the packets of a queue pair by a [`Road`](road::Road) (`pump`), takes arrived
//! packets (`receive`), and drops the state of an earlier connection (`disconnect`). The callers
//! name each carrier, because their order is part of the rules: see `Node::receive_as`. There are
//! four carriers:
//!
//! | carrier | between | its packets |
//! |---|---|---|
//! | [`udp`] | any two hosts | RoCEv2 on UDP port 4791 |
//! | [`relay`] | processes of one user on one host | the same packets, over connections that say when they are full |
//! | [`ring`] | the same, with shared memory | records in a ring, and one-sided requests without any packet |
//! | [`frames`] | raw packet queue pairs and an interface | Ethernet frames |
//!
//! Each carrier has a folder with its own code. A queue pair keeps [`Carried`] for its carriers.
//! Captures and faults on request are decorators of a carrier ([`decorate`]): they do not change
//! the path of a packet.
mod carried;
pub(crate) mod decorate;
pub(crate) mod frames;
mod nowhere;
pub(crate) mod relay;
pub(crate) mod ring;
mod road;
pub(crate) mod udp;
pub(crate) mod wire;

pub(crate) use carried::{Carried, DisconnectReason};
pub(crate) use frames::Ethernet;
pub(in crate::node) use nowhere::Nowhere;
pub(crate) use relay::Relay;
pub(in crate::node) use ring::Ahead;
pub(crate) use ring::{Handshake, Near, Placing, Rings};
pub(in crate::node) use road::Room;
pub(crate) use udp::Udp;
