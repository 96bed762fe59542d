//! A network that loses, repeats and reorders requests.
use super::harness::*;
use crate::wr::SendOp;
use crate::*;
use adverb_wire::{Operation, Reth, Syndrome};
use std::boxed::Box;
use std::vec::Vec;

/// Gives a fate to the `n`th packet (from 0) selected by a predicate, once.
pub(super) fn nth(
    n: usize,
    fate: Fate,
    which: impl Fn(&Flying) -> bool + 'static,
) -> Box<dyn FnMut(&Flying) -> Fate> {
    let mut seen = 0;
    Box::new(move |f| {
        seen += usize::from(which(f));
        if which(f) && seen == n + 1 { fate } else { Fate::Deliver }
    })
}

/// Drops the `n`th packet.
pub(super) fn drop_nth(
    n: usize,
    which: impl Fn(&Flying) -> bool + 'static,
) -> Box<dyn FnMut(&Flying) -> Fate> {
    nth(n, Fate::Drop, which)
}

fn all_ops(p: &mut Pair) {
    p.sides[0].fill(0, 5000, 21);
    p.sides[1].put_u64(900_000, 5);
    p.recv(1, 100, 10_000, 5000);
    p.recv(1, 101, 20_000, 5000);
    let to = p.sides[1].remote(30_000);
    let remote = p.sides[1].remote(900_000);
    p.post(0, 1, SendOp::Send, 0, 5000);
    p.post(0, 2, SendOp::Write(to), 0, 5000);
    p.post(0, 3, SendOp::Read(to), 100_000, 5000);
    p.post(0, 4, SendOp::FetchAdd { remote, add: 3 }, 200_000, 8);
    p.post(0, 5, SendOp::WriteImm(to, 7), 0, 5000);
    p.post(0, 6, SendOp::Read(to), 300_000, 5000);
}

fn check_all_ops(p: &mut Pair, what: &str) {
    let done = p.sides[0].sent();
    let all: Vec<_> = (1..=6).map(|i| (i, WcStatus::Success)).collect();
    assert_eq!(done, all, "{what}");
    let got = p.sides[1].received();
    assert_eq!(got, all_good([100, 101]), "{what}");
    assert!(p.sides[1].holds(10_000, 5000, 21), "{what}");
    assert!(p.sides[1].holds(30_000, 5000, 21), "{what}");
    assert!(p.sides[0].holds(100_000, 5000, 21), "{what}");
    assert!(p.sides[0].holds(300_000, 5000, 21), "{what}");
    assert_eq!((p.sides[0].u64_at(200_000), p.sides[1].u64_at(900_000)), (5, 8), "{what}: once");
}

pub(super) fn small() -> Setup {
    Setup { mtu: PathMtu::Mtu1024, ..Setup::new(QpType::Rc) }
}

#[test]
fn any_single_loss_is_repaired() {
    let mut p = Pair::new(small());
    all_ops(&mut p);
    p.run_timed();
    let total = p.log.len();
    check_all_ops(&mut p, "no loss");
    for lost in 0..total {
        let mut p = Pair::new(small());
        p.fate = drop_nth(lost, |_| true);
        all_ops(&mut p);
        p.run_timed();
        check_all_ops(&mut p, &std::format!("packet {lost} lost"));
    }
}

#[test]
fn any_single_repetition_or_delay_is_harmless() {
    for fate in [Fate::Twice, Fate::Late(1), Fate::Late(7), Fate::Late(60)] {
        for lost in 0..45 {
            let mut p = Pair::new(small());
            p.fate = nth(lost, fate, |_| true);
            all_ops(&mut p);
            p.run_timed();
            check_all_ops(&mut p, &std::format!("packet {lost} {fate:?}"));
        }
    }
}

/// Random numbers from a seed (xorshift).
pub(super) fn dice(seed: u64) -> impl FnMut() -> u64 {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    move || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x
    }
}

