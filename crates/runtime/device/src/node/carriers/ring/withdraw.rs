//! Calls of objects to the carrier, for nodes with or without a carrier.
use super::rings::Rings;
use crate::node::core::Node;
use crate::node::queue_pair::{AnyQp, QpInner};
use adverb_engine::keys::Region;
use adverb_engine::{Key, KeyTable};

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

/// Takes memory back from peers. `change` removes or replaces the key in the key table. If `change`
/// fails, nothing is taken back.
///
/// 1. Payloads in the memory, still to be fetched by peers, are sent once more as bytes.
/// 2. `change` runs under the write lock of the key table, so the copies of other threads are over.
/// 3. A packet may have left after step 1, or found no room in the ring at that time. If the packet
///    points at a payload in the memory, the packet is void and the request fails.
/// 4. The published entry goes. The call waits until no peer and no thread of this process uses the
///    key.
pub(crate) fn withdraw<E>(
    node: &Node,
    key: Key,
    region: &Region,
    change: impl FnOnce(&mut KeyTable) -> Result<(), E>,
) -> Result<(), E> {
    let rings = Rings::of(node);
    if let Some(rings) = &rings {
        rings.withdraw_payloads(region);
    }
    change(&mut node.keys.write())?;
    if let Some(rings) = rings {
        if rings.host.any() && !rings.host.referring(region.addr, region.len).is_empty() {
            rings.withdraw_payloads(region);
        }
        rings.withdraw_key(key);
        rings.host.settle_own();
    }
    Ok(())
}
