//! Two queue pairs of a transport, in any states, with arbitrary packets between them.
//!
//! An input chooses the transport and the attributes, and moves both ends to a state. Then it posts
//! requests, delivers packets, forges and damages some, lets time pass, revokes keys and changes
//! states. Conditions at every step:
//!
//! - Memory is touched only where a registered key or a posted buffer opens it (module `arena`).
//! - A request or receive completes once, in order, and none is forgotten when the queue pair ends
//!   (module `side`).
//! - State kept by the queue pair on account of the peer stays within the attributes.
//! - The queue pair sends a finite number of packets.
//! - A packet is counted once, by the result.
use crate::input::Input;
use adverb_engine::packet::Data;
use adverb_engine::wr::{MwBind, Remote, UdDest};
use adverb_engine::{
    Access, Env, Memory, Output, Packet, PathMtu, Payload, QpState, QpType, SendFlags, SendOp,
    SendWr, Time,
};
use adverb_wire::{Headers, MAX_HEADER_LEN, Transport, pad_for};
use arena::{LOCAL, OPEN, READ};
use side::{DEPTH, QKEY, QPN, SRQN, Side, gid};
use std::collections::VecDeque;
use std::time::Duration;

mod arena;
mod packet;
mod side;

/// Limit of packets on their way.
const FLYING: usize = 64;
/// Limit of packets from a queue pair without any input: every request and every response at the
/// longest, with a margin.
const OUTPUT: usize = 4096;
/// Payload of forged packets.
static PAYLOAD: [u8; 5000] = [0x3c; 5000];

struct Pair {
    sides: [Side; 2],
    transport: Transport,
    now: Time,
    /// Packets on their way, by destination.
    flying: VecDeque<(usize, Vec<u8>)>,
}

/// The first bytes choose the pair. Each step takes a byte, and further bytes as needed.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let mut pair = Pair::new(&mut input);
    for side in 0..2 {
        let states = [QpState::Init, QpState::Rtr, QpState::Rts, QpState::Sqd, QpState::Err];
        let to = [3, 3, 3, 0, 1, 2, 4, 5][input.below(8)];
        for state in &states[..to] {
            pair.sides[side].step_to(*state);
        }
    }
    while !input.is_empty() {
        pair.step(&mut input);
    }
    for side in 0..2 {
        pair.sides[side].finish();
        pair.pump(side);
    }
}

impl Pair {
    fn new(input: &mut Input<'_>) -> Pair {
        let (transport, types) = match input.below(4) {
            0 => (Transport::Rc, [QpType::Rc; 2]),
            1 => (Transport::Uc, [QpType::Uc; 2]),
            2 => (Transport::Ud, [QpType::Ud; 2]),
            _ => (Transport::Xrc, [QpType::XrcSend, QpType::XrcRecv]),
        };
        let mtu = input.pick(&[PathMtu::Mtu256, PathMtu::Mtu512, PathMtu::Mtu1024]);
        let psn = input.pick(&[0, 1, 0x7f_fff0, 0xff_fff0]);
        let sides = [0, 1].map(|side| Side::new(input, types, side, mtu, psn));
        Pair { sides, transport, now: Time(1_000_000), flying: VecDeque::new() }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let choice = input.u8();
        let at = usize::from(choice & 1);
        match choice >> 1 & 15 {
            0..=2 => self.send(input, at),
            3 => {
                let side = &mut self.sides[at];
                let (sges, n) = side.sges(input, LOCAL, side.keys.local, 1200);
                side.recv(&sges[..n]);
            }
            4 | 5 => self.pump(at),
            6 | 7 => self.deliver(input),
            8..=10 => self.forge(input, at),
            11 => {
                let bytes = input.take(usize::from(choice >> 5) * 12 + 16).to_vec();
                self.arrive(at, &bytes);
            }
            12 => self.pass(input),
            13 => {
                let state = QpState::from_code(u32::from(choice >> 5) % 7).unwrap_or(QpState::Rts);
                self.sides[at].step_to(state);
            }
            14 => match choice >> 5 {
                0 => self.sides[at].flip_open(),
                1 => self.sides[at].arena.hole.set(!self.sides[at].arena.hole.get()),
                2 => self.sides[at].qp.hide_receives(true),
                3 => self.sides[at].qp.hide_receives(false),
                4 => self.sides[at].qp.delay_ack(true),
                _ => self.sides[at].qp.delay_ack(false),
            },
            _ => {
                // A quiet period: all packets on their way arrive.
                for _ in 0..8 {
                    self.pump(0);
                    self.pump(1);
                    while let Some((to, bytes)) = self.flying.pop_front() {
                        self.arrive(to, &bytes);
                    }
                }
            }
        }
    }

