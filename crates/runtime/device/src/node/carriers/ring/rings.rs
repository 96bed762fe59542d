//! The carrier of a node, and what it shares with peers.
use crate::host::Lanes;
use crate::node::core::Node;

/// The carrier through shared memory: the node, and what it shares with peers.
#[derive(Clone, Copy)]
pub(crate) struct Rings<'a> {
    pub(in crate::node) node: &'a Node,
    pub(in crate::node) lanes: &'a Lanes,
}

impl<'a> Rings<'a> {
    /// `None`: everything goes over the network.
    #[inline]
    pub(crate) fn of(node: &'a Node) -> Option<Self> {
        node.lanes.as_ref().map(|lanes| Rings { node, lanes })
    }

    /// The same if there are peers.
    #[inline]
    pub(crate) fn with_peers(node: &'a Node) -> Option<Self> {
        Rings::of(node).filter(|rings| rings.lanes.any())
    }
}
