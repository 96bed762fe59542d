//! Packets between queue pairs of one host, through shared memory: the same packets as on a
//! network, and the same engine at both ends, without addresses, checksums or system calls.
//!
//! A record is a packet from its BTH on, without padding; a long payload stays where it is, and the
//! record says where: whoever receives it copies it once, into place.
use super::clock::StepClock;
use super::network::copy_payload;
use super::queue_pair::{AnyQp, QpInner};
use super::road::{Road, Room, Unsent};
use crate::host::{Ends, Lane, MTU, NO_REFERENCES, PRIVATE, Peer, Referred, SHARED, Seen};
use crate::interfaces::ip_of;
use crate::mapping::dma_buf_was_registered;
use crate::node::Node;
use crate::node::placing::Near;
use crate::node::progress::Batch;
use crate::ranks;
use adverb_engine::memory::RangeKind;
use adverb_engine::packet::Data;
use adverb_engine::wr::Remote;
use adverb_engine::{
    Access, AckOrder, Effects, Gid, KeyTable, Packet, QpState, Qpn, Range, SendFlags, Sge, Transmit,
};
use adverb_link::shm::{Broken, Consumer, Pushed};
use adverb_sync::RankedReadGuard;
use adverb_wire::{Headers, MAX_HEADER_LEN};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A packet; every such record has this bit.
const PACKET: u32 = 1;
/// Its payload is elsewhere: behind the headers stand its address, its length and how it is
/// reached.
const BY_REFERENCE: u32 = 2;
/// Its sender cuts messages by the MTU of the lane, not by that of the path.
const LONG: u32 = 4;

/// A payload of so many bytes is not copied into the ring if the peer shares the memory it is in.
const SHARED_FROM: u32 = 4 << 10;
/// The same for private memory, which the peer reads by a system call.
const PRIVATE_FROM: u32 = 16 << 10;
/// Address, length, epoch, how.
const REFERENCE: usize = 8 + 4 + 4 + 1;
/// The longest record: headers and a payload.
const LONGEST: usize = MAX_HEADER_LEN + MTU as usize;
/// Tries at a payload whose sender rewrites its entry meanwhile.
const FETCHES: u32 = 4;
/// Records taken from a peer at a time.
const BUDGET: usize = 64;

/// A WRITE or READ of one entry that is being posted.
#[derive(Clone, Copy, Debug)]
pub struct PlainPost<'a> {
    /// The consumer's id.
    pub wr_id: u64,
    /// Flags.
    pub flags: SendFlags,
    /// It is a READ.
    pub read: bool,
    /// The peer's memory.
    pub remote: Remote,
    /// This side's.
    pub data: PlainData<'a>,
}

impl PlainPost<'_> {
    /// Bytes of its message.
    #[inline]
    pub(crate) fn len(&self) -> u32 {
        match self.data {
            PlainData::Entry(entry) => entry.length,
            PlainData::Inline(bytes) => bytes.len() as u32,
        }
    }
}

/// What a [`PlainPost`] writes, or where it reads to.
#[derive(Clone, Copy, Debug)]
pub enum PlainData<'a> {
    /// Registered memory.
    Entry(Sge),
    /// Bytes of a WRITE, wherever they are.
    Inline(&'a [u8]),
}

/// The road through a peer's ring.
struct Ring<'a> {
    node: &'a Node,
    peer: &'a Peer,
    /// The ring, from the first packet on.
    lane: Option<Lane<'a>>,
    /// [`LONG`] or 0.
    long: u32,
    /// The peer may fetch payloads that a packet only points at.
    by_reference: bool,
    pushed: bool,
    qpn: Qpn,
    /// [`QpEntry::epoch`](adverb_link::shm::QpEntry::epoch) of the queue pair.
    epoch: u32,
}

