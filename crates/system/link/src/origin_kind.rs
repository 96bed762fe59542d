//! What a source address says of a packet.

use std::net::SocketAddr;

/// What a source address says of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// From another machine, or from the own user's port of this one.
    Good,
    /// From the port at an address of this machine at which this process has no socket: whose it is
    /// it cannot say. A process that has one there can.
    Unproven,
    /// From this machine, and not from the port.
    Forged,
}

/// The origin of packets from the source seen last, and the version of the tables that said so.
#[derive(Debug, Default)]
pub(crate) struct LastOrigin(pub(crate) Option<(SocketAddr, u64, Origin)>);
