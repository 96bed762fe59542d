//! The published entry of a queue pair, for peers on this host.
use super::rings::Rings;
use crate::node::core::Node;
use crate::node::queue_pair::{AnyQp, QpInner};
use adverb_engine::{QpState, QpType};
use adverb_shm::QpEntry;

impl Rings<'_> {
    /// Publishes to peers on this host what they may do with the queue pair.
    pub(crate) fn publish(&self, qp: &AnyQp, inner: &mut QpInner) {
        let attr = inner.engine.attr();
        let peer = inner.carried.ring.peer.as_ref().filter(|peer| {
            matches!(attr.state, QpState::Rtr | QpState::Rts | QpState::Sqd)
                && qp.qp_type().is_reliable()
                && !peer.was_left()
                && inner.outage.is_none()
        });
        let Some(peer) = peer else {
            return self.unpublish(qp, inner);
        };
        // On an XRC connection, all operations go as packets. The entry is published all the same,
        // because the entry tells the peer of the established connection.
        let counted = inner.attached.as_ref().is_some_and(|a| a.counts_remote());
        let access = if qp.qp_type() == QpType::Rc && !counted { attr.access.bits() } else { 0 };
        let entry = QpEntry {
            qpn: qp.number(),
            peer_qpn: attr.dest_qpn,
            peer_nonce: peer.nonce,
            epoch: inner.carried.ring.epoch,
            pd: inner.engine.config().pd.0,
            access,
            ready: true,
        };
        // A peer finds no entry while the entry is rewritten.
        let state = &mut inner.carried.ring;
        if state.shown.as_ref() == Some(&entry) {
            return;
        }
        let _turn = self.host.publishing.lock();
        state.shown = self.host.published.set_qp(&entry).then_some(entry);
        state.unsettled |= state.shown.is_some();
    }

    /// Removes the entry, so no peer begins an operation on the queue pair.
    /// [`HostConnections::settle`](crate::host::HostConnections::settle) waits for peers in the
    /// middle of an operation.
    pub(in crate::node) fn unpublish(&self, qp: &AnyQp, inner: &mut QpInner) {
        if inner.carried.ring.shown.take().is_some() {
            let _turn = self.host.publishing.lock();
            self.host.published.remove_qp(qp.number());
        }
    }

    /// Removes the entry of a failed queue pair. This happens before the program learns of the
    /// failure and uses the memory for something else. The reason stays for the log of the peer,
    /// and is published before the NAK leaves.
    #[inline]
    pub(crate) fn publish_failure(node: &Node, qp: &AnyQp, inner: &mut QpInner) {
        if inner.carried.ring.shown.is_some()
            && inner.engine.state() == QpState::Err
            && let Some(rings) = Rings::of(node)
        {
            rings.unpublish(qp, inner);
            if let Some(failure) = inner.engine.first_error().and_then(|cause| cause.to_words()) {
                let _turn = rings.host.publishing.lock();
                rings.host.published.set_failure(qp.number(), failure);
            }
        }
    }
}
