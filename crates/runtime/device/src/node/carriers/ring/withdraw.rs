//! What objects ask of the carrier, where a node may have none.
use super::rings::Rings;
use crate::node::core::Node;
use crate::node::queue_pair::{AnyQp, QpInner};
use adverb_engine::keys::Region;
use adverb_engine::{Key, Qpn};

/// Lets peers see what they may do with a queue pair.
pub(crate) fn publish(node: &Node, qp: &AnyQp, inner: &mut QpInner) {
    if let Some(rings) = Rings::of(node) {
        rings.publish(qp, inner);
    }
}

/// After a change of what peers may do with a queue pair: waits until none is at work by what was
/// allowed before.
pub(crate) fn settle(node: &Node, qp: &AnyQp) {
    if let Some(rings) = Rings::of(node) {
        rings.settle_qp(qp);
    }
}

/// The receives that a queue pair offers are not for its peer alone any more.
pub(crate) fn withdraw_offers(node: &Node, qpn: Qpn) {
    if let (Some(rings), Some(qp)) = (Rings::of(node), node.qp(qpn)) {
        rings.take_offers_back(&qp);
        rings.offer_again(&qp);
    }
}

/// The end of a queue pair did not come about.
pub(crate) fn offer_again(node: &Node, qp: &AnyQp) {
    if let Some(rings) = Rings::of(node) {
        rings.offer_again(qp);
    }
}

/// Takes a key back, which the table has no more, and waits until no peer uses it, and no thread of
/// this process.
pub(crate) fn withdraw_key(node: &Node, key: Key) {
    if let Some(rings) = Rings::of(node) {
        rings.withdraw_key(key);
        rings.lanes.settle_own();
    }
}

/// Before memory is taken back: payloads that lie in it, and that peers have still to fetch, are
/// sent once more as bytes.
pub(crate) fn withdraw_payloads(node: &Node, region: &Region) {
    if let Some(rings) = Rings::of(node) {
        rings.withdraw_payloads(region);
    }
}

/// Once memory is taken back: a packet that pointed at a payload in it, and left behind
/// [`withdraw_payloads`] or found no room in the ring there, is void. Its request fails.
pub(crate) fn void_payloads(node: &Node, region: &Region) {
    if let Some(rings) = Rings::with_peers(node)
        && !rings.lanes.referring(region.addr, region.len).is_empty()
    {
        rings.withdraw_payloads(region);
    }
}
