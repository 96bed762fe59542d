//! Raw packet queue pairs: frames out of requests and into receives (RAW-1).
use super::harness::*;
use crate::attr::{AttrMask, QpAttr};
use crate::keys::PagedMemory;
use crate::packet::Data;
use crate::qp::{DropReason, QpConfig};
use crate::wr::{Payload, SendFlags, SendOp, SendWr, Sge};
use crate::*;
use adverb_wire::{Bth, Deth, Headers, Opcode, Operation, Psn, Transport};
use std::vec;
use std::vec::Vec;

const LONGEST: u32 = 1518;

/// A raw packet queue pair in RTS, in the arena of a side.
fn raw() -> (Qp, Pair) {
    let pair = Pair::in_reset(Setup::new(QpType::Ud));
    let cap = Setup::new(QpType::Ud).cap;
    let config = QpConfig { qp_type: QpType::RawPacket, cap, ..*pair.sides[0].qp.config() };
    let mut qp = Qp::new(config).unwrap().with_frames(LONGEST);
    for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
        let port = if state == QpState::Init { AttrMask::PORT } else { AttrMask::empty() };
        let attr = QpAttr { state, port_num: 1, ..QpAttr::default() };
        qp.modify(&attr, AttrMask::STATE | port, &LIMITS, &mut Effects::default()).unwrap();
    }
    (qp, pair)
}

fn post(qp: &mut Qp, flags: SendFlags, data: Payload<'_>) -> Result<(), PostError> {
    qp.stage_send(&SendWr { wr_id: 5, flags, op: SendOp::Send, data, ud: None, xrc_srqn: 0 })
}

/// The frames sent by a queue pair, and its completions.
fn sent(qp: &mut Qp, pair: &Pair) -> (Vec<Vec<u8>>, Vec<Completion>) {
    let side = &pair.sides[0];
    let (mut frames, mut effects) = (Vec::new(), Effects::default());
    qp.commit_sends(&mut effects);
    let memory = PagedMemory { keys: &side.keys, memory: &side.arena };
    while let Output::Packet(t) = qp.poll_output(&Time::ZERO, &side.keys, &mut effects) {
        let mut frame = vec![0; t.payload.len()];
        match t.payload {
            Data::Bytes(bytes) => frame.copy_from_slice(bytes),
            Data::Gather(ranges) => {
                let mut at = 0;
                for range in ranges {
                    memory.read(*range, &mut frame[at..at + range.len as usize]).unwrap();
                    at += range.len as usize;
                }
            }
        }
        frames.push(frame);
    }
    (frames, effects.completions.into_iter().map(|(_, c)| c).collect())
}

fn give(qp: &mut Qp, pair: &mut Pair, frame: &[u8]) -> Vec<Completion> {
    let side = &mut pair.sides[0];
    let mut effects = Effects::default();
    let memory = PagedMemory { keys: &side.keys, memory: &side.arena };
    let mut env = Env {
        clock: &Time::ZERO,
        keys: &side.keys,
        memory: &memory,
        srq: &mut side.srq,
        effects: &mut effects,
    };
    qp.take_frame(&mut env, frame);
    effects.completions.into_iter().map(|(_, c)| c).collect()
}

#[test]
fn raw_1_a_request_is_a_frame() {
    let (mut qp, pair) = raw();
    pair.sides[0].fill(0, 2000, 3);
    let sges = [pair.sides[0].sge(0, 14), pair.sides[0].sge(100, 1504)];
    post(&mut qp, SendFlags::SIGNALED, Payload::Sges(&sges)).unwrap();
    post(&mut qp, SendFlags::INLINE | SendFlags::SIGNALED, Payload::Inline(&[&[7; 6], &[8; 54]]))
        .unwrap();
    let (frames, done) = sent(&mut qp, &pair);
    let arena = pair.sides[0].arena.bytes.borrow();
    assert_eq!(frames[0], [&arena[..14], &arena[100..1604]].concat());
    assert_eq!(frames[1], [&[7_u8; 6][..], &[8; 54]].concat());
    assert_eq!(frames.len(), 2);
    assert!(done.iter().all(|c| c.status == WcStatus::Success && c.opcode == WcOpcode::Send));
    assert_eq!(done.len(), 2);
}

