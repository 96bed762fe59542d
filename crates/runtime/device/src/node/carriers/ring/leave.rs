//! The end of memory shared with a peer: of a single key, or of everything.
use super::rings::Rings;
use crate::host::{Peer, Withdrawn};
use crate::node::queue_pair::{AnyQp, QpInner};
use adverb_engine::Key;
use adverb_engine::keys::Region;
use std::sync::Arc;

impl Rings<'_> {
    /// Takes a key back from peers, and waits until no peer uses the key. An unpublished key has no
    /// users.
    pub(crate) fn withdraw_key(&self, key: Key) {
        if self.host.remove_key(key) {
            self.settle(Withdrawn::Key(key));
        }
    }

    /// Called before memory is taken back. Payloads in the memory, still to be fetched by peers,
    /// are sent once more as bytes. The earlier records of these payloads become void here.
    pub(crate) fn withdraw_payloads(&self, region: &Region) {
        if !self.host.any() {
            return;
        }
        for qp in self
            .host
            .referring(region.addr, region.len)
            .into_iter()
            .filter_map(|qpn| self.node.qp(qpn))
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

    /// Sends unacknowledged packets again, as bytes instead of references. `false`: the peer's ring
    /// has no room for all of them now.
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

    /// Called after a change of the rights of peers on a queue pair. Waits until no peer works
    /// under the old rights. If the queue pair was not published since the last wait, the call does
    /// not wait.
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
        self.host.settle(what, |peer, why| self.leave(peer, why));
    }

    /// Leaves ended peers. The background thread calls this rarely.
    pub(crate) fn look_for_ends(&self) {
        self.host
            .ready()
            .iter()
            .filter(|peer| peer.links.has_ended())
            .for_each(|peer| self.see_end(peer));
    }

    /// Leaves an ended peer.
    pub(crate) fn see_end(&self, peer: &Arc<Peer>) {
        // Records written before the end count.
        self.receive_all_of(peer);
        self.leave(peer, "has ended");
    }

    /// Leaves the peer of a queue pair, because the peer wrote to memory of this process against
    /// the protocol.
    pub(crate) fn leave_broken(&self, inner: &QpInner) {
        if let Some(peer) = inner.carried.ring.peer.clone() {
            self.leave(&peer, "broke its ring");
        }
    }

    /// Ends the use of a peer, because the peer has ended or cannot be trusted. The requests of
    /// connected queue pairs fail.
    pub(crate) fn leave(&self, peer: &Arc<Peer>, why: &str) {
        if !peer.leave() {
            return;
        }
        log::info!("process {} {why}", peer.pid);
        self.host.remove(peer);
        for qp in peer.take_connected().into_iter().filter_map(|qpn| self.node.qp(qpn)) {
            self.node.pump_soon(&qp);
        }
        self.node.wake_thread();
    }
}
