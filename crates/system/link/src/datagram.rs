//! One received datagram: splits it into packets, checks each packet's ICRC, and forwards other
//! processes' packets to their owners.

use adverb_local::message::{self, MAX_MESSAGE};
use adverb_local::{MAD_QPN, MULTICAST_QPN, STEERING_QPN, Slot, slot_of_qpn};
use adverb_os::sys::Received;
use adverb_wire::icrc::Solver;

use crate::address::AddressSocket;
use crate::icrc::{ICRC_LEN, Sums};
use crate::origin::kind::Origin;
use crate::packet::{BTH_LEN, MAX_PACKET, Proof, RxPacket, RxRun, Sink, dest_qpn};
use crate::stats::add;
use crate::udp::UdpLink;

/// Opcodes sent by responders of RC (IBTA table 38).
const RC_RESPONSES: std::ops::RangeInclusive<u8> = 0x0d..=0x12;
const RC_ACK: u8 = 0x11;

/// A datagram at one of the link's sockets: a packet, or packets joined by the kernel.
#[derive(Clone, Copy)]
pub(crate) struct Datagram<'d> {
    pub(crate) link: &'d UdpLink,
    pub(crate) socket: &'d AddressSocket,
    pub(crate) meta: &'d Received,
    pub(crate) origin: Origin,
    pub(crate) bytes: &'d [u8],
}

impl Datagram<'_> {
    /// Gives the packets for this process to the sink, as one run. With faults or a capture, each
    /// packet is a run of its own. Returns the number of packets.
    pub(crate) fn take(
        self,
        solver: &mut Solver,
        misdirected: &mut Vec<u8>,
        sink: Sink<'_>,
    ) -> usize {
        let Datagram { link, socket, meta, origin, bytes } = self;
        if bytes.is_empty() {
            add(&link.counters.rx_drop_runt, 1);
        }
        let count = bytes.len().div_ceil(meta.stride) as u64;
        if origin == Origin::Forged && count > 0 {
            link.drop_local(meta.src, count);
            return 0;
        }
        let head = RxPacket {
            src: meta.src,
            dst: socket.local.ip(),
            local: Some(socket.index),
            traffic_class: meta.traffic_class,
            hop_limit: meta.hop_limit,
            proof: if origin == Origin::Unproven { Proof::Unproven } else { Proof::Wire },
            bytes: &[],
        };
        let mut packets = Packets {
            rest: acknowledged_first(bytes, meta.stride),
            datagram: self,
            head,
            solver,
            sums: Sums::default(),
            first: 0,
            misdirected,
            owners: Vec::new(),
            tests: Vec::new(),
            count: 0,
            volume: 0,
        };
        if link.tap.is_on {
            while let Some((bytes, id)) = packets.next_with_id() {
                let given = link.tap.admit(RxPacket { bytes, ..head }, id, sink);
                packets.count += given;
                packets.volume += given * bytes.len();
            }
        } else {
            sink(RxRun { head, packets: &mut packets });
            // There may be packets for other processes behind the last packet that was taken.
            packets.by_ref().for_each(drop);
        }
        let (count, volume) = (packets.count, packets.volume);
        packets.end();
        add(&link.counters.rx_packets, count as u64);
        add(&link.counters.rx_bytes, volume as u64);
        count
    }
}

/// The packets of a datagram for this process. What else is in the datagram waits for
/// [`Packets::end`], because the sink may hold locks between two packets.
struct Packets<'d, 'b, R> {
    datagram: Datagram<'d>,
    /// A packet without its bytes.
    head: RxPacket<'d>,
    rest: R,
    solver: &'b mut Solver,
    sums: Sums,
    /// The IPv4 identification of the run's first packet.
    first: u16,
    /// Packets for other processes, as messages without their headers, and the process and the
    /// first byte of each message.
    misdirected: &'b mut Vec<u8>,
    owners: Vec<(Slot, usize)>,
    /// Steering tests.
    tests: Vec<&'d [u8]>,
    /// The packets given to the sink, and their bytes.
    count: usize,
    volume: usize,
}

impl<'d, R: Iterator<Item = (u16, &'d [u8])>> Packets<'d, '_, R> {
    /// The next packet, and its IPv4 identification.
    fn next_with_id(&mut self) -> Option<(&'d [u8], u16)> {
        let Datagram { link, socket, meta, origin, .. } = self.datagram;
        loop {
            let (place, packet) = self.rest.next()?;
            let hint = self.first.wrapping_add(place);
            if packet.len() < BTH_LEN + ICRC_LEN || meta.truncated {
                add(&link.counters.rx_drop_runt, 1);
                continue;
            }
            if packet.len() > MAX_PACKET + ICRC_LEN {
                add(&link.counters.rx_drop_oversize, 1);
                continue;
            }
            let (from, to) = (&meta.src, &socket.local);
            let Some(id) = self.sums.verify(self.solver, from, to, hint, packet) else {
                add(&link.counters.rx_drop_icrc, 1);
                if let Some(capture) = &link.tap.capture {
                    let flow = link.tap.flow_of(&self.head);
                    capture.received_raw(&flow, hint, packet, "received; ICRC wrong, dropped");
                }
                continue;
            };
            // The identifications are 0, 1, 2 … from a socket like ours, and a counter from rxe.
            self.first = id.wrapping_sub(place);
            let packet = &packet[..packet.len() - ICRC_LEN];
            let qpn = dest_qpn(packet);
            if (qpn == MULTICAST_QPN) != socket.is_group() {
                add(&link.counters.rx_drop_not_multicast, 1);
                continue;
            }
            match slot_of_qpn(qpn) {
                Some(slot) if origin == Origin::Unproven && link.local.owns(slot) => {
                    link.drop_local(meta.src, 1)
                }
                None if origin == Origin::Unproven && qpn != MAD_QPN => {
                    link.drop_local(meta.src, 1)
                }
                None if qpn == STEERING_QPN => self.tests.push(packet),
                Some(slot) if !link.local.owns(slot) => self.keep_for(slot, packet),
                _ => return Some((packet, id)),
            }
        }
    }

