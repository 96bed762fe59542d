//! The carrier over the network: UDP port 4791.
mod carrier;
mod state;

pub(crate) use carrier::{Udp, scope_of};
pub(crate) use state::Sending;
