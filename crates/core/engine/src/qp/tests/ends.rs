//! Local errors, flushes, SQE, and the effect of a failing request on its neighbours.
use super::harness::*;
use crate::wr::{MwBind, Payload, SendFlags, SendOp, Sge};
use crate::*;
use std::vec::Vec;

fn post_bad_key(p: &mut Pair, wr_id: u64, op: SendOp, len: u32) {
    let sges = [Sge { addr: BASE, length: len, lkey: 0x1234_5600 }];
    p.stage(0, wr_id, op, SendFlags::empty(), Payload::Sges(&sges)).unwrap();
    p.commit(0);
}

#[test]
fn a_bad_local_key_fails_after_what_went_before() {
    let mut p = Pair::new(Setup::new(QpType::Rc));
    let to = p.sides[1].remote(0);
    p.recv(0, 9, 0, 10);
    p.post(0, 1, SendOp::Write(to), 0, 5000);
    post_bad_key(&mut p, 2, SendOp::Write(to), 10);
    p.post(0, 3, SendOp::Write(to), 0, 10);
    p.pump(0);
    assert!(p.sides[0].completions.is_empty(), "the first is not acknowledged yet");
    p.run();
    assert_eq!(
        p.sides[0].sent(),
        [(1, WcStatus::Success), (2, WcStatus::LocProtErr), (3, WcStatus::WrFlushErr)]
    );
    assert_eq!(p.sides[0].received(), [(9, WcStatus::WrFlushErr)]);
    assert_eq!(p.sides[0].qp.first_error().map(|c| c.vendor_err()), Some(1));
    // Further posts are accepted and flushed.
    p.post(0, 4, SendOp::Send, 0, 0);
    p.recv(0, 10, 0, 10);
    assert_eq!(p.sides[0].sent(), [(4, WcStatus::WrFlushErr)]);
    assert_eq!(p.sides[0].received(), [(10, WcStatus::WrFlushErr)]);
}

#[test]
fn memory_that_vanishes_fails_the_request() {
    for (qp_type, state) in
        [(QpType::Rc, QpState::Err), (QpType::Uc, QpState::Sqe), (QpType::Ud, QpState::Sqe)]
    {
        let mut p = Pair::new(Setup::new(qp_type));
        for i in 0..3 {
            p.recv(1, i, 0, 100);
        }
        p.sides[0].arena.hole.set(Some(BASE + 700));
        p.post(0, 1, SendOp::Send, 0, 10);
        p.post(0, 2, SendOp::Send, 695, 10);
        p.post(0, 3, SendOp::Send, 0, 10);
        p.run();
        assert_eq!(
            p.sides[0].sent(),
            [(1, WcStatus::Success), (2, WcStatus::LocProtErr), (3, WcStatus::WrFlushErr)]
        );
        assert_eq!(p.sides[0].qp.state(), state);
        assert_eq!(p.sides[1].recvs().len(), 1);
    }
}

/// Found by the simulator: after an unacknowledged request, a request with vanished memory let the
/// next request begin.
#[test]
fn nothing_begins_after_memory_that_vanished() {
    for qp_type in [QpType::Rc, QpType::Uc] {
        let mut p = Pair::new(Setup::new(qp_type));
        p.sides[0].arena.hole.set(Some(BASE + 700));
        let to = p.sides[1].remote(0);
        p.post(0, 1, SendOp::Write(to), 0, 10);
        p.post(0, 2, SendOp::Write(to), 695, 10);
        p.post(0, 3, SendOp::Write(to), 0, 10);
        let mr = p.sides[0].key;
        let mw = p.sides[0].keys.alloc_mw(PD, keys::MwType::Type2, 0x77_0000).unwrap();
        let bind =
            MwBind { mw, new_key: mw ^ 1, mr, addr: BASE, len: 8, access: Access::REMOTE_WRITE };
        p.post(0, 4, SendOp::BindMw(bind), 0, 0);
        p.pump(0);
        assert_eq!((p.log.len(), p.sides[0].key_ops), (1, 0), "{qp_type:?}");
        p.run();
        let flushed = WcStatus::WrFlushErr;
        assert_eq!(
            p.sides[0].sent(),
            [(1, WcStatus::Success), (2, WcStatus::LocProtErr), (3, flushed), (4, flushed)]
        );
    }
}

#[test]
fn a_send_error_on_ud_stops_sending_only() {
    let mut p = Pair::new(Setup::new(QpType::Ud));
    for i in 0..4 {
        p.recv(0, 20 + i, 0, 100);
        p.recv(1, 20 + i, 0, 100);
    }
    p.post(0, 1, SendOp::Send, 0, 4097);
    p.post(0, 2, SendOp::Send, 0, 10);
    p.run();
    assert_eq!(p.sides[0].sent(), [(1, WcStatus::LocLenErr), (2, WcStatus::WrFlushErr)]);
    assert_eq!(p.sides[0].qp.state(), QpState::Sqe);
    p.post(0, 3, SendOp::Send, 0, 10);
    assert_eq!(p.sides[0].sent(), [(3, WcStatus::WrFlushErr)]);
    p.post(1, 1, SendOp::Send, 0, 10);
    p.run();
    assert_eq!(p.sides[0].received(), all_good([20]), "receiving goes on");
    p.step_to(0, QpState::Rts);
    p.post(0, 4, SendOp::Send, 0, 10);
    p.run();
    assert_eq!(p.sides[0].sent(), all_good([4]));
    assert_eq!(p.sides[1].received(), all_good([20]));
}

