//! Arbitrary packets in every state and for every type: no panic, no access outside the registered
//! ranges, no growth.
use super::responder_world::*;
use crate::types::{Gid, QpState, QpType};
use adverb_wire::*;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::vec;
use std::vec::Vec;

/// The parts of an arbitrary packet. Addresses and keys are near valid values, so that some packets
/// pass.
#[derive(Clone, Debug)]
struct Raw {
    opcode: u8,
    /// Relative to the PSN that the queue pair expects.
    psn: i32,
    len: usize,
    va: u64,
    reth_len: u32,
    key: u32,
    swap: u64,
    flags: u8,
    srqn: u32,
    kind: u8,
}

fn raw() -> impl Strategy<Value = Raw> {
    let near = |base: u64| (base.wrapping_sub(16)..base + 16).boxed();
    let va = prop_oneof![
        4 => (TARGET / 8..(TARGET + TARGET_LEN) / 8).prop_map(|v| v * 8),
        2 => near(TARGET),
        2 => near(TARGET + TARGET_LEN),
        1 => near(BUFFERS),
        1 => any::<u64>(),
        1 => (u64::MAX - 600)..=u64::MAX,
    ];
    let psn = prop_oneof![12 => Just(0), 3 => -6..6, 1 => (1 << 23) - 3..(1 << 23) + 3, 1 => any::<i32>()];
    let len = prop_oneof![4 => Just(MTU), 3 => 0usize..=9, 1 => 0usize..=1100, 1 => Just(4096)];
    let reth_len = prop_oneof![
        3 => 0u32..600,
        1 => 0u32..5000,
        1 => (1u32 << 31) - 2..=(1 << 31) + 2,
        1 => any::<u32>(),
    ];
    let opcode = prop_oneof![3 => 0u8..0x20, 1 => any::<u8>()];
    let fields = (opcode, psn, len, va, reth_len);
    (
        fields,
        0u32..8,
        any::<u64>(),
        (any::<u8>(), 0u8..8),
        prop_oneof![9 => Just(SRQN), 1 => any::<u32>()],
    )
        .prop_map(|((opcode, psn, len, va, reth_len), key, swap, (flags, kind), srqn)| Raw {
            opcode,
            psn,
            len,
            va,
            reth_len,
            key,
            swap,
            flags,
            srqn,
            kind,
        })
}

const TYPES: [(QpType, u8); 5] = [
    (QpType::Rc, 0x00),
    (QpType::Uc, 0x20),
    (QpType::Ud, 0x60),
    (QpType::XrcRecv, 0xa0),
    (QpType::XrcSend, 0xa0),
];

fn build(w: &World, raw: &Raw, transport: u8) -> Option<Request> {
    // Mostly the queue pair's own transport.
    let byte = if raw.opcode < 0x20 { transport | raw.opcode } else { raw.opcode };
    let opcode = Opcode::from_u8(byte)?;
    let psn = Psn::new(w.qp.responder.inside().0.get().wrapping_add_signed(raw.psn));
    let mut bth = Bth::new(opcode, QPN, psn);
    bth.ack_req = raw.flags & 1 != 0;
    bth.solicited = raw.flags & 2 != 0;
    let rkey = match raw.key {
        0 => raw.swap as u32,
        1 => w.lkey,
        2 => w.rkey ^ 1,
        _ => w.rkey,
    };
    // Sometimes a header is missing or superfluous: the engine must not trust its input.
    let odd = raw.flags & 0xf0 == 0xf0;
    let has = |has: bool| has != (odd && raw.swap.is_multiple_of(3));
    let (va, len) = (raw.va, raw.reth_len);
    let mut headers = Headers::new(bth);
    headers.xrceth = has(opcode.has_xrceth()).then_some(XrcEth { srqn: raw.srqn });
    headers.deth = has(opcode.has_deth())
        .then_some(Deth { qkey: QKEY ^ (raw.flags >> 7 & 1) as u32, src_qpn: PEER });
    headers.feth = has(opcode.has_feth())
        .then_some(Feth { placement: raw.flags & 7, selectivity: raw.flags >> 3 & 3 });
    headers.reth = has(opcode.has_reth()).then_some(Reth { va, rkey, len });
    headers.atomic = has(opcode.has_atomic_eth()).then_some(AtomicEth {
        va,
        rkey,
        swap_add: raw.swap,
        compare: va,
    });
    headers.aeth =
        has(opcode.has_aeth()).then_some(Aeth { syndrome: Syndrome::from_u8(raw.flags), msn: len });
    headers.atomic_ack =
        has(opcode.has_atomic_ack_eth()).then_some(AtomicAckEth { original: raw.swap });
    headers.imm = has(opcode.has_imm()).then_some(ImmDt(rkey));
    headers.ieth = has(opcode.has_ieth()).then_some(Ieth { rkey });
    let payload = if opcode.operation() == Operation::AtomicWrite && !odd { 8 } else { raw.len };
    let payload =
        if opcode.carries_payload() || odd { vec![raw.flags; payload] } else { Vec::new() };
    let mut request = Request { headers, payload };
    // Sometimes the announced length of a write is right.
    if let Some(reth) = &mut request.headers.reth
        && raw.flags & 4 != 0
        && opcode.ends_message()
        && opcode.carries_payload()
    {
        reth.len = request.payload.len() as u32;
    }
    Some(request)
}

