//! Payloads still in the sender's memory.
//!
//! | the payload is in | a SEND of an RC queue pair | other packets |
//! |---|---|---|
//! | shared memory | one copy, by loads and stores | the same |
//! | private memory | one copy, by the kernel, straight to its place ([`Away`]) | over a buffer |
//!
//! A long message comes as many packets. When the first packet is taken, the records of the next
//! packets mostly lie in the ring already. So the receiver reads these records in advance. The
//! kernel copies the payloads together with the first payload, in one call ([`Ahead`]). Afterwards
//! the receiver takes each packet, as usual.
use super::ahead::{Ahead, Copied};
use super::placing::{Away, Near};
use super::record::{BY_REFERENCE, REFERENCE, Reference};
use super::rings::Rings;
use crate::host::{Ends, MTU, NO_REFERENCES, PRIVATE, Peer, SHARED};
use crate::node::batch::Batch;
use crate::node::carriers::decorate::Arrival;
use crate::node::queue_pair::{AnyQp, QpInner};
use adverb_engine::{Packet, Range};
use adverb_memory::{Cma, Guard};
use adverb_shm::Behind;
use adverb_wire::{Bth, Headers, MAX_HEADER_LEN};
use std::cell::Cell;
use std::sync::Arc;

/// Attempts at a payload while the sender rewrites the entry.
const FETCHES: u32 = 4;
/// The largest number of bytes copied in a call. A call costs as much as a copy of some 10 KiB, so
/// a call copies many payloads. The copied bytes should still be in the processor's cache when the
/// program reads them.
const AT_ONCE: u64 = 512 << 10;
/// The largest number of payloads copied in a call.
const TOGETHER: usize = 32;

/// A packet with a payload still in the sender's memory.
pub(super) struct Fetch<'a> {
    pub(super) qp: &'a AnyQp,
    pub(super) peer: &'a Arc<Peer>,
    pub(super) packet: &'a Packet<'a>,
    pub(super) reference: &'a Reference,
    /// The records behind this packet's record.
    pub(super) behind: Behind<'a>,
    /// Payloads copied together with the previous packet's payload.
    pub(super) ahead: Option<Ahead>,
}

