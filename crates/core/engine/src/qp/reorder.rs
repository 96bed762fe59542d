//! Packets that arrived before earlier packets, buffered until their turn.
//!
//! A network with several paths, or a queue that several processors serve, lets packets overtake
//! each other. A go-back-N queue pair takes this for loss: it would drop early packets and have
//! them sent again. On a path with permanent reordering, little would get through. So each half of
//! a reliable queue pair keeps early packets. When the gap is filled, the packets behind the gap
//! are handled in the order of their PSNs, as if the network had delayed them.
//!
//! A gap may be a loss or a delay. The other side is told of the gap after a *wait*. The wait
//! follows the measured lateness of missing packets that arrived by themselves. Without a
//! measurement the wait is zero, so a loss is told at once. If the requested packet comes a second
//! time, the gap was no loss.
//!
//! The buffer is bounded: in packets and bytes for each half, and in bytes for all queue pairs of a
//! host by [`ReorderMemory`]. The nearest PSNs take precedence, so that forged packets with far
//! PSNs cannot displace packets of the peer.
use super::counters::{Counters, DropReason};
use crate::packet::Packet;
use crate::types::Gid;
use adverb_wire::{Headers, Psn, Time};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicUsize, Ordering};
use core::time::Duration;

/// Most packets buffered by one half of a queue pair.
pub(super) const MOST: usize = 1024;
/// Most bytes of these packets.
const MOST_BYTES: usize = MOST * (4096 + size_of::<Kept>());
/// Greatest distance of a buffered packet from the gap, in PSNs.
pub(super) const REACH: i32 = 4096;
/// The longest wait, in nanoseconds: shorter than a usual ACK timeout.
const LONGEST: u64 = 10_000_000;
/// A shorter lateness, in nanoseconds, counts as none.
const SHORTEST: u64 = 1000;
/// A packet that arrived twice may have been sent three times; then its lateness is unknown. So
/// such a packet at most doubles the wait and adds this, in nanoseconds.
const STEP: u64 = 16_000;
/// Part by which the wait shrinks after a less late packet.
const EARLIER: u64 = 64;
/// Part by which the wait shrinks after a loss.
const LOST: u64 = 8;

/// The memory for early packets that all queue pairs of a host share.
#[derive(Debug)]
pub struct ReorderMemory {
    left: AtomicUsize,
}

impl ReorderMemory {
    /// The usual bound of a host.
    pub const USUAL: usize = 16 << 20;

    /// A bound of `bytes` bytes.
    #[must_use]
    pub const fn new(bytes: usize) -> Self {
        ReorderMemory { left: AtomicUsize::new(bytes) }
    }
    /// Bytes not in use.
    #[must_use]
    pub fn left(&self) -> usize {
        self.left.load(Ordering::Relaxed)
    }
    fn take(&self, bytes: usize) -> bool {
        self.left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes))
            .is_ok()
    }
    fn give(&self, bytes: usize) {
        self.left.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// A buffered packet. Dropping the packet returns its bytes to the shared memory.
#[derive(Debug)]
pub struct Kept {
    arrived: Time,
    src: Gid,
    dst: Gid,
    mtu: Option<u32>,
    headers: Headers,
    payload: Box<[u8]>,
    memory: Option<Arc<ReorderMemory>>,
}

const fn cost(payload: usize) -> usize {
    payload + size_of::<Kept>()
}

impl Kept {
    fn psn(&self) -> Psn {
        self.headers.bth.psn
    }
    /// The packet as it arrived, except for the traffic class, which was handled on arrival.
    #[must_use]
    pub fn packet(&self) -> Packet<'_> {
        Packet {
            src: self.src,
            dst: self.dst,
            traffic_class: 0,
            hop_limit: 64,
            mtu: self.mtu,
            headers: self.headers,
            payload: &self.payload,
        }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some(memory) = &self.memory {
            memory.give(cost(self.payload.len()));
        }
    }
}

/// A packet is missing and later packets arrived.
#[derive(Clone, Copy, Debug)]
struct Gap {
    since: Time,
    /// When to tell the other side.
    due: Option<Time>,
    /// The other side was told before.
    told: bool,
    /// The last packet that arrived early.
    early: Psn,
}

