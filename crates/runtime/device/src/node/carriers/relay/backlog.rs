//! Packets for other processes of this host, which wait until the processes have room.
use adverb_engine::Time;
use adverb_link::Route;
use adverb_local::{DELIVERY, SLOT_SHIFT, Slot, add_packet};
use adverb_wire::MAX_HEADER_LEN;
use std::collections::VecDeque;
use std::time::Duration;

/// Packets of a queue pair for other processes of this host.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    pub(in crate::node) peers: Vec<Peer>,
    /// Number of messages for all processes.
    pub(in crate::node) messages: usize,
    /// Messages begun since the last delivery, and whether the last message has room for another
    /// packet.
    pub(in crate::node) begun: usize,
    fits: bool,
    /// A buffer for reuse.
    pub(in crate::node) spare: Vec<u8>,
    pub(in crate::node) full_sockets: FullSockets,
}

/// The waiting messages for one process.
#[derive(Debug)]
pub(in crate::node) struct Peer {
    pub(in crate::node) slot: Slot,
    pub(in crate::node) messages: VecDeque<Message>,
}

/// At most [`PACKETS`] packets and [`DELIVERY`] bytes.
#[derive(Debug)]
pub(in crate::node) struct Message {
    pub(in crate::node) route: Route,
    packets: usize,
    pub(in crate::node) bytes: Vec<u8>,
}

impl Message {
    fn fits(&self) -> bool {
        self.packets < PACKETS && self.bytes.len() + PACKET <= DELIVERY
    }
}

/// Processes with full sockets.
#[derive(Debug, Default)]
pub(in crate::node) struct FullSockets(Vec<Full>);

#[derive(Clone, Copy, Debug)]
struct Full {
    slot: Slot,
    since: Time,
    /// The log has a warning for this process.
    said: bool,
}

/// A datagram waits this long for a process that takes nothing.
const FULL_LIMIT: Duration = Duration::from_secs(2);

impl FullSockets {
    /// Called when the socket of `slot` is full. Has it been full for long?
    pub(in crate::node) fn is_long(&mut self, slot: Slot, now: Time, what: &str) -> bool {
        let Some(full) = self.0.iter_mut().find(|full| full.slot == slot) else {
            self.0.push(Full { slot, since: now, said: false });
            return false;
        };
        if now.since(full.since) < FULL_LIMIT {
            return false;
        }
        if !std::mem::replace(&mut full.said, true) {
            let first = u32::from(slot) << SLOT_SHIFT;
            log::warn!(
                "the process of queue pairs {first:#x} and above receives nothing (is the process \
                 stopped?): {what}"
            );
        }
        true
    }
    /// The process takes messages again, or has ended.
    pub(in crate::node) fn serves(&mut self, slot: Slot) {
        self.0.retain(|full| full.slot != slot);
    }
}

/// Packets in a message: few enough for a receive queue of usual depth between two polls.
const PACKETS: usize = 64;

/// Waiting messages for one process before the queue pair pauses.
const MESSAGES: usize = 4;
/// Waiting messages for all processes before the queue pair pauses.
const ALL_MESSAGES: usize = 64;
/// The largest packet: the length field, headers, and a full path MTU.
const PACKET: usize = 2 + MAX_HEADER_LEN + 4096;

impl Backlog {
    pub(in crate::node) fn is_empty(&self) -> bool {
        self.peers.is_empty()
    }
    pub(in crate::node) fn clear(&mut self) {
        *self = Backlog { spare: std::mem::take(&mut self.spare), ..Backlog::default() };
    }
    /// Should waiting messages leave before another packet is added?
    pub(in crate::node) fn is_due(&self) -> bool {
        self.begun >= MESSAGES || self.begun > 0 && !self.fits || self.is_full()
    }
    pub(in crate::node) fn is_full(&self) -> bool {
        self.messages >= ALL_MESSAGES
            || self.peers.iter().any(|peer| peer.messages.len() >= MESSAGES)
    }
    /// Adds a packet for the owner of `slot`.
    pub(in crate::node) fn add(
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
            // A packet in an earlier, waiting message counts as a begun message as well.
            self.begun = (self.begun + usize::from(begins)).max(1);
        } else if begins {
            self.spare = messages.pop_back().map(|m| m.bytes).unwrap_or_default();
            if messages.is_empty() {
                self.peers.remove(at);
            }
        }
    }
}
