//! The end of what is shared with a peer: a key, or all of it.
use super::rings::Rings;
use crate::host::{Peer, Withdrawn};
use crate::node::queue_pair::{AnyQp, QpInner};
use adverb_engine::Key;
use adverb_engine::keys::Region;
use std::sync::Arc;

impl Rings<'_> {
    /// Takes a key back from peers, and waits until none uses it. A key that was not published has
    /// no users.
    pub(crate) fn withdraw_key(&self, key: Key) {
        if self.lanes.remove_key(key) {
            self.settle(Withdrawn::Key(key));
        }
    }

    /// Before memory is taken back: the receives in it are offered to no peer any more. Payloads
    /// that lie in it, and that peers have still to fetch, are sent once more as bytes. The records
    /// that point at them are void from here on.
    pub(crate) fn withdraw_payloads(&self, region: &Region) {
        if !self.lanes.any() {
            return;
        }
        // Receives in it are offered no more, and what peers sent to them by now is placed.
        self.lanes.published.begin_generation();
        self.settle(Withdrawn::Offers);
        self.take_what_came();
        for qp in
            self.lanes.referring(region.addr, region.len).into_iter().filter_map(|qpn| self.node.qp(qpn))
        {
            {
                let mut inner = qp.inner.lock();
                let epoch = &mut inner.carried.ring.epoch;
                *epoch = epoch.wrapping_add(1);
                self.publish(&qp, &mut inner);
            }
            self.send_as_bytes(&qp);
        }
    }

    /// Sends again what is not acknowledged, as bytes instead of references. `false`: the peer's
    /// ring has no room for all of it now.
    pub(crate) fn send_as_bytes(&self, qp: &AnyQp) -> bool {
        self.node.with_tx(|tx| {
            let mut inner = qp.inner.lock();
            inner.carried.ring.copies = true;
            inner.engine.send_again();
            self.node.pump(qp, &mut inner, tx);
            inner.carried.ring.copies = false;
            !inner.engine.wants_output()
        })
    }

    /// Before the end of a queue pair: it offers no receive any more, and what peers sent to those
    /// that it offered is taken. So no message whose sender has completed it finds the queue pair
    /// at its end.
    pub(crate) fn take_offers_back(&self, qp: &AnyQp) {
        let place = {
            let mut inner = qp.inner.lock();
            inner.carried.ring.closing += 1;
            let place = inner.carried.ring.shown.as_ref().map_or(0, |shown| shown.offers);
            self.publish(qp, &mut inner);
            // Otherwise it was given back.
            if inner.carried.ring.shown.is_some() { place } else { 0 }
        };
        self.settle_qp(qp);
        self.lanes.published.give_place_back(place);
        self.take_what_came();
    }

    /// What [`Rings::take_offers_back`] was called for is done, or did not come about.
    pub(crate) fn offer_again(&self, qp: &AnyQp) {
        let mut inner = qp.inner.lock();
        let closing = &mut inner.carried.ring.closing;
        *closing = closing.saturating_sub(1);
        self.publish(qp, &mut inner);
    }

    /// After a change of what peers may do with a queue pair: waits until none is at work by what
    /// was allowed before. If peers have seen nothing of it since the last wait, there is none.
    pub(crate) fn settle_qp(&self, qp: &AnyQp) {
        let unsettled = {
            let mut inner = qp.inner.lock();
            let state = &mut inner.carried.ring;
            std::mem::replace(&mut state.unsettled, state.shown.is_some())
        };
        if unsettled {
            self.settle(Withdrawn::Qp(qp.number()));
        }
    }

    fn settle(&self, what: Withdrawn) {
        self.lanes.settle(what, |peer, why| self.leave(peer, why));
    }

    /// Leaves peers that have ended; rare, from the background thread.
    pub(crate) fn look_for_ends(&self) {
        self.lanes.ready().iter().filter(|peer| peer.has_ended()).for_each(|peer| self.see_end(peer));
    }

    /// Leaves a peer that has ended.
    pub(crate) fn see_end(&self, peer: &Arc<Peer>) {
        // What it wrote before it ended counts.
        self.receive_all_of(peer);
        self.leave(peer, "has ended");
    }

    /// Leaves the peer of a queue pair, which has written to what is not its.
    pub(crate) fn leave_broken(&self, inner: &QpInner) {
        if let Some(peer) = inner.carried.ring.peer.clone() {
            self.leave(&peer, "broke its ring");
        }
    }

    /// A peer is used no more: it has ended, or cannot be trusted. Its partners' requests fail.
    pub(crate) fn leave(&self, peer: &Arc<Peer>, why: &str) {
        if !peer.leave() {
            return;
        }
        log::info!("process {} {why}", peer.pid());
        self.lanes.remove(peer);
        for qp in peer.take_connected().into_iter().filter_map(|qpn| self.node.qp(qpn)) {
            self.node.pump_soon(&qp);
        }
        self.node.wake_thread();
    }
}
