//! WRITEs and READs that the host performs before they are queued.
use super::harness::*;
use crate::keys::{MwType, Region, RegionKind};
use crate::wr::{Payload, SendFlags, SendOp, Sge};
use crate::*;

fn rc() -> Pair {
    Pair::new(Setup::new(QpType::Rc))
}

/// The host's address of the entry, if the host may perform the request.
fn offered(p: &Pair, read: bool, entry: Sge) -> Option<u64> {
    let known = p.sides[0].qp.mapped_region(&p.sides[0].keys, entry.lkey)?;
    p.sides[0].qp.host_post(&known, read, &entry)
}

fn is_offered(p: &Pair) -> bool {
    let inline = p.sides[0].qp.host_post_inline(8);
    let entry = offered(p, false, p.sides[0].sge(0, 8)).is_some();
    assert_eq!(inline, entry, "both have the same state to go by");
    entry
}

/// Reports a performed request.
fn done(p: &mut Pair, wr_id: u64, flags: SendFlags, read: Option<u32>) -> Option<Completion> {
    let opcode = if read.is_some() { WcOpcode::RdmaRead } else { WcOpcode::RdmaWrite };
    p.sides[0].qp.host_posted(wr_id, flags, opcode, read.unwrap_or(0))
}

#[test]
fn it_comes_and_goes_without_a_place_in_the_queue() {
    let mut p = rc();
    assert_eq!(offered(&p, false, p.sides[0].sge(40, 8)), Some(BASE + 40));
    let free = p.sides[0].qp.free_sends();
    let c = done(&mut p, 7, SendFlags::SIGNALED, None).unwrap();
    assert_eq!(
        (c.wr_id, c.status, c.opcode, c.byte_len),
        (7, WcStatus::Success, WcOpcode::RdmaWrite, 0)
    );
    assert_eq!((c.qpn, c.cause.is_none(), c.solicited), (QPN[0], true, false));
    assert!(done(&mut p, 8, SendFlags::empty(), None).is_none(), "not signaled");
    let c = done(&mut p, 9, SendFlags::SIGNALED, Some(30)).unwrap();
    assert_eq!((c.wr_id, c.opcode, c.byte_len), (9, WcOpcode::RdmaRead, 30));
    assert_eq!((p.sides[0].qp.free_sends(), p.sides[0].qp.staged_sends()), (free, 0));
    assert_eq!(p.sides[0].qp.counters().one_sided, 3);
    assert!(!p.sides[0].qp.wants_output());

    let mut p = Pair::new(Setup { signal_all: true, ..Setup::new(QpType::Rc) });
    assert!(done(&mut p, 8, SendFlags::empty(), None).is_some());
}

/// Request numbers and PSNs go on as for queued requests. There are more requests than places in
/// the queue, with packets in between.
#[test]
fn packets_go_on_behind_it() {
    let mut p = rc();
    p.sides[0].fill(0, 3000, 5);
    for round in 0..50 {
        for id in 0..3 {
            assert!(is_offered(&p), "{round}");
            assert!(done(&mut p, id, SendFlags::SIGNALED, None).is_some());
        }
        p.recv(1, 9, 5000, 3000);
        p.post(0, 100 + round, SendOp::Send, 0, 3000);
        assert!(!is_offered(&p), "a SEND is queued");
        p.pump(0);
        assert!(!is_offered(&p), "a SEND is on its way");
        p.run();
        assert_eq!(p.sides[0].sent(), [(100 + round, WcStatus::Success)]);
        assert!(p.sides[1].holds(5000, 3000, 5));
        let to = p.sides[1].remote(0);
        p.post(0, 1, SendOp::Read(to), 0, 2000);
        p.run();
        assert_eq!(p.sides[0].sent(), all_good([1]));
        p.sides[0].fill(0, 3000, 5);
    }
    assert_eq!(p.sides[0].qp.counters().one_sided, 150);
}

#[test]
fn nothing_may_be_ahead_of_it() {
    let mut p = rc();
    let to = p.sides[1].remote(0);
    let sge = [p.sides[0].sge(0, 8)];
    p.stage(0, 1, SendOp::Write(to), SendFlags::empty(), Payload::Sges(&sge)).unwrap();
    assert!(!is_offered(&p), "one is staged");
    p.sides[0].qp.abort_sends();
    assert!(is_offered(&p));
    p.post(0, 1, SendOp::Write(to), 0, 8);
    assert!(!is_offered(&p), "one is queued");
    p.run();
    assert!(is_offered(&p));

    // The receiver is not ready.
    let mut p = rc();
    p.post(0, 1, SendOp::Send, 0, 8);
    p.pump(0);
    while p.deliver() || p.pump(1) > 0 {}
    assert_eq!(p.sides[0].qp.counters().rnr_naks, 1);
    assert!(!is_offered(&p));

    // An answer to the peer has to leave first.
    let mut p = rc();
    p.recv(0, 9, 0, 100);
    p.post(1, 1, SendOp::Send, 0, 8);
    p.pump(1);
    p.deliver();
    assert!(p.sides[0].qp.wants_output());
    assert!(!is_offered(&p));
    p.run();
    assert!(is_offered(&p));
}

