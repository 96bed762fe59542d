//! Packets that came before earlier ones, kept until it is their turn.
//!
//! A network with several paths, or a queue that several processors serve, lets packets overtake
//! each other. To a queue pair that goes back N that looks like a loss: it drops what came early
//! and has it sent again, and on a path that reorders all the time little gets through. So each
//! half of a reliable queue pair keeps what came early. When the gap is filled, the packets behind
//! it are handled in the order of their PSNs, just as if the network had delayed them.
//!
//! Whether a gap is a loss, nobody knows. The other side is told of it after a *wait*, which
//! follows how late missing packets were before they came by themselves. Until that is known the
//! wait is zero, so that a loss is told of at once. That a gap was no loss shows afterwards, too:
//! the packet that was asked for comes a second time.
//!
//! What is kept is bounded: in packets and bytes here, in bytes for all queue pairs of a host by
//! [`ReorderMemory`]. The nearest PSNs take precedence, so that packets which are not the peer's
//! cannot keep the peer's own out.
use super::counters::{Counters, DropReason};
use crate::packet::Packet;
use crate::time::Time;
use crate::types::Gid;
use adverb_wire::{Headers, Psn};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};
use core::time::Duration;

/// Packets that one half of a queue pair keeps, their bytes, and how far ahead of the gap they may
/// be.
pub(super) const MOST: usize = 64;
const MOST_BYTES: usize = MOST * (4096 + size_of::<Kept>());
pub(super) const REACH: i32 = 1024;
/// The longest wait, in nanoseconds: shorter than a usual ACK timeout.
const LONGEST: u64 = 10_000_000;
/// Lateness of less, in nanoseconds, is none.
const SHORTEST: u64 = 1000;
/// A packet that came twice may have been sent three times and then says nothing of lateness. So
/// one such packet makes the wait at most twice as long plus this, in nanoseconds.
const STEP: u64 = 16_000;
/// Part by which the wait shrinks when packets are less late, and when one is lost.
const EARLIER: u64 = 64;
const LOST: u64 = 8;

/// What the queue pairs of a host may keep together of packets that came early.
#[derive(Debug)]
pub struct ReorderMemory {
    left: AtomicUsize,
}

impl ReorderMemory {
    /// The usual bound of a host.
    pub const USUAL: usize = 16 << 20;

