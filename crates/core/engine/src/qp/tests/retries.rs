//! Retries and their ends: silent peers, and peers that are not ready.
use super::harness::*;
use super::loss::small;
use crate::wr::SendOp;
use crate::*;
use adverb_wire::{Operation, rnr_timer_us};
use core::time::Duration;
use std::boxed::Box;

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
            Some(Cause::RetryExceeded { peer, dest_qpn, psn, attempts, last_heard }) => {
                assert_eq!((*peer, *dest_qpn, *psn), (gid(1), QPN[1], 0xff_fff0));
                assert_eq!((*attempts, *last_heard), (tries, None), "it was never heard");
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
    // Every second transmission is lost, so each request needs its only retry.
    let mut n = 0;
    p.fate = Box::new(move |f| {
        n += usize::from(f.from == 0);
        if f.from == 0 && n % 2 == 1 { Fate::Drop } else { Fate::Deliver }
    });
    for i in 0..5 {
        p.write(i, 10);
        p.run_timed();
    }
    assert_eq!(p.sides[0].sends().len(), 5);
    assert_eq!(p.sides[0].qp.state(), QpState::Rts);
    assert_eq!(p.sides[0].qp.counters().timeouts, 5);
}

#[test]
fn the_time_of_the_last_answer_is_told() {
    let mut p = Pair::new(Setup { retry_cnt: 1, ..small() });
    p.write(1, 10);
    p.run_timed();
    let heard = p.now;
    p.advance(Duration::from_secs(3));
    p.fate = Box::new(|_| Fate::Drop);
    p.write(2, 10);
    p.run_timed();
    let done = p.sides[0].sends();
    match done[1].cause.as_deref() {
        Some(Cause::RetryExceeded { last_heard, .. }) => {
            assert_eq!(*last_heard, Some(p.now.since(heard)));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn timeout_zero_waits_forever() {
    let mut p = Pair::new(Setup { timeout: 0, ..small() });
    p.fate = Box::new(|_| Fate::Drop);
    p.write(1, 10);
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
fn each_message_has_its_own_rnr_retries() {
    // From PSN 0, where the preceding PSN wraps.
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
