//! UC and UD between processes of one host.
//!
//! These transports have no acknowledgements, so nothing tells a sender that it outruns its receiver; over UDP a burst
//! would overrun the receiver's socket buffer and be lost, which no program expects on one machine. Their packets therefore
//! go to the owner's hand-over socket, which says when it is full: then the queue pair pauses, its send queue fills, and
//! the program waits for completions as on a network with link-level flow control.
use crate::interfaces;
use crate::node::Node;
use crate::qp::QpInner;
use adverb_link::{DELIVERY, Delivery, Route, Slot, add_packet};
use adverb_wire::MAX_HEADER_LEN;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Packets of a queue pair on their way to other processes of this host: messages of at most [`DELIVERY`] bytes, each for
/// one process.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    messages: VecDeque<(Slot, Route, Vec<u8>)>,
    /// A buffer to use again.
    spare: Vec<u8>,
}

/// Messages that may wait before the queue pair pauses.
const MESSAGES: usize = 4;
/// The largest packet: its length, headers, a full path MTU.
const PACKET: usize = 2 + MAX_HEADER_LEN + 4096;

impl Backlog {
    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }
    fn is_full(&self) -> bool {
        self.messages.len() >= MESSAGES
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
        fill: impl FnOnce(&mut [u8]),
    ) {
        let fits =
            |m: &(Slot, Route, Vec<u8>)| m.0 == slot && m.1 == *route && m.2.len() + PACKET <= DELIVERY;
        if !self.messages.back().is_some_and(fits) {
            let mut buffer = std::mem::take(&mut self.spare);
            buffer.clear();
            self.messages.push_back((slot, *route, buffer));
        }
        if let Some((.., message)) = self.messages.back_mut() {
            add_packet(message, headers, payload_len, pad, fill);
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
    pub(super) fn has_room(&self, inner: &mut QpInner) -> bool {
        !inner.backlog.is_full() || self.flush_backlog(inner)
    }

    /// Gives the owners what waits; `false` if something still does.
    pub(super) fn flush_backlog(&self, inner: &mut QpInner) -> bool {
        let backlog = &mut inner.backlog;
        while let Some((slot, route, message)) = backlog.messages.front() {
            match self.link.deliver(*slot, route, message) {
                Delivery::Full => return false,
                // Nobody there: lost, as on a network.
                Delivery::Done | Delivery::NoOwner => {}
            }
            if let Some((.., message)) = backlog.messages.pop_front() {
                backlog.spare = message;
            }
        }
        true
    }
}
