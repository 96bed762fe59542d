//! The constants of the header, by object.

mod cq;
mod device;
mod memory;
mod other;
mod qp;

pub use {cq::*, device::*, memory::*, other::*, qp::*};

/// Every mirrored constant of the public header, file by file.
pub const CONSTANTS: &[&[super::Constant]] =
    &[cq::CONSTANTS, device::CONSTANTS, memory::CONSTANTS, other::CONSTANTS, qp::CONSTANTS];
