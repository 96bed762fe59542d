//! Packets that no correct sender would send.
use super::arena::{BASE, LOCAL, OF_OTHER_PD, OPEN, READ};
use super::side::{QKEY, QPN, SRQN, Side, gid};
use crate::input::Input;
use adverb_engine::qp::Inside;
use adverb_engine::{Gid, Key};
use adverb_wire::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Deth, Feth, Headers, Ieth, ImmDt, Opcode, Operation, Psn,
    Reth, Syndrome, Transport, XrcEth,
};

/// A packet with its claimed source.
#[derive(Debug)]
pub struct Forged {
    pub src: Gid,
    pub headers: Headers,
    pub payload: usize,
}

fn psn(input: &mut Input<'_>, inside: &Inside, response: bool) -> Psn {
    let base = if response { inside.unacknowledged[input.below(2)] } else { inside.expected };
    let by = match input.below(8) {
        0..=3 => 0,
        4 => u32::from(input.u8()),
        5 => u32::from(input.u8()).wrapping_neg(),
        6 => (1 << 23) + u32::from(input.u8()) - 128,
        _ => input.u32(),
    };
    Psn::new(base.get().wrapping_add(by))
}

fn key(input: &mut Input<'_>, side: &Side) -> Key {
    let keys = &side.keys;
    match input.below(10) {
        0..=3 => keys.open,
        4 => keys.read,
        5 => keys.local,
        6 => keys.of_other_pd,
        7 => keys.window,
        8 => keys.open ^ 1 << (input.u8() & 31),
        _ => input.u32(),
    }
}

fn va(input: &mut Input<'_>) -> u64 {
    let zone = input.pick(&[OPEN, OPEN, OPEN, READ, LOCAL, OF_OTHER_PD]);
    match input.below(8) {
        0..=3 => zone.0 + u64::from(input.u16()) % u64::from(zone.1) / 8 * 8,
        4 => zone.0 + u64::from(input.u16()) % u64::from(zone.1),
        5 => zone.0 + u64::from(zone.1) - u64::from(input.u8()),
        6 => BASE + u64::from(input.u16()),
        _ => input.u64(),
    }
}

fn length(input: &mut Input<'_>, mtu: u32) -> u32 {
    match input.below(8) {
        0 => 0,
        1 => mtu,
        2 => mtu.wrapping_add_signed(i32::from(input.u8() as i8)),
        3 => 8,
        4 => u32::from(input.u8()),
        5 => u32::from(input.u16()),
        6 => mtu * u32::from(input.u8()),
        _ => input.u32(),
    }
}

/// A packet for `side`, similar enough to a valid packet to be accepted sometimes.
pub fn forge(
    input: &mut Input<'_>,
    side: &Side,
    to: usize,
    transport: Transport,
) -> Option<Forged> {
    let kind = input.u8();
    let opcode = match kind {
        250.. => Opcode::from_u8(input.u8())?,
        _ => Opcode::new(transport, Operation::ALL[usize::from(kind) % Operation::ALL.len()])?,
    };
    let mut bth = Bth::new(opcode, QPN[to], psn(input, &side.qp.inside(), opcode.is_response()));
    let flags = input.u8();
    bth.ack_req = flags & 1 != 0;
    bth.solicited = flags & 2 != 0;
    let mut src = gid(1 - to);
    if flags & 0xf0 == 0xf0 {
        match input.below(4) {
            0 => bth.dest_qpn = input.u32() & 0xff_ffff,
            1 => bth.pkey = input.u16(),
            2 => src = gid(2),
            _ => bth.pad = input.u8() & 3,
        }
    }
    let mtu = side.attr.path_mtu.bytes() as u32;
    let mut payload = if opcode.carries_payload() || flags & 8 != 0 {
        length(input, mtu).min(5000) as usize
    } else {
        0
    };
    let mut h = Headers::new(bth);
    h.xrceth = opcode
        .has_xrceth()
        .then(|| XrcEth { srqn: if flags & 0x60 == 0x60 { input.u32() } else { SRQN } });
    h.deth = opcode.has_deth().then(|| Deth {
        qkey: if flags & 4 == 0 { QKEY } else { input.u32() },
        src_qpn: QPN[1 - to],
    });
    h.feth =
        opcode.has_feth().then(|| Feth { placement: input.u8() & 15, selectivity: input.u8() & 3 });
    h.reth = opcode.has_reth().then(|| {
        let len = if flags & 4 == 0 && opcode.carries_payload() {
            payload as u32
        } else {
            length(input, mtu)
        };
        Reth { va: va(input), rkey: key(input, side), len }
    });
    h.atomic = opcode.has_atomic_eth().then(|| AtomicEth {
        va: va(input),
        rkey: key(input, side),
        swap_add: input.u64(),
        compare: 0xa5a5_a5a5_a5a5_a5a5,
    });
    h.aeth = opcode
        .has_aeth()
        .then(|| Aeth { syndrome: Syndrome::from_u8(input.u8()), msn: u32::from(input.u16()) });
    h.atomic_ack = opcode.has_atomic_ack_eth().then(|| AtomicAckEth { original: input.u64() });
    h.imm = opcode.has_imm().then_some(ImmDt(0x0102_0304));
    h.ieth = opcode.has_ieth().then(|| Ieth { rkey: key(input, side) });
    if opcode.operation() == Operation::AtomicWrite && flags & 8 == 0 {
        payload = 8;
    }
    // Parsed headers always agree with their opcode, but the engine must not rely on this.
    if flags & 0xf8 == 0x88 {
        match input.below(4) {
            0 => h.reth = None,
            1 => h.aeth = None,
            2 => h.imm = Some(ImmDt(1)),
            _ => h.ieth = Some(Ieth { rkey: side.keys.window }),
        }
    }
    Some(Forged { src, headers: h, payload })
}
