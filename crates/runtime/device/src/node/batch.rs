//! What the one thread that receives keeps: buffers, what a batch of packets touched, and how often
//! the sockets are looked at.
use super::carriers::Ahead;
use super::core::Node;
use super::numbers::Found;
use super::queue_pair::AnyQp;
use super::tx::Tx;
use crate::host;
use adverb_engine::{Gid, Packet, Time};
use adverb_link::{RxBuffers, RxFrom, RxPacket};
use adverb_wire::Headers;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Datagrams received with one call: each may be a run of 64 KiB.
const DATAGRAMS: usize = 8;

/// Packets handled before the queue pairs they touched may answer, so that acknowledgements
/// coalesce but a sender's window does not starve.
pub(super) const BUDGET: usize = 64;

/// Empty looks at the sockets after which, with peers on this host, they are looked at less often.
const QUIET: u32 = 1024;
/// Namely every so many receives, or when the coarse clock moved since the last look, which is
/// looked at every few receives.
const LOOK_EVERY: u32 = 1024;
const CLOCK_EVERY: u32 = 16;

/// What is to be received.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask {
    /// [`RxFrom::All`] in a spin, which looks at the socket that was busy last, and
    /// [`RxFrom::Every`] after a wake-up.
    pub(super) from: RxFrom,
    /// Plain ACKs are held until the program's next poll.
    pub(super) hold: bool,
    /// What peers on this host have written is received, too.
    pub(super) rings: bool,
}

/// State of the one thread that receives at a time.
pub(super) struct Receiver {
    pub(super) buffers: RxBuffers,
    pub(super) batch: Batch,
    /// What peers on this host write to.
    pub(super) rings: host::Rings,
    pub(super) sockets: Sockets,
}

/// How often the sockets are looked at while peers on this host write to rings. A look at a socket
/// costs a system call, many times what a look at a ring does.
pub(super) struct Sockets {
    /// Receives in a row that found nothing on them.
    quiet: u32,
    /// When they were looked at last.
    looked: Time,
}

/// What one batch of packets touched.
pub(super) struct Batch {
    pub(super) tx: Tx,
    touched: Vec<Arc<AnyQp>>,
    /// The queue pair of the last packet or message that was not among `touched`.
    found: Found,
    /// Room for a payload fetched from another process.
    pub(super) scratch: Vec<u8>,
    /// Zeros, which stand for a payload that is copied straight to where it goes.
    pub(super) stand_in: Vec<u8>,
    /// Payloads were copied out of other processes, and [`Policy::copies`] says so.
    ///
    /// [`Policy::copies`]: super::policy::Policy::copies
    pub(super) copies: bool,
    /// What was copied ahead of the next packets of the ring that is read now.
    pub(super) ahead: Option<Ahead>,
    /// When the packets came that are taken now, as a capture has it; `None`: not asked yet.
    pub(super) came: Option<u64>,
    /// Queue pairs whose plain ACK is held, so that it rides with what the program sends next.
    delayed: Vec<Arc<AnyQp>>,
    /// May ACKs be delayed now?
    delay: bool,
}

impl Batch {
    /// The queue pair with this number. Packets of one queue pair come in runs, so the last ones
    /// are looked at first.
    #[inline]
    pub(super) fn queue_pair(&mut self, node: &Node, qpn: u32) -> Option<Arc<AnyQp>> {
        let last = self.touched.last().filter(|last| last.number() == qpn).cloned();
        last.or_else(|| node.registry.qps.find(&mut self.found, qpn))
    }

    /// A packet of the queue pair was handled: it answers at the end of the batch.
    #[inline]
    pub(super) fn touch(&mut self, qp: Arc<AnyQp>) {
        if !qp.touched.swap(true, Ordering::Relaxed) {
            self.touched.push(qp);
        }
    }

    /// May plain ACKs be held from here on?
    pub(super) fn hold(&mut self, hold: bool) {
        self.delay = hold;
    }

    /// May plain ACKs be held now?
    pub(super) fn holds(&self) -> bool {
        self.delay
    }

    /// The queue pair's plain ACK is held.
    pub(super) fn delay(&mut self, qp: Arc<AnyQp>) {
        self.delayed.push(qp);
    }

    /// Those whose ACK was held answer with the batch. `true` if there are any.
    pub(super) fn take_delayed(&mut self) -> bool {
        let any = !self.delayed.is_empty();
        self.touched.append(&mut self.delayed);
        any
    }

    /// One that is to answer.
    pub(super) fn next_touched(&mut self) -> Option<Arc<AnyQp>> {
        self.touched.pop()
    }

    /// All queue pairs that owe an answer.
    pub(super) fn take_owing(&mut self) -> impl Iterator<Item = Arc<AnyQp>> + use<> {
        std::mem::take(&mut self.delayed).into_iter().chain(std::mem::take(&mut self.touched))
    }
}

impl Receiver {
    pub(super) fn new() -> Self {
        Receiver {
            buffers: RxBuffers::new(DATAGRAMS),
            batch: Batch {
                tx: Tx::new(),
                touched: Vec::with_capacity(BUDGET),
                found: Found::default(),
                scratch: Vec::new(),
                stand_in: Vec::new(),
                copies: false,
                ahead: None,
                came: None,
                delayed: Vec::new(),
                delay: false,
            },
            rings: host::Rings::default(),
            sockets: Sockets { quiet: 0, looked: Time::ZERO },
        }
    }
}

impl Sockets {
    /// Something came by them.
    pub(super) fn busy(&mut self) {
        self.quiet = 0;
    }

    /// How the sockets are looked at in this receive; `None`: not at all.
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
        // At all of them: the link counts its looks, too, and every so many of every so many would
        // be none.
        Some(Ask { from: RxFrom::Every, ..ask })
    }
}

/// A packet as the engine takes it.
pub(super) fn packet_of<'a>(p: &RxPacket<'_>, headers: Headers, payload: &'a [u8]) -> Packet<'a> {
    Packet {
        src: gid_of(p.src.ip()),
        dst: gid_of(p.dst),
        traffic_class: p.traffic_class,
        hop_limit: p.hop_limit,
        mtu: None,
        headers,
        payload,
    }
}

fn gid_of(ip: IpAddr) -> Gid {
    crate::interfaces::gid_of(&ip)
}
