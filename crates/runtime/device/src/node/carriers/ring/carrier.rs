//! Sending of the ring carrier, and the methods which the node calls: see the folder's page.
use super::record::{BY_REFERENCE, LONG, LONGEST, PACKET, REFERENCE};
use super::rings::Rings;
use super::state::Connected;
use crate::host::{PRIVATE, Peer, Referred, SHARED, Seen, TxRing};
use crate::mapping::dma_buf_was_registered;
use crate::node::batch::Receiver;
use crate::node::carriers::decorate::{Captured, Hold, Tape};
use crate::node::carriers::road::{Road, Room, Unsent, copy_payload, drain};
use crate::node::clock::StepClock;
use crate::node::queue_pair::{AnyQp, QpInner};
use crate::node::tx::Tx;
use crate::ranks;
use adverb_engine::memory::RangeKind;
use adverb_engine::packet::Data;
use adverb_engine::{AckOrder, Effects, KeyTable, Qpn, Range, Transmit};
use adverb_shm::{Broken, Pushed};
use adverb_sync::RankedReadGuard;
use adverb_wire::MAX_HEADER_LEN;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A payload of at least this many bytes is not copied into the ring, if the peer shares its
/// memory.
const SHARED_FROM: u32 = 4 << 10;
/// The same limit for private memory, which the peer reads by a system call.
const PRIVATE_FROM: u32 = 16 << 10;
/// The road through a peer's ring.
struct Ring<'a> {
    rings: Rings<'a>,
    peer: &'a Peer,
    /// The locked ring, from the first packet on.
    tx_ring: Option<TxRing<'a>>,
    /// [`LONG`] or 0.
    long: u32,
    /// The peer may fetch payloads by reference.
    by_reference: bool,
    pushed: bool,
    qpn: Qpn,
    /// [`QpEntry::epoch`](adverb_shm::QpEntry::epoch) of the queue pair.
    epoch: u32,
}

impl Road for Ring<'_> {
    // The peer takes the records in their order.
    const ACK: AckOrder = AckOrder::Ahead;

    #[inline]
    fn room(&mut self) -> Room {
        if self.tx_ring.is_none() {
            // The holder of the ring may have lost the processor. No thread waits for the ring,
            // least of all the thread that receives for the whole process.
            self.tx_ring = self.peer.outgoing.try_lock();
        }
        let Some(tx_ring) = &mut self.tx_ring else { return Room::Later };
        match tx_ring.has_room(LONGEST) {
            Ok(true) => Room::Yes,
            Ok(false) => Room::Later,
            Err(Broken) => Room::Broken,
        }
    }

    #[inline]
    fn send(&mut self, t: &Transmit<'_>, keys: &KeyTable) -> Result<(), Unsent> {
        let Some(tx_ring) = &mut self.tx_ring else { return Err(Unsent::Broken) };
        let mut head = [0; MAX_HEADER_LEN];
        let head_len = t.headers.emit_unpadded(&mut head);
        let head = &head[..head_len];
        let mut fault = None;
        // The owner of a READ's source memory may take the memory back at any time, as no request
        // of the owner names the memory. So the payload of a READ response is copied here.
        let by_reference = self.by_reference && t.headers.bth.opcode.is_request();
        let reference =
            if by_reference { self.rings.reference(self.peer, t.payload) } else { None };
        let pushed = match reference {
            Some((range, how)) => {
                tx_ring.push(PACKET | BY_REFERENCE | self.long, head_len + REFERENCE, |out| {
                    out[..head_len].copy_from_slice(head);
                    let at = &mut out[head_len..];
                    at[..8].copy_from_slice(&range.addr.to_le_bytes());
                    at[8..12].copy_from_slice(&range.len.to_le_bytes());
                    at[12..16].copy_from_slice(&self.epoch.to_le_bytes());
                    at[16] = how;
                    true
                })
            }
            None => tx_ring.push(PACKET | self.long, head_len + t.payload.len(), |out| {
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
                    let position = tx_ring.position();
                    self.peer
                        .outgoing
                        .refers(tx_ring, Referred { position, qpn: self.qpn, memory });
                }
                self.pushed = true;
                self.rings.node.counters.ring_sent.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            (_, Some(fault)) => Err(Unsent::Fault(fault)),
            // [`Road::room`] has found room. A ring that is full now was written to by another
            // process.
            (Ok(Pushed::Full | Pushed::Refused) | Err(Broken), None) => Err(Unsent::Broken),
        }
    }

    #[inline]
    fn flush(&mut self) -> Room {
        self.tx_ring = None;
        if self.pushed {
            self.peer.ring_doorbell();
        }
        Room::Yes
    }
}

