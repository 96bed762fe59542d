//! The meaning of a packet's source address.

use std::net::SocketAddr;

/// The meaning of a packet's source address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// From another machine, or from the own user's port of this machine.
    Good,
    /// From the port at an address of this machine without a socket of this process, so the user is
    /// unknown here. A process with a socket there knows.
    Unproven,
    /// From this machine, and not from the port.
    Forged,
}

/// The most recent source, the version of the tables at its check, and its origin.
#[derive(Debug, Default)]
pub(crate) struct LastOrigin(pub(crate) Option<(SocketAddr, u64, Origin)>);
