//! The decorator that records packets.
use super::inlet::{Arrival, Fate, Inlet};
use super::state::Tape;
use crate::interfaces::ip_of;
use crate::node::carriers::road::{Road, Room, Unsent, copy_payload};
use crate::node::core::Node;
use crate::node::queue_pair::QpInner;
use crate::node::timers::{NEVER, Timed};
use adverb_engine::packet::Data;
use adverb_engine::wr::SendOp;
use adverb_engine::{KeyTable, Qp, Transmit};
use adverb_link::{Capture, NearPacket};
use adverb_wire::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Headers, MAX_HEADER_LEN, Opcode, Operation, Psn, ROCE_PORT,
    Reth, Syndrome, Transport,
};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Longest time before the background thread writes recorded packets.
pub(super) const PACE: Duration = Duration::from_millis(5);
/// The recording thread writes by itself if more bytes than this wait.
const MOST: usize = 2 << 20;

const SENT: &str = "sent through shared memory";
const RECEIVED: &str = "received through shared memory";
const PERFORMED: &str = "performed by the initiator in shared memory; no packet, no PSN";

/// The record of a packet, without its payload.
struct Label<'a> {
    time: u64,
    /// The time for a trace. `None`: the packet is not traced.
    traced: Option<u64>,
    sent: bool,
    comment: &'a str,
    /// The addresses of the sender and of the receiver.
    ends: [IpAddr; 2],
}

impl Tape {
    /// Records a packet. `fill` writes the payload, as far as there is room.
    #[inline]
    fn record(
        &self,
        node: &Node,
        label: &Label<'_>,
        headers: &Headers,
        payload: usize,
        fill: impl FnOnce(&mut [u8]),
    ) {
        let mut head = [0; MAX_HEADER_LEN];
        let head_len = headers.emit(&mut head);
        let headers = &head[..head_len];
        let Label { time, traced, sent, comment, ends: [src, dst] } = *label;
        if let Some(at) = traced {
            let [src, dst] = [src, dst].map(|ip| SocketAddr::new(ip, ROCE_PORT));
            adverb_trace::packet_of(at, sent, src, dst, headers, head_len + payload, comment);
        }
        if !self.capture.records() {
            return;
        }
        let packet = NearPacket { time, sent, comment, src, dst, headers, payload };
        let waiting = self.capture.near(&packet, fill);
        if waiting > MOST {
            self.capture.flush();
        } else if !self.scheduled.load(Ordering::Relaxed) {
            self.schedule(node);
        }
    }

    #[cold]
    fn schedule(&self, node: &Node) {
        if !self.scheduled.swap(true, Ordering::AcqRel) {
            node.enter_deadline_of_thread(node.now() + PACE, Timed::Capture, NEVER);
        }
    }

    /// Records a one-sided request performed by the initiator, in the form of a NIC's packets: the
    /// request, and the answer if the answer carries data. Only a capture gets these packets. A
    /// trace finds the packets of a request by their PSNs, and one-sided requests take no PSN.
    pub(in crate::node) fn performed(
        &self,
        node: &Node,
        initiator: &Initiator,
        op: &SendOp,
        (local, len): (Data<'_>, u64),
        keys: &KeyTable,
    ) {
        if !self.capture.records() {
            return;
        }
        let Some((request, answer)) = initiator.packets(op, len, || word(local, keys)) else {
            return;
        };
        let time = Capture::now();
        let writes = matches!(op, SendOp::Write(_) | SendOp::AtomicWrite(_));
        let Initiator { own, peer, .. } = *initiator;
        for (headers, sent) in [(Some(request), true), (answer, false)]
            .into_iter()
            .filter_map(|(h, sent)| Some((h?, sent)))
        {
            let ends = if sent { [own, peer] } else { [peer, own] };
            let label = Label { time, traced: None, sent, comment: PERFORMED, ends };
            let carries = sent == writes && headers.atomic_ack.is_none();
            let payload = if carries { len as usize } else { 0 };
            self.record(node, &label, &headers, payload, |out| fill_from(local, keys, out));
        }
    }
}

/// The initiator of a one-sided request, and its peer.
pub(in crate::node) struct Initiator {
    own: IpAddr,
    peer: IpAddr,
    qpn: u32,
    dest_qpn: u32,
    /// PSN of the next packet.
    psn: Psn,
}

impl Initiator {
    pub(in crate::node) fn of(engine: &Qp) -> Self {
        let attr = engine.attr();
        Initiator {
            own: ip_of(&attr.av.sgid),
            peer: ip_of(&attr.av.dgid),
            qpn: engine.config().qpn,
            dest_qpn: attr.dest_qpn,
            psn: engine.next_psn(),
        }
    }

    /// The PSN of the next packet.
    pub(in crate::node) fn psn(&self) -> Psn {
        self.psn
    }

