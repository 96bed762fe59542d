//! Carries RoCEv2 packets over UDP port 4791 for one process, without privileges.
//!
//! One [`UdpLink`] holds a UDP socket per local address. It sends GSO runs from a [`TxBatch`],
//! receives GRO datagrams into [`RxBuffers`], computes and verifies the ICRC, and shares the port
//! with the other processes of the same user: each process owns a *slot* (the upper 10 bits of its
//! QPNs, [`SlotClaim`]), the kernel steers packets to the owner's socket by the slot, and what
//! arrives at the wrong process is handed on to the owner.
//!
//! # Why the sockets are never connected
//!
//! The ICRC covers the IPv4 identification. An unconnected UDP socket with DF set sends
//! identification 0, and 0, 1, 2 … inside a software GSO run, so the sender can compute the ICRC; a
//! connected one sends a counter nobody can know. A receiver cannot see the identification and
//! solves for it.
//!
//! # Trust
//!
//! Slot names live in the abstract `AF_UNIX` name space, which is scoped by the network namespace
//! exactly as UDP ports are. Anybody may take a name, so a name proves nothing: processes connect,
//! and each asks the kernel whose the other end is before it sends or reads anything (`SO_PEERCRED`). A packet from the wire is not trusted: it must carry a right ICRC before
//! anything but its length is looked at; and if its source is an address of this machine, it must
//! come from the port, at an address where this process has a socket. As the link holds the port at
//! all addresses, only the own user can have sent it ([`LocalPorts`]).
//!
//! # Decorators
//!
//! There is deliberately no trait over the link. Two decorators are built in, as they need what no
//! closure around the sink sees (packets before the ICRC is checked, headers as on the wire):
//! faults on request ([`Config::faults`]) and a capture file ([`Config::capture`]). Both off cost a
//! branch a packet received and a run sent.

#![deny(unsafe_code)]

mod address;
mod admit;
mod bare;
mod bell;
mod buffers;
pub mod capture;
mod connection;
mod error;
mod everywhere;
pub mod faults;
mod follow;
mod frame_queue;
mod frames;
#[doc(hidden)]
pub mod fuzzing;
mod group;
mod handover;
mod hello;
mod icrc;
mod looped;
mod message;
mod origin;
mod origin_kind;
mod packet;
mod recv;
mod service;
mod slot;
mod stats;
mod steer;
mod steer_table;
mod transmit;
mod types;
mod udp;
mod user;

pub use bell::{Bell, Bells, PeerFd, Rope, Rung};
pub use buffers::RxBuffers;
pub use capture::Capture;
pub use connection::ConnectionId;
pub use error::{LinkError, UserChanged};
pub use everywhere::port_of_others;
pub use frame_queue::RawFrame;
pub use frames::FramePort;
pub use message::{Greeting, Hello, MAX_FRAME};
pub use packet::{OwnedPacket, Proof, RxPacket};
pub use service::{ServiceClaim, ServiceIndex};
pub use slot::{
    MAD_QPN, MAX_SLOT, MIN_SLOT, MULTICAST_QPN, PROBE_QPN, SLOT_BITS, SLOT_SHIFT, Slot, SlotClaim,
    slot_of_qpn,
};
pub use stats::LinkStats;
pub use transmit::TxBatch;
pub use types::{AddrIndex, Config, DELIVERY, Delivery, FdKind, LocalPorts, Route, RxFrom, add_packet};
pub use udp::UdpLink;