    /// Keeps a packet for another process.
    fn keep_for(&mut self, slot: Slot, packet: &[u8]) {
        let len = self.misdirected.len();
        let most = MAX_MESSAGE - 128 - ICRC_LEN - packet.len();
        if self.owners.last().is_none_or(|(of, start)| *of != slot || len - start > most) {
            self.owners.push((slot, len));
        }
        self.misdirected.extend_from_slice(&(packet.len() as u16).to_le_bytes());
        self.misdirected.extend_from_slice(packet);
    }

    /// Answers steering tests, and sends the packets for other processes to them.
    fn end(self) {
        let Datagram { link, socket, .. } = self.datagram;
        for test in &self.tests {
            if !link.answer_steering_test(&RxPacket { bytes: test, ..self.head }) {
                add(&link.counters.rx_drop_steering_test, 1);
            }
        }
        let ends = self.owners.iter().skip(1).map(|(_, start)| *start);
        let ends = ends.chain([self.misdirected.len()]);
        for ((slot, start), end) in self.owners.iter().zip(ends) {
            let message = &self.misdirected[*start..end];
            if link.local.forward(*slot, &self.head.envelope(), message) {
                // The owner lives, so the kernel's steering was wrong. A dead owner would be no
                // reason to measure.
                link.want_steering(socket);
            } else {
                add(&link.counters.rx_drop_no_owner, message::packets(message).count() as u64);
            }
        }
        self.misdirected.clear();
    }
}

impl<'d, R: Iterator<Item = (u16, &'d [u8])>> Iterator for Packets<'d, '_, R> {
    type Item = &'d [u8];

    fn next(&mut self) -> Option<&'d [u8]> {
        let (packet, _) = self.next_with_id()?;
        self.count += 1;
        self.volume += packet.len();
        Some(packet)
    }
}

/// The packets of a run, each with its index in the run. An ACK at the end of a run of requests
/// comes first, as on a NIC, which acknowledges a message on arrival. So a send of the program
/// completes before the answer to the send completes. (The sender puts the ACK at the end because
/// only the last segment of a run may be shorter.)
fn acknowledged_first(bytes: &[u8], stride: usize) -> impl Iterator<Item = (u16, &[u8])> {
    let answers =
        |packet: &[u8]| packet.first().is_some_and(|opcode| RC_RESPONSES.contains(opcode));
    let (before, last) = bytes.split_at((bytes.len().saturating_sub(1) / stride) * stride);
    let ahead = last.first() == Some(&RC_ACK) && !before.chunks(stride).any(answers);
    let place = (before.len() / stride) as u16;
    let last = (place, last);
    let requests = (0..).zip(before.chunks(stride));
    let (lead, trail) = if ahead { (Some(last), None) } else { (None, Some(last)) };
    let trail = trail.filter(|(_, packet)| !packet.is_empty());
    lead.into_iter().chain(requests).chain(trail)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn order(run: &[u8], stride: usize) -> Vec<(u16, u8)> {
        acknowledged_first(run, stride).map(|(place, packet)| (place, packet[0])).collect()
    }

    #[test]
    fn the_ack_of_a_run_of_requests_comes_first() {
        // SEND only, SEND only, ACK; the last packet is shorter, or as long as the others.
        assert_eq!(order(&[4, 0, 0, 4, 0, 0, 0x11], 3), [(2, 0x11), (0, 4), (1, 4)]);
        assert_eq!(order(&[4, 0, 0x11, 0], 2), [(1, 0x11), (0, 4)]);
    }

    #[test]
    fn answers_keep_their_order() {
        // READ response only, ACK; ACK alone; requests alone; an ACK in front; nothing.
        assert_eq!(order(&[0x10, 0, 0x11], 2), [(0, 0x10), (1, 0x11)]);
        assert_eq!(order(&[0x11], 2), [(0, 0x11)]);
        assert_eq!(order(&[4, 0, 4], 2), [(0, 4), (1, 4)]);
        assert_eq!(order(&[0x11, 0, 4], 2), [(0, 0x11), (1, 4)]);
        assert_eq!(order(&[], 2), []);
    }
}