    /// Request and answer. `old` returns the value found by an atomic.
    fn packets(
        &self,
        op: &SendOp,
        len: u64,
        old: impl Fn() -> u64,
    ) -> Option<(Headers, Option<Headers>)> {
        let to = |qpn, operation, ack_req| {
            let opcode = Opcode::new(Transport::Rc, operation)?;
            Some(Headers::new(Bth { ack_req, ..Bth::new(opcode, qpn, self.psn) }))
        };
        let request = |operation| to(self.dest_qpn, operation, true);
        let answer = |operation| {
            let aeth = Aeth { syndrome: Syndrome::ACK_NO_CREDITS, msn: 0 };
            Some(Headers { aeth: Some(aeth), ..to(self.qpn, operation, false)? })
        };
        let atomic = |operation, va, rkey, swap_add, compare| {
            let eth = AtomicEth { va, rkey, swap_add, compare };
            let request = Headers { atomic: Some(eth), ..request(operation)? };
            let original = AtomicAckEth { original: old() };
            let answer =
                Headers { atomic_ack: Some(original), ..answer(Operation::AtomicAcknowledge)? };
            Some((request, Some(answer)))
        };
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        match *op {
            SendOp::Write(at) | SendOp::AtomicWrite(at) | SendOp::Read(at) => {
                let (operation, answer) = match op {
                    SendOp::Write(_) => (Operation::WriteOnly, None),
                    SendOp::AtomicWrite(_) => (Operation::AtomicWrite, None),
                    _ => (Operation::ReadRequest, Some(answer(Operation::ReadResponseOnly)?)),
                };
                let reth = Some(Reth { va: at.va, rkey: at.rkey, len });
                Some((Headers { reth, ..request(operation)? }, answer))
            }
            SendOp::CompareSwap { remote, compare, swap } => {
                atomic(Operation::CompareSwap, remote.va, remote.rkey, swap, compare)
            }
            SendOp::FetchAdd { remote, add } => {
                atomic(Operation::FetchAdd, remote.va, remote.rkey, add, 0)
            }
            _ => None,
        }
    }
}

/// The first bytes of a payload. Unreadable bytes stay zero.
fn fill_from(payload: Data<'_>, keys: &KeyTable, out: &mut [u8]) {
    match payload {
        Data::Bytes(bytes) => out.copy_from_slice(&bytes[..out.len()]),
        Data::Gather(ranges) => {
            let mut out = out;
            for range in ranges {
                let here = out.len().min(range.len as usize);
                let (now, rest) = out.split_at_mut(here);
                let part = adverb_engine::Range { len: here as u32, ..*range };
                let _ = copy_payload(Data::Gather(&[part]), keys, now);
                out = rest;
            }
        }
    }
}

/// The first eight bytes of a payload, as a number.
fn word(payload: Data<'_>, keys: &KeyTable) -> u64 {
    let mut bytes = [0; 8];
    if payload.len() >= bytes.len() {
        fill_from(payload, keys, &mut bytes);
    }
    u64::from_ne_bytes(bytes)
}

/// Records the packets of a road, or of an inlet.
pub(in crate::node) struct Captured<'a, C> {
    carrier: C,
    tape: &'a Tape,
    node: &'a Node,
    /// Time of leaving or arrival, shared by all packets of a turn. `None`: not read yet.
    time: &'a mut Option<u64>,
    /// An acknowledgement that has left and is not recorded yet.
    waiting: Option<(Label<'a>, Headers)>,
}

impl<'a, C> Captured<'a, C> {
    pub(in crate::node) fn new(
        carrier: C,
        tape: &'a Tape,
        node: &'a Node,
        time: &'a mut Option<u64>,
    ) -> Self {
        Captured { carrier, tape, node, time, waiting: None }
    }
}

impl<C> Captured<'_, C> {
    fn record_waiting(&mut self) {
        if let Some((label, headers)) = self.waiting.take() {
            self.tape.record(self.node, &label, &headers, 0, |_| {});
        }
    }
}

/// The time for a trace. `None` without a trace.
#[inline]
fn traced() -> Option<u64> {
    adverb_trace::on().then(adverb_trace::now)
}

impl<R: Road> Road for Captured<'_, R> {
    const ACK: adverb_engine::AckOrder = R::ACK;

    #[inline]
    fn room(&mut self) -> Room {
        self.carrier.room()
    }

    #[inline]
    fn send(&mut self, t: &Transmit<'_>, keys: &KeyTable) -> Result<(), Unsent> {
        // The time is read before the peer can have the packet. All packets of a turn leave at
        // once.
        let time = *self.time.get_or_insert_with(Capture::now);
        let traced = traced();
        self.carrier.send(t, keys)?;
        let ends = [&t.path.sgid, &t.path.dgid].map(ip_of);
        let label = Label { time, traced, sent: true, comment: SENT, ends };
        self.record_waiting();
        if t.headers.aeth.is_some() && t.payload.is_empty() {
            // A request may follow at once, and the peer waits for the request. So this packet is
            // recorded later.
            self.waiting = Some((label, *t.headers));
            return Ok(());
        }
        self.tape.record(self.node, &label, t.headers, t.payload.len(), |out| {
            fill_from(t.payload, keys, out);
        });
        Ok(())
    }

    #[inline]
    fn flush(&mut self) -> Room {
        let room = self.carrier.flush();
        self.record_waiting();
        room
    }
}

impl<I: Inlet> Inlet for Captured<'_, I> {
    fn take(&mut self, inner: &mut QpInner, arrival: &Arrival<'_>, fate: &Fate) {
        if !fate.again {
            let packet = arrival.packet;
            let said = (!fate.fault.is_none()).then(|| format!("{RECEIVED}; {}", fate.fault));
            let comment = said.as_deref().unwrap_or(RECEIVED);
            let ends = [&packet.src, &packet.dst].map(ip_of);
            let time = *self.time.get_or_insert_with(Capture::now);
            let label = Label { time, traced: traced(), sent: false, comment, ends };
            self.tape.record(self.node, &label, &packet.headers, packet.payload.len(), |out| {
                out.copy_from_slice(&packet.payload[..out.len()]);
            });
        }
        self.carrier.take(inner, arrival, fate);
    }
}
