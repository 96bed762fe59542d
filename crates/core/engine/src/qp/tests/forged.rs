//! Many packets from outside the connection during a transfer. Each packet is dropped for its
//! reason, touches nothing and costs nothing. The transfer is not disturbed.
use super::harness::*;
use crate::wr::SendOp;
use crate::*;
use adverb_wire::{
    Aeth, AtomicEth, Bth, Deth, Headers, NakCode, Opcode, Operation, Psn, Reth, Syndrome,
    Transport, XrcEth,
};
use core::time::Duration;
use qp::DropReason;
use std::vec::Vec;

/// Number of forged packets of a kind between two steps of a transfer.
const FLOOD: u64 = 500;
const LEN: usize = 100_000;
const TARGET: usize = 400_000;

struct Forgery {
    reason: DropReason,
    src: Gid,
    headers: Headers,
}

fn transport(t: QpType) -> Transport {
    match t {
        QpType::Rc => Transport::Rc,
        QpType::Uc => Transport::Uc,
        QpType::Ud => Transport::Ud,
        QpType::XrcSend | QpType::XrcRecv => Transport::Xrc,
        QpType::RawPacket => unreachable!("frames have no transport header"),
    }
}

/// A request that would overwrite memory of the target.
fn request(p: &Pair, operation: Operation, psn: Psn) -> Headers {
    let t = transport(p.sides[1].qp.config().qp_type);
    let opcode = Opcode::new(t, operation).unwrap();
    let remote = p.sides[1].remote(TARGET);
    let mut h = Headers::new(Bth::new(opcode, QPN[1], psn));
    h.xrceth = opcode.has_xrceth().then_some(XrcEth { srqn: 9 });
    h.deth = opcode.has_deth().then_some(Deth { qkey: QKEY, src_qpn: QPN[0] });
    h.reth = opcode.has_reth().then_some(Reth { va: remote.va, rkey: remote.rkey, len: 8 });
    h.atomic = opcode.has_atomic_eth().then_some(AtomicEth {
        va: remote.va,
        rkey: remote.rkey,
        ..Default::default()
    });
    h
}

/// Packets of a sender that is not the peer, or does not know the state of the connection.
fn forgeries(p: &Pair) -> Vec<Forgery> {
    let qp = &p.sides[1].qp;
    let (t, expected) = (qp.config().qp_type, qp.inside().expected);
    let peer = gid(0);
    let op = if t == QpType::Ud { Operation::SendOnly } else { Operation::WriteOnly };
    let good = request(p, op, expected);
    let mut all = Vec::new();
    let mut add = |reason, src, headers| all.push(Forgery { reason, src, headers });
    // The host took the packet from a process other than the peer (TRU-3).
    add(DropReason::Source, Gid::default(), good);
    add(DropReason::DestQpn, peer, Headers { bth: Bth { dest_qpn: 0x33, ..good.bth }, ..good });
    add(DropReason::PKey, peer, Headers { bth: Bth { pkey: 0x1234, ..good.bth }, ..good });
    let alien = if t == QpType::Uc { Transport::Rc } else { Transport::Uc };
    let opcode = Opcode::new(alien, Operation::SendOnly).unwrap();
    add(DropReason::Transport, peer, Headers::new(Bth { opcode, ..good.bth }));
    // A congestion notification has no PSN to check. A notification from the peer's address is
    // accepted (and slows the sender down).
    let cnp = Headers::new(Bth { opcode: Opcode::CNP, ..good.bth });
    if t.is_reliable() {
        add(DropReason::Source, gid(7), cnp);
    } else {
        add(DropReason::Transport, peer, cnp);
    }
    if t == QpType::Ud {
        add(
            DropReason::QKey,
            peer,
            Headers { deth: Some(Deth { qkey: QKEY + 1, src_qpn: 1 }), ..good },
        );
    } else {
        add(DropReason::Source, gid(7), good);
    }
    if t.is_reliable() {
        // A repeated atomic without a saved result is no duplicate that could be answered.
        add(DropReason::Sequence, peer, request(p, Operation::FetchAdd, expected - 5000));
        if t == QpType::Rc {
            for (syndrome, operation) in [
                (Syndrome::ACK_NO_CREDITS, Operation::Acknowledge),
                (Syndrome::Nak(NakCode::RemoteAccess), Operation::Acknowledge),
                (Syndrome::ACK_NO_CREDITS, Operation::ReadResponseOnly),
            ] {
                let opcode = Opcode::new(Transport::Rc, operation).unwrap();
                let mut h =
                    Headers::new(Bth::new(opcode, QPN[1], qp.inside().unacknowledged[1] + 9));
                h.aeth = Some(Aeth { syndrome, msn: 1 });
                add(DropReason::GhostResponse, peer, h);
            }
        }
    }
    if t == QpType::Uc {
        let remote = p.sides[1].remote(TARGET);
        let reth = Some(Reth { va: remote.va, rkey: remote.rkey ^ 0x100, len: 8 });
        add(DropReason::Access, peer, Headers { reth, ..good });
        add(DropReason::Sequence, peer, request(p, Operation::WriteMiddle, expected + 77));
    }
    all
}