#[test]
fn states_and_transports_that_have_none() {
    for qp_type in [QpType::Uc, QpType::Ud, QpType::XrcSend] {
        assert!(!is_offered(&Pair::new(Setup::new(qp_type))), "{qp_type:?}");
    }
    let mut p = rc();
    p.step_to(0, QpState::Sqd);
    assert!(!is_offered(&p), "SQD begins nothing");
    p.step_to(0, QpState::Rts);
    assert!(is_offered(&p));
    p.step_to(0, QpState::Err);
    assert!(!is_offered(&p), "in ERR it is flushed");
    p.step_to(0, QpState::Reset);
    assert!(!is_offered(&p));

    let mut p = rc();
    let side = &mut p.sides[0];
    side.qp.peer_ended(Time::ZERO, &mut side.effects);
    assert!(!is_offered(&p), "the peer is gone");

    let mut p = rc();
    p.sides[0].qp.count();
    assert!(!is_offered(&p), "its ends are counted");

    let cap = QpCap { max_send_wr: 0, ..Setup::new(QpType::Rc).cap };
    assert!(
        !is_offered(&Pair::new(Setup { cap, ..Setup::new(QpType::Rc) })),
        "a queue of no places"
    );
    let cap = QpCap { max_send_sge: 0, ..Setup::new(QpType::Rc).cap };
    let p = Pair::new(Setup { cap, ..Setup::new(QpType::Rc) });
    assert!(offered(&p, false, p.sides[0].sge(0, 8)).is_none(), "no entry is allowed");

    let p = Pair::new(Setup { rd_atomic: 0, ..Setup::new(QpType::Rc) });
    assert!(is_offered(&p));
    assert!(offered(&p, true, p.sides[0].sge(0, 8)).is_none(), "no credit for READs");
}

#[test]
fn what_is_wrong_is_left_to_the_queue() {
    let mut p = rc();
    let good = p.sides[0].sge(0, 8);
    let mut key = |pd, access, kind, len| {
        let region = Region { pd, access, iova: 0, len, addr: BASE, kind };
        p.sides[0].keys.register(region, 0x77_0000).unwrap()
    };
    let all = Access::LOCAL_WRITE;
    let mine = key(PD, all, RegionKind::Mapped, 64);
    let read_only = key(PD, Access::empty(), RegionKind::Mapped, 64);
    let others = key(PdId(8), all, RegionKind::Mapped, 64);
    let on_demand = key(PD, all, RegionKind::OnDemand, 64);
    let null = key(PD, all, RegionKind::Null, 64);
    let huge = key(PD, all, RegionKind::Mapped, 1 << 33);
    let window = p.sides[0].keys.alloc_mw(PD, MwType::Type2, 0x99_0000).unwrap();
    let at = |lkey, addr, length| Sge { addr, length, lkey };
    for read in [false, true] {
        let offered = |entry| offered(&p, read, entry);
        assert_eq!(offered(at(mine, 0, 64)), Some(BASE));
        assert_eq!(offered(at(mine, 56, 8)), Some(BASE + 56));
        assert_eq!(offered(at(mine, 60, 8)), None, "out of bounds");
        assert_eq!(offered(at(mine, u64::MAX, 8)), None, "out of bounds");
        assert_eq!(offered(at(mine, 0, 0)), None, "no bytes");
        assert_eq!(offered(at(mine ^ 1, 0, 8)), None, "another tag");
        assert_eq!(offered(Sge { lkey: 0x1234_5600, ..good }), None, "unknown key");
        assert_eq!(offered(at(others, 0, 8)), None, "another domain's key");
        assert_eq!(offered(at(on_demand, 0, 8)), None, "may be gone");
        assert_eq!(offered(at(null, 0, 8)), None, "no memory");
        assert_eq!(offered(at(window, 0, 8)), None, "a window");
        assert_eq!(offered(at(read_only, 0, 8)).is_some(), !read);
        assert_eq!(offered(at(huge, 0, 1 << 31)), Some(BASE), "the longest message");
        assert_eq!(offered(at(huge, 0, (1 << 31) + 1)), None, "longer than a message");
    }
    assert!(p.sides[0].qp.host_post_inline(256));
    assert!(!p.sides[0].qp.host_post_inline(257), "more than may be inline");
    p.sides[0].keys.deregister(mine).unwrap();
    assert_eq!(offered(&p, false, at(mine, 0, 8)), None, "deregistered");
}
