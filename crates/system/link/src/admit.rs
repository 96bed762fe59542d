//! The entry of packets with a valid ICRC: faults on request, and the capture.

use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use adverb_local::Envelope;
use adverb_local::message;
use adverb_wire::icrc::Solver;

use crate::capture::{Capture, Flow};
use crate::faults::{Fault, Faults, Head, flipped};
use crate::icrc::Sums;
use crate::packet::{RxPacket, Sink, give};
use crate::stats::{Counters, add};
use crate::types::Config;

/// Faults on request and a capture, between the sockets and the receiver of packets.
pub struct Tap {
    /// There are faults or a capture, so received packets take the slow path, one by one.
    pub(crate) is_on: bool,
    faults: Option<Faults>,
    pub(crate) capture: Option<Arc<Capture>>,
    port: u16,
    counters: Arc<Counters>,
}

impl Tap {
    pub(crate) fn new(config: &Config, counters: Arc<Counters>) -> Self {
        let faults = (!config.faults.is_none()).then(|| Faults::new(config.faults.clone()));
        Tap {
            is_on: faults.is_some() || config.capture.is_some(),
            faults,
            capture: config.capture.clone(),
            port: config.port,
            counters,
        }
    }

    /// Gives a packet to the sink, unless a fault changes this; returns how often the sink got the
    /// packet. `id` is the packet's IPv4 identification.
    pub(crate) fn admit(&self, packet: RxPacket<'_>, id: u16, sink: Sink<'_>) -> usize {
        let Some(faults) = &self.faults else {
            self.record_received(&packet, id, None);
            give(packet, sink);
            return 1;
        };
        let ruling = faults.judge(&packet);
        let fault = Some(&ruling.fault).filter(|fault| !fault.is_none());
        if let Some(fault) = fault {
            self.count_fault(fault, &Head::of(&packet), &packet.src);
        }
        match ruling.fault.damaged {
            Some(draw) => self.damage(&packet, id, draw, &ruling.fault),
            None => self.record_received(&packet, id, fault),
        }
        (0..ruling.copies).for_each(|_| give(ruling.fault.mark(&packet), sink));
        ruling.after.iter().for_each(|kept| give(kept.packet(), sink));
        ruling.copies + ruling.after.len()
    }

    /// Gives delayed packets to the sink when due; returns their number.
    pub(crate) fn release_delayed(&self, sink: Sink<'_>) -> usize {
        let Some(faults) = &self.faults else { return 0 };
        let due = faults.release();
        due.iter().for_each(|kept| give(kept.packet(), sink));
        add(&self.counters.rx_packets, due.len() as u64);
        due.len()
    }

    /// The time until a packet delayed by a fault is due, at the latest; `None` if no packet is
    /// delayed. [`UdpLink::recv`](crate::UdpLink::recv) gives the packet to its sink.
    pub fn delayed_for(&self) -> Option<Duration> {
        self.faults.as_ref()?.due_in()
    }

    /// Tells the faults about a new queue pair, the `nth` of its process from 1.
    pub fn add_qp(&self, qpn: u32, nth: u32) {
        if let Some(faults) = &self.faults {
            faults.add_qp(qpn, nth);
        }
    }

    /// Tells the faults that a queue pair was destroyed.
    pub fn remove_qp(&self, qpn: u32) {
        if let Some(faults) = &self.faults {
            faults.remove_qp(qpn);
        }
    }

    /// Records delivered packets. Only after the delivery is it known that the owner took the
    /// packets, so the owner's answer may be recorded first.
    pub(crate) fn record_delivered(&self, envelope: &Envelope, packets: &[u8], began: u64) {
        let Some(capture) = &self.capture else { return };
        let flow = Flow {
            src: envelope.src,
            dst: SocketAddr::new(envelope.dst, self.port),
            traffic_class: envelope.traffic_class,
            hop_limit: envelope.hop_limit,
        };
        message::packets(packets)
            .flatten()
            .for_each(|packet| capture.sent_directly(&flow, packet, began));
        capture.flush();
    }

    /// Flips a bit and lets the ICRC check find the damage.
    fn damage(&self, packet: &RxPacket<'_>, id: u16, draw: u64, fault: &Fault) {
        let dst = SocketAddr::new(packet.dst, self.port);
        let mut whole = packet.bytes.to_vec();
        let mut sums = Sums::default();
        whole.extend_from_slice(&sums.compute(&packet.src, &dst, id, packet.bytes));
        let mut solver = Solver::new();
        let mut bad = flipped(&whole, draw);
        // Over IPv4, one damaged packet in 65536 passes, because the check solves for the
        // identification. Such a packet is damaged again.
        for again in 1..64 {
            if sums.verify(&mut solver, &packet.src, &dst, id, &bad).is_none() {
                break;
            }
            bad = flipped(&whole, draw.wrapping_add(again));
        }
        add(&self.counters.rx_drop_icrc, 1);
        if let Some(capture) = &self.capture {
            capture.received_raw(&self.flow_of(packet), id, &bad, &comment(packet, Some(fault)));
        }
    }

    /// Counts a fault of a packet of any carrier, and logs it at level `debug`.
    pub fn count_fault(&self, fault: &Fault, head: &Head, from: &dyn Display) {
        fault.count(&self.counters.faults);
        log::debug!("queue pair {:#08x}, PSN {} from {from}: {fault}", head.qpn, head.psn);
    }

    fn record_received(&self, packet: &RxPacket<'_>, id: u16, fault: Option<&Fault>) {
        if let Some(capture) = &self.capture {
            capture.received(&self.flow_of(packet), id, packet.bytes, &comment(packet, fault));
        }
    }

    pub(crate) fn flow_of(&self, packet: &RxPacket<'_>) -> Flow {
        Flow {
            src: packet.src,
            dst: SocketAddr::new(packet.dst, self.port),
            traffic_class: packet.traffic_class,
            hop_limit: packet.hop_limit,
        }
    }
}

fn comment(packet: &RxPacket<'_>, fault: Option<&Fault>) -> String {
    let way = if packet.proof.is_forwarded() {
        "received from a process of this host"
    } else {
        "received"
    };
    fault.map_or_else(|| way.to_owned(), |fault| format!("{way}; {fault}"))
}
