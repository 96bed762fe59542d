//! UC and UD between processes of one host.
//!
//! These transports have no acknowledgements, so nothing tells a sender that it outruns its
//! receiver; over UDP a burst would overrun the receiver's socket buffer and be lost, which no
//! program expects on one machine. Their packets therefore go to the owner's hand-over socket,
//! which says when it is full: then they wait, for each process apart ([`Peer`]), so that one that
//! is slow does not hold up what goes to others. When much waits for a process ([`MESSAGES`]) the
//! queue pair pauses, its send queue fills, and the program waits for completions as on a network
//! with link-level flow control. A process that takes nothing for longer ([`DEAF`]), as it is
//! stopped in a debugger, holds up a UC queue pair, which has no other peer, and the log says so;
//! what a UD queue pair has for it is lost from then on.
//!
//! At the other end a message may come a moment before its receive is posted, as when the
//! receiver's threads were not scheduled for a few milliseconds. It is kept for a moment
//! ([`Stash`]) instead of being dropped at once.
//!
//! The same sockets serve reliable transports when packets of one host do not get through on port
//! 4791 (its steering may be stale for a moment after a process has gone): what is sent again after
//! a timeout goes to its owner directly, and so does the answer.
use crate::node::Node;
use crate::qp::{Qp, QpInner};
use adverb_engine::{QpType, Time};
use adverb_link::{DELIVERY, Delivery, OwnedPacket, Route, RxPacket, SLOT_SHIFT, Slot, add_packet};
use adverb_wire::{MAX_HEADER_LEN, Opcode, Operation};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Packets of a queue pair on their way to other processes of this host.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    peers: Vec<Peer>,
    /// Messages of all of them.
    messages: usize,
    /// Messages begun since the owners were given what waits, and whether the last one takes
    /// another packet.
    begun: usize,
    fits: bool,
    /// A buffer to use again.
    spare: Vec<u8>,
    deaf: Deaf,
}

/// What waits for one process.
#[derive(Debug)]
struct Peer {
    slot: Slot,
    messages: VecDeque<Message>,
}

/// At most [`PACKETS`] packets and [`DELIVERY`] bytes.
#[derive(Debug)]
struct Message {
    route: Route,
    packets: usize,
    bytes: Vec<u8>,
}

impl Message {
    fn fits(&self) -> bool {
        self.packets < PACKETS && self.bytes.len() + PACKET <= DELIVERY
    }
}

/// Processes whose sockets are full.
#[derive(Debug, Default)]
struct Deaf(Vec<Full>);

#[derive(Clone, Copy, Debug)]
struct Full {
    slot: Slot,
    since: Time,
    /// The log has said so.
    said: bool,
}

/// A datagram waits for a process that takes nothing for this long.
const DEAF: Duration = Duration::from_secs(2);

impl Deaf {
    /// The socket of `slot` is full, and was for long?
    fn is_long(&mut self, slot: Slot, now: Time, what: &str) -> bool {
        let Some(full) = self.0.iter_mut().find(|full| full.slot == slot) else {
            self.0.push(Full { slot, since: now, said: false });
            return false;
        };
        if now.since(full.since) < DEAF {
            return false;
        }
        if !std::mem::replace(&mut full.said, true) {
            let first = u32::from(slot) << SLOT_SHIFT;
            log::warn!(
                "the process of queue pairs {first:#x} and above takes nothing (is it stopped?): {what}"
            );
        }
        true
    }
    /// The process takes messages again, or is gone.
    fn serves(&mut self, slot: Slot) {
        self.0.retain(|full| full.slot != slot);
    }
}

/// Packets in a message: few enough that a receiver's queue of a usual depth takes them between two
/// polls.
const PACKETS: usize = 64;

/// Messages that may wait for one process before the queue pair pauses, and for all of them.
const MESSAGES: usize = 4;
const ALL_MESSAGES: usize = 64;
/// The largest packet: its length, headers, a full path MTU.
const PACKET: usize = 2 + MAX_HEADER_LEN + 4096;

