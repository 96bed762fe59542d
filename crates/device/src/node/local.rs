//! UC and UD between processes of one host.
//!
//! These transports have no acknowledgements, so nothing tells a sender that it outruns its receiver; over UDP a burst
//! would overrun the receiver's socket buffer and be lost, which no program expects on one machine. Their packets therefore
//! go to the owner's hand-over socket, which says when it is full: then the queue pair pauses, its send queue fills, and
//! the program waits for completions as on a network with link-level flow control. A process that takes nothing for longer
//! ([`DEAF`]), as it is stopped in a debugger, holds up a UC queue pair, which has no other peer; what a UD queue pair has
//! for it is lost from then on, so that its other peers are served.
//!
//! At the other end a message may come a moment before its receive is posted, as when the receiver's threads were not
//! scheduled for a few milliseconds. It is kept for a moment ([`Stash`]) instead of being dropped at once.
//!
//! The same sockets serve reliable transports when packets of one host do not get through on port 4791 (its steering may
//! be stale for a moment after a process has gone): what is sent again after a timeout goes to its owner directly, and so
//! does the answer.
use crate::interfaces;
use crate::node::Node;
use crate::qp::{Qp, QpInner};
use adverb_engine::{QpType, Time};
use adverb_link::{AddrIndex, DELIVERY, Delivery, Route, RxPacket, SLOT_SHIFT, Slot, add_packet};
use adverb_sync::Mutex;
use adverb_wire::{MAX_HEADER_LEN, Opcode, Operation};
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Packets of a queue pair on their way to other processes of this host: messages of at most [`DELIVERY`] bytes, each for
/// one process.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    messages: VecDeque<(Slot, Route, Vec<u8>)>,
    /// Packets in the last one.
    count: usize,
    /// A buffer to use again.
    spare: Vec<u8>,
    deaf: Deaf,
}

/// Processes whose sockets are full.
#[derive(Debug, Default)]
struct Deaf(Vec<Full>);

#[derive(Clone, Copy, Debug)]
struct Full {
    slot: Slot,
    since: Time,
    /// Packets for it are lost.
    given_up: bool,
}

/// A datagram waits for a process that takes nothing for this long.
const DEAF: Duration = Duration::from_secs(2);

impl Deaf {
    /// The socket of `slot` is full. Is the message for it to be lost?
    fn gives_up(&mut self, slot: Slot, now: Time) -> bool {
        let Some(full) = self.0.iter_mut().find(|full| full.slot == slot) else {
            self.0.push(Full { slot, since: now, given_up: false });
            return false;
        };
        if now.since(full.since) < DEAF {
            return false;
        }
        if !std::mem::replace(&mut full.given_up, true) {
            let first = u32::from(slot) << SLOT_SHIFT;
            log::warn!(
                "the process of queue pairs {first:#x} and above takes nothing (is it stopped?): datagrams for it are dropped"
            );
        }
        true
    }
    /// The process takes messages again, or is gone.
    fn serves(&mut self, slot: Slot) {
        self.0.retain(|full| full.slot != slot);
    }
}

/// Packets in a message: few enough that a receiver's queue of a usual depth takes them between two polls.
const PACKETS: usize = 64;

/// Messages that may wait before the queue pair pauses.
const MESSAGES: usize = 4;
/// The largest packet: its length, headers, a full path MTU.
const PACKET: usize = 2 + MAX_HEADER_LEN + 4096;

impl Backlog {
    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }
    pub(crate) fn clear(&mut self) {
        self.messages.clear();
        self.count = 0;
        self.deaf = Deaf::default();
    }
    fn is_full(&self) -> bool {
        self.messages.len() >= MESSAGES
            || self.count >= PACKETS
            || self.messages.back().is_some_and(|(.., m)| m.len() + PACKET > DELIVERY)
    }
    /// Adds a packet for the owner of `slot`.
    pub(super) fn add(
        &mut self,
        slot: Slot,
        route: &Route,
        headers: &[u8],
        payload_len: usize,
        pad: u8,
        fill: impl FnOnce(&mut [u8]) -> bool,
    ) {
        let count = self.count;
        let fits =
            |m: &(Slot, Route, Vec<u8>)| m.0 == slot && m.1 == *route && m.2.len() + PACKET <= DELIVERY;
        if !self.messages.back().is_some_and(fits) {
            let mut buffer = std::mem::take(&mut self.spare);
            buffer.clear();
            self.count = 0;
            self.messages.push_back((slot, *route, buffer));
        }
        let Some((.., message)) = self.messages.back_mut() else { return };
        if add_packet(message, headers, payload_len, pad, fill) {
            self.count += 1;
        } else if message.is_empty() {
            // It was begun for this packet.
            self.spare = self.messages.pop_back().map(|(.., buffer)| buffer).unwrap_or_default();
            self.count = count;
        }
    }
}

/// How long the list of the machine's own addresses is believed.
const FRESH: Duration = Duration::from_secs(1);

/// The machine's own addresses.
#[derive(Debug, Default)]
pub(super) struct OwnAddresses {
    known: Mutex<(Option<Instant>, Vec<IpAddr>)>,
}

impl OwnAddresses {
    pub(super) fn contains(&self, ip: IpAddr) -> bool {
        if ip.is_loopback() {
            return true;
        }
        let mut known = self.known.lock();
        if known.0.is_none_or(|at| at.elapsed() > FRESH) {
            let all = interfaces::usable().unwrap_or_default();
            *known = (Some(Instant::now()), all.into_iter().flat_map(|i| i.addresses).collect());
        }
        known.1.contains(&ip)
    }
}