fn flood(p: &mut Pair, forgery: &Forgery) {
    let before = *p.sides[1].qp.counters();
    let inside = p.sides[1].qp.inside();
    let payload: &[u8] =
        if forgery.headers.bth.opcode.carries_payload() { &[0xee; 8] } else { &[] };
    for _ in 0..FLOOD {
        let Forgery { src, headers, .. } = *forgery;
        p.inject_headers(1, src, headers, payload);
    }
    let after = p.sides[1].qp.counters();
    for reason in DropReason::ALL {
        let due = if *reason == forgery.reason { FLOOD } else { 0 };
        assert_eq!(
            after.dropped(*reason) - before.dropped(*reason),
            due,
            "{reason:?} {:?}",
            forgery.headers
        );
    }
    let now = p.sides[1].qp.inside();
    assert_eq!((now.answers, now.saved, now.reads), (inside.answers, inside.saved, inside.reads));
}

fn transfer(setup: Setup, at: usize) {
    let t = setup.types[1];
    let mut p = Pair::new(setup);
    p.sides[0].fill(0, LEN, 3);
    let len = if t == QpType::Ud { 4000 } else { LEN };
    p.recv(1, 1, TARGET / 2, len + 40);
    p.post(0, 1, SendOp::Send, 0, len);
    // A packet out of order ends a UC message, so for UC the flood goes before the transfer.
    let steps = if t == QpType::Uc { 0 } else { at };
    for _ in 0..steps {
        p.pump(0);
        p.deliver();
        p.pump(1);
    }
    for forgery in forgeries(&p) {
        // A gap on UC moves the expected PSN. The next message may begin at any PSN.
        flood(&mut p, &forgery);
        assert!(p.sides[1].qp.first_error().is_none(), "{:?}", p.sides[1].qp.first_error());
    }
    p.run_timed();
    let front = if t == QpType::Ud { 40 } else { 0 };
    assert_eq!(p.sides[1].recvs().len(), 1, "{t:?}");
    assert!(p.sides[1].holds(TARGET / 2 + front, len, 3), "{t:?}");
    assert!(
        p.sides[1].arena.bytes.borrow()[TARGET..].iter().all(|b| *b == 0),
        "memory was touched"
    );
    assert_eq!(p.sides[0].sends().len(), 1);
}

#[test]
fn floods_are_dropped_by_reason_and_the_transfer_goes_on() {
    for t in [QpType::Rc, QpType::XrcRecv, QpType::Uc, QpType::Ud] {
        for at in [0, 1, 30] {
            transfer(
                Setup { uses_srq: t == QpType::XrcRecv, mtu: PathMtu::Mtu256, ..Setup::new(t) },
                at,
            );
        }
    }
}

#[test]
fn a_state_that_does_not_receive_drops_everything() {
    for state in [QpState::Reset, QpState::Init] {
        let mut p = Pair::in_reset(Setup::new(QpType::Rc));
        if state == QpState::Init {
            p.step_to(1, state);
        }
        let headers = request(&p, Operation::WriteOnly, Psn::ZERO);
        flood(&mut p, &Forgery { reason: DropReason::State, src: gid(0), headers });
    }
}