    /// So many bytes.
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
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes)).is_ok()
    }
    fn give(&self, bytes: usize) {
        self.left.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// A packet kept. It gives its bytes back to the host's memory when it goes.
#[derive(Debug)]
pub struct Kept {
    came: Time,
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
    /// As it came, but for the traffic class, which was looked at then.
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

/// A packet is missing, and later ones came.
#[derive(Clone, Copy, Debug)]
struct Gap {
    since: Time,
    /// When the other side is to be told.
    due: Option<Time>,
    /// It was told before.
    told: bool,
    /// The last packet that came early.
    early: Psn,
}

/// Whether the other side is to be told of a gap now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tell {
    Nothing,
    /// A gap.
    Gap,
    /// The packets after the gap began anew: what was sent again was lost again.
    Again,
}

/// What became of a packet that was to be kept.
#[derive(PartialEq, Eq)]
enum Place {
    New,
    /// It is there already, or was and made room for a nearer one.
    Again,
    NoRoom,
}

/// The packets that came early at one half of a queue pair.
#[derive(Debug, Default)]
pub(super) struct Reorder {
    /// In the order of PSNs.
    held: Vec<Kept>,
    bytes: usize,
    memory: Option<Arc<ReorderMemory>>,
    gap: Option<Gap>,
    /// The last packet that was reported missing and came, and how late it was: if it comes again,
    /// it had not been lost.
    doubt: Option<(Psn, u64)>,
    /// How late packets are, in nanoseconds.
    late: u64,
    /// Something came early, and not all that follows from it has been done.
    busy: bool,
    /// Set when a gap was filled and the packets behind it are still to be handled: whether the
    /// other side had been told of the gap.
    was_told: Option<bool>,
}

impl Reorder {
    pub(super) fn share(&mut self, memory: Arc<ReorderMemory>) {
        self.memory = Some(memory);
    }

    /// Nothing came early that still matters.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        !self.busy
    }

    /// When the other side is to be told of the gap.
    pub(super) fn due(&self) -> Option<Time> {
        self.gap.and_then(|gap| gap.due)
    }

    /// Drops what is kept.
    pub(super) fn discard(&mut self, counters: &mut Counters) {
        self.held.drain(..).for_each(|_| counters.discarded());
        self.bytes = 0;
        (self.gap, self.was_told, self.busy) = (None, None, false);
    }

    /// Drops what is kept and forgets what was learned of the path.
    pub(super) fn reset(&mut self, counters: &mut Counters) {
        self.discard(counters);
        (self.doubt, self.late) = (None, 0);
    }

    /// A packet came while the one at `missing` has not.
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
            let due = (!wait.is_zero() && kept != Place::NoRoom).then(|| now + wait);
            self.gap = Some(Gap { since: now, due, told: due.is_none(), early: psn });
            return if due.is_none() { Tell::Gap } else { Tell::Nothing };
        };
        let before = core::mem::replace(&mut gap.early, psn);
        let tell = if gap.told { Tell::Again } else { Tell::Gap };
        if gap.told && gap.due.is_none() {
            // On a path that keeps the order, a packet with a PSN not above the one before it was
            // sent again.
            let anew = if wait.is_zero() { !before.precedes(psn) } else { kept == Place::Again };
            if !anew {
                return Tell::Nothing;
            }
            gap.due = Some(now + wait);
        }
        if kept == Place::NoRoom && !gap.told || gap.due.is_some_and(|due| due <= now) {
            (gap.told, gap.due) = (true, None);
            return tell;
        }
        Tell::Nothing
    }

    /// Is it time to tell the other side?
    pub(super) fn expired(&mut self, now: Time) -> Tell {
        match &mut self.gap {
            Some(gap) if gap.due.is_some_and(|due| due <= now) => {
                gap.due = None;
                if core::mem::replace(&mut gap.told, true) { Tell::Again } else { Tell::Gap }
            }
            _ => Tell::Nothing,
        }
    }

    /// The other side sends again anyway.
    pub(super) fn told(&mut self) {
        if let Some(gap) = &mut self.gap {
            (gap.told, gap.due) = (true, None);
        }
    }

    /// The packet that was missing came.
    #[cold]
    pub(super) fn filled(&mut self, psn: Psn, now: Time) {
        let Some(gap) = self.gap.take() else {
            // A peer that was told sends everything again, including what was missing here.
            self.was_told.get_or_insert(true);
            return;
        };
        self.was_told = Some(gap.told);
        let late = now.since(gap.since).as_nanos() as u64;
        if !gap.told {
            self.learn(late);
        } else if self.doubt.replace((psn, late)).is_some() {
            // The one before it had been lost.
            self.late -= self.late.div_ceil(LOST);
            if self.late < SHORTEST {
                self.late = 0;
            }
        }
    }

    /// Is [`Reorder::settled`] to be asked?
    pub(super) fn was_filled(&self) -> bool {
        self.was_told.is_some()
    }

    /// Everything whose turn it was has been handled. Is there another gap to tell of?
    pub(super) fn settled(&mut self, now: Time) -> Tell {
        let told = self.was_told.take().unwrap_or(true);
        self.busy = self.gap.is_some() || !self.held.is_empty();
        let (false, None, Some(since), Some(last)) =
            (told, self.gap, self.held.iter().map(|h| h.came).min(), self.held.last())
        else {
            return Tell::Nothing;
        };
        let early = last.psn();
        self.gap = Some(Gap { since, due: Some(since + self.wait()), told: false, early });
        self.expired(now)
    }

    /// A packet came that had come before.
    pub(super) fn repeated(&mut self, psn: Psn) {
        if let Some((_, late)) = self.doubt.take_if(|(at, _)| *at == psn) {
            self.learn(late.min(2 * self.late + STEP));
        }
    }

    /// The nearest packet kept.
    pub(super) fn first(&self) -> Option<&Headers> {
        self.held.first().map(|held| &held.headers)
    }

    /// Takes out the nearest.
    pub(super) fn take_first(&mut self, counters: &mut Counters) -> Kept {
        counters.released = counters.released.wrapping_add(1);
        let held = self.held.remove(0);
        self.bytes -= cost(held.payload.len());
        held
    }

    /// Drops the nearest.
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

    fn keep(&mut self, missing: Psn, packet: &Packet<'_>, now: Time, counters: &mut Counters) -> Place {
        let (psn, cost) = (packet.headers.bth.psn, cost(packet.payload.len()));
        let at = self.held.partition_point(|h| h.psn().precedes(psn));
        if self.held.get(at).is_some_and(|h| h.psn() == psn) {
            counters.drop(DropReason::Sequence);
            return Place::Again;
        }
        while self.held.len() > at && (self.held.len() >= MOST || self.bytes + cost > MOST_BYTES) {
            self.held.pop().inspect(|h| self.bytes -= self::cost(h.payload.len()));
            counters.discarded();
        }
        let near = psn.since(missing) < REACH;
        let room = near && self.held.len() < MOST && self.bytes + cost <= MOST_BYTES;
        if !room || self.memory.as_ref().is_some_and(|memory| !memory.take(cost)) {
            counters.drop(DropReason::Sequence);
            return Place::NoRoom;
        }
        counters.held = counters.held.wrapping_add(1);
        self.bytes += cost;
        let held = Kept {
            came: now,
            src: packet.src,
            dst: packet.dst,
            mtu: packet.mtu,
            headers: packet.headers,
            payload: packet.payload.into(),
            memory: self.memory.clone(),
        };
        self.held.insert(at, held);
        Place::New
    }

    /// Packets kept.
    pub(super) fn len(&self) -> usize {
        self.held.len()
    }
}