#[test]
fn the_consumers_own_error_flushes_everything_in_order() {
    let mut p = Pair::new(Setup::new(QpType::Rc));
    let to = p.sides[1].remote(0);
    for i in 0..3 {
        p.recv(0, 30 + i, 0, 10);
    }
    let remote = p.sides[1].remote(0);
    p.post_flags(0, 1, SendOp::Write(to), 0, 10, SendFlags::empty());
    p.post(0, 2, SendOp::Read(to), 0, 10);
    p.post(0, 3, SendOp::FetchAdd { remote, add: 1 }, 0, 8);
    p.stage(0, 4, SendOp::Send, SendFlags::empty(), Payload::Sges(&[])).unwrap();
    p.pump(0);
    p.step_to(0, QpState::Err);
    let done = p.sides[0].sends();
    assert_eq!(
        statuses(&done),
        [(1, WcStatus::WrFlushErr), (2, WcStatus::WrFlushErr), (3, WcStatus::WrFlushErr)]
    );
    assert_eq!(
        done.iter().map(|c| c.opcode).collect::<Vec<_>>(),
        [WcOpcode::RdmaWrite, WcOpcode::RdmaRead, WcOpcode::FetchAdd]
    );
    assert_eq!(done[0].cause.as_deref(), Some(&Cause::Flushed { first: None }));
    assert_eq!(p.sides[0].received(), [30, 31, 32].map(|i| (i, WcStatus::WrFlushErr)));
    p.commit(0);
    assert_eq!(
        p.sides[0].sent(),
        [(4, WcStatus::WrFlushErr)],
        "staged before, flushed at the commit"
    );
    // Late answers and timers have no effect.
    p.run_timed();
    p.advance(core::time::Duration::from_secs(10));
    assert!(p.sides[0].completions.is_empty() && p.sides[0].events.is_empty());
}

#[test]
fn with_an_srq_the_last_receive_is_announced() {
    let mut p = Pair::new(Setup { uses_srq: true, ..Setup::new(QpType::Rc) });
    p.recv(0, 1, 0, 10);
    p.step_to(0, QpState::Err);
    assert_eq!(p.sides[0].events, [QpEvent::LastWqeReached]);
    assert!(p.sides[0].recvs().is_empty(), "the SRQ keeps its own");
    assert_eq!(p.sides[0].srq.wqes.len(), 1);
}

#[test]
fn failing_from_outside_is_fatal_once() {
    let mut p = Pair::new(Setup::new(QpType::Rc));
    p.post(0, 1, SendOp::Send, 0, 10);
    for _ in 0..2 {
        let s = &mut p.sides[0];
        s.qp.fail(Cause::CqOverflow { depth: 3 }, &mut s.effects);
        s.settle();
    }
    assert!(
        matches!(&p.sides[0].events[..], [QpEvent::Fatal(c)] if **c == Cause::CqOverflow { depth: 3 })
    );
    assert_eq!(p.sides[0].sent(), [(1, WcStatus::WrFlushErr)]);
}

#[test]
fn requests_that_cannot_be_are_refused_or_fail() {
    let mut p = Pair::new(Setup { rd_atomic: 0, ..Setup::new(QpType::Rc) });
    let to = p.sides[1].remote(0);
    p.post(0, 1, SendOp::Read(to), 0, 10);
    p.run();
    assert_eq!(p.sides[0].sent(), [(1, WcStatus::LocQpOpErr)]);

    let mut p = Pair::new(Setup::new(QpType::Rc));
    let sges = [p.sides[0].sge(0, 1); 5];
    let refused = p.stage(0, 1, SendOp::Send, SendFlags::empty(), Payload::Sges(&sges));
    assert_eq!(refused, Err(PostError::Invalid(Cause::TooManySges { given: 5, max: 4 })));
    let sges = [Sge { addr: BASE, length: u32::MAX, lkey: p.sides[0].key }];
    p.stage(0, 1, SendOp::Write(to), SendFlags::empty(), Payload::Sges(&sges)).unwrap();
    p.commit(0);
    p.run();
    assert_eq!(p.sides[0].sent(), [(1, WcStatus::LocLenErr)]);

    for (qp_type, op) in [
        (QpType::Uc, SendOp::Read(to)),
        (QpType::Uc, SendOp::SendInv(1)),
        (QpType::Ud, SendOp::Write(to)),
    ] {
        let mut p = Pair::new(Setup::new(qp_type));
        let refused = p.stage(0, 1, op, SendFlags::empty(), Payload::Sges(&[]));
        assert!(
            matches!(refused, Err(PostError::Invalid(Cause::OpNotSupported { .. }))),
            "{refused:?}"
        );
    }
}
