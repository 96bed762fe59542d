//! The ring carrier of a node, and the memory shared with peers.
use crate::host::HostConnections;
use crate::node::core::Node;

/// The carrier through shared memory: the node, and the objects shared with peers.
#[derive(Clone, Copy)]
pub(crate) struct Rings<'a> {
    pub(in crate::node) node: &'a Node,
    pub(in crate::node) host: &'a HostConnections,
}

impl<'a> Rings<'a> {
    /// `None`: all packets go over the network.
    #[inline]
    pub(crate) fn of(node: &'a Node) -> Option<Self> {
        node.host.as_ref().map(|host| Rings { node, host })
    }

    /// As [`Rings::of`], but `None` without peers.
    #[inline]
    pub(crate) fn with_peers(node: &'a Node) -> Option<Self> {
        Rings::of(node).filter(|rings| rings.host.any())
    }
}
