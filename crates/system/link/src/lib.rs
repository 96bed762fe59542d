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
//! and each asks the kernel whose the other end is before it sends or reads anything ([`User`],
//! `SO_PEERCRED`). A packet from the wire is not trusted: it must carry a right ICRC before
//! anything but its length is looked at; and if its source is an address of this machine, it must
//! come from the port, at an address where this process has a socket. As the link holds the port at
//! all addresses, only the own user can have sent it ([`LocalPorts`]).
//!
//! # Decorators
//!
//! There is deliberately no trait over the link. Two decorators are built in, as they need what no
//! closure around the sink sees (packets before the ICRC is checked, headers as on the wire):
//! faults on request ([`Config::faults`]) and a capture file ([`Config::capture`]). Both off cost a
//! branch a packet received and a run sent. Carriers without UDP packets (rings) have decorators in
//! the device, with the same rules ([`faults::Faults::judge_as`]) and the same file
//! ([`Capture::near`]).

#![deny(unsafe_code)]

mod address;
mod admit;
mod bare;
mod bell;
mod buffers;
pub mod capture;
mod connection;
mod detection;
mod error;
mod everywhere;
mod failures;
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
mod interfaces;
mod looped;
mod message;
mod neighbour;
mod origin;
mod own_addresses;
mod owner;
mod packet;
mod recv;
mod service;
pub mod shm;
mod slot;
mod stats;
mod steer;
mod steer_table;
mod sys;
mod transmit;
mod types;
mod udp;
mod user;

pub use bell::{Bell, Bells, PeerFd, Rope, Rung};
pub use buffers::RxBuffers;
pub use capture::{Capture, NearPacket};
pub use connection::ConnectionId;
pub use detection::{Detection, unusable_addresses};
pub use error::{LinkError, User, UserChanged};
pub use everywhere::port_of_others;
pub use frame_queue::RawFrame;
pub use frames::FramePort;
pub use interfaces::{InterfaceNews, interface_mtus};
pub use message::{Greeting, Hello, MAX_FRAME};
pub use neighbour::{ask_neighbour, neighbour_is_known};
pub use owner::users_can_be_told_apart;
pub use packet::{OwnedPacket, Proof, RxPacket};
pub use service::{ServiceClaim, ServiceIndex};
pub use slot::{
    MAD_QPN, MAX_SLOT, MIN_SLOT, MULTICAST_QPN, PROBE_QPN, SLOT_BITS, SLOT_SHIFT, Slot, SlotClaim,
    slot_of_qpn,
};
pub use stats::LinkStats;
pub use sys::{
    OwnFd, Transit, Uncancelled, add_byte, chosen, drop_transit_after_fork, end_connection, has_capabilities,
    note_transit_before_fork, process_end, short_slices, signals_restart, take_byte, wait_readable,
};
pub use transmit::TxBatch;
pub use types::{AddrIndex, Config, DELIVERY, Delivery, FdKind, LocalPorts, Route, RxFrom, add_packet};
pub use udp::UdpLink;
