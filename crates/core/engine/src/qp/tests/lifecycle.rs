//! States: posting, draining, reset, staging, and received packets by state.
use super::harness::*;
use crate::qp::DropReason;
use crate::wr::{Payload, SendFlags, SendOp};
use crate::*;
use std::vec::Vec;

fn ids(completions: &[Completion]) -> Vec<u64> {
    completions.iter().map(|c| c.wr_id).collect()
}

fn stage(p: &mut Pair, wr_id: u64) -> Result<(), PostError> {
    let sges = [p.sides[0].sge(0, 10)];
    let to = p.sides[1].remote(0);
    p.stage(0, wr_id, SendOp::Write(to), SendFlags::SIGNALED, Payload::Sges(&sges))
}

#[test]
fn what_is_staged_waits_for_the_commit_or_goes() {
    // DEF-2, DEF-6.
    let mut p = Pair::new(Setup::new(QpType::Rc));
    stage(&mut p, 1).unwrap();
    stage(&mut p, 2).unwrap();
    p.run();
    assert!(p.log.is_empty());
    assert_eq!(p.sides[0].qp.staged_sends(), 2);
    let s = &mut p.sides[0];
    assert_eq!(s.qp.commit_sends(&mut s.effects), 2);
    stage(&mut p, 3).unwrap();
    p.sides[0].qp.abort_sends();
    stage(&mut p, 4).unwrap();
    p.commit(0);
    p.run();
    assert_eq!(ids(&p.sides[0].sends()), [1, 2, 4]);
}

#[test]
fn posting_before_rts_is_refused() {
    let mut p = Pair::in_reset(Setup::new(QpType::Rc));
    for state in [QpState::Reset, QpState::Init, QpState::Rtr] {
        if state != QpState::Reset {
            p.step_to(0, state);
        }
        let refused = stage(&mut p, 1);
        assert_eq!(
            refused,
            Err(PostError::Invalid(Cause::WrongState { op: "post send", state })),
            "{state:?}"
        );
    }
    let s = &mut p.sides[1];
    assert!(s.qp.post_recv(&RecvWr { wr_id: 1, sges: &[] }, &mut s.effects).is_err());
    p.step_to(1, QpState::Init);
    p.recv(1, 1, 0, 10);
}

#[test]
fn draining_ends_what_was_begun_and_begins_nothing() {
    let mut p = Pair::new(Setup::new(QpType::Rc));
    p.write(1, 500_000);
    p.write(2, 10);
    p.pump(0);
    let attr = QpAttr { state: QpState::Sqd, en_sqd_async_notify: true, ..p.attr[0] };
    p.sides[0].modify(&attr, AttrMask::EN_SQD_ASYNC_NOTIFY).unwrap();
    assert!(p.sides[0].qp.query().sq_draining);
    assert!(p.sides[0].events.is_empty());
    p.run();
    assert_eq!(ids(&p.sides[0].sends()), [1]);
    assert_eq!(p.sides[0].events, [QpEvent::SqDrained]);
    assert!(!p.sides[0].qp.query().sq_draining);
    // Posting is allowed, and the request waits.
    p.write(3, 10);
    p.run();
    assert!(p.sides[0].completions.is_empty());
    p.step_to(0, QpState::Rts);
    p.run();
    assert_eq!(ids(&p.sides[0].sends()), [2, 3]);
    // Idle and without notification: SQD at once and without an event.
    p.sides[0].events.clear();
    p.step_to(0, QpState::Sqd);
    assert!(!p.sides[0].qp.query().sq_draining && p.sides[0].events.is_empty());
}

#[test]
fn reset_forgets_and_starts_again() {
    let mut p = Pair::new(Setup::new(QpType::Rc));
    for round in 0..3 {
        p.recv(0, 1, 0, 10);
        p.write(1, 10);
        p.pump(0);
        p.net.clear();
        for side in 0..2 {
            p.step_to(side, QpState::Reset);
            assert!(p.sides[side].completions.is_empty(), "round {round}");
            assert_eq!(p.sides[side].qp.poll_timeout(), None);
            assert_eq!(p.sides[side].qp.query().cap, Setup::new(QpType::Rc).cap);
            p.connect(side);
        }
        p.write(2, 3000);
        p.run();
        assert_eq!(ids(&p.sides[0].sends()), [2], "round {round}");
    }
}

#[test]
fn a_refused_modify_changes_nothing() {
    let mut p = Pair::new(Setup::new(QpType::Rc));
    let before = p.sides[0].qp.query();
    let attr = QpAttr { state: QpState::Init, ..p.attr[0] };
    assert!(p.sides[0].modify(&attr, AttrMask::PKEY_INDEX).is_err());
    assert_eq!(p.sides[0].qp.query(), before);
}

#[test]
fn the_first_packet_in_rtr_is_announced() {
    let mut p = Pair::in_reset(Setup::new(QpType::Rc));
    for state in [QpState::Init, QpState::Rtr] {
        p.step_to(0, state);
        p.step_to(1, state);
    }
    p.step_to(0, QpState::Rts);
    p.write(1, 5000);
    p.run();
    assert_eq!(p.sides[1].events, [QpEvent::CommEst]);
    assert_eq!(ids(&p.sides[0].sends()), [1], "RTR answers");
}

#[test]
fn packets_that_do_not_belong_are_counted_and_dropped() {
    let mut p = Pair::new(Setup::new(QpType::Rc));
    p.sides[0].fill(0, 10, 1);
    let to = p.sides[1].remote(5000);
    p.post(0, 1, SendOp::Write(to), 0, 10);
    p.pump(0);
    let good = p.net.pop_front().unwrap();
    let mut expected = [0u64; 3];
    for (i, (reason, change)) in [
        (DropReason::PKey, (|h, _| h.bth.pkey = 0x1234) as fn(&mut adverb_wire::Headers, &mut Gid)),
        (DropReason::DestQpn, |h, _| h.bth.dest_qpn ^= 1),
        (DropReason::Source, |_, src| *src = Gid::from_ipv4([1, 2, 3, 4])),
    ]
    .into_iter()
    .enumerate()
    {
        let (mut headers, payload) = adverb_wire::Headers::parse(&good.bytes).unwrap();
        let mut src = gid(0);
        change(&mut headers, &mut src);
        p.inject_headers(1, src, headers, payload);
        expected[i] += 1;
        let counters = p.sides[1].qp.counters();
        assert_eq!(counters.dropped(reason), 1, "{reason:?}");
        assert_eq!(counters.dropped_total(), expected.iter().sum::<u64>());
    }
    assert!(!p.sides[1].holds(5000, 10, 1));
    // A packet of a limited member of the default partition is accepted.
    let (mut headers, payload) = adverb_wire::Headers::parse(&good.bytes).unwrap();
    headers.bth.pkey = 0x7fff;
    p.inject_headers(1, gid(0), headers, payload);
    assert!(p.sides[1].holds(5000, 10, 1));
    p.step_to(1, QpState::Err);
    p.inject(&good);
    assert_eq!(p.sides[1].qp.counters().dropped(DropReason::State), 1);
}