/// Loses one packet in ten, and repeats and delays others.
fn profile(seed: u64) -> Box<dyn FnMut(&Flying) -> Fate> {
    let mut dice = dice(seed);
    Box::new(move |_| {
        let x = dice();
        match x % 100 {
            0..10 => Fate::Drop,
            10..15 => Fate::Twice,
            15..20 => Fate::Late((x >> 20) as usize % 9),
            _ => Fate::Deliver,
        }
    })
}

#[test]
fn heavy_random_loss_only_costs_time() {
    for seed in 1..120u64 {
        // Small windows split long READs into parts, and small MTUs make many packets.
        let setup = Setup {
            types: if seed % 3 == 0 { [QpType::XrcSend, QpType::XrcRecv] } else { [QpType::Rc; 2] },
            uses_srq: seed % 3 == 0,
            mtu: if seed % 2 == 0 { PathMtu::Mtu256 } else { PathMtu::Mtu1024 },
            rd_atomic: 1 + (seed % 5) as u8,
            max_inflight: [196_608, 6_000, 20_000, 1][seed as usize % 4],
            retry_cnt: 7,
            rnr_retry: 7,
            ..small()
        };
        let mut p = Pair::new(setup);
        p.fate = profile(seed);
        let late = seed % 7 == 0;
        if late {
            // The receiver is not ready for the first SEND.
            p.post(0, 0, SendOp::Send, 0, 700);
            p.run();
            p.recv(1, 99, 40_000, 700);
        }
        all_ops(&mut p);
        p.run_timed();
        if late {
            let first = p.sides[0].completions.remove(0);
            assert_eq!((first.1.wr_id, first.1.status), (0, WcStatus::Success));
            let first = p.sides[1].completions.remove(0);
            assert_eq!((first.1.wr_id, first.1.status), (99, WcStatus::Success));
        }
        check_all_ops(&mut p, &std::format!("seed {seed}"));
    }
}

/// A responder's memory of an answered READ: its packets, and the start of the last repetition.
struct Resource {
    psn: core::ops::Range<u32>,
    from: u64,
    end: u64,
}

/// A network that loses `percent` of the packets, before a forgetful responder. This responder
/// answers a repeated READ only from the start of the last repetition on, and drops earlier parts,
/// as rxe 6.1 does. PSNs must not wrap.
fn forgetful(seed: u64, percent: u64, mut expected: u32) -> Box<dyn FnMut(&Flying) -> Fate> {
    let mut resources: Vec<Resource> = Vec::new();
    let mut dice = dice(seed);
    Box::new(move |f| {
        let x = dice();
        if x % 100 < percent {
            return Fate::Drop;
        }
        let psn = f.psn();
        if f.from == 1 || psn > expected {
            return Fate::Deliver;
        }
        let Some(reth) = f.headers.reth.filter(|_| f.op() == Operation::ReadRequest) else {
            expected = expected.max(psn + 1);
            return Fate::Deliver;
        };
        let end = reth.va + u64::from(reth.len);
        if psn == expected {
            expected += reth.len.div_ceil(256);
            resources.push(Resource { psn: psn..expected, from: reth.va, end });
            return Fate::Deliver;
        }
        match resources.iter_mut().find(|r| r.psn.contains(&psn)) {
            Some(r) if r.from <= reth.va && end <= r.end => {
                r.from = reth.va;
                Fate::Deliver
            }
            _ => Fate::Drop,
        }
    })
}

/// Two repeated parts of a former single request are never under way together.
#[test]
fn a_responder_may_forget_what_lies_before_the_last_part_asked_for() {
    for seed in 1..400u64 {
        let setup = Setup {
            mtu: PathMtu::Mtu256,
            rd_atomic: 2 + (seed % 4) as u8,
            max_inflight: [196_608, 40_000, 20_000, 6_000][seed as usize % 4],
            retry_cnt: 7,
            psn: 100,
            ..small()
        };
        let mut p = Pair::new(setup);
        p.fate = forgetful(seed, 4 + seed % 12, 100);
        all_ops(&mut p);
        p.run_timed();
        check_all_ops(&mut p, &std::format!("seed {seed}"));
    }
}

