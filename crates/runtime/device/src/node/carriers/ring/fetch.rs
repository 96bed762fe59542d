//! Payloads that are still where their sender has them.
//!
//! | the payload is in | a SEND of an RC queue pair | other packets |
//! |---|---|---|
//! | shared memory | one copy, by loads and stores | the same |
//! | private memory | one copy, by the kernel, straight to its place ([`Away`]) | over a buffer |
//!
//! A long message comes as many packets. The records of the next packets mostly lie in the ring
//! when the first is taken. So the receiver looks at these records, and has the kernel copy their
//! payloads with the first, in one call ([`Ahead`]). The packets are taken one by one afterwards,
//! as ever.
use super::ahead::{Ahead, Copied};
use super::placing::{Away, Near};
use super::record::{BY_REFERENCE, REFERENCE, Reference};
use super::rings::Rings;
use crate::host::{Ends, MTU, NO_REFERENCES, PRIVATE, Peer, SHARED};
use crate::node::batch::Batch;
use crate::node::carriers::decorate::{Arrival, Taps};
use crate::node::queue_pair::{AnyQp, QpInner};
use adverb_engine::{Packet, Range};
use adverb_memory::{Cma, Guard};
use adverb_shm::Behind;
use adverb_wire::{Bth, Headers, MAX_HEADER_LEN};
use std::cell::Cell;
use std::sync::Arc;

/// Tries at a payload whose sender rewrites its entry meanwhile.
const FETCHES: u32 = 4;
/// Bytes that are copied in one call at most: a call costs as much as copying some 10 KiB, and what
/// it copies is to be in the processor's cache when the program looks at it.
const AT_ONCE: u64 = 512 << 10;
/// Payloads that are copied in one call at most.
const TOGETHER: usize = 32;

/// A packet whose payload is still where its sender has it.
pub(super) struct Fetch<'a> {
    pub(super) qp: &'a AnyQp,
    pub(super) peer: &'a Arc<Peer>,
    pub(super) packet: &'a Packet<'a>,
    pub(super) reference: &'a Reference,
    /// The records behind the packet's.
    pub(super) behind: Behind<'a>,
    /// What was copied with the payload of the packet before this one.
    pub(super) ahead: Option<Ahead>,
}

impl Rings<'_> {
    /// Takes a packet whose payload is still where its sender has it.
    pub(super) fn take_reference(&self, batch: &mut Batch, inner: &mut QpInner, mut fetch: Fetch<'_>) {
        if !std::mem::replace(&mut batch.copies, true) {
            self.node.policy.set_copies(true);
        }
        let Fetch { qp, peer, packet, reference, .. } = fetch;
        let ends = Ends { qpn: qp.number(), dest_qpn: inner.engine.attr().dest_qpn };
        let mut seen = std::mem::take(&mut inner.carried.ring.seen);
        let Reference { addr, len, epoch, how } = *reference;
        let mut reached = true;
        // Where a packet may be lost or held its payload is fetched first.
        let lossy = self.node.taps.as_ref().is_some_and(Taps::is_lossy);
        let (mut fetched, mut payload) = (false, Vec::new());
        // A sender whose queue pair has ended may use that memory for something else by now. What
        // was fetched while the queue pair was connected counts, and nothing else. An entry that
        // was only rewritten opens the memory again.
        for _ in 0..FETCHES {
            let Some(guard) = self.lanes.connected(peer, &mut seen, ends, epoch) else { break };
            if let Some(cma) = self.straight(inner, &fetch) {
                reached = self.place(batch, inner, &mut fetch, &guard, cma);
            } else {
                let Batch { tx, scratch, came, .. } = batch;
                reached = peer.fetch(&guard, addr, len, how == SHARED, scratch, |bytes| {
                    if lossy {
                        payload.clear();
                        payload.extend_from_slice(bytes);
                        return;
                    }
                    let packet: Packet<'_> = *packet;
                    let packet = Packet { payload: bytes, ..packet };
                    let near = Some(Near::Fetched(&guard));
                    self.give((tx, came), inner, &Arrival { qp, peer, packet: &packet, near });
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
                (&mut batch.tx, &mut batch.came),
                inner,
                &Arrival { qp, peer, packet: &packet, near: None },
            );
        }
        if !reached && let Some(mut lane) = peer.lane() {
            // Dropped; it comes again by another way.
            let _ = lane.push(NO_REFERENCES, 1, |body| {
                body[0] = how;
                true
            });
            drop(lane);
            peer.ring_bell();
        }
    }

    /// The system calls that copy the payload straight to its place, if that may be: nothing but
    /// the engine's memory looks at it.
    fn straight(&self, inner: &QpInner, fetch: &Fetch<'_>) -> Option<Cma> {
        let may = fetch.reference.how == PRIVATE
            && fetch.reference.len <= MTU
            && self.node.taps.is_none()
            && inner.engine.takes_straight(&fetch.packet.headers)
            && !fetch.qp.own.matches_tags();
        if may { fetch.peer.cma() } else { None }
    }

    /// Gives the packet to its queue pair, which has the payload copied straight to its place.
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
        let held = ahead.filter(|ahead| ahead.holds(qp.number(), &packet.headers, reference));
        let mut ahead = held.or_else(|| self.copy_ahead(inner, fetch, guard, cma));
        let placed = ahead.as_mut().and_then(Ahead::take);
        batch.stand_in.resize(MTU as usize, 0);
        let stand_in = &batch.stand_in[..reference.len as usize];
        let (astray, unreached) = (Cell::new(false), Cell::new(false));
        let away = Away { guard, cma, addr: reference.addr, stand_in, placed, astray, unreached };
        let packet = Packet { payload: stand_in, ..packet };
        let arrival = Arrival { qp, peer, packet: &packet, near: Some(Near::Away(&away)) };
        self.give((&mut batch.tx, &mut batch.came), inner, &arrival);
        batch.ahead = ahead.filter(|ahead| !ahead.is_empty() && !away.astray.get());
        !away.unreached.get()
    }

    /// Copies the payload of the packet and those of the next ones that have come, if it is known
    /// where these go.
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
        // The memory stays registered while the keys are locked.
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
            if next.dest_qpn != bth.dest_qpn || how != PRIVATE || !fits || copied.len() == TOGETHER {
                break;
            }
            (bth, from, len) = (next, addr, more);
        }
        if copied.len() < 2 {
            return None;
        }
        // If that fails, the packets' own copies say why.
        cma.read(guard, &here, &there).ok()?;
        guard.holds().then(|| Ahead::new(qp.number(), epoch, packet.headers.bth.psn, copied))
    }
}

/// The next record, if it is a packet whose payload is still where its sender has it.
fn next_reference(behind: &mut Behind<'_>) -> Option<(Bth, Reference)> {
    behind.next(|tag, body| {
        if tag & BY_REFERENCE == 0 {
            return None;
        }
        // Read once, as in `take_record`; it is read and judged again when its turn comes.
        let mut head = [0; MAX_HEADER_LEN + REFERENCE];
        let n = body.len().min(head.len());
        head[..n].copy_from_slice(&body[..n]);
        let (headers, rest) = Headers::parse_front(&head[..n]).ok()?;
        Some((headers.bth, Reference::parse(rest)?))
    })?
}