#[test]
fn raw_1_what_is_no_frame_fails_and_is_not_sent() {
    for len in [0, 13, LONGEST as usize + 1] {
        let (mut qp, pair) = raw();
        let sge: [Sge; 1] = [pair.sides[0].sge(0, len)];
        post(&mut qp, SendFlags::SIGNALED, Payload::Sges(&sge)).unwrap();
        let (frames, done) = sent(&mut qp, &pair);
        assert!(frames.is_empty(), "{len}");
        assert_eq!(
            done.iter().map(|c| c.status).collect::<Vec<_>>(),
            [WcStatus::LocLenErr],
            "{len}"
        );
        assert_eq!(qp.state(), QpState::Sqe);
    }
    let (mut qp, _) = raw();
    let imm = SendWr {
        wr_id: 5,
        flags: SendFlags::empty(),
        op: SendOp::SendImm(1),
        data: Payload::Inline(&[&[0; 60]]),
        ud: None,
        xrc_srqn: 0,
    };
    assert!(matches!(qp.stage_send(&imm), Err(PostError::Invalid(Cause::OpNotSupported { .. }))));
    let checksum = post(&mut qp, SendFlags::IP_CSUM, Payload::Inline(&[&[0; 60]]));
    assert!(
        matches!(checksum, Err(PostError::Invalid(Cause::OpNotSupported { .. }))),
        "{checksum:?}"
    );
}

#[test]
fn raw_1_a_frame_fills_a_receive_or_is_dropped_whole() {
    let (mut qp, mut pair) = raw();
    let frame: Vec<u8> = (0..100).collect();
    assert!(give(&mut qp, &mut pair, &frame).is_empty(), "no receive");
    let sges = [pair.sides[0].sge(0, 30), pair.sides[0].sge(1000, 70)];
    qp.post_recv(&RecvWr { wr_id: 9, sges: &sges }, &mut Effects::default()).unwrap();
    let long: Vec<u8> = (0..101).collect();
    assert!(give(&mut qp, &mut pair, &long).is_empty(), "a receive that is too short");
    let done = give(&mut qp, &mut pair, &frame);
    assert_eq!((done[0].wr_id, done[0].byte_len, done[0].flags), (9, 100, WcFlags::empty()));
    {
        let arena = pair.sides[0].arena.bytes.borrow();
        assert_eq!([&arena[..30], &arena[1000..1070]].concat(), frame);
        assert_eq!(arena[1070], 0);
    }
    let drops =
        [DropReason::NoReceive, DropReason::RecvTooShort].map(|why| qp.counters().dropped(why));
    assert_eq!((drops, qp.counters().executed), ([1, 1], 1));
}

#[test]
fn raw_1_no_packet_of_the_network_reaches_it() {
    let (mut qp, mut pair) = raw();
    qp.post_recv(&RecvWr { wr_id: 9, sges: &[pair.sides[0].sge(0, 300)] }, &mut Effects::default())
        .unwrap();
    let mut headers = Headers::new(Bth::new(
        Opcode::new(Transport::Ud, Operation::SendOnly).unwrap(),
        QPN[0],
        Psn::ZERO,
    ));
    headers.deth = Some(Deth { qkey: 0, src_qpn: 1 });
    let (src, dst) = (gid(1), gid(0));
    let payload = &[1; 60];
    let packet = Packet { src, dst, traffic_class: 0, hop_limit: 64, mtu: None, headers, payload };
    let side = &mut pair.sides[0];
    let mut effects = Effects::default();
    let memory = PagedMemory { keys: &side.keys, memory: &side.arena };
    let mut env = Env {
        clock: &Time::ZERO,
        keys: &side.keys,
        memory: &memory,
        srq: &mut side.srq,
        effects: &mut effects,
    };
    qp.handle_packet(&mut env, &packet);
    assert!(effects.is_empty());
    assert_eq!(qp.counters().dropped(DropReason::Transport), 1);
}