#[test]
fn a_gap_draws_one_nak_and_one_restart() {
    let mut p = Pair::new(small());
    p.fate = drop_nth(2, |f| f.from == 0);
    p.write(1, 10 * 1024);
    p.run();
    assert_eq!(p.sides[0].sends().len(), 1, "without waiting for the timer");
    let nak = |f: &Flying| matches!(f.headers.aeth.map(|a| a.syndrome), Some(Syndrome::Nak(_)));
    assert_eq!(p.count(1, nak), 1);
    assert_eq!(p.sides[0].qp.counters().seq_naks, 1);
    assert_eq!(p.sides[0].qp.counters().retransmitted, 8);
    assert_eq!(p.count(0, |_| true), 18);
}

#[test]
fn a_read_goes_on_at_the_first_missing_packet() {
    let mut p = Pair::new(small());
    p.sides[1].fill(0, 10 * 1024, 4);
    p.fate = drop_nth(4, |f| f.from == 1);
    let from = p.sides[1].remote(0);
    p.post(0, 1, SendOp::Read(from), 50_000, 10 * 1024);
    p.run();
    assert_eq!(p.sides[0].sends().len(), 1);
    assert!(p.sides[0].holds(50_000, 10 * 1024, 4));
    let requests: Vec<_> = p
        .log
        .iter()
        .filter(|f| f.op() == Operation::ReadRequest)
        .map(|f| f.headers.reth.unwrap())
        .collect();
    let asked: Vec<_> = requests.iter().map(|r| (r.va - BASE, r.len)).collect();
    assert_eq!(asked, [(0, 10 * 1024), (4 * 1024, 6 * 1024)]);
    assert_eq!(p.sides[0].qp.counters().implied_naks, 1);
}

/// After a loss the cursor may stand on a bind that was done before, and an ACK removes the bind
/// from the queue. The request that takes its slot is processed last, not next.
#[test]
fn a_request_in_the_slot_of_a_local_one_that_was_next_waits_its_turn() {
    let setup = small();
    let mut p = Pair::new(Setup { cap: QpCap { max_send_wr: 4, ..setup.cap }, ..setup });
    p.fate = drop_nth(0, |f| f.from == 0);
    let mr = p.sides[0].key;
    let mw = p.sides[0].keys.alloc_mw(PD, keys::MwType::Type2, 0x77_0000).unwrap();
    let access = Access::REMOTE_WRITE;
    let bind = wr::MwBind { mw, new_key: mw ^ 1, mr, addr: BASE, len: 64, access };
    let post = |p: &mut Pair, n: u8| {
        let at = usize::from(n) * 100;
        p.sides[0].fill(at, 100, n);
        let to = p.sides[1].remote(at);
        p.post(0, n.into(), SendOp::Write(to), at, 100);
    };
    post(&mut p, 1);
    p.post(0, 2, SendOp::BindMw(bind), 0, 0);
    p.pump(0);
    p.advance(p.sides[0].qp.poll_timeout().unwrap().since(p.now));
    // The host sends a single packet, and the answer comes before the next poll.
    assert_eq!(p.pump_some(0, 1), 1);
    p.deliver();
    p.pump(1);
    p.deliver();
    let done = |p: &mut Pair| p.sides[0].sends().iter().map(|c| c.wr_id).collect::<Vec<_>>();
    assert_eq!(done(&mut p), [1, 2]);
    for n in 3..=6 {
        post(&mut p, n);
    }
    p.log.clear();
    p.run();
    let sent: Vec<_> =
        p.log.iter().filter(|f| f.from == 0).map(|f| (f.psn(), f.headers.reth)).collect();
    let due: Vec<_> = (3..=6_u32)
        .map(|n| {
            let remote = p.sides[1].remote(n as usize * 100);
            (0xff_fff0 + n - 2, Some(Reth { va: remote.va, rkey: remote.rkey, len: 100 }))
        })
        .collect();
    assert_eq!(sent, due);
    assert!((3..=6).all(|n| p.sides[1].holds(usize::from(n) * 100, 100, n)));
    assert_eq!(done(&mut p), [3, 4, 5, 6]);
}
