//! From the rings of peers to the queue pairs.
use super::fetch::Fetch;
use super::placing::Near;
use super::record::{BUDGET, BY_REFERENCE, LONG, REFERENCE, Reference};
use super::rings::Rings;
use crate::host::{Ends, NO_REFERENCES, PRIVATE, Peer, Seen};
use crate::interfaces::ip_of;
use crate::node::batch::{Batch, DelayedAcks, Receiver};
use crate::node::carriers::decorate::Arrival;
use crate::node::queue_pair::{AnyQp, QpInner};
use crate::node::tx::Tx;
use adverb_engine::{Gid, Packet, QpState};
use adverb_link::RxFrom;
use adverb_shm::{Behind, Broken, Consumer};
use adverb_wire::{Headers, MAX_HEADER_LEN};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A number of rounds of [`BUDGET`] records: more than a full ring holds.
const FULL_RINGS: usize = 128;
/// The largest number of receive rounds before a queue pair ends.
const ROUNDS: usize = 64;

impl Rings<'_> {
    /// Takes records of peers. `true` if there were any.
    pub(in crate::node) fn receive_from(
        &self,
        rings: &mut [(Arc<Peer>, Consumer)],
        batch: &mut Batch,
    ) -> bool {
        let mut any = false;
        for (peer, ring) in rings {
            let mut broken = false;
            (batch.arrived_at, batch.ahead) = (None, None);
            {
                if ring.is_empty() {
                    // The ring is idle, so the peer may use all room.
                    ring.release();
                    continue;
                }
                for taken in 0..2 * BUDGET {
                    // Payloads copied ahead are used up in this call, and not copied again.
                    if taken >= BUDGET && batch.ahead.is_none() {
                        break;
                    }
                    let take = |tag, body: &[u8], behind: Behind<'_>| {
                        self.take_record(batch, peer, (tag, body), behind);
                    };
                    match ring.take_and_look(take) {
                        Ok(Some(())) => any = true,
                        Ok(None) => {
                            ring.release();
                            break;
                        }
                        Err(Broken) => {
                            broken = true;
                            break;
                        }
                    }
                }
            }
            self.node.answer(batch);
            if broken {
                self.leave(peer, "broke its ring");
            }
        }
        any
    }

    fn take_record(
        &self,
        batch: &mut Batch,
        peer: &Arc<Peer>,
        (tag, body): (u32, &[u8]),
        behind: Behind<'_>,
    ) {
        let ahead = batch.ahead.take();
        if tag == NO_REFERENCES {
            let how =
                if body.first() == Some(&PRIVATE) { &peer.no_calls } else { &peer.no_windows };
            how.store(true, Ordering::Relaxed);
            return;
        }
        // Read once: the peer can write to the ring at any time, whatever the protocol says.
        let mut head = [0; MAX_HEADER_LEN + REFERENCE];
        let n = body.len().min(head.len());
        head[..n].copy_from_slice(&body[..n]);
        let Ok((headers, rest)) = Headers::parse_front(&head[..n]) else {
            self.node.counters.malformed.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let at = n - rest.len();
        let qpn = headers.bth.dest_qpn;
        let Some(qp) = batch.queue_pair(&self.node.registry.qps, qpn) else {
            self.node.counters.no_such_qp.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let mut inner = qp.inner.lock();
        let theirs = self.is_from(peer, &qp, &mut inner);
        inner.carried.ring.heard |= theirs;
        let attr = inner.engine.attr();
        let packet = Packet {
            // A packet from a process other than the queue pair's peer has no source address. The
            // engine drops such a packet, and reports the reason.
            src: if theirs { attr.av.dgid } else { Gid::default() },
            dst: attr.av.sgid,
            traffic_class: 0,
            hop_limit: 64,
            mtu: (tag & LONG != 0).then(|| peer.mtu),
            headers,
            payload: &body[at.min(body.len())..],
        };
        self.node.counters.ring_received();
        if !theirs {
            self.node.handle(&mut batch.tx, &qp, &mut inner, &packet, Some(Near::Copied));
        } else if tag & BY_REFERENCE == 0 {
            let arrival = Arrival { qp: &qp, peer, packet: &packet, near: self.near(Near::Copied) };
            self.give((&mut batch.tx, &mut batch.arrived_at), &mut inner, &arrival);
        } else {
            let Some(reference) = Reference::parse(rest) else {
                self.node.counters.malformed.fetch_add(1, Ordering::Relaxed);
                return;
            };
            let place =
                Fetch { qp: &qp, peer, packet: &packet, reference: &reference, behind, ahead };
            self.take_reference(batch, &mut inner, place);
        }
        drop(inner);
        batch.touch(qp);
    }

    /// Where the payload of a packet is. `None` where packets may be lost: such packets are treated
    /// as packets from the network.
    #[inline]
    fn near<'n>(&self, near: Near<'n>) -> Option<Near<'n>> {
        Some(near).filter(|_| self.node.packet_faults().is_none())
    }

    /// Gives a packet to its queue pair, through the decorators of the carrier. `arrived_at`:
    /// [`Batch::arrived_at`].
    #[inline]
    pub(super) fn give(
        &self,
        (tx, arrived_at): (&mut Tx, &mut Option<u64>),
        inner: &mut QpInner,
        arrival: &Arrival<'_>,
    ) {
        match &self.node.taps {
            None => self.node.handle(tx, arrival.qp, inner, arrival.packet, arrival.near),
            Some(taps) => taps.arrive(self.node, (tx, arrived_at), inner, arrival),
        }
    }

    /// Do both directions of a connection use a ring? Then no packet from the network is from the
    /// peer.
    #[inline]
    pub(crate) fn has_both_rings(&self, qp: &AnyQp, inner: &QpInner) -> bool {
        let Some(peer) = &inner.carried.ring.peer else { return false };
        let ends = Ends { qpn: qp.number(), dest_qpn: inner.engine.attr().dest_qpn };
        inner.carried.ring.heard || self.host.is_answered(peer, ends)
    }

    /// Is the queue pair connected to a queue pair of `peer`? If so, the answers go through the
    /// rings, too.
    pub(super) fn is_from(&self, peer: &Arc<Peer>, qp: &AnyQp, inner: &mut QpInner) -> bool {
        if inner.carried.ring.peer.as_ref().is_some_and(|p| Arc::ptr_eq(p, peer)) {
            return true;
        }
        let attr = inner.engine.attr();
        let slot = adverb_local::slot_of_qpn(attr.dest_qpn);
        // A queue pair of another host may have the same number as a queue pair of the peer.
        let theirs = qp.qp_type().is_reliable()
            && matches!(attr.state, QpState::Rtr | QpState::Rts | QpState::Sqd)
            && self.node.is_own_address(ip_of(&attr.av.dgid))
            && slot
                .and_then(|slot| self.host.known(slot))
                .is_some_and(|known| Arc::ptr_eq(&known, peer));
        if theirs {
            peer.connect(qp.number());
            inner.carried.ring.peer = Some(peer.clone());
            inner.carried.ring.seen = Seen::default();
        }
        theirs
    }

    /// Takes all records of a peer.
    pub(in crate::node) fn receive_all_of(&self, peer: &Arc<Peer>) {
        let mut rx = self.node.receiver.lock();
        let Receiver { batch, rings, .. } = &mut *rx;
        batch.hold = DelayedAcks::None;
        self.host.refresh(rings);
        for ring in rings.list.iter_mut().filter(|(p, _)| Arc::ptr_eq(p, peer)) {
            // Bounded by the size of a ring. If another process goes on writing to the ring of an
            // ended peer, these records are not read.
            for _ in 0..FULL_RINGS {
                if !self.receive_from(std::slice::from_mut(ring), batch) {
                    break;
                }
            }
        }
        if let Some(faults) = self.node.packet_faults() {
            faults.release_of(self.node, batch, peer);
            self.node.answer(batch);
        }
    }

    /// Takes all records written by now. Waits for the receiver's lock.
    pub(in crate::node) fn take_records(&self) {
        let mut rx = self.node.receiver.lock();
        let Receiver { batch, rings, .. } = &mut *rx;
        self.host.refresh(rings);
        if rings.are_empty() {
            return;
        }
        batch.hold = DelayedAcks::None;
        for _ in 0..FULL_RINGS {
            if !self.receive_from(&mut rings.list, batch) {
                break;
            }
        }
    }

    /// Takes all packets and records from peers on this host so far, up to a bound. Waits for a
    /// receiving thread.
    pub(crate) fn take_arrived(&self) {
        if self.host.any() {
            self.take_records();
            (0..ROUNDS).take_while(|_| self.node.receive(RxFrom::All, false)).for_each(drop);
        }
    }

    /// Does any peer's ring hold a record? Waits for the receiver's lock, as the receiving thread's
    /// last look at the rings may be old.
    pub(in crate::node) fn hold(&self) -> bool {
        let mut rx = self.node.receiver.lock();
        self.host.refresh(&mut rx.rings);
        !rx.rings.are_empty()
    }
}
