//! What carries packets between queue pairs: one shape for every way out and in.
//!
//! A [`Carrier`] sends what a queue pair has, and takes what has arrived. Four exist:
//!
//! | carrier | between | its packets |
//! |---|---|---|
//! | [`udp`] | any two hosts | RoCEv2 on UDP port 4791 |
//! | [`relay`] | processes of one user on one host | the same packets, over connections that say when they are full |
//! | [`ring`] | the same, with shared memory | records in a ring, and one-sided requests without any packet |
//! | [`frames`] | raw packet queue pairs and an interface | Ethernet frames |
//!
//! Each has a folder or a file of its own with everything that it alone needs. What a queue pair
//! keeps for its carriers is [`Carried`]. Captures and faults on request are decorators of a
//! carrier ([`decorate`]): they leave the path of a packet as it is.
mod carried;
mod carrier;
pub(crate) mod decorate;
pub(crate) mod frames;
pub(crate) mod relay;
pub(crate) mod ring;
mod road;
pub(crate) mod udp;
pub(crate) mod wire;

pub(crate) use carried::Carried;
pub(in crate::node) use carrier::Carrier;
pub(crate) use carrier::End;
pub(crate) use frames::Ethernet;
pub(crate) use relay::Relay;
pub(in crate::node) use ring::Ahead;
pub(crate) use ring::{Handshake, Near, Placing, Rings};
pub(in crate::node) use road::Room;
pub(crate) use udp::Udp;