impl Road for Ring<'_> {
    // The peer takes one record after the other.
    const ACK: AckOrder = AckOrder::Ahead;

    #[inline]
    fn room(&mut self) -> Room {
        if self.lane.is_none() {
            // Whoever holds the ring may have lost the processor: nobody waits for it, least of all
            // who receives for all.
            self.lane = self.peer.lane();
        }
        let Some(lane) = &mut self.lane else { return Room::Later };
        match lane.has_room(LONGEST) {
            Ok(true) => Room::Yes,
            Ok(false) => Room::Later,
            Err(Broken) => Room::Broken,
        }
    }

    #[inline]
    fn send(&mut self, t: &Transmit<'_>, keys: &KeyTable) -> Result<(), Unsent> {
        let Some(lane) = &mut self.lane else { return Err(Unsent::Broken) };
        let mut head = [0; MAX_HEADER_LEN];
        let head_len = t.headers.emit_unpadded(&mut head);
        let head = &head[..head_len];
        let mut fault = None;
        // The memory of a READ's answer is its owner's to take back at any time, as no request of
        // the owner's names it. So an answer is copied here.
        let by_reference = self.by_reference && t.headers.bth.opcode.is_request();
        let reference = if by_reference { self.node.reference(self.peer, t.payload) } else { None };
        let pushed = match reference {
            Some((range, how)) => lane.push(PACKET | BY_REFERENCE | self.long, head_len + REFERENCE, |out| {
                out[..head_len].copy_from_slice(head);
                let at = &mut out[head_len..];
                at[..8].copy_from_slice(&range.addr.to_le_bytes());
                at[8..12].copy_from_slice(&range.len.to_le_bytes());
                at[12..16].copy_from_slice(&self.epoch.to_le_bytes());
                at[16] = how;
                true
            }),
            None => lane.push(PACKET | self.long, head_len + t.payload.len(), |out| {
                let (first, rest) = out.split_at_mut(head_len);
                first.copy_from_slice(head);
                fault = copy_payload(t.payload, keys, rest).err();
                fault.is_none()
            }),
        };
        match (pushed, fault) {
            (Ok(Pushed::Done), _) => {
                if reference.is_some()
                    && let Data::Gather(&[memory]) = t.payload
                {
                    let position = lane.position();
                    self.peer.refers(lane, Referred { position, qpn: self.qpn, memory });
                }
                self.pushed = true;
                self.node.counters.lane_sent.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            (_, Some(fault)) => Err(Unsent::Fault(fault)),
            // There was room; whoever says otherwise wrote to what is ours.
            (Ok(Pushed::Full | Pushed::Refused) | Err(Broken), None) => Err(Unsent::Broken),
        }
    }

    #[inline]
    fn flush(&mut self) -> Room {
        self.lane = None;
        if self.pushed {
            self.peer.ring_bell();
        }
        Room::Yes
    }
}

impl Node {
    /// Performs what may be performed in the peer's memory, and sends the rest through its ring.
    pub(super) fn pump_ring(
        &self,
        qp: &AnyQp,
        inner: &mut QpInner,
        effects: &mut Effects,
        peer: &Arc<Peer>,
    ) -> Room {
        if peer.is_gone() {
            self.unpublish(qp, inner);
            // Windows on its memory among it, which are unmapped with their last user.
            inner.seen = Seen::default();
            inner.engine.peer_gone(effects);
            return Room::Yes;
        }
        if !inner.engine.wants_output() {
            return Room::Yes;
        }
        let keys = self.perform(qp, inner, effects, peer);
        if !inner.engine.wants_output() {
            return Room::Yes;
        }
        let mut road = Ring {
            node: self,
            peer,
            lane: None,
            long: if inner.long { LONG } else { 0 },
            by_reference: inner.is_shown() && !inner.copies,
            pushed: false,
            qpn: qp.number(),
            epoch: inner.epoch,
        };
        self.drain(&mut inner.engine, &mut road, &StepClock::new(self, true), effects, keys)
    }

