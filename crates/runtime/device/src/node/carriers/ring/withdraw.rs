//! Calls of objects to the carrier, for nodes with or without a carrier.
use super::rings::Rings;
use crate::node::core::Node;
use crate::node::queue_pair::{AnyQp, QpInner};
use adverb_engine::Key;
use adverb_engine::keys::Region;

/// Publishes the rights of peers on a queue pair.
pub(crate) fn publish(node: &Node, qp: &AnyQp, inner: &mut QpInner) {
    if let Some(rings) = Rings::of(node) {
        rings.publish(qp, inner);
    }
}

/// Called after a change of the rights of peers on a queue pair. Waits until no peer works under
/// the old rights.
pub(crate) fn settle(node: &Node, qp: &AnyQp) {
    if let Some(rings) = Rings::of(node) {
        rings.settle_qp(qp);
    }
}

/// Takes back a key already removed from the key table. Waits until no peer and no thread of this
/// process uses the key.
pub(crate) fn withdraw_key(node: &Node, key: Key) {
    if let Some(rings) = Rings::of(node) {
        rings.withdraw_key(key);
        rings.host.settle_own();
    }
}

/// Called before memory is taken back. Payloads in the memory, still to be fetched by peers, are
/// sent once more as bytes.
pub(crate) fn withdraw_payloads(node: &Node, region: &Region) {
    if let Some(rings) = Rings::of(node) {
        rings.withdraw_payloads(region);
    }
}

/// Called after memory is taken back. A packet may have left after [`withdraw_payloads`], or found
/// no room in the ring at that time. If the packet points at a payload in the memory, the packet is
/// void and the request fails.
pub(crate) fn void_payloads(node: &Node, region: &Region) {
    if let Some(rings) = Rings::with_peers(node)
        && !rings.host.referring(region.addr, region.len).is_empty()
    {
        rings.withdraw_payloads(region);
    }
}
