//! The decorator that loses, delays, doubles and reorders packets.
use super::inlet::{Arrival, Fate, Inlet, ToQueuePair};
use super::state::{Delayed, FaultProfile, Hold, Verdict};
use crate::host::Peer;
use crate::node::batch::Batch;
use crate::node::core::Node;
use crate::node::queue_pair::{AnyQp, QpInner};
use crate::node::timers::NEVER;
use adverb_engine::{Packet, Qpn};
use adverb_link::faults::{Fault, Head};
use adverb_wire::Psn;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Delayed {
    fn of(arrival: &Arrival<'_>) -> Self {
        let packet = arrival.packet;
        Delayed {
            peer: arrival.peer.clone(),
            qpn: arrival.qp.number(),
            ends: (packet.src, packet.dst),
            mtu: packet.mtu,
            headers: packet.headers,
            payload: packet.payload.to_vec(),
        }
    }

    /// Lets the packet arrive now.
    fn give(&self, inlet: &mut impl Inlet, qp: &AnyQp, inner: &mut QpInner) {
        let packet = Packet {
            src: self.ends.0,
            dst: self.ends.1,
            traffic_class: 0,
            hop_limit: 64,
            mtu: self.mtu,
            headers: self.headers,
            payload: &self.payload,
        };
        let arrival = Arrival { qp, peer: &self.peer, packet: &packet, near: None };
        inlet.take(inner, &arrival, &Fate { again: true, ..Fate::default() });
    }
}

impl FaultProfile {
    /// Decides on a one-sided request of a queue pair with `posted` requests. `psn` is the PSN of
    /// the next packet.
    pub(in crate::node) fn decide(
        &self,
        node: &Node,
        qpn: Qpn,
        psn: Psn,
        hold: &mut Hold,
        posted: usize,
    ) -> Verdict {
        // The answer would arrive here.
        let head = Head { qpn, psn: psn.get(), response: true, may_be_marked: false };
        let fault = self.rules.draw(&head);
        if fault.dropped {
            return Verdict::ByPackets;
        }
        if let Some(left) = hold.together.checked_sub(1) {
            hold.together = left;
            return Verdict::Perform;
        }
        let Some(delay) = fault.delayed else { return Verdict::Perform };
        count(node, &Fault { delayed: Some(delay), ..Fault::default() }, &head);
        let until = node.now() + delay;
        *hold = Hold { until: Some(until), together: posted.max(1) };
        let mut waiting = self.waiting.lock();
        waiting.insert((until.0, qpn));
        self.next.fetch_min(until.0, Ordering::AcqRel);
        drop(waiting);
        node.keep_delay_timer();
        Verdict::Wait
    }

    /// Are the requests of a queue pair delayed? When the delay is over, the requests go on.
    pub(in crate::node) fn holds(&self, node: &Node, inner: &mut QpInner) -> bool {
        let hold = &mut inner.carried.ring.hold;
        let Some(until) = hold.until else { return false };
        if node.now() < until {
            return true;
        }
        hold.until = None;
        inner.engine.pause_requests(false);
        false
    }

    /// Gives packets to their queue pairs and continues one-sided requests, if their delay is over.
    /// `true` if there were any.
    pub(in crate::node) fn release(&self, node: &Node, batch: &mut Batch) -> bool {
        let due = self.rules.release();
        let mut any = !due.is_empty();
        give_all(node, batch, due);
        if self.next.load(Ordering::Acquire) != NEVER {
            any |= self.go_on(node, batch);
        }
        any
    }

    /// Pumps the queue pairs after their delay.
    fn go_on(&self, node: &Node, batch: &mut Batch) -> bool {
        let now = node.now();
        let mut due = Vec::new();
        {
            let mut waiting = self.waiting.lock();
            while let Some((_, qpn)) = waiting.first().filter(|(at, _)| *at <= now.0).copied() {
                waiting.pop_first();
                due.push(qpn);
            }
            self.next.store(waiting.first().map_or(NEVER, |(at, _)| *at), Ordering::Release);
        }
        for qp in due.iter().filter_map(|qpn| node.qp(*qpn)) {
            batch.touch(qp);
        }
        !due.is_empty()
    }

    /// A peer has ended: its delayed packets arrive now.
    pub(in crate::node) fn release_of(&self, node: &Node, batch: &mut Batch, peer: &Arc<Peer>) {
        let of_peer = self.rules.release_if(|delayed| Arc::ptr_eq(&delayed.peer, peer));
        give_all(node, batch, of_peer);
    }
}

/// Gives delayed packets to their queue pairs, if these are still connected to the sender.
fn give_all(node: &Node, batch: &mut Batch, all: Vec<Delayed>) {
    for delayed in all {
        let Some(qp) = node.qp(delayed.qpn) else { continue };
        let mut inner = qp.inner.lock();
        if inner.carried.ring.peer.as_ref().is_some_and(|peer| Arc::ptr_eq(peer, &delayed.peer)) {
            delayed.give(&mut ToQueuePair { node, tx: &mut batch.tx }, &qp, &mut inner);
        }
        drop(inner);
        batch.touch(qp);
    }
}

fn count(node: &Node, fault: &Fault, head: &Head) {
    if let Some(link) = node.link().udp() {
        link.tap().count_fault(fault, head, &"shared memory");
    }
}

/// Applies the rules of the process to each packet of an inlet.
pub(in crate::node) struct Faulty<'a, C> {
    carrier: C,
    profile: &'a FaultProfile,
    node: &'a Node,
}

impl<'a, C> Faulty<'a, C> {
    pub(super) fn new(carrier: C, profile: &'a FaultProfile, node: &'a Node) -> Self {
        Faulty { carrier, profile, node }
    }
}

impl<I: Inlet> Inlet for Faulty<'_, I> {
    fn take(&mut self, inner: &mut QpInner, arrival: &Arrival<'_>, _: &Fate) {
        let bth = &arrival.packet.headers.bth;
        let response = bth.opcode.is_response();
        let head =
            Head { qpn: arrival.qp.number(), psn: bth.psn.get(), response, may_be_marked: false };
        let ruling = self.profile.rules.judge_as(&head, |_| Delayed::of(arrival));
        if !ruling.fault.is_none() {
            count(self.node, &ruling.fault, &head);
        }
        let fate = Fate { fault: ruling.fault, copies: ruling.copies, again: false };
        self.carrier.take(inner, arrival, &fate);
        for delayed in ruling.after {
            delayed.give(&mut self.carrier, arrival.qp, inner);
        }
    }
}
