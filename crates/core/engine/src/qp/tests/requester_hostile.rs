//! Answers without a request: for all packets of a peer, each request completes once and nothing
//! panics.
use super::harness::*;
use super::loss::dice;
use crate::wr::SendOp;
use crate::*;
use adverb_wire::{
    Aeth, AtomicAckEth, Bth, Headers, NakCode, Opcode, Operation, Psn, Syndrome, Transport,
};
use core::time::Duration;

fn answer(roll: &mut dyn FnMut(u64) -> u64, first: u32) -> Headers {
    let operation = [
        Operation::Acknowledge,
        Operation::AtomicAcknowledge,
        Operation::ReadResponseFirst,
        Operation::ReadResponseMiddle,
        Operation::ReadResponseLast,
        Operation::ReadResponseOnly,
    ][roll(6) as usize];
    let opcode = Opcode::new(Transport::Rc, operation).unwrap();
    let psn = match roll(4) {
        0 => roll(1 << 24) as u32,
        _ => first.wrapping_add(roll(24) as u32),
    };
    let mut h = Headers::new(Bth::new(opcode, QPN[0], Psn::new(psn)));
    if opcode.has_aeth() {
        let syndrome = match roll(40) {
            0 => Syndrome::Nak(NakCode::RemoteAccess),
            1 => Syndrome::Nak(NakCode::InvalidRequest),
            2..6 => Syndrome::Nak(NakCode::PsnSequence),
            6..10 => Syndrome::RnrNak { timer: roll(32) as u8 },
            10..12 => Syndrome::from_u8(roll(256) as u8),
            _ => Syndrome::ACK_NO_CREDITS,
        };
        h.aeth = Some(Aeth { syndrome, msn: roll(1 << 24) as u32 });
    }
    if opcode.has_atomic_ack_eth() {
        h.atomic_ack = Some(AtomicAckEth { original: roll(1 << 40) });
    }
    h
}

#[test]
fn forged_answers_complete_each_request_once_at_most() {
    for seed in 1..600u64 {
        let mut dice = dice(seed);
        let mut roll = |sides| (dice() >> 11) % sides;
        let setup = Setup { mtu: PathMtu::Mtu256, max_inflight: 4000, ..Setup::new(QpType::Rc) };
        let mut p = Pair::new(setup);
        let remote = p.sides[1].remote(0);
        let (mut posted, mut completed) = (0, 0);
        let data = [7; 256];
        for _ in 0..300 {
            match roll(12) {
                0 | 1 if posted - completed < 60 => {
                    let op = [
                        SendOp::Send,
                        SendOp::Write(remote),
                        SendOp::Read(remote),
                        SendOp::FetchAdd { remote, add: 1 },
                    ][roll(4) as usize];
                    let len = if roll(2) == 0 { 256 } else { 1500 };
                    p.post(0, posted, op, 0, len);
                    posted += 1;
                }
                2 => p.advance(Duration::from_millis(roll(50))),
                3 | 4 => drop(p.pump(0)),
                _ => {
                    let first = setup.psn + completed as u32 * 2;
                    let headers = answer(&mut roll, first);
                    let len = [0, 255, 256, 256, 220][roll(5) as usize];
                    let payload =
                        &data[..if headers.bth.opcode.carries_payload() { len } else { 0 }];
                    p.inject_headers(0, gid(1), headers, payload);
                }
            }
            for c in p.sides[0].sends() {
                assert_eq!(c.wr_id, completed, "in order, once; seed {seed}");
                completed += 1;
            }
        }
        if p.sides[0].qp.state() != QpState::Err {
            p.step_to(0, QpState::Err);
        }
        assert_eq!(completed + p.sides[0].sends().len() as u64, posted, "seed {seed}");
        assert_eq!(p.sides[0].qp.poll_timeout(), None);
        // Only the buffers of READs and atomics were written.
        assert!(p.sides[0].arena.bytes.borrow()[1500..].iter().all(|b| *b == 0));
    }
}
