//! The state of the receiving thread: buffers, the queue pairs of a batch of packets, and the time
//! of the next look at the sockets.
use super::carriers::Ahead;
use super::numbers::{Found, Numbers};
use super::queue_pair::AnyQp;
use super::tx::Tx;
use crate::host;
use crate::interfaces::gid_of;
use adverb_engine::{Packet, Time};
use adverb_link::{RxBuffers, RxFrom, RxPacket};
use adverb_wire::Headers;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Datagrams received with one call. Each may be a run of 64 KiB.
const DATAGRAMS: usize = 8;

/// Packets handled before their queue pairs may answer. So acknowledgements coalesce, and a
/// sender's window does not starve.
pub(super) const BUDGET: usize = 64;

/// With peers on this host, the sockets are looked at less often after this many empty looks.
const QUIET: u32 = 1024;
/// Then the sockets are looked at every so many receives, and whenever the coarse clock has moved
/// since the last look.
const LOOK_EVERY: u32 = 1024;
/// The coarse clock is read every so many receives.
const CLOCK_EVERY: u32 = 16;

/// The parts of a receive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask {
    /// [`RxFrom::All`] in a spin, which looks at the socket that was busy last. [`RxFrom::Every`]
    /// after a wake-up.
    pub(super) from: RxFrom,
    /// The plain ACKs that are deferred.
    pub(super) hold: DelayedAcks,
    /// Records from peers on this host are received, too.
    pub(super) rings: bool,
}

/// The plain ACKs that a receive defers, so that each leaves behind a packet of its queue pair.
///
/// Two programs may write to each other's memory in turns. Each polls for the completion of its own
/// WRITE, and then waits for the peer's WRITE without a call. If the ACK came before the peer's
/// WRITE, the program would stop polling too early, and would need its background thread. Behind
/// the WRITE, the ACK ends the polls just when the WRITE has been placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DelayedAcks {
    /// None: the receiving thread does not come back soon.
    None,
    /// ACKs of one-sided requests that the program answers (`Traffic::is_answered`), for
    /// [`LONGEST_AWAY`](super::policy::LONGEST_AWAY).
    Answered,
    /// These, and all others until the receiving thread comes back.
    All,
}

/// The state of the receiving thread. One thread receives at a time.
pub(super) struct Receiver {
    pub(super) buffers: RxBuffers,
    pub(super) batch: Batch,
    /// The rings from peers on this host.
    pub(super) rings: host::Rings,
    pub(super) sockets: Sockets,
}

/// How often the sockets are looked at while peers on this host write to rings. A look at a socket
/// costs a system call, many times as much as a look at a ring.
pub(super) struct Sockets {
    /// Consecutive receives that found nothing on the sockets.
    quiet: u32,
    /// Time of the last look at the sockets.
    looked: Time,
}

/// The queue pairs of a batch of packets, and scratch memory.
pub(super) struct Batch {
    pub(super) tx: Tx,
    touched: Vec<Arc<AnyQp>>,
    /// The queue pair of the last packet or message that was not among `touched`.
    found: Found,
    /// A buffer for a payload fetched from another process.
    pub(super) scratch: Vec<u8>,
    /// Zeros, a stand-in for a payload that is copied straight to its destination.
    pub(super) stand_in: Vec<u8>,
    /// Payloads copied ahead of the next packets of the current ring.
    pub(super) ahead: Option<Ahead>,
    /// Arrival time of the current packets, for a capture. `None`: not read yet.
    pub(super) arrived_at: Option<u64>,
    /// Queue pairs with a deferred plain ACK, which leaves with the program's next packet, or in a
    /// receive at this time.
    delayed: Vec<(Arc<AnyQp>, Time)>,
    /// Which plain ACKs may be deferred now?
    pub(super) hold: DelayedAcks,
}