impl Rings<'_> {
    /// Takes a packet with a payload still in the sender's memory.
    pub(super) fn take_reference(
        &self,
        batch: &mut Batch,
        inner: &mut QpInner,
        mut fetch: Fetch<'_>,
    ) {
        let Fetch { qp, peer, packet, reference, .. } = fetch;
        let ends = Ends { qpn: qp.number(), dest_qpn: inner.engine.attr().dest_qpn };
        let mut seen = std::mem::take(&mut inner.carried.ring.seen);
        let Reference { addr, len, epoch, how } = *reference;
        let mut reached = true;
        // Where a packet may be lost or delayed, the payload is copied into a buffer first.
        let lossy = self.node.packet_faults().is_some();
        let (mut fetched, mut payload) = (false, Vec::new());
        // After the end of the sender's queue pair, the sender may use the memory for something
        // else. So a payload counts only if the queue pair was still connected after the copy. A
        // rewritten entry opens the memory again, so the copy is repeated.
        for _ in 0..FETCHES {
            let Some(guard) = self.host.connected(peer, &mut seen, ends, epoch) else { break };
            if let Some(cma) = self.straight(inner, &fetch) {
                reached = self.place(batch, inner, &mut fetch, &guard, cma);
            } else {
                let Batch { tx, scratch, arrived_at, .. } = batch;
                reached = peer.memory.fetch(&guard, addr, len, how == SHARED, scratch, |bytes| {
                    if lossy {
                        payload.clear();
                        payload.extend_from_slice(bytes);
                        return;
                    }
                    let packet: Packet<'_> = *packet;
                    let packet = Packet { payload: bytes, ..packet };
                    let near = Some(Near::Fetched(&guard));
                    self.give(
                        (tx, arrived_at),
                        inner,
                        &Arrival { qp, peer, packet: &packet, near },
                    );
                });
            }
            if guard.holds() {
                fetched = lossy && reached;
                break;
            }
            reached = true;
        }
        inner.carried.ring.seen = seen;
        if fetched {
            let packet: Packet<'_> = *packet;
            let packet = Packet { payload: &payload, ..packet };
            self.give(
                (&mut batch.tx, &mut batch.arrived_at),
                inner,
                &Arrival { qp, peer, packet: &packet, near: None },
            );
        }
        if !reached && let Some(mut tx_ring) = peer.outgoing.try_lock() {
            // The packet was dropped. The sender sends the packet again in another way.
            let _ = tx_ring.push(NO_REFERENCES, 1, |body| {
                body[0] = how;
                true
            });
            drop(tx_ring);
            peer.ring_doorbell();
        }
    }

    /// The system calls for a copy of the payload straight to the destination. `None` if other code
    /// than the engine's memory has to read the payload.
    fn straight(&self, inner: &QpInner, fetch: &Fetch<'_>) -> Option<Cma> {
        let may = fetch.reference.how == PRIVATE
            && fetch.reference.len <= MTU
            && self.node.taps.is_none()
            && inner.engine.takes_straight(&fetch.packet.headers)
            && !fetch.qp.own.matches_tags();
        if may { fetch.peer.memory.cma() } else { None }
    }

    /// Gives the packet to its queue pair. The payload is copied straight to the destination.
    /// `false`: the sender's memory cannot be reached.
    fn place(
        &self,
        batch: &mut Batch,
        inner: &mut QpInner,
        fetch: &mut Fetch<'_>,
        guard: &Guard<'_>,
        cma: Cma,
    ) -> bool {
        let ahead = fetch.ahead.take();
        let Fetch { qp, peer, reference, .. } = *fetch;
        let packet: Packet<'_> = *fetch.packet;
        let delayed = ahead.filter(|ahead| ahead.holds(qp.number(), &packet.headers, reference));
        let mut ahead = delayed.or_else(|| self.copy_ahead(inner, fetch, guard, cma));
        let placed = ahead.as_mut().and_then(Ahead::take);
        batch.stand_in.resize(MTU as usize, 0);
        let stand_in = &batch.stand_in[..reference.len as usize];
        let (astray, unreached) = (Cell::new(false), Cell::new(false));
        let away = Away { guard, cma, addr: reference.addr, stand_in, placed, astray, unreached };
        let packet = Packet { payload: stand_in, ..packet };
        let arrival = Arrival { qp, peer, packet: &packet, near: Some(Near::Away(&away)) };
        self.give((&mut batch.tx, &mut batch.arrived_at), inner, &arrival);
        batch.ahead = ahead.filter(|ahead| !ahead.is_empty() && !away.astray.get());
        !away.unreached.get()
    }

    /// Copies the payload of this packet and the payloads of the following packets in the ring, if
    /// their destinations are known.
    fn copy_ahead(
        &self,
        inner: &QpInner,
        fetch: &mut Fetch<'_>,
        guard: &Guard<'_>,
        cma: Cma,
    ) -> Option<Ahead> {
        let Fetch { qp, packet, reference, .. } = *fetch;
        let epoch = reference.epoch;
        let mut first = Some(next_reference(&mut fetch.behind)?);
        // The memory stays registered while the key table is locked.
        let keys = self.node.keys.read();
        let mut course = inner.engine.course(&keys);
        let (mut here, mut there) = (Vec::<Range>::new(), Vec::<(u64, u64)>::new());
        let (mut copied, mut sum) = (Vec::new(), 0);
        let (mut bth, mut from, mut len) = (packet.headers.bth, reference.addr, reference.len);
        while let Some(to) = course.next(&bth, len) {
            copied.push(Copied { from, len, to: to.addr });
            sum += u64::from(len);
            match (here.last_mut(), there.last_mut()) {
                (Some(ours), Some((addr, theirs)))
                    if ours.addr + *theirs == to.addr
                        && ours.kind == to.kind
                        && addr.checked_add(*theirs) == Some(from) =>
                {
                    ours.len += len;
                    *theirs += u64::from(len);
                }
                _ => {
                    here.push(to);
                    there.push((from, len.into()));
                }
            }
            let Some((next, Reference { addr, len: more, how, .. })) = first
                .take()
                .or_else(|| next_reference(&mut fetch.behind))
                .filter(|(next, more)| next.psn == bth.psn + 1 && more.epoch == epoch)
            else {
                break;
            };
            let fits = more > 0 && more <= MTU && sum + u64::from(more) <= AT_ONCE;
            if next.dest_qpn != bth.dest_qpn || how != PRIVATE || !fits || copied.len() == TOGETHER
            {
                break;
            }
            (bth, from, len) = (next, addr, more);
        }
        if copied.len() < 2 {
            return None;
        }
        // If the call fails, the copies of the single packets report the reason.
        cma.read(guard, &here, &there).ok()?;
        guard.holds().then(|| Ahead::new(qp.number(), epoch, packet.headers.bth.psn, copied))
    }
}

/// The next record, if the record is a packet with a payload still in the sender's memory.
fn next_reference(behind: &mut Behind<'_>) -> Option<(Bth, Reference)> {
    behind.next(|tag, body| {
        if tag & BY_REFERENCE == 0 {
            return None;
        }
        // Read once. The record is read and checked again in `take_record`.
        let mut head = [0; MAX_HEADER_LEN + REFERENCE];
        let n = body.len().min(head.len());
        head[..n].copy_from_slice(&body[..n]);
        let (headers, rest) = Headers::parse_front(&head[..n]).ok()?;
        Some((headers.bth, Reference::parse(rest)?))
    })?
}
