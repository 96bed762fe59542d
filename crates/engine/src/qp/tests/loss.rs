//! A network that loses, repeats and reorders; peers that are not ready or not there.
use super::harness::*;
use crate::wr::SendOp;
use crate::*;
use adverb_wire::{NakCode, Operation, Reth, Syndrome, rnr_timer_us};
use core::time::Duration;
use std::boxed::Box;
use std::vec::Vec;

/// Drops the `n`th packet (from 0) that a predicate picks, once.
pub(super) fn drop_nth(
    n: usize,
    which: impl Fn(&Flying) -> bool + 'static,
) -> Box<dyn FnMut(&Flying) -> Fate> {
    let mut seen = 0;
    Box::new(move |f| {
        if !which(f) {
            return Fate::Deliver;
        }
        seen += 1;
        if seen == n + 1 { Fate::Drop } else { Fate::Deliver }
    })
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
    let done: Vec<_> = p.sides[0].sends().iter().map(|c| (c.wr_id, c.status)).collect();
    let all: Vec<_> = (1..=6).map(|i| (i, WcStatus::Success)).collect();
    assert_eq!(done, all, "{what}");
    let got: Vec<_> = p.sides[1].recvs().iter().map(|c| (c.wr_id, c.status)).collect();
    assert_eq!(got, [(100, WcStatus::Success), (101, WcStatus::Success)], "{what}");
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
        for nth in 0..45 {
            let mut p = Pair::new(small());
            let mut seen = 0;
            p.fate = Box::new(move |_| {
                seen += 1;
                if seen == nth + 1 { fate } else { Fate::Deliver }
            });
            all_ops(&mut p);
            p.run_timed();
            check_all_ops(&mut p, &std::format!("packet {nth} {fate:?}"));
        }
    }
}

/// Numbers that a seed gives (xorshift).
fn dice(seed: u64) -> impl FnMut() -> u64 {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    move || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x
    }
}

