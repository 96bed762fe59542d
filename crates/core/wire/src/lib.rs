//! RoCEv2 formats: BTH and its extension headers, one opcode table, 24-bit PSN arithmetic, ICRC.
//!
//! This crate does not allocate, block, or keep state between packets, except for the small cache
//! of [`icrc::Solver`]. Section numbers refer to the InfiniBand Architecture Specification,
//! Volume 1.
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

pub use grh::{GRH_LEN, Grh, Ipv4InGrh};
pub use header::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Deth, Feth, Ieth, ImmDt, NakCode, QPN_MASK, Reth, Syndrome,
    XrcEth,
};
pub use headers::{Headers, ParseError, pad_for};
pub use opcode::{MAX_HEADER_LEN, Opcode, Operation, Transport};
pub use port::{ROCE_PORT, flow_label_source_port, ud_source_port, udp_source_port};
pub use psn::Psn;
pub use time::{Time, ack_timeout_ns, rnr_timer_us};

/// Length in bytes of the ICRC at the end of each datagram.
pub const ICRC_LEN: usize = 4;