impl Node {
    /// Makes room in the backlog; `false` while an owner has not taken earlier messages.
    pub(super) fn has_room(&self, qp: &Qp, inner: &mut QpInner) -> bool {
        !inner.backlog.is_full() || self.flush_backlog(qp, inner)
    }

    /// Gives the owners what waits; `false` if something still does.
    pub(super) fn flush_backlog(&self, qp: &Qp, inner: &mut QpInner) -> bool {
        let backlog = &mut inner.backlog;
        while let Some((slot, route, message)) = backlog.messages.front() {
            let (slot, message) = (*slot, message.as_slice());
            match self.link.deliver(slot, route, message) {
                Delivery::Full => {
                    if qp.qp_type() != QpType::Ud || !backlog.deaf.gives_up(slot, self.now()) {
                        return false;
                    }
                    self.link.gave_up(message);
                }
                // Nobody there: lost, as on a network.
                Delivery::Done | Delivery::NoOwner => backlog.deaf.serves(slot),
            }
            if let Some((.., message)) = backlog.messages.pop_front() {
                backlog.spare = message;
            }
        }
        backlog.count = 0;
        true
    }

    /// Keeps a packet whose receive is not posted yet, or that follows one that waits; `false` if it need not wait.
    pub(super) fn stash(&self, qp: &Arc<Qp>, inner: &mut QpInner, p: &RxPacket<'_>, opcode: Opcode) -> bool {
        if !p.handed_on || qp.qp_type().is_reliable() {
            return false;
        }
        let has_receive =
            qp.srq.as_ref().map_or_else(|| inner.engine.receives_posted() > 0, |srq| !srq.is_empty());
        if inner.stash.packets.is_empty() && (has_receive || !takes_receive(opcode)) {
            return false;
        }
        let stash = &mut inner.stash;
        if stash.packets.len() >= STASHED {
            return false;
        }
        stash.packets.push_back((self.now(), Stashed::of(p)));
        if stash.packets.len() == 1 {
            self.stashed.lock().push(qp.clone());
            self.any_stashed.store(true, Ordering::Release);
            // The program may post the receive and sleep without a look at the sockets: the thread looks again.
            if self.thread_sleeps() {
                self.wake_thread();
            }
        }
        true
    }

    /// Gives packets that waited to their queue pairs where receives are posted by now, or their time is up.
    pub(super) fn unstash(&self, mut give: impl FnMut(&Arc<Qp>, &mut QpInner, &RxPacket<'_>)) {
        if !self.any_stashed.load(Ordering::Acquire) {
            return;
        }
        let now = self.now();
        let waiting = std::mem::take(&mut *self.stashed.lock());
        let mut left = Vec::new();
        for qp in waiting {
            let mut inner = qp.inner.lock();
            while let Some((since, first)) = inner.stash.packets.front() {
                let opcode = first.opcode();
                let receives =
                    qp.srq.as_ref().map_or_else(|| inner.engine.receives_posted(), |srq| srq.len() as u32);
                if receives == 0 && takes_receive(opcode) && now.since(*since) < PATIENCE {
                    break;
                }
                if let Some((_, packet)) = inner.stash.packets.pop_front() {
                    give(&qp, &mut inner, &packet.packet());
                }
            }
            if !inner.stash.packets.is_empty() {
                drop(inner);
                left.push(qp);
            }
        }
        let mut stashed = self.stashed.lock();
        stashed.append(&mut left);
        self.any_stashed.store(!stashed.is_empty(), Ordering::Release);
    }
}

/// Packets that wait for a receive, with their time of arrival.
#[derive(Debug, Default)]
pub(crate) struct Stash {
    packets: VecDeque<(Time, Stashed)>,
}

impl Stash {
    #[cfg(all(test, not(loom)))]
    pub(super) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }
    pub(crate) fn clear(&mut self) {
        self.packets.clear();
    }
}

/// A packet kept.
#[derive(Debug)]
struct Stashed {
    src: SocketAddr,
    dst: IpAddr,
    local: Option<AddrIndex>,
    traffic_class: u8,
    hop_limit: u8,
    bytes: Vec<u8>,
}

impl Stashed {
    fn of(p: &RxPacket<'_>) -> Self {
        Stashed {
            src: p.src,
            dst: p.dst,
            local: p.local,
            traffic_class: p.traffic_class,
            hop_limit: p.hop_limit,
            bytes: p.bytes.to_vec(),
        }
    }
    fn packet(&self) -> RxPacket<'_> {
        RxPacket {
            src: self.src,
            dst: self.dst,
            local: self.local,
            traffic_class: self.traffic_class,
            hop_limit: self.hop_limit,
            handed_on: true,
            bytes: &self.bytes,
        }
    }
    /// Only packets whose headers parse are kept.
    fn opcode(&self) -> Option<Opcode> {
        Opcode::from_u8(self.bytes[0])
    }
}

/// Packets a queue pair keeps at most; what comes beyond is dropped as if none were kept.
const STASHED: usize = 4096;
/// How long a packet waits for its receive.
const PATIENCE: Duration = Duration::from_millis(100);

/// Does the packet need a receive that was posted?
pub(super) fn takes_receive(opcode: impl Into<Option<Opcode>>) -> bool {
    use Operation::*;
    opcode.into().is_some_and(|o| {
        matches!(
            o.operation(),
            SendFirst | SendOnly | SendOnlyImm | SendOnlyInv | WriteLastImm | WriteOnlyImm
        )
    })
}