/// Should the other side be told of a gap now?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tell {
    Nothing,
    /// A gap.
    Gap,
    /// The packets after the gap arrived again: the retransmission was lost, too.
    Again,
}

/// The result of buffering a packet.
#[derive(PartialEq, Eq)]
enum BufferOutcome {
    New,
    /// The packet is buffered already, or was and made room for a nearer packet.
    Again,
    NoRoom,
}

/// The early packets of one half of a queue pair.
#[derive(Debug, Default)]
pub(super) struct Reorder {
    /// In PSN order.
    buffered: VecDeque<Box<Kept>>,
    bytes: usize,
    /// The memory shared with other queue pairs.
    pub(super) memory: Option<Arc<ReorderMemory>>,
    gap: Option<Gap>,
    /// The last packet that was reported missing and then arrived, with its lateness. If the packet
    /// comes again, there was no loss.
    doubt: Option<(Psn, u64)>,
    /// Measured lateness in nanoseconds.
    late: u64,
    /// Early packets arrived, and their consequences are not all handled.
    busy: bool,
    /// Set when a gap was filled and the packets behind the gap are still to be handled. The value
    /// says whether the other side had been told of the gap.
    was_told: Option<bool>,
}

impl Reorder {
    /// No early packet matters any more.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        !self.busy
    }

    /// When to tell the other side of the gap.
    pub(super) fn due(&self) -> Option<Time> {
        self.gap.and_then(|gap| gap.due)
    }

    /// Drops all buffered packets.
    pub(super) fn discard(&mut self, counters: &mut Counters) {
        self.buffered.drain(..).for_each(|_| counters.discarded());
        self.bytes = 0;
        (self.gap, self.was_told, self.busy) = (None, None, false);
    }

    /// Drops all buffered packets and forgets the measured lateness.
    pub(super) fn reset(&mut self, counters: &mut Counters) {
        self.discard(counters);
        (self.doubt, self.late) = (None, 0);
    }

    /// A packet arrived before the packet at `missing`.
    #[cold]
    pub(super) fn early(
        &mut self,
        missing: Psn,
        packet: &Packet<'_>,
        now: Time,
        counters: &mut Counters,
    ) -> Tell {
        self.busy = true;
        let psn = packet.headers.bth.psn;
        let kept = self.keep(missing, packet, now, counters);
        let wait = self.wait();
        let Some(gap) = &mut self.gap else {
            let due = (!wait.is_zero() && kept != BufferOutcome::NoRoom).then(|| now + wait);
            self.gap = Some(Gap { since: now, due, told: due.is_none(), early: psn });
            return if due.is_none() { Tell::Gap } else { Tell::Nothing };
        };
        let before = core::mem::replace(&mut gap.early, psn);
        let tell = if gap.told { Tell::Again } else { Tell::Gap };
        if gap.told && gap.due.is_none() {
            // On an ordered path, a packet that does not follow the previous packet was sent again.
            let anew =
                if wait.is_zero() { !before.precedes(psn) } else { kept == BufferOutcome::Again };
            if !anew {
                return Tell::Nothing;
            }
            gap.due = Some(now + wait);
        }
        if kept == BufferOutcome::NoRoom && !gap.told || gap.due.is_some_and(|due| due <= now) {
            (gap.told, gap.due) = (true, None);
            return tell;
        }
        Tell::Nothing
    }

    /// Is the wait over?
    pub(super) fn expired(&mut self, now: Time) -> Tell {
        match &mut self.gap {
            Some(gap) if gap.due.is_some_and(|due| due <= now) => {
                gap.due = None;
                if core::mem::replace(&mut gap.told, true) { Tell::Again } else { Tell::Gap }
            }
            _ => Tell::Nothing,
        }
    }

    /// The other side sends again in any case.
    pub(super) fn told(&mut self) {
        if let Some(gap) = &mut self.gap {
            (gap.told, gap.due) = (true, None);
        }
    }

    /// The missing packet arrived.
    #[cold]
    pub(super) fn filled(&mut self, psn: Psn, now: Time) {
        let Some(gap) = self.gap.take() else {
            // A peer that was told sends all packets again, including the missing packet.
            self.was_told.get_or_insert(true);
            return;
        };
        self.was_told = Some(gap.told);
        let late = now.since(gap.since).as_nanos() as u64;
        if !gap.told {
            self.learn(late);
        } else if self.doubt.replace((psn, late)).is_some() {
            // The previous missing packet was really lost.
            self.late -= self.late.div_ceil(LOST);
            if self.late < SHORTEST {
                self.late = 0;
            }
        }
    }

    /// Has [`Reorder::settled`] to be called?
    pub(super) fn was_filled(&self) -> bool {
        self.was_told.is_some()
    }

    /// All packets in order were handled. Is there another gap to tell of?
    pub(super) fn settled(&mut self, now: Time) -> Tell {
        let told = self.was_told.take().unwrap_or(true);
        self.busy = self.gap.is_some() || !self.buffered.is_empty();
        let (false, None, Some(since), Some(last)) =
            (told, self.gap, self.buffered.iter().map(|h| h.arrived).min(), self.buffered.back())
        else {
            return Tell::Nothing;
        };
        let early = last.psn();
        self.gap = Some(Gap { since, due: Some(since + self.wait()), told: false, early });
        self.expired(now)
    }

    /// A packet arrived a second time. Answers `true` if the packet was reported missing and was
    /// late.
    pub(super) fn repeated(&mut self, psn: Psn) -> bool {
        let Some((_, late)) = self.doubt.take_if(|(at, _)| *at == psn) else { return false };
        self.learn(late.min(2 * self.late + STEP));
        true
    }

    /// The buffered packet with the nearest PSN.
    pub(super) fn first(&self) -> Option<&Headers> {
        self.buffered.front().map(|buffered| &buffered.headers)
    }

    /// Takes out the nearest packet.
    pub(super) fn take_first(&mut self, counters: &mut Counters) -> Option<Kept> {
        let buffered = self.buffered.pop_front()?;
        counters.released = counters.released.wrapping_add(1);
        self.bytes -= cost(buffered.payload.len());
        Some(*buffered)
    }

    /// Drops the nearest packet.
    pub(super) fn drop_first(&mut self, counters: &mut Counters) {
        counters.drop(DropReason::Sequence);
        self.take_first(counters);
    }

    fn wait(&self) -> Duration {
        Duration::from_nanos((self.late + self.late / 4).min(LONGEST))
    }

    fn learn(&mut self, late: u64) {
        if late > self.late {
            self.late = late.min(LONGEST);
        } else {
            self.late -= (self.late - late) / EARLIER;
        }
    }

    fn keep(
        &mut self,
        missing: Psn,
        packet: &Packet<'_>,
        now: Time,
        counters: &mut Counters,
    ) -> BufferOutcome {
        let (psn, cost) = (packet.headers.bth.psn, cost(packet.payload.len()));
        let at = self.buffered.partition_point(|h| h.psn().precedes(psn));
        if self.buffered.get(at).is_some_and(|h| h.psn() == psn) {
            counters.drop(DropReason::Sequence);
            return BufferOutcome::Again;
        }
        while self.buffered.len() > at
            && (self.buffered.len() >= MOST || self.bytes + cost > MOST_BYTES)
        {
            self.buffered.pop_back().inspect(|h| self.bytes -= self::cost(h.payload.len()));
            counters.discarded();
        }
        let near = psn.since(missing) < REACH;
        let room = near && self.buffered.len() < MOST && self.bytes + cost <= MOST_BYTES;
        if !room || self.memory.as_ref().is_some_and(|memory| !memory.take(cost)) {
            counters.drop(DropReason::Sequence);
            return BufferOutcome::NoRoom;
        }
        counters.buffered = counters.buffered.wrapping_add(1);
        self.bytes += cost;
        let buffered = Kept {
            arrived: now,
            src: packet.src,
            dst: packet.dst,
            mtu: packet.mtu,
            headers: packet.headers,
            payload: packet.payload.into(),
            memory: self.memory.clone(),
        };
        self.buffered.insert(at, Box::new(buffered));
        BufferOutcome::New
    }

    /// Number of buffered packets.
    pub(super) fn len(&self) -> usize {
        self.buffered.len()
    }
}
