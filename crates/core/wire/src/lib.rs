//! RoCEv2 formats: BTH and its extension headers, one opcode table, 24-bit PSN arithmetic, ICRC.
//!
//! Nothing here allocates, blocks, or keeps state between packets (but for [`icrc::Solver`]'s small
//! cache). Section numbers are those of the InfiniBand Architecture Specification, Volume 1.
#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod grh;
mod header;
mod headers;
pub mod icrc;
mod opcode;
mod port;
mod psn;
pub mod tag_matching;
mod time;
mod timer;

pub use grh::{GRH_LEN, Grh, Ipv4InGrh};
pub use header::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Deth, Feth, Ieth, ImmDt, NakCode, QPN_MASK, Reth, Syndrome, XrcEth,
};
pub use headers::{Headers, ParseError, pad_for};
pub use opcode::{MAX_HEADER_LEN, Opcode, Operation, Transport};
pub use port::{ROCE_PORT, ud_source_port, udp_source_port};
pub use psn::Psn;
pub use time::Time;
pub use timer::{ack_timeout_ns, rnr_timer_us};

/// Bytes of the ICRC that ends each datagram.
pub const ICRC_LEN: usize = 4;
