//! The carrier over the network: UDP port 4791.
mod carrier;
mod spread;
mod state;

pub(crate) use carrier::{Udp, scope_of};
pub(crate) use spread::spreads;
pub(crate) use state::Sending;