    fn send(&mut self, input: &mut Input<'_>, at: usize) {
        let (own, peer) = (self.sides[at].keys, self.sides[1 - at].keys);
        let remote = |input: &mut Input<'_>| {
            let zone = input.pick(&[OPEN, OPEN, OPEN, READ, LOCAL]);
            let rkey =
                input.pick(&[peer.open, peer.open, peer.open, peer.read, peer.window, peer.local]);
            Remote { va: zone.0 + u64::from(input.u16()) % 4096 / 8 * 8, rkey }
        };
        let op = match input.below(16) {
            0 | 1 => SendOp::Send,
            2 => SendOp::SendImm(5),
            3 => SendOp::SendInv(input.pick(&[peer.window, peer.open])),
            4 | 5 => SendOp::Write(remote(input)),
            6 => SendOp::WriteImm(remote(input), 6),
            7..=9 => SendOp::Read(remote(input)),
            10 => SendOp::CompareSwap {
                remote: remote(input),
                compare: 0xa5a5_a5a5_a5a5_a5a5,
                swap: 1,
            },
            11 => SendOp::FetchAdd { remote: remote(input), add: 3 },
            12 => SendOp::AtomicWrite(remote(input)),
            13 => {
                let (remote, placement) = (remote(input), input.pick(&[1, 2, 3, 4]));
                SendOp::Flush {
                    remote,
                    len: u32::from(input.u16()),
                    placement,
                    selectivity: input.u8() & 1,
                }
            }
            14 => SendOp::LocalInv(own.window),
            _ => SendOp::BindMw(MwBind {
                mw: own.window,
                new_key: own.window.wrapping_add(1) & 0xff | own.window & !0xff,
                mr: own.open,
                addr: OPEN.0,
                len: u64::from(input.u16()) % (u64::from(OPEN.1) + 1),
                access: Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC,
            }),
        };
        let sinks =
            matches!(op, SendOp::Read(_) | SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. });
        let max = 3 * self.sides[at].attr.path_mtu.bytes() as u32;
        let (mut sges, n) = self.sides[at].sges(input, LOCAL, own.local, max);
        if matches!(op, SendOp::AtomicWrite(_)) {
            sges[0].length = 8;
        }
        let flags = input.u8();
        let inline = flags & 0xc0 == 0xc0 && !sinks;
        let mut set = SendFlags::empty();
        set.set(SendFlags::SIGNALED, flags & 7 != 0 || sinks);
        set.set(SendFlags::FENCE, flags & 0x18 == 0x18);
        set.set(SendFlags::SOLICITED, flags & 0x20 != 0);
        let side = &mut self.sides[at];
        let wr_id = side.next_id();
        let bytes: [&[u8]; 1] = [&PAYLOAD[..usize::from(flags)]];
        let data = if inline { Payload::Inline(&bytes) } else { Payload::Sges(&sges[..n]) };
        let ud = Some(UdDest { av: side.attr.av, qpn: QPN[1 - at], qkey: QKEY });
        let xrc_srqn = if flags == 0xff { 3 } else { SRQN };
        if side.qp.stage_send(&SendWr { wr_id, flags: set, op, data, ud, xrc_srqn }).is_ok() {
            let written = if sinks { &sges[..n] } else { &[] };
            side.staged(wr_id, set.contains(SendFlags::SIGNALED), written);
            if let SendOp::BindMw(bind) = op {
                side.keys.window = bind.new_key;
            }
        }
        if flags & 0x30 != 0x10 {
            side.commit();
        }
    }

    /// Lets a side send all waiting packets.
    fn pump(&mut self, at: usize) {
        let side = &mut self.sides[at];
        for _ in 0..OUTPUT {
            match side.qp.poll_output(&self.now, &side.table, &mut side.effects) {
                Output::Idle => return side.settle(),
                Output::Key(op) => {
                    let done = side.table.apply(&op);
                    side.qp.key_op_done(done, &mut side.effects);
                }
                Output::Packet(t) => {
                    let mut bytes = vec![0; MAX_HEADER_LEN];
                    let n = t.headers.emit(&mut bytes);
                    bytes.truncate(n);
                    let mut fault = None;
                    match t.payload {
                        Data::Bytes(b) => bytes.extend_from_slice(b),
                        Data::Gather(ranges) => {
                            for r in ranges {
                                let response = t.headers.bth.opcode.is_response();
                                assert!(!response || side.arena.is_readable_by_peer(*r), "{r:x?}");
                                let from = bytes.len();
                                bytes.resize(from + r.len as usize, 0);
                                fault = fault.or(side.arena.read(*r, &mut bytes[from..]).err());
                            }
                        }
                    }
                    let pad = pad_for(bytes.len() - n);
                    assert_eq!(t.headers.bth.pad, pad, "{:?}", t.headers);
                    bytes.resize(bytes.len() + usize::from(pad), 0);
                    assert_eq!(Headers::parse(&bytes).map(|(h, _)| h), Ok(*t.headers));
                    match fault {
                        Some(fault) => side.qp.transmit_failed(fault, &mut side.effects),
                        None => self.flying.push_back((1 - at, bytes)),
                    }
                    if self.flying.len() > FLYING {
                        self.flying.pop_front();
                    }
                }
            }
            side.settle();
        }
        panic!("it never stops sending: {:?}", side.qp.inside());
    }

    /// Delivers one of the packets on their way, perhaps again later, perhaps damaged.
    fn deliver(&mut self, input: &mut Input<'_>) {
        if self.flying.is_empty() {
            return;
        }
        let fate = input.u8();
        let index = if fate & 1 == 0 { 0 } else { input.below(self.flying.len()) };
        let Some((to, mut bytes)) = self.flying.get(index).cloned() else { return };
        if fate & 6 != 6 {
            self.flying.remove(index);
        }
        if fate & 0x18 == 0x18 {
            let at = input.below(bytes.len().min(40));
            bytes[at] ^= input.u8();
        }
        if fate & 0xe0 != 0xe0 {
            self.arrive(to, &bytes);
        }
    }

    fn forge(&mut self, input: &mut Input<'_>, to: usize) {
        let Some(forged) = packet::forge(input, &self.sides[to], to, self.transport) else {
            return;
        };
        self.take(to, forged.src, forged.headers, &PAYLOAD[..forged.payload]);
    }

    fn arrive(&mut self, to: usize, bytes: &[u8]) {
        if let Ok((headers, payload)) = Headers::parse(bytes) {
            self.take(to, gid(1 - to), headers, payload);
        }
    }

    fn take(&mut self, to: usize, src: adverb_engine::Gid, headers: Headers, payload: &[u8]) {
        let side = &mut self.sides[to];
        let packet = Packet {
            src,
            dst: gid(to),
            traffic_class: 0,
            hop_limit: 64,
            mtu: None,
            headers,
            payload,
        };
        let before = side.qp.counters().handled();
        let mut env = Env {
            clock: &self.now,
            keys: &side.table,
            memory: &side.arena,
            srq: &mut side.srq,
            effects: &mut side.effects,
        };
        side.qp.handle_packet(&mut env, &packet);
        side.settle();
        while let Some(kept) = side.qp.take_turn(self.now) {
            let mut env = Env {
                clock: &self.now,
                keys: &side.table,
                memory: &side.arena,
                srq: &mut side.srq,
                effects: &mut side.effects,
            };
            side.qp.handle_packet(&mut env, &kept.packet());
            side.settle();
        }
        assert_eq!(side.qp.counters().handled(), before + 1, "not counted once: {packet:?}");
    }

    fn pass(&mut self, input: &mut Input<'_>) {
        let next = self.sides.iter().filter_map(|s| s.qp.poll_timeout()).min();
        let by = match (input.below(4), next) {
            (0 | 1, Some(next)) => next.since(self.now),
            (2, _) => Duration::from_millis(u64::from(input.u8())),
            _ => Duration::from_nanos(u64::from(input.u32())),
        };
        self.now = self.now + by;
        for side in &mut self.sides {
            side.qp.handle_timeout(self.now, &mut side.effects);
            let again = side.qp.poll_timeout();
            assert!(again.is_none_or(|t| t > self.now), "its time comes again at once");
            side.settle();
        }
    }
}

const _: () = assert!(DEPTH == 16 && OUTPUT > 2 * 16 * 64);