impl Batch {
    /// The queue pair with this number. Packets of one queue pair come in runs, so the last ones
    /// are looked at first.
    #[inline]
    pub(super) fn queue_pair(&mut self, qps: &Numbers, qpn: u32) -> Option<Arc<AnyQp>> {
        let last = self.touched.last().filter(|last| last.number() == qpn).cloned();
        last.or_else(|| qps.find(&mut self.found, qpn))
    }

    /// A packet of the queue pair was handled. The queue pair answers at the end of the batch.
    #[inline]
    pub(super) fn touch(&mut self, qp: Arc<AnyQp>) {
        if !qp.touched.swap(true, Ordering::Relaxed) {
            self.touched.push(qp);
        }
    }

    /// The queue pair's plain ACK is deferred until `until`.
    pub(super) fn delay(&mut self, qp: Arc<AnyQp>, until: Time) {
        match self.delayed.iter_mut().find(|(known, _)| Arc::ptr_eq(known, &qp)) {
            Some((_, at)) => *at = until,
            None => self.delayed.push((qp, until)),
        }
    }

    /// Queue pairs with a deferred ACK answer with the batch when the time has come. `true` if
    /// there are any.
    pub(super) fn take_delayed(&mut self, now: impl FnOnce() -> Time) -> bool {
        !self.delayed.is_empty() && {
            let now = now();
            let due = self.delayed.extract_if(.., |(_, until)| *until <= now);
            let before = self.touched.len();
            self.touched.extend(due.map(|(qp, _)| qp));
            self.touched.len() > before
        }
    }

    /// Does a queue pair's ACK wait?
    pub(super) fn is_delaying(&self) -> bool {
        !self.delayed.is_empty()
    }

    /// The next queue pair that has to answer.
    pub(super) fn next_touched(&mut self) -> Option<Arc<AnyQp>> {
        self.touched.pop()
    }

    /// All queue pairs with an answer still to send.
    pub(super) fn take_owing(&mut self) -> impl Iterator<Item = Arc<AnyQp>> + use<> {
        std::mem::take(&mut self.delayed)
            .into_iter()
            .map(|(qp, _)| qp)
            .chain(std::mem::take(&mut self.touched))
    }
}

impl Receiver {
    pub(super) fn new() -> Self {
        Receiver {
            buffers: RxBuffers::new(DATAGRAMS),
            batch: Batch {
                tx: Tx::default(),
                touched: Vec::with_capacity(BUDGET),
                found: Found::default(),
                scratch: Vec::new(),
                stand_in: Vec::new(),
                ahead: None,
                arrived_at: None,
                delayed: Vec::new(),
                hold: DelayedAcks::None,
            },
            rings: host::Rings::default(),
            sockets: Sockets { quiet: 0, looked: Time::ZERO },
        }
    }
}

impl Sockets {
    /// The sockets had packets.
    pub(super) fn busy(&mut self) {
        self.quiet = 0;
    }

    /// How to look at the sockets in this receive. `None`: not at all.
    #[inline]
    pub(super) fn look(&mut self, ask: Ask, now: impl Fn() -> Time) -> Option<Ask> {
        self.quiet = self.quiet.checked_add(1).unwrap_or(QUIET + 1);
        if ask.from != RxFrom::All || self.quiet <= QUIET {
            return Some(ask);
        }
        let moved = self.quiet.is_multiple_of(CLOCK_EVERY) && now() != self.looked;
        if !moved && !self.quiet.is_multiple_of(LOOK_EVERY) {
            return None;
        }
        self.looked = now();
        // Every socket is looked at here. In `RxFrom::All`, the link skips sockets as well, and
        // skipping twice would leave a socket out for too long.
        Some(Ask { from: RxFrom::Every, ..ask })
    }
}

/// A packet in the form of the engine.
pub(super) fn packet_of<'a>(p: &RxPacket<'_>, headers: Headers, payload: &'a [u8]) -> Packet<'a> {
    Packet {
        src: gid_of(&p.src.ip()),
        dst: gid_of(&p.dst),
        traffic_class: p.traffic_class,
        hop_limit: p.hop_limit,
        mtu: None,
        headers,
        payload,
    }
}
