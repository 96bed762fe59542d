//! The processes of one user on one host.
//!
//! Each process owns a *slot* (the upper 10 bits of its queue pair numbers, [`SlotClaim`]) and
//! listens at an abstract name of the slot. [`Local`] connects to the owners of other slots, proves
//! that both ends belong to the same user, and carries messages: packets, greetings with
//! descriptors, Ethernet frames. [`Bells`] wake processes with shared memory.
//!
//! # Trust
//!
//! Slot names are in the abstract `AF_UNIX` namespace. This namespace is scoped by the network
//! namespace, exactly as UDP ports are. Any process may take a name, so a name proves nothing. A
//! process connects to the name, and each end asks the kernel for the user of the other end before
//! sending or reading anything (`SO_PEERCRED`).

#![forbid(unsafe_code)]

mod ask;
mod bell;
mod connection;
mod error;
mod follow;
mod frame_queue;
mod frames;
#[doc(hidden)]
pub mod fuzzing;
mod handover;
mod hello;
mod local;
pub mod message;
mod packet;
mod questions;
mod service;
mod slot;
mod stats;
mod user;

pub use ask::{Asker, Silence, Silent};
pub use bell::{Bell, Bells, PeerFd, Rope, Rung};
pub use connection::{ConnectionId, Untold};
pub use error::{LocalError, UserChanged};
pub use frame_queue::RawFrame;
pub use frames::FramePort;
pub use local::Local;
pub use message::{Greeting, Hello, MAX_FRAME, Question};
pub use packet::{Arrived, DELIVERY, Delivery, Envelope, LocalPacket, Taker, add_packet};
pub use service::{ServiceClaim, ServiceIndex};
pub use slot::{
    MAD_QPN, MAX_SLOT, MIN_SLOT, MULTICAST_QPN, PROBE_QPN, SLOT_BITS, SLOT_SHIFT, Slot, SlotClaim,
    slot_of_qpn,
};
pub use stats::LocalStats;