    /// One-sided requests that nothing is ahead of are performed here and now.
    #[inline]
    fn perform(
        &self,
        qp: &AnyQp,
        inner: &mut QpInner,
        effects: &mut Effects,
        peer: &Peer,
    ) -> RankedReadGuard<'_, KeyTable, ranks::Keys> {
        let mut keys = self.keys.read();
        let Some(lanes) = &self.lanes else { return keys };
        let ends = Ends { qpn: qp.number(), dest_qpn: inner.engine.attr().dest_qpn };
        let QpInner { engine, seen, .. } = inner;
        while let Some(request) = engine.poll_direct(&keys) {
            let len = request.len;
            if !lanes.perform(peer, seen, ends, &keys, &request) {
                break;
            }
            engine.direct_done(effects);
            if len > u64::from(MTU) {
                // Who wants to change a key, and all who wait behind that, do not wait for a queue
                // full of these.
                RankedReadGuard::bump(&mut keys);
            }
        }
        keys
    }

    /// Performs a WRITE or READ that is being posted, if it need not wait and both memories are
    /// mapped: as [`Node::perform`], without its way through the queue. `false`: nothing has
    /// happened.
    #[inline]
    pub(crate) fn perform_post(&self, number: Qpn, inner: &mut QpInner, request: &PlainPost<'_>) -> bool {
        let PlainPost { read, remote, data, .. } = *request;
        let QpInner { engine, seen, peer, .. } = inner;
        let Some(peer) = peer.as_ref().filter(|peer| !peer.is_gone()) else { return false };
        let Some(lanes) = &self.lanes else { return false };
        let ends = Ends { qpn: number, dest_qpn: engine.attr().dest_qpn };
        let at = (remote, if read { Access::REMOTE_READ } else { Access::REMOTE_WRITE });
        // The local memory stays registered while the keys are held.
        let keys = self.keys.read();
        match data {
            PlainData::Inline(bytes) => {
                let takes = !read && engine.direct_post_inline(bytes.len());
                takes
                    && lanes.transfer(peer, seen, ends, at, bytes.len() as u64, |window, guard, off| {
                        window.write(guard, off, bytes).is_ok()
                    })
            }
            PlainData::Entry(entry) => {
                let Some(addr) = engine.direct_post(&keys, read, &entry) else { return false };
                let local = Range { addr, len: entry.length, kind: RangeKind::Mapped };
                lanes.transfer(peer, seen, ends, at, u64::from(entry.length), |window, guard, off| {
                    if read {
                        window.read_to(guard, off, local).is_ok()
                    } else {
                        window.write_from(guard, off, local).is_ok()
                    }
                })
            }
        }
    }

    /// The memory of a payload that the peer is to fetch itself, and how it reaches it.
    fn reference(&self, peer: &Peer, payload: Data<'_>) -> Option<(Range, u8)> {
        let Data::Gather(&[range]) = payload else { return None };
        let mapped = range.kind == RangeKind::Mapped;
        if range.len < SHARED_FROM || peer.is_own() || !(mapped || range.kind == RangeKind::OnDemand) {
            return None;
        }
        let lanes = self.lanes.as_ref()?;
        if mapped
            && !peer.no_windows.load(Ordering::Relaxed)
            && let Some(offset) = lanes.reached.offset_of(range.addr, u64::from(range.len))
        {
            return Some((Range { addr: offset, ..range }, SHARED));
        }
        // It may be a DMA-BUF, which no call of the peer's reaches.
        if mapped && dma_buf_was_registered() {
            return None;
        }
        (range.len >= PRIVATE_FROM && peer.may_read_us()).then_some((range, PRIVATE))
    }

    /// Takes what peers have written. `true` if there was anything.
    pub(super) fn receive_lanes(&self, rings: &mut [(Arc<Peer>, Consumer)], batch: &mut Batch) -> bool {
        let mut any = false;
        for (peer, ring) in rings {
            let mut broken = false;
            {
                if ring.is_empty() {
                    // Idle: the peer may have all the room.
                    ring.release();
                    continue;
                }
                for _ in 0..BUDGET {
                    match ring.take(|tag, body| self.take_record(batch, peer, tag, body)) {
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
            self.answer(batch);
            if broken {
                self.leave(peer, "broke its ring");
            }
        }
        any
    }

    fn take_record(&self, batch: &mut Batch, peer: &Arc<Peer>, tag: u32, body: &[u8]) {
        if tag == NO_REFERENCES {
            let how = if body.first() == Some(&PRIVATE) { &peer.no_calls } else { &peer.no_windows };
            how.store(true, Ordering::Relaxed);
            return;
        }
        // Read once: the ring is the peer's to write to, whatever it promised.
        let mut head = [0; MAX_HEADER_LEN + REFERENCE];
        let n = body.len().min(head.len());
        head[..n].copy_from_slice(&body[..n]);
        let Ok((headers, rest)) = Headers::parse_front(&head[..n]) else {
            self.counters.malformed.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let at = n - rest.len();
        let qpn = headers.bth.dest_qpn;
        let qp = match batch.touched.last() {
            Some(last) if last.number() == qpn => last.clone(),
            _ => match self.qp(qpn) {
                Some(qp) => qp,
                None => {
                    self.counters.no_such_qp.fetch_add(1, Ordering::Relaxed);
                    return;
                }
            },
        };
        let mut inner = qp.inner.lock();
        let theirs = self.is_from(peer, &qp, &mut inner);
        inner.heard |= theirs;
        let attr = inner.engine.attr();
        let packet = Packet {
            // Of another process than its partner's: the engine drops it, and says why.
            src: if theirs { attr.av.dgid } else { Gid::default() },
            dst: attr.av.sgid,
            traffic_class: 0,
            hop_limit: 64,
            mtu: (tag & LONG != 0).then(|| peer.mtu()),
            headers,
            payload: &body[at.min(body.len())..],
        };
        self.counters.lane_received.fetch_add(1, Ordering::Relaxed);
        if tag & BY_REFERENCE == 0 || !theirs {
            self.handle(&mut batch.tx, &qp, &mut inner, &packet, Near::Yes);
        } else {
            let Some(reference) = Reference::parse(rest) else {
                self.counters.malformed.fetch_add(1, Ordering::Relaxed);
                return;
            };
            self.take_reference(batch, peer, &qp, &mut inner, &packet, &reference);
        }
        drop(inner);
        if !qp.touched.swap(true, Ordering::Relaxed) {
            batch.touched.push(qp);
        }
    }

    /// A packet whose payload is still where its sender has it.
    fn take_reference(
        &self,
        batch: &mut Batch,
        peer: &Peer,
        qp: &AnyQp,
        inner: &mut QpInner,
        packet: &Packet<'_>,
        reference: &Reference,
    ) {
        let Some(lanes) = &self.lanes else { return };
        let Batch { tx, scratch, .. } = batch;
        let ends = Ends { qpn: qp.number(), dest_qpn: inner.engine.attr().dest_qpn };
        let mut seen = std::mem::take(&mut inner.seen);
        let Reference { addr, len, epoch, how } = *reference;
        let mut reached = true;
        // A sender whose queue pair has ended may use that memory for something else by now. What
        // was fetched while the queue pair was connected counts, and nothing else. An entry that
        // was only rewritten opens the memory again.
        for _ in 0..FETCHES {
            let Some(guard) = lanes.connected(peer, &mut seen, ends, epoch) else { break };
            reached = peer.fetch(&guard, addr, len, how == SHARED, scratch, |bytes| {
                let packet: Packet<'_> = *packet;
                let packet = Packet { payload: bytes, ..packet };
                self.handle(tx, qp, inner, &packet, Near::Fetched(&guard));
            });
            if guard.holds() {
                break;
            }
            reached = true;
        }
        inner.seen = seen;
        if !reached && let Some(mut lane) = peer.lane() {
            // Dropped; it comes again by another way.
            let _ = lane.push(NO_REFERENCES, 1, |body| {
                body[0] = reference.how;
                true
            });
            drop(lane);
            peer.ring_bell();
        }
    }

    /// Do both directions of a connection have a lane? Then nothing that came over the network is
    /// from the peer.
    #[inline]
    pub(super) fn has_both_lanes(&self, qp: &AnyQp, inner: &QpInner) -> bool {
        let (Some(peer), Some(lanes)) = (&inner.peer, &self.lanes) else { return false };
        let ends = Ends { qpn: qp.number(), dest_qpn: inner.engine.attr().dest_qpn };
        inner.heard || lanes.is_answered(peer, ends)
    }

    /// Is the queue pair connected to one of the peer's? Then its answers go the same way.
    fn is_from(&self, peer: &Arc<Peer>, qp: &AnyQp, inner: &mut QpInner) -> bool {
        if inner.peer.as_ref().is_some_and(|p| Arc::ptr_eq(p, peer)) {
            return true;
        }
        let attr = inner.engine.attr();
        let slot = adverb_link::slot_of_qpn(attr.dest_qpn);
        // One of another host may have the same number as one of theirs.
        let theirs = qp.qp_type().is_reliable()
            && matches!(attr.state, QpState::Rtr | QpState::Rts | QpState::Sqd)
            && self.is_own_address(ip_of(&attr.av.dgid))
            && slot
                .and_then(|slot| self.lanes.as_ref()?.known(slot))
                .is_some_and(|known| Arc::ptr_eq(&known, peer));
        if theirs {
            peer.connect(qp.number());
            inner.peer = Some(peer.clone());
            inner.seen = Seen::default();
        }
        theirs
    }
}

/// Where a payload is, in the sender's terms.
struct Reference {
    addr: u64,
    len: u32,
    epoch: u32,
    how: u8,
}

impl Reference {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; REFERENCE] = bytes.get(..REFERENCE)?.try_into().ok()?;
        let (addr, rest) = bytes.split_first_chunk::<8>()?;
        let (len, rest) = rest.split_first_chunk::<4>()?;
        let (epoch, rest) = rest.split_first_chunk::<4>()?;
        let (addr, len) = (u64::from_le_bytes(*addr), u32::from_le_bytes(*len));
        Some(Reference { addr, len, epoch: u32::from_le_bytes(*epoch), how: rest[0] })
    }
}