impl Backlog {
    pub(crate) fn is_empty(&self) -> bool {
        self.peers.is_empty()
    }
    pub(crate) fn clear(&mut self) {
        *self = Backlog { spare: std::mem::take(&mut self.spare), ..Backlog::default() };
    }
    /// Should what waits leave before more is added?
    fn is_due(&self) -> bool {
        self.begun >= MESSAGES || self.begun > 0 && !self.fits || self.is_full()
    }
    fn is_full(&self) -> bool {
        self.messages >= ALL_MESSAGES || self.peers.iter().any(|peer| peer.messages.len() >= MESSAGES)
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
        let at = self.peers.iter().position(|peer| peer.slot == slot).unwrap_or_else(|| {
            self.peers.push(Peer { slot, messages: VecDeque::new() });
            self.peers.len() - 1
        });
        let messages = &mut self.peers[at].messages;
        let begins = !messages.back().is_some_and(|m| m.route == *route && m.fits());
        if begins {
            let mut bytes = std::mem::take(&mut self.spare);
            bytes.clear();
            messages.push_back(Message { route: *route, packets: 0, bytes });
        }
        let Some(message) = messages.back_mut() else { return };
        if add_packet(&mut message.bytes, headers, payload_len, pad, fill) {
            message.packets += 1;
            self.fits = message.fits();
            self.messages += usize::from(begins);
            // What goes on where an earlier one waits is new as well.
            self.begun = (self.begun + usize::from(begins)).max(1);
        } else if begins {
            self.spare = messages.pop_back().map(|m| m.bytes).unwrap_or_default();
            if messages.is_empty() {
                self.peers.remove(at);
            }
        }
    }
}

impl Node {
    /// Makes room in the backlog; `false` while an owner has not taken earlier messages.
    pub(super) fn has_room(&self, qp: &Qp, backlog: &mut Backlog) -> bool {
        if backlog.is_due() {
            self.flush_backlog(qp, backlog);
        }
        !backlog.is_full()
    }

    /// Gives the owners what waits; `false` if something still does.
    pub(super) fn flush_backlog(&self, qp: &Qp, backlog: &mut Backlog) -> bool {
        let ud = qp.qp_type() == QpType::Ud;
        let what = if ud {
            "datagrams for it are dropped"
        } else {
            "what is sent to it waits until it goes on or ends"
        };
        let Backlog { peers, messages, begun, spare, deaf, .. } = backlog;
        *begun = 0;
        peers.retain_mut(|peer| {
            while let Some(message) = peer.messages.front() {
                match self.link.deliver(peer.slot, &message.route, &message.bytes) {
                    Delivery::Full if !deaf.is_long(peer.slot, self.now(), what) || !ud => return true,
                    Delivery::Full => self.link.gave_up(&message.bytes),
                    // Nobody there: lost, as on a network.
                    Delivery::Done | Delivery::NoOwner => deaf.serves(peer.slot),
                }
                *messages -= 1;
                if let Some(message) = peer.messages.pop_front() {
                    *spare = message.bytes;
                }
            }
            false
        });
        peers.is_empty()
    }

    /// Keeps a packet whose receive is not posted yet, or that follows one that waits; `false` if
    /// it need not wait.
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
        stash.packets.push_back((self.now(), OwnedPacket::keep(p)));
        if stash.packets.len() == 1 {
            self.stashed.lock().push(qp.clone());
            self.any_stashed.store(true, Ordering::Release);
            // The program may post the receive and sleep without a look at the sockets: the thread
            // looks again.
            if self.thread_sleeps() {
                self.wake_thread();
            }
        }
        true
    }

    /// Gives packets that waited to their queue pairs where receives are posted by now, or their
    /// time is up.
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
                // Only packets whose headers parse are kept.
                let opcode = Opcode::from_u8(first.packet().bytes[0]);
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
    packets: VecDeque<(Time, OwnedPacket)>,
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
