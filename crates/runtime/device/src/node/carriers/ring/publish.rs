//! What peers on this host see of a queue pair.
use super::rings::Rings;
use crate::node::core::Node;
use crate::node::queue_pair::{AnyQp, QpInner};
use adverb_engine::{QpState, QpType};
use adverb_shm::QpEntry;

impl Rings<'_> {
    /// Lets peers on this host see what they may do with it.
    pub(crate) fn publish(&self, qp: &AnyQp, inner: &mut QpInner) {
        let attr = inner.engine.attr();
        let peer = inner.carried.ring.peer.as_ref().filter(|peer| {
            matches!(attr.state, QpState::Rtr | QpState::Rts | QpState::Sqd)
                && qp.qp_type().is_reliable()
                && !peer.is_gone()
        });
        let Some(peer) = peer else {
            inner.carried.ring.closing = 0;
            return self.unpublish(qp, inner);
        };
        // Of an XRC connection nothing is performed but by packets; that it stands is said all the
        // same.
        let counted = inner.attached.as_ref().is_some_and(|a| a.counts_remote());
        let access = if qp.qp_type() == QpType::Rc && !counted { attr.access.bits() } else { 0 };
        let entry = QpEntry {
            qpn: qp.number(),
            peer_qpn: attr.dest_qpn,
            peer_nonce: peer.nonce(),
            epoch: inner.carried.ring.epoch,
            pd: inner.engine.config().pd.0,
            access,
            ready: true,
            offers: match &inner.carried.ring.shown {
                // Its place is given back when no peer looks at it any more.
                _ if inner.carried.ring.closing > 0 => 0,
                Some(shown) if shown.offers != 0 => shown.offers,
                _ if self.may_offer(qp, inner) => self.lanes.published.take_place(),
                _ => 0,
            },
        };
        // Whoever looks while it is rewritten finds none.
        let state = &mut inner.carried.ring;
        if state.shown.as_ref() == Some(&entry) {
            return;
        }
        let turn = self.lanes.publishing.lock();
        state.shown = self.lanes.published.set_qp(&entry).then_some(entry);
        if state.shown.is_none() {
            self.lanes.published.give_place_back(entry.offers);
        }
        state.unsettled |= state.shown.is_some();
        // The words may be another queue pair's.
        state.offered = (0, u64::MAX);
        drop(turn);
        self.offer(qp, inner);
    }

    /// Peers do nothing with it any more; those who do it now are waited for by
    /// [`Lanes::settle`](crate::host::Lanes::settle).
    pub(in crate::node) fn unpublish(&self, qp: &AnyQp, inner: &mut QpInner) {
        let shown = &mut inner.carried.ring.shown;
        if let Some(entry) = shown.take() {
            let _turn = self.lanes.publishing.lock();
            self.lanes.published.remove_qp(qp.number());
            self.lanes.published.give_place_back(entry.offers);
        }
    }

    /// Takes it back if the queue pair has failed. Before its program hears of that and uses its
    /// memory for something else.
    #[inline]
    pub(crate) fn publish_failure(node: &Node, qp: &AnyQp, inner: &mut QpInner) {
        if inner.carried.ring.shown.is_some()
            && inner.engine.state() == QpState::Err
            && let Some(rings) = Rings::of(node)
        {
            rings.unpublish(qp, inner);
        }
    }
}
