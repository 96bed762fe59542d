//! Carries RoCEv2 packets over UDP port 4791 for one process, without privileges.
//!
//! A [`UdpLink`] holds one UDP socket for each local address. It sends GSO runs from a [`TxBatch`],
//! receives GRO datagrams into [`RxBuffers`], computes and verifies the ICRC, and shares the port
//! with the other processes of the same user ([`adverb_local::Local`]). The kernel steers packets
//! to the owner's socket by the slot in their QPN. A process receiving another process's packet
//! forwards the packet to the owner.
//!
//! # Why the sockets are never connected
//!
//! The ICRC covers the IPv4 identification. An unconnected UDP socket with DF set sends
//! identification 0, and 0, 1, 2 … inside a software GSO run, so the sender can compute the ICRC. A
//! connected socket sends a counter with an unknown value. A receiver cannot see the
//! identification, and solves for it.
//!
//! # Source ports
//!
//! Packets to this host leave from the port, which proves their sender. Packets to other hosts
//! leave from one of a few further ports, chosen by the queue pair ([`SourcePort`]). Packets from
//! other hosts may have any source port.
//!
//! # Trust
//!
//! A packet from the wire is not trusted. Its length is checked first, and then its ICRC, before
//! any other field is used. If the source is an address of this machine, the packet must come from
//! the link's port, at an address where this process has a socket. The link holds the port at all
//! addresses, so only the own user can have sent such a packet ([`LocalPorts`]).
//!
//! # Decorators
//!
//! There is deliberately no trait over the link. Two decorators are built in: faults on request
//! ([`Config::faults`]) and a capture file ([`Config::capture`]). They need data not visible to a
//! closure around the sink: packets before the ICRC check, and headers as on the wire. With both
//! off, the cost is one branch for each packet received and each run sent. Carriers without UDP
//! packets (rings) have decorators in the device, with the same rules
//! ([`faults::Faults::judge_as`]) and the same file ([`Capture::near`]).

#![forbid(unsafe_code)]

mod address;
mod admit;
mod bare;
mod buffers;
pub mod capture;
mod datagram;
mod error;
mod everywhere;
pub mod faults;
#[doc(hidden)]
pub mod fuzzing;
mod group;
mod icrc;
mod looped;
mod origin;
mod packet;
mod pending;
mod recv;
mod sources;
mod stats;
mod steer;
mod transmit;
mod types;
mod udp;

pub use admit::Tap;
pub use buffers::RxBuffers;
pub use capture::{Capture, NearPacket};
pub use error::LinkError;
pub use everywhere::port_of_others;
pub use packet::{OwnedPacket, Proof, RxPacket, RxRun, Sink, dest_qpn, each};
pub use stats::LinkStats;
pub use transmit::TxBatch;
pub use types::{AddrIndex, Config, LocalPorts, Route, RxFrom, SourcePort};
pub use udp::UdpLink;