impl Rings<'_> {
    /// Performs requests in the peer's memory where possible, and sends the rest through the peer's
    /// ring.
    #[inline]
    pub(in crate::node) fn pump(&self, qp: &AnyQp, inner: &mut QpInner, tx: &mut Tx) -> Room {
        let Some(peer) = inner.carried.ring.peer.take() else { return Room::Yes };
        let end = self.pump_to(&peer, qp, inner, tx);
        inner.carried.ring.peer.get_or_insert(peer);
        end
    }

    #[inline]
    pub(in crate::node) fn receive(&self, rx: &mut Receiver) -> bool {
        let Receiver { batch, rings, .. } = rx;
        self.host.refresh(rings);
        let released = self.node.packet_faults().is_some_and(|f| f.release(self.node, batch));
        if released {
            self.node.answer(batch);
        }
        self.receive_from(&mut rings.list, batch) | released
    }

    /// Names the descriptor that is readable after an arrival.
    pub(in crate::node) fn sources(&self, each: &mut dyn FnMut(BorrowedFd<'_>)) {
        self.host.doorbells.fd().into_iter().for_each(each);
    }

    /// Announces that a thread is about to sleep. `true`: a packet has already arrived.
    pub(in crate::node) fn before_sleep(&self) -> bool {
        self.host.sleeps();
        self.host.any() && self.hold()
    }

    /// Either process has unread records of the other.
    pub(in crate::node) fn is_behind(&self, inner: &QpInner) -> bool {
        let Some(peer) = &inner.carried.ring.peer else { return false };
        let read = || self.node.receiver.try_lock().is_some_and(|rx| rx.rings.are_empty());
        !peer.was_left() && (peer.outgoing.is_behind() || !read())
    }

    /// Drops everything of the old peer: its memory, and cached entries of the tables. The next
    /// peer's tables may use the same numbers.
    pub(in crate::node) fn disconnect(&self, inner: &mut QpInner) {
        let Connected { peer, heard, long, seen, hold, .. } = &mut inner.carried.ring;
        (*peer, *heard, *long, *seen) = (None, false, false, Seen::default());
        *hold = Hold::default();
        if let Some(profile) = self.node.packet_faults() {
            inner.engine.pause_requests(false);
            profile.forget(inner.engine.config().qpn);
        }
    }
}

impl<'a> Rings<'a> {
    #[inline]
    fn pump_to(&self, peer: &Arc<Peer>, qp: &AnyQp, inner: &mut QpInner, tx: &mut Tx) -> Room {
        let effects = &mut tx.effects;
        if peer.was_left() {
            self.part(qp, inner, effects);
            return Room::Yes;
        }
        if !inner.engine.wants_output() {
            return Room::Yes;
        }
        let profile = self.node.packet_faults();
        let keys = match profile {
            _ if inner.kept => self.node.keys.read(),
            Some(profile) if profile.holds(self.node, inner) => self.node.keys.read(),
            _ => self.perform(qp, inner, effects, peer),
        };
        if !inner.engine.wants_output() {
            return Room::Yes;
        }
        let state = &inner.carried.ring;
        let mut road = Ring {
            rings: *self,
            peer,
            tx_ring: None,
            long: if state.long { LONG } else { 0 },
            by_reference: state.shown.is_some() && !state.copies,
            pushed: false,
            qpn: qp.number(),
            epoch: state.epoch,
        };
        // Where no packet is lost, deadlines need not be exact.
        let clock = StepClock::new(&self.node.clocks, profile.is_none());
        match self.node.taps.as_ref().and_then(|taps| taps.tape.as_ref()) {
            None => drain(self.node, &mut inner.engine, &mut road, &clock, effects, keys),
            Some(tape) => self.drain_recorded(road, tape, &mut inner.engine, &clock, effects, keys),
        }
    }

    /// As [`drain`], with a capture.
    #[cold]
    #[inline(never)]
    fn drain_recorded(
        &self,
        road: Ring<'a>,
        tape: &Tape,
        engine: &mut adverb_engine::Qp,
        clock: &StepClock<'_>,
        effects: &mut Effects,
        keys: RankedReadGuard<'a, KeyTable, ranks::Keys>,
    ) -> Room {
        let mut left = None;
        let mut road = Captured::new(road, tape, self.node, &mut left);
        drain(self.node, engine, &mut road, clock, effects, keys)
    }

    /// Ends the use of the queue pair's peer.
    #[cold]
    fn part(&self, qp: &AnyQp, inner: &mut QpInner, effects: &mut Effects) {
        self.unpublish(qp, inner);
        // Includes windows on the peer's memory. Their last user unmaps them.
        inner.carried.ring.seen = Seen::default();
        inner.carried.ring.hold = Hold::default();
        inner.engine.pause_requests(false);
        inner.engine.peer_ended(self.node.now(), effects);
    }

    /// The memory of a payload for the peer to fetch itself, and how the peer reaches the memory.
    fn reference(&self, peer: &Peer, payload: Data<'_>) -> Option<(Range, u8)> {
        let Data::Gather(&[range]) = payload else { return None };
        let mapped = range.kind == RangeKind::Mapped;
        if range.len < SHARED_FROM || peer.is_own || !(mapped || range.kind == RangeKind::OnDemand)
        {
            return None;
        }
        if mapped
            && !peer.no_windows.load(Ordering::Relaxed)
            && let Some(offset) = self.host.reached.offset_of(range.addr, u64::from(range.len))
        {
            return Some((Range { addr: offset, ..range }, SHARED));
        }
        // The memory may be a DMA-BUF, which no system call of the peer reaches.
        if mapped && dma_buf_was_registered() {
            return None;
        }
        (range.len >= PRIVATE_FROM && peer.may_read_us()).then_some((range, PRIVATE))
    }
}
