//! Sending and receiving of the relay: see the folder's page.
use super::backlog::Backlog;
use super::state::takes_receive;
use crate::node::batch::{Receiver, packet_of};
use crate::node::carriers::DisconnectReason;
use crate::node::core::Node;
use crate::node::loopback::tell_of_datagram;
use crate::node::queue_pair::{AnyQp, QpInner, SharedQueue};
use adverb_engine::QpType;
use adverb_link::{OwnedPacket, RxPacket};
use adverb_local::Delivery;
use adverb_wire::{Headers, Opcode};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The carrier between processes of one user.
#[derive(Clone, Copy)]
pub(crate) struct Relay<'a>(pub(crate) &'a Node);

impl Relay<'_> {
    /// Takes packets that waited for a receive.
    #[inline]
    pub(in crate::node) fn receive(&self, rx: &mut Receiver) {
        if !self.0.relay.any_pending.load(Ordering::Acquire) {
            return;
        }
        let batch = &mut rx.batch;
        self.take_pending(|qp, inner, p| {
            if let Ok((headers, payload)) = Headers::parse(p.bytes) {
                inner.carried.relay.answers_directly = true;
                let packet = packet_of(p, headers, payload);
                self.0.handle(&mut batch.tx, qp, inner, &packet, None);
            }
        });
    }

    /// Drops the packets of an earlier connection, or lets unsent packets leave.
    pub(in crate::node) fn disconnect(&self, inner: &mut QpInner, end: DisconnectReason) {
        let waiting = &mut inner.carried.relay;
        waiting.pending.clear();
        match end {
            DisconnectReason::Reset => waiting.backlog.clear(),
            DisconnectReason::Destroyed => self.keep_leaving(std::mem::take(&mut waiting.backlog)),
        }
    }

    /// Makes room in the backlog. `false` while an owner has not taken earlier messages.
    pub(in crate::node) fn has_room(&self, qp: &AnyQp, backlog: &mut Backlog) -> bool {
        if backlog.is_due() {
            self.flush_backlog(qp.qp_type() == QpType::Ud, backlog);
        }
        !backlog.is_full()
    }

    /// Gives waiting messages to their owners. `false` if some messages still wait. `drops`:
    /// messages for a process that has taken nothing for long are dropped.
    pub(in crate::node) fn flush_backlog(&self, drops: bool, backlog: &mut Backlog) -> bool {
        let what = if drops {
            "datagrams for this process are dropped"
        } else {
            "messages to this process wait until the process continues or ends"
        };
        let Backlog { peers, messages, begun, spare, full_sockets, .. } = backlog;
        *begun = 0;
        peers.retain_mut(|peer| {
            while let Some(message) = peer.messages.front() {
                match self.0.link.deliver(peer.slot, &message.route, &message.bytes) {
                    Delivery::Full
                        if !full_sockets.is_long(peer.slot, self.0.now(), what) || !drops =>
                    {
                        return true;
                    }
                    Delivery::Full => self.0.link.gave_up(&message.bytes),
                    // The process has ended: the message is lost, as on a network.
                    Delivery::NoOwner => {
                        full_sockets.serves(peer.slot);
                        tell_of_datagram(message.route.dst.ip());
                    }
                    Delivery::Done => full_sockets.serves(peer.slot),
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

    /// Keeps the packets of an ending queue pair for other processes.
    fn keep_leaving(&self, backlog: Backlog) {
        if backlog.is_empty() {
            return;
        }
        let mut leaving = self.0.relay.leaving.lock();
        if leaving.len() >= LEAVING {
            let lost = backlog.peers.iter().flat_map(|peer| &peer.messages);
            lost.for_each(|message| self.0.link.gave_up(&message.bytes));
            return;
        }
        leaving.push(backlog);
        self.0.relay.any_leaving.store(true, Ordering::Release);
        drop(leaving);
        self.0.wake_thread();
    }

    /// Gives the packets of ended queue pairs to their owners. `true` if some packets still wait.
    pub(crate) fn send_leaving(&self) -> bool {
        if !self.0.relay.any_leaving.load(Ordering::Acquire) || self.0.is_stale() {
            return false;
        }
        // The thread with the lock does the same work. Or the lock's holder was interrupted by the
        // handler in which the process ends.
        let Some(mut leaving) = self.0.relay.leaving.try_lock() else { return true };
        leaving.retain_mut(|backlog| !self.flush_backlog(true, backlog));
        self.0.relay.any_leaving.store(!leaving.is_empty(), Ordering::Release);
        !leaving.is_empty()
    }

    /// Keeps a packet if its receive is not posted yet, or if an earlier packet waits. `false` if
    /// the packet need not wait.
    pub(crate) fn pending(
        &self,
        qp: &Arc<AnyQp>,
        inner: &mut QpInner,
        p: &RxPacket<'_>,
        opcode: Opcode,
    ) -> bool {
        if !p.proof.is_forwarded() || qp.qp_type().is_reliable() {
            return false;
        }
        let has_receive = receives_of(qp, inner) > 0;
        if inner.carried.relay.pending.is_empty() && (has_receive || !takes_receive(opcode)) {
            return false;
        }
        let pending = &mut inner.carried.relay.pending;
        if pending.len() >= PENDING_PACKETS {
            return false;
        }
        pending.push_back((self.0.now(), OwnedPacket::keep(p)));
        if pending.len() == 1 {
            self.0.relay.with_pending.lock().push(qp.clone());
            self.0.relay.any_pending.store(true, Ordering::Release);
            // The program may post the receive and sleep without a look at the sockets, so the
            // background thread looks again.
            self.0.wake_sleeping_thread();
        }
        true
    }

    /// Gives waiting packets to queue pairs with posted receives. Packets that have waited for
    /// [`LATE_RECEIVE`] are given as well.
    #[cold]
    fn take_pending(&self, mut give: impl FnMut(&Arc<AnyQp>, &mut QpInner, &RxPacket<'_>)) {
        let now = self.0.now();
        let waiting = std::mem::take(&mut *self.0.relay.with_pending.lock());
        let mut left = Vec::new();
        for qp in waiting {
            let mut inner = qp.inner.lock();
            while let Some((since, first)) = inner.carried.relay.pending.front() {
                // All kept packets have valid headers.
                let opcode = Opcode::from_u8(first.packet().bytes[0]);
                let receives = receives_of(&qp, &inner);
                if receives == 0 && takes_receive(opcode) && now.since(*since) < LATE_RECEIVE {
                    break;
                }
                if let Some((_, packet)) = inner.carried.relay.pending.pop_front() {
                    give(&qp, &mut inner, &packet.packet());
                }
            }
            if !inner.carried.relay.pending.is_empty() {
                drop(inner);
                left.push(qp);
            }
        }
        let mut with_pending = self.0.relay.with_pending.lock();
        with_pending.append(&mut left);
        self.0.relay.any_pending.store(!with_pending.is_empty(), Ordering::Release);
    }
}

/// Number of receives open to a queue pair.
fn receives_of(qp: &AnyQp, inner: &QpInner) -> usize {
    let shared = qp.own.shared().map(SharedQueue::lock);
    inner.engine.receives_waiting(shared.as_deref())
}

/// Largest number of ended queue pairs with kept packets.
const LEAVING: usize = 64;

/// Largest number of packets kept for a queue pair. Further packets are handled at once, and are
/// dropped without a receive.
const PENDING_PACKETS: usize = 4096;
/// Longest wait of a packet for its receive.
const LATE_RECEIVE: Duration = Duration::from_millis(100);