/// The next packet of a correct peer, so that a run gets far before a wrong packet ends it.
fn tame(w: &World, raw: &Raw) -> Request {
    use Operation::*;
    let qp_type = w.qp.config.qp_type;
    let short = raw.len % MTU;
    let at = TARGET + raw.va % (TARGET_LEN - 1024) / 8 * 8;
    let n = w.qp.responder.inside().0.since(Psn::new(PSN)) as u32;
    let write =
        |op, len: usize, total| w.packet(op, n).reth(w.rkey, at, total).data(&vec![raw.flags; len]);
    let send = |op, len: usize| w.packet(op, n).data(&vec![raw.flags; len]);
    let request = match (w.qp.responder.under_way(), qp_type) {
        (_, QpType::Ud) => send(SendOnly, short),
        (Some(None), _) if raw.swap.is_multiple_of(3) => send(SendMiddle, MTU),
        (Some(None), _) => send(SendLast, short.max(1)),
        (Some(Some(left)), _) if left as usize > MTU => send(WriteMiddle, MTU),
        (Some(Some(left)), _) => send(WriteLast, left as usize),
        (None, QpType::Uc) => match raw.opcode % 4 {
            0 => send(SendOnly, short),
            1 => send(SendFirst, MTU),
            2 => write(WriteOnly, short, short),
            _ => write(WriteFirst, MTU, MTU + 1 + short),
        },
        (None, _) => match raw.opcode % 8 {
            0 => send(SendOnly, short),
            1 => send(SendFirst, MTU),
            2 => write(WriteOnly, short, short),
            3 => write(WriteFirst, MTU, 2 * MTU + 1 + short),
            4 => w.packet(ReadRequest, n).reth(w.rkey, at, raw.len % 1000),
            5 => w.packet(FetchAdd, n).atomic(w.rkey, at, raw.swap, 0),
            6 => write(AtomicWrite, 8, 8),
            _ => w.packet(CompareSwap, n).atomic(w.rkey, at, raw.swap, 0),
        },
    };
    if raw.flags & 1 != 0 { request.ask_ack() } else { request }
}

fn run(ty: usize, state: QpState, srq: bool, packets: &[Raw], polls: &[u8], hole: Option<u64>) {
    let (qp_type, transport) = TYPES[ty];
    let mut w = World::new(qp_type, srq || qp_type == QpType::XrcRecv);
    w.memory.hole.set(hole);
    if qp_type != QpType::XrcSend {
        for i in 0..6u64 {
            w.recv(i * 64, &[0, 33, 128, 400, 7][..i as usize % 6]);
        }
    }
    w.qp.attr.state = state;
    let mut past = VecDeque::new();
    for (i, raw) in packets.iter().enumerate() {
        // One packet in eight is arbitrary. One in eight of the others repeats a recent packet.
        let request = match raw.kind {
            0 => build(&w, raw, transport),
            1 if qp_type != QpType::XrcSend => past.get(raw.len % 4).cloned(),
            _ if qp_type != QpType::XrcSend => Some(tame(&w, raw)),
            _ => build(&w, raw, transport),
        };
        let Some(request) = request else { continue };
        past.push_front(request.clone());
        past.truncate(4);
        let before = w.memory.writes.get();
        let receives =
            matches!(w.qp.attr.state, QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe);
        let src = if raw.flags == 0xff { Gid([7; 16]) } else { peer_gid() };
        w.give_from(&request, src);
        assert!(receives || w.memory.writes.get() == before, "memory touched in {state:?}");
        w.effects.key_op = None;
        // At most two answers for each of four resources, an ACK and a NAK.
        assert!(w.qp.responder.inside().1 <= 10);
        for _ in 0..polls.get(i).copied().unwrap_or(0) {
            if let Some(sent) = w.poll() {
                assert!(sent.payload.len() <= MTU);
            }
        }
    }
    w.qp.attr.state = QpState::Rts;
    w.qp.fail(crate::Cause::Injected, &mut w.effects);
    assert!(w.memory.is_untouched_outside());
    // Each receive completes exactly once.
    let mut ids: Vec<_> = w.effects.completions.iter().map(|(_, c)| c.wr_id).collect();
    let total = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), total);
    let posted = if qp_type == QpType::XrcSend { 0 } else { 6 };
    assert_eq!(total + w.srq.0.len(), posted);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_packets(
        ty in 0usize..5,
        state in prop_oneof![
            5 => Just(QpState::Rts),
            1 => (0u32..7).prop_map(|c| QpState::from_code(c).unwrap()),
        ],
        srq: bool,
        packets in proptest::collection::vec(raw(), 1..40),
        polls in proptest::collection::vec(0u8..4, 40),
        hole in proptest::option::weighted(0.2, TARGET..BUFFERS + BUFFERS_LEN),
    ) {
        run(ty, state, srq, &packets, &polls, hole);
    }
}
