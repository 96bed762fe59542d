//! Payloads that are still where their sender has them.
//!
//! | the payload is in | a SEND of an RC queue pair | other packets |
//! |---|---|---|
//! | shared memory | one copy, by loads and stores | the same |
//! | private memory | one copy, by the kernel, straight to its place ([`Away`]) | over a buffer |
//!
//! A long message comes as many packets. The records of the next ones mostly lie in the ring when
//! the first is taken. So the receiver looks at these records, and has the kernel copy their
//! payloads with the first, in one call ([`Ahead`]). The packets are taken one by one afterwards,
//! as ever.
use super::placing::{Away, Near};
use super::record::{BY_REFERENCE, REFERENCE, Reference};
use super::rings::Rings;
use crate::host::{Ends, MTU, NO_REFERENCES, PRIVATE, Peer, SHARED};
use crate::node::batch::Batch;
use crate::node::carriers::decorate::{Arrival, Taps};
use crate::node::queue_pair::{AnyQp, QpInner};
use adverb_engine::Packet;
use adverb_memory::{Cma, Guard};
use adverb_shm::Behind;
use adverb_wire::{Headers, MAX_HEADER_LEN, Psn};
use std::cell::Cell;
use std::sync::Arc;

/// Tries at a payload whose sender rewrites its entry meanwhile.
const FETCHES: u32 = 4;
/// Bytes that are copied with one payload at most.
const AT_ONCE: u32 = 1 << 20;

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

/// Payloads that were copied together with an earlier one of their message. They belong to the
/// next records of one ring, in order: any other record voids this.
#[derive(Clone, Copy)]
pub(in crate::node) struct Ahead {
    qpn: u32,
    epoch: u32,
    /// Of the next packet.
    psn: Psn,
    /// Where its payload was, in the sender's process, and where it is now.
    from: u64,
    to: u64,
    /// Bytes left.
    len: u32,
}

impl Ahead {
    /// Is the payload of a packet among them?
    fn holds(&self, qpn: u32, headers: &Headers, reference: &Reference) -> bool {
        self.qpn == qpn
            && self.psn == headers.bth.psn
            && self.epoch == reference.epoch
            && self.from == reference.addr
            && self.len >= reference.len
    }

    /// What is left behind the first `len` bytes.
    fn behind(self, len: u32) -> Option<Self> {
        let left = self.len.checked_sub(len).filter(|left| *left > 0)?;
        let by = u64::from(len);
        Some(Ahead { psn: self.psn + 1, from: self.from + by, to: self.to + by, len: left, ..self })
    }
}

impl Rings<'_> {
    /// Takes a packet whose payload is still where its sender has it.
    pub(super) fn take_reference(&self, batch: &mut Batch, inner: &mut QpInner, mut fetch: Fetch<'_>) {
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
            self.give((&mut batch.tx, &mut batch.came), inner, &Arrival { qp, peer, packet: &packet, near: None });
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
        let Fetch { qp, peer, reference, .. } = *fetch;
        let packet: Packet<'_> = *fetch.packet;
        let held = fetch.ahead.filter(|ahead| ahead.holds(qp.number(), &packet.headers, reference));
        let ahead = held.or_else(|| self.copy_ahead(inner, fetch, guard, cma));
        batch.stand_in.resize(MTU as usize, 0);
        let stand_in = &batch.stand_in[..reference.len as usize];
        let unreached = Cell::new(false);
        let away =
            Away { guard, cma, addr: reference.addr, stand_in, placed: ahead.map(|ahead| ahead.to), unreached };
        let packet = Packet { payload: stand_in, ..packet };
        let arrival = Arrival { qp, peer, packet: &packet, near: Some(Near::Away(&away)) };
        self.give((&mut batch.tx, &mut batch.came), inner, &arrival);
        batch.ahead = ahead.and_then(|ahead| ahead.behind(reference.len));
        !away.unreached.get()
    }

    /// Copies the payload of the packet and those of the next ones, if they lie side by side here
    /// and there.
    fn copy_ahead(
        &self,
        inner: &QpInner,
        fetch: &mut Fetch<'_>,
        guard: &Guard<'_>,
        cma: Cma,
    ) -> Option<Ahead> {
        let Fetch { qp, packet, reference, .. } = *fetch;
        let len = run(packet, reference, &mut fetch.behind);
        if len <= reference.len {
            return None;
        }
        // The memory stays registered while the keys are locked.
        let keys = self.node.keys.read();
        let to = inner.engine.straight_to(&keys, &packet.headers, len)?;
        // If that fails, the packets' own copies say why.
        cma.fetch(guard, to, reference.addr).ok()?;
        let (psn, from) = (packet.headers.bth.psn, reference.addr);
        guard
            .holds()
            .then_some(Ahead { qpn: qp.number(), epoch: reference.epoch, psn, from, to: to.addr, len })
    }
}

/// Bytes that lie side by side in the sender's memory: the payload of a packet, and those of the
/// next ones of its message that have come.
fn run(packet: &Packet<'_>, reference: &Reference, behind: &mut Behind<'_>) -> u32 {
    let mut bth = packet.headers.bth;
    let mut len = reference.len;
    while !bth.opcode.ends_message() {
        let next = behind.next(|tag, body| {
            if tag & BY_REFERENCE == 0 {
                return None;
            }
            // Read once, as in `take_record`; it is read and judged again when its turn comes.
            let mut head = [0; MAX_HEADER_LEN + REFERENCE];
            let n = body.len().min(head.len());
            head[..n].copy_from_slice(&body[..n]);
            let (headers, rest) = Headers::parse_front(&head[..n]).ok()?;
            Some((headers.bth, Reference::parse(rest)?))
        });
        let Some(Some((next, Reference { addr, len: more, epoch, how }))) = next else { break };
        let follows = next.dest_qpn == bth.dest_qpn
            && next.psn == bth.psn + 1
            && !next.opcode.starts_message()
            && (how, epoch) == (PRIVATE, reference.epoch)
            && reference.addr.checked_add(len.into()) == Some(addr);
        match len.checked_add(more).filter(|len| follows && *len <= AT_ONCE) {
            Some(sum) => (len, bth) = (sum, next),
            None => break,
        }
    }
    len
}