#[test]
fn requests_ahead_of_the_window_draw_one_nak() {
    let mut p = Pair::new(Setup::new(QpType::Rc));
    let expected = p.sides[1].qp.inside().expected;
    for by in 1..=FLOOD as u32 {
        let headers = request(&p, Operation::WriteOnly, expected + by * 4095);
        p.inject_headers(1, gid(0), headers, &[0xee; 8]);
    }
    let counters = p.sides[1].qp.counters();
    assert_eq!((counters.naks_sent, counters.dropped(DropReason::Sequence)), (1, FLOOD - 1));
    assert_eq!(p.sides[1].qp.inside().answers, 1);
    // The peer has no request outstanding, so the NAK has no effect.
    p.run();
    assert_eq!(p.sides[0].qp.counters().dropped(DropReason::GhostResponse), 1);
    assert_eq!(p.sides[0].qp.state(), QpState::Rts);
}

/// The peer itself sends a key of another protection domain, or an invented key. The connection
/// ends, and memory is unchanged.
#[test]
fn a_wrong_key_touches_nothing() {
    for (operation, other_pd) in [Operation::WriteOnly, Operation::ReadRequest, Operation::FetchAdd]
        .into_iter()
        .flat_map(|o| [(o, false), (o, true)])
    {
        let mut p = Pair::new(Setup::new(QpType::Rc));
        let region = *p.sides[1].keys.region(p.sides[1].key).unwrap();
        let other_pd_key =
            p.sides[1].keys.register(keys::Region { pd: PdId(99), ..region }, 0x7777_7700).unwrap();
        let key = if other_pd { other_pd_key } else { p.sides[1].key ^ 0x1_0000 };
        let mut headers = request(&p, operation, p.sides[1].qp.inside().expected);
        let rkeys = [
            headers.reth.as_mut().map(|r| &mut r.rkey),
            headers.atomic.as_mut().map(|a| &mut a.rkey),
        ];
        rkeys.into_iter().flatten().for_each(|rkey| *rkey = key);
        let payload: &[u8] = if operation == Operation::WriteOnly { &[0xee; 8] } else { &[] };
        for _ in 0..FLOOD {
            p.inject_headers(1, gid(0), headers, payload);
        }
        let counters = p.sides[1].qp.counters();
        assert_eq!(
            (counters.naks_sent, counters.duplicates),
            (1, FLOOD - 1),
            "it says why again, when asked"
        );
        assert_eq!(p.sides[1].qp.inside().answers, 1);
        assert_eq!(p.sides[1].qp.state(), QpState::Err);
        assert!(p.sides[1].arena.bytes.borrow().iter().all(|b| *b == 0));
        p.pump(1);
        assert_eq!(
            p.count(1, |f| f
                .headers
                .aeth
                .is_some_and(|a| a.syndrome == Syndrome::Nak(NakCode::RemoteAccess))),
            1
        );
    }
}

/// No answer ever comes. The number of READs on their way stays bounded, and the requests fail
/// after the retries.
#[test]
fn a_peer_that_never_acknowledges() {
    let mut p = Pair::new(Setup { retry_cnt: 7, ..Setup::new(QpType::Rc) });
    p.fate = std::boxed::Box::new(|_| Fate::Drop);
    let remote = p.sides[1].remote(TARGET);
    let ops = [
        SendOp::Send,
        SendOp::Write(remote),
        SendOp::Read(remote),
        SendOp::FetchAdd { remote, add: 1 },
    ];
    for id in 0..64 {
        p.post(0, id, ops[id as usize % 4], 0, if id % 4 == 3 { 8 } else { 20_000 });
    }
    let mut sent = Vec::new();
    for _ in 0..100 {
        sent.push(p.pump(0));
        assert!(p.sides[0].qp.inside().reads <= 4);
        let Some(next) = p.sides[0].qp.poll_timeout() else { break };
        p.advance(next.since(p.now).max(Duration::from_nanos(1)));
    }
    // Eight transmissions. None is longer than the first, and the window shrinks to a few packets.
    let rounds: Vec<_> = sent.iter().filter(|n| **n > 0).collect();
    assert_eq!(rounds.len(), 8, "{sent:?}");
    assert!(rounds.is_sorted_by(|a, b| a >= b) && *rounds[0] <= 64 && *rounds[7] <= 2, "{sent:?}");
    let ends = p.sides[0].sends();
    assert_eq!(ends.len(), 64);
    assert_eq!(ends[0].status, WcStatus::RetryExcErr);
    assert!(ends[1..].iter().all(|c| c.status == WcStatus::WrFlushErr));
    assert_eq!(p.sides[0].qp.poll_timeout(), None);
}
