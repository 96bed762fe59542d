//! The carrier over the network: UDP port 4791. UC and UD packets between processes of one host go
//! through [`relay`](super::relay) instead. There, a burst does not overrun the receiver's socket
//! buffer.
mod carrier;
mod state;

pub(crate) use carrier::{Udp, scope_of};
pub(crate) use state::Sending;