/// Loses one packet in ten, repeats and delays some.
fn weather(seed: u64) -> Box<dyn FnMut(&Flying) -> Fate> {
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
        // Small windows ask for long READs in parts, small MTUs make many packets.
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
        p.fate = weather(seed);
        let late = seed % 7 == 0;
        if late {
            // Not ready for the first SEND.
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

/// What a responder knows of a READ that it answered: its packets, and where what was last asked
/// for of it begins.
struct Resource {
    psn: core::ops::Range<u32>,
    from: u64,
    end: u64,
}

/// A network that loses `percent` of the packets, before a responder that answers a READ again only
/// from where it was last asked for or later, and drops what begins before that, as rxe 6.1 does.
/// PSNs must not wrap.
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

/// Two parts of what was one request, asked for again, are never under way together.
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
    let to = p.sides[1].remote(0);
    p.post(0, 1, SendOp::Write(to), 0, 10 * 1024);
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
    let requests: Vec<_> =
        p.log.iter().filter(|f| f.op() == Operation::ReadRequest).map(|f| f.headers.reth.unwrap()).collect();
    let asked: Vec<_> = requests.iter().map(|r| (r.va - BASE, r.len)).collect();
    assert_eq!(asked, [(0, 10 * 1024), (4 * 1024, 6 * 1024)]);
    assert_eq!(p.sides[0].qp.counters().implied_naks, 1);
}

#[test]
fn a_silent_peer_is_tried_as_often_as_asked() {
    // Timeout 14 is 67.1 ms.
    let period = Duration::from_nanos(4096 << 14);
    for retry_cnt in 0..=7 {
        let mut p = Pair::new(Setup { retry_cnt, ..small() });
        p.fate = Box::new(|_| Fate::Drop);
        let to = p.sides[1].remote(0);
        let start = p.now;
        p.post(0, 1, SendOp::Write(to), 0, 10);
        p.post(0, 2, SendOp::Read(to), 0, 10);
        p.recv(0, 3, 0, 10);
        p.run_timed();
        let tries = u32::from(retry_cnt) + 1;
        assert_eq!(p.count(0, |f| f.op() == Operation::WriteOnly), tries as usize);
        assert_eq!(p.now.since(start), period * tries);
        let done = p.sides[0].sends();
        assert_eq!(done[0].status, WcStatus::RetryExcErr);
        match done[0].cause.as_deref() {
            Some(Cause::RetryExceeded { peer, dest_qpn, psn, attempts, last_ack_age }) => {
                assert_eq!((*peer, *dest_qpn, *psn), (gid(1), QPN[1], 0xff_fff0));
                assert_eq!((*attempts, *last_ack_age), (tries, period * tries));
            }
            other => panic!("{other:?}"),
        }
        assert_eq!((done[1].status, done[1].opcode), (WcStatus::WrFlushErr, WcOpcode::RdmaRead));
        assert!(matches!(done[1].cause.as_deref(), Some(Cause::Flushed { first: Some(c) })
            if matches!(**c, Cause::RetryExceeded { .. })));
        assert_eq!(p.sides[0].recvs()[0].status, WcStatus::WrFlushErr);
        assert_eq!(p.sides[0].qp.state(), QpState::Err);
        assert_eq!(p.sides[0].qp.counters().timeouts, u64::from(tries));
    }
}

#[test]
fn progress_resets_the_retry_counter() {
    let mut p = Pair::new(Setup { retry_cnt: 1, ..small() });
    // Every second transmission is lost: each request needs its one retry.
    let mut n = 0;
    p.fate = Box::new(move |f| {
        n += usize::from(f.from == 0);
        if f.from == 0 && n % 2 == 1 { Fate::Drop } else { Fate::Deliver }
    });
    let to = p.sides[1].remote(0);
    for i in 0..5 {
        p.post(0, i, SendOp::Write(to), 0, 10);
        p.run_timed();
    }
    assert_eq!(p.sides[0].sends().len(), 5);
    assert_eq!(p.sides[0].qp.state(), QpState::Rts);
    assert_eq!(p.sides[0].qp.counters().timeouts, 5);
}

#[test]
fn timeout_zero_waits_forever() {
    let mut p = Pair::new(Setup { timeout: 0, ..small() });
    p.fate = Box::new(|_| Fate::Drop);
    let to = p.sides[1].remote(0);
    p.post(0, 1, SendOp::Write(to), 0, 10);
    p.run_timed();
    assert_eq!(p.sides[0].qp.poll_timeout(), None);
    p.advance(Duration::from_secs(3600));
    assert!(p.sides[0].sends().is_empty());
}

#[test]
fn a_receiver_that_is_not_ready_is_waited_for() {
    let mut p = Pair::new(small());
    p.sides[0].fill(0, 3000, 6);
    p.post(0, 1, SendOp::Send, 0, 3000);
    p.run();
    let wait = Duration::from_micros(u64::from(rnr_timer_us(12)));
    assert_eq!(p.sides[0].qp.poll_timeout(), Some(p.now + wait));
    p.recv(1, 5, 8192, 3000);
    p.run();
    assert!(p.sides[1].recvs().is_empty(), "not before the timer");
    p.run_timed();
    assert_eq!(p.sides[0].sends().len(), 1);
    assert!(p.sides[1].holds(8192, 3000, 6));
    assert_eq!(p.sides[0].qp.counters().rnr_naks, 1);
}

#[test]
fn rnr_retries_end() {
    for rnr_retry in 0..=6 {
        let mut p = Pair::new(Setup { rnr_retry, ..small() });
        let start = p.now;
        p.post(0, 1, SendOp::Send, 0, 10);
        p.run_timed();
        let tries = u32::from(rnr_retry) + 1;
        assert_eq!(p.count(0, |_| true), tries as usize);
        let wait = Duration::from_micros(u64::from(rnr_timer_us(12)));
        assert_eq!(p.now.since(start), wait * u32::from(rnr_retry));
        let done = p.sides[0].sends();
        assert_eq!(done[0].status, WcStatus::RnrRetryExcErr);
        assert_eq!(
            done[0].cause.as_deref(),
            Some(&Cause::RnrRetryExceeded {
                peer: gid(1),
                dest_qpn: QPN[1],
                psn: 0xff_fff0,
                attempts: tries
            })
        );
    }
    // 7 is forever.
    let mut p = Pair::new(Setup { rnr_retry: 7, ..small() });
    p.post(0, 1, SendOp::Send, 0, 10);
    for _ in 0..100 {
        p.run();
        p.advance(Duration::from_millis(1));
    }
    p.recv(1, 2, 0, 10);
    p.run_timed();
    assert_eq!(p.sides[0].sends()[0].status, WcStatus::Success);
}

#[test]
fn forged_and_old_answers_change_nothing() {
    let mut p = Pair::new(small());
    let to = p.sides[1].remote(0);
    p.post(0, 1, SendOp::Write(to), 0, 10);
    p.run();
    let ack = p.log.iter().rfind(|f| f.from == 1).unwrap().clone();
    p.sides[0].sends();
    p.post(0, 2, SendOp::Write(to), 0, 10);
    p.pump(0);
    p.net.clear();
    p.inject(&ack);
    for ahead in [2, 5, 1 << 22, 1 << 23, (1 << 24) - 1] {
        let mut forged = ack.clone();
        forged.headers.bth.psn = ack.headers.bth.psn + ahead;
        forged.headers.emit(&mut forged.bytes);
        p.inject(&forged);
    }
    assert!(p.sides[0].sends().is_empty());
    assert_eq!(p.sides[0].qp.counters().dropped(crate::qp::DropReason::GhostResponse), 6);
    p.run_timed();
    assert_eq!(p.sides[0].sends().len(), 1);
}

#[test]
fn a_response_of_the_wrong_length_is_a_bad_response() {
    let mut p = Pair::new(small());
    let from = p.sides[1].remote(0);
    p.post(0, 1, SendOp::Read(from), 50_000, 100);
    p.pump(0);
    while p.deliver() {}
    p.pump(1);
    let mut answer = p.net.pop_front().unwrap();
    answer.bytes.truncate(answer.bytes.len() - 4);
    p.inject(&answer);
    let done = p.sides[0].sends();
    assert_eq!(done[0].status, WcStatus::BadRespErr);
    assert_eq!(p.sides[0].qp.state(), QpState::Err);
}

#[test]
fn naks_become_statuses() {
    // A key nobody has; a send longer than its receive.
    let mut p = Pair::new(small());
    let remote = wr::Remote { va: BASE, rkey: 0xdead_be00 };
    p.post(0, 1, SendOp::Write(remote), 0, 10);
    p.run();
    let done = p.sides[0].sends();
    assert_eq!(done[0].status, WcStatus::RemAccessErr);
    assert!(matches!(done[0].cause.as_deref(), Some(Cause::RemoteNak { psn: 0xff_fff0, .. })));
    assert_eq!(p.sides[1].qp.state(), QpState::Err);
    assert!(matches!(p.sides[1].events[..], [QpEvent::AccessErr(_)]), "{:?}", p.sides[1].events);

    let mut p = Pair::new(small());
    p.recv(1, 3, 0, 9);
    p.post(0, 1, SendOp::Send, 0, 10);
    p.run();
    assert_eq!(p.sides[0].sends()[0].status, WcStatus::RemInvReqErr);
    assert_eq!(p.sides[1].recvs()[0].status, WcStatus::LocLenErr);
}

/// Sends everything a side has and answers the peer's packets, held back.
fn answers_held_back(p: &mut Pair) -> Vec<Flying> {
    p.pump(0);
    while p.deliver() {}
    p.pump(1);
    p.net.drain(..).collect()
}

#[test]
fn a_late_ack_saves_what_was_about_to_be_sent_again() {
    let mut p = Pair::new(small());
    let to = p.sides[1].remote(0);
    for i in 0..3 {
        p.post(0, i, SendOp::Write(to), 0, 2000);
    }
    let answers = answers_held_back(&mut p);
    p.advance(Duration::from_millis(68));
    assert_eq!(p.sides[0].qp.counters().timeouts, 1);
    for a in &answers {
        p.inject(a);
    }
    p.run_timed();
    assert_eq!(p.sides[0].sends().len(), 3);
    assert_eq!(p.sides[0].qp.counters().retransmitted, 0);
}

#[test]
fn a_late_ack_does_not_stand_for_a_lost_response() {
    let mut p = Pair::new(small());
    p.sides[1].fill(0, 100, 3);
    let remote = p.sides[1].remote(0);
    p.post(0, 1, SendOp::Read(remote), 50_000, 100);
    p.post(0, 2, SendOp::Write(p.sides[1].remote(9000)), 0, 10);
    let answers = answers_held_back(&mut p);
    assert_eq!(
        answers.iter().map(Flying::op).collect::<Vec<_>>(),
        [Operation::ReadResponseOnly, Operation::Acknowledge]
    );
    // The response is lost; the timer restarts at the READ; then the ACK of the WRITE behind it
    // comes.
    p.advance(Duration::from_millis(68));
    p.inject(&answers[1]);
    assert!(p.sides[0].completions.is_empty(), "{:?}", p.sides[0].completions);
    p.run_timed();
    assert_eq!(p.sides[0].sends().iter().map(|c| c.wr_id).collect::<Vec<_>>(), [1, 2]);
    assert!(p.sides[0].holds(50_000, 100, 3));
}

#[test]
fn each_message_has_its_own_rnr_retries() {
    // From PSN 0, where "the one before" wraps.
    let mut p = Pair::new(Setup { rnr_retry: 1, psn: 0, ..small() });
    for i in 0..4 {
        p.post(0, i, SendOp::Send, 0, 10);
        p.run();
        p.recv(1, i, 0, 10);
        p.run_timed();
    }
    let done = p.sides[0].sends();
    assert!(done.len() == 4 && done.iter().all(|c| c.status == WcStatus::Success), "{done:?}");
    assert_eq!(p.sides[0].qp.counters().rnr_naks, 4);
}

/// After a loss the cursor may stand on a bind that was done before, and an ACK takes it off the
/// queue. The request that takes its slot has its turn last, not next.
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
    // The host sends one packet only, and is not back before the answer.
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
    let sent: Vec<_> = p.log.iter().filter(|f| f.from == 0).map(|f| (f.psn(), f.headers.reth)).collect();
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

/// A NAK that ends the connection is as easily lost as any packet: the request that comes again
/// draws it again, so that the requester hears the reason and not just a timeout.
#[test]
fn a_final_nak_that_was_lost_is_sent_again() {
    type Case = (&'static str, WcStatus, fn(&mut Pair));
    let cases: [Case; 4] = [
        ("bad rkey of a write", WcStatus::RemAccessErr, |p| {
            let to = wr::Remote { rkey: 0x1234_5600, ..p.sides[1].remote(0) };
            p.post(0, 1, SendOp::Write(to), 0, 3000);
        }),
        ("bad rkey of a read", WcStatus::RemAccessErr, |p| {
            let to = wr::Remote { rkey: 0x1234_5600, ..p.sides[1].remote(0) };
            p.post(0, 1, SendOp::Read(to), 0, 3000);
        }),
        ("receive too short", WcStatus::RemInvReqErr, |p| {
            p.recv(1, 9, 0, 8);
            p.post(0, 1, SendOp::Send, 0, 3000);
        }),
        ("after a good one", WcStatus::RemAccessErr, |p| {
            let good = p.sides[1].remote(0);
            p.post_flags(0, 7, SendOp::Write(good), 0, 3000, wr::SendFlags::empty());
            p.post(0, 1, SendOp::Write(wr::Remote { rkey: 0x1234_5600, ..good }), 0, 8);
        }),
    ];
    for (what, status, post) in cases {
        for lost in 1..=3 {
            let mut p = Pair::new(small());
            post(&mut p);
            let mut seen = 0;
            p.fate = Box::new(move |f| {
                seen += usize::from(f.from == 1);
                if f.from == 1 && seen <= lost { Fate::Drop } else { Fate::Deliver }
            });
            p.run_timed();
            let done = p.sides[0].sends();
            assert_eq!((done.len(), done[0].status), (1, status), "{what}, {lost} lost");
            assert_eq!(p.sides[1].qp.state(), QpState::Err, "{what}");
        }
    }
    // What else comes in ERR draws nothing, and neither does anything after the consumer's own move
    // there.
    let mut p = Pair::new(small());
    let now = p.now;
    p.sides[1].modify(&QpAttr { state: QpState::Err, ..QpAttr::default() }, AttrMask::STATE, now).unwrap();
    let to = p.sides[1].remote(0);
    p.post(0, 1, SendOp::Write(to), 0, 8);
    p.run_timed();
    assert_eq!(p.count(1, |_| true), 0);
    assert_eq!(p.sides[0].sends()[0].status, WcStatus::RetryExcErr);
}

/// A READ of five packets whose memory goes away when `sent` responses have left, the `lost`th of
/// which (0: none) is lost.
fn read_what_goes(what: &str, sent: usize, lost: usize) -> Pair {
    let mut p = Pair::new(small());
    let to = p.sides[1].remote(0);
    let mut seen = 0;
    p.fate = Box::new(move |f| {
        seen += usize::from(f.from == 1);
        if f.from == 1 && seen == lost { Fate::Drop } else { Fate::Deliver }
    });
    p.post(0, 1, SendOp::Read(to), 0, 5000);
    p.pump(0);
    while p.deliver() {}
    assert_eq!(p.pump_some(1, sent), sent);
    if what == "vanished" {
        // What is still to be sent, or what has to be sent again.
        let first = if sent == 5 { lost - 1 } else { sent };
        p.sides[1].arena.hole.set(Some(BASE + 1024 * first as u64 + 1));
    } else {
        let key = p.sides[1].key;
        p.sides[1].keys.deregister(key).unwrap();
    }
    p.run_timed();
    p
}

/// Ways for memory to go, and how a READ of it ends.
const GONE: [(&str, WcStatus); 2] =
    [("deregistered", WcStatus::RemAccessErr), ("vanished", WcStatus::RemOpErr)];

/// The memory of a READ goes away while it is answered, and a response before the NAK was lost: the
/// READ comes again, and hears why it fails. A NAK at the place of the first would say that
/// everything before it was received.
#[test]
fn a_read_that_is_refused_half_way_hears_why_whatever_was_lost() {
    for (what, status) in GONE {
        for sent in 1..5 {
            for lost in 0..=sent {
                let mut p = read_what_goes(what, sent, lost);
                let done = p.sides[0].sends();
                assert_eq!((done.len(), done[0].status), (1, status), "{what} after {sent}, {lost} lost");
                assert_eq!(p.sides[0].qp.counters().timeouts, 0, "{what} after {sent}, {lost} lost");
            }
        }
    }
}

/// The memory of a READ goes away when all of it was answered, and a response was lost. Whoever
/// asks again hears why there is no answer any more; the connection of the responder stands, to
/// which the request had succeeded.
#[test]
fn a_read_asked_again_of_memory_that_is_gone_is_refused() {
    for (what, status) in GONE {
        for lost in 1..=5 {
            let mut p = read_what_goes(what, 5, lost);
            let done = p.sides[0].sends();
            assert_eq!((done.len(), done[0].status), (1, status), "{what}, {lost} lost");
            assert_eq!(p.sides[0].qp.counters().timeouts, 0, "{what}, {lost} lost");
            assert_eq!(p.sides[1].qp.state(), QpState::Rts, "{what}, {lost} lost");
        }
    }
}

/// A copy of an old READ that the network kept names memory that is gone: it is refused, and nobody
/// takes notice.
#[test]
fn an_old_read_of_memory_that_is_gone_disturbs_nobody() {
    let mut p = Pair::new(small());
    let to = p.sides[1].remote(0);
    p.post(0, 1, SendOp::Read(to), 0, 5000);
    p.run();
    let old = p.log.iter().find(|f| f.op() == Operation::ReadRequest).unwrap().clone();
    let key = p.sides[1].key;
    p.sides[1].keys.deregister(key).unwrap();
    // Beside a request that is under way.
    p.recv(1, 9, 0, 0);
    p.post(0, 2, SendOp::Send, 0, 0);
    p.inject(&old);
    p.run_timed();
    let refused =
        |f: &Flying| f.headers.aeth.is_some_and(|aeth| aeth.syndrome == Syndrome::Nak(NakCode::RemoteAccess));
    assert_eq!(p.count(1, refused), 1);
    let done: Vec<_> = p.sides[0].sends().iter().map(|c| c.status).collect();
    assert_eq!(done, [WcStatus::Success; 2]);
    assert_eq!([0, 1].map(|side: usize| p.sides[side].qp.state()), [QpState::Rts; 2]);
}
