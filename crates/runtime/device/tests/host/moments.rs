//! Events while requests are in flight: no receive is posted yet, or memory and queue pairs are
//! taken away.
use crate::cases;
use crate::rig::{ALL, KINDS, Kind, Shape, Words, pattern};
use crate::talk::Pair;
use adverb_device::engine::{QpState, SendOp, WcStatus};

cases!(
    a_receive_that_comes_late,
    a_receive_that_never_comes,
    memory_is_deregistered_under_writes,
    the_queue_pair_goes_under_writes,
    a_reader_of_what_is_taken_away,
    a_queue_pair_is_used_again,
);

fn a_receive_that_comes_late(p: &mut Pair) {
    let qp = p.rc();
    let from = p.a.region(Kind::Buffer, 1 << 17, ALL, 0);
    let (to, _) = p.b.region(Kind::Block, 1 << 17, ALL, 0);
    for (n, len) in [0usize, 8, 5000, 100_000].into_iter().enumerate() {
        p.a.regions[from].put(0, &pattern(len, n as u64));
        let sges = [p.a.regions[from].sge(0, len)];
        p.a.send(qp, 1, SendOp::Send, if len == 0 { &[] } else { &sges });
        let before = p.a.qps[qp].0.counters().rnr_naks;
        // Wait until the peer has answered with at least one RNR NAK, however long that takes.
        while p.a.qps[qp].0.counters().rnr_naks == before {
            assert!(p.a.cq.poll(1, |c| panic!("{c:?}")).is_ok());
        }
        p.b.ask(&format!("recv {qp} 9 {to} 0 {len}"));
        assert_eq!(p.a.wait(1)[0].status, WcStatus::Success);
        assert!(p.b.ask("wait 1").starts_with("Success"));
        assert!(p.b.same(to, 0, len, n as u64));
    }
    p.wants.tx_ring = true;
}

fn a_receive_that_never_comes(p: &mut Pair) {
    for retries in 0..=3 {
        let qp = p.connect(Shape { rnr_retry: retries, ..Shape::default() }, Shape::default());
        let from = p.a.region(Kind::Buffer, 64, ALL, 0);
        let data = [p.a.regions[from].sge(0, 8)];
        p.a.send(qp, 1, SendOp::Send, &data);
        p.a.send(qp, 2, SendOp::Send, &data);
        let done = p.a.wait(2);
        assert_eq!(done[0].status, WcStatus::RnrRetryExcErr);
        assert_eq!(done[1].status, WcStatus::WrFlushErr);
        p.note("no receive", &done[0]);
        p.note("behind it", &done[1]);
        assert_eq!(p.a.qps[qp].0.counters().rnr_naks, u64::from(retries) + 1);
    }
    p.wants.tx_ring = true;
}

/// Sends requests until one fails. Returns the status of that request.
fn write_until_it_fails(p: &Pair, qp: usize, from: usize, op: SendOp, len: usize) -> WcStatus {
    for depth in [1, 8] {
        for n in 0..depth {
            p.a.send(qp, n, op, &[p.a.regions[from].sge(0, len)]);
        }
    }
    let mut left = 9;
    loop {
        let done = p.a.wait(1).remove(0);
        if done.status != WcStatus::Success {
            p.a.wait(left - 1);
            return done.status;
        }
        left -= 1;
        if left < 5 {
            p.a.send(qp, 1, op, &[p.a.regions[from].sge(0, len)]);
            left += 1;
        }
    }
}

/// After the call that takes memory away has returned, no byte of the memory changes any more,
/// although peers were writing to the memory.
fn memory_is_deregistered_under_writes(p: &mut Pair) {
    const LEN: usize = 200_000;
    let from = p.a.region(Kind::Buffer, LEN, ALL, 0);
    p.a.regions[from].put(0, &pattern(LEN, 1));
    for round in 0..8 {
        for kind in KINDS {
            let qp = p.rc();
            let (to, at) = p.b.region(kind, LEN, ALL, 0);
            p.b.order(&format!("withdraw dereg {qp} {to} {LEN}"));
            let status = write_until_it_fails(p, qp, from, SendOp::Write(at), LEN);
            assert_eq!(status, WcStatus::RemAccessErr, "{kind:?}");
            // The peer answers after it has watched the memory for a while.
            assert_eq!(
                p.b.answer(),
                "true",
                "{kind:?}, round {round}: bytes changed behind deregistration"
            );
        }
    }
    p.wants.one_sided = true;
}

fn the_queue_pair_goes_under_writes(p: &mut Pair) {
    const LEN: usize = 100_000;
    let from = p.a.region(Kind::Buffer, LEN, ALL, 0);
    p.a.regions[from].put(0, &pattern(LEN, 1));
    // The timeouts are long enough for a busy machine.
    let mine = Shape { timeout: 14, retry: 5, ..Shape::default() };
    for kind in KINDS {
        for how in ["reset", "error", "destroy"] {
            let qp = p.connect(mine, Shape::default());
            let (to, at) = p.b.region(kind, LEN, ALL, 0);
            p.b.order(&format!("withdraw {how} {qp} {to} {LEN}"));
            let status = write_until_it_fails(p, qp, from, SendOp::Write(at), LEN);
            assert_eq!(status, WcStatus::RetryExcErr, "{kind:?} {how}");
            assert_eq!(p.b.answer(), "true", "{kind:?}: bytes changed behind {how}");
        }
    }
    p.wants.one_sided = true;
}

/// A READ of a region that is taken away returns the bytes of the region or an error.
fn a_reader_of_what_is_taken_away(p: &mut Pair) {
    const LEN: usize = 100_000;
    let into = p.a.region(Kind::Buffer, LEN, ALL, 0);
    for kind in KINDS {
        let qp = p.rc();
        let (to, at) = p.b.region(kind, LEN, ALL, 0);
        p.b.ask(&format!("fill {to} 0 {LEN} 6"));
        let sges = [p.a.regions[into].sge(0, LEN)];
        for _ in 0..20 {
            p.a.regions[into].put(0, &[0; LEN]);
            p.a.send(qp, 1, SendOp::Read(at), &sges);
            assert_eq!(p.a.wait(1)[0].status, WcStatus::Success);
            assert!(p.a.regions[into].get(0, LEN) == pattern(LEN, 6));
        }
        p.b.order(&format!("dereg {to}"));
        loop {
            p.a.regions[into].put(0, &[0; LEN]);
            p.a.send(qp, 1, SendOp::Read(at), &sges);
            let done = p.a.wait(1).remove(0);
            if done.status != WcStatus::Success {
                assert_eq!(done.status, WcStatus::RemAccessErr);
                p.note("read", &done);
                break;
            }
            assert!(
                p.a.regions[into].get(0, LEN) == pattern(LEN, 6),
                "{kind:?}: a read brought other bytes"
            );
        }
        p.b.answer();
    }
    p.wants.one_sided = true;
}

/// A queue pair goes to RESET and is connected again, to another queue pair and with other memory.
fn a_queue_pair_is_used_again(p: &mut Pair) {
    let mine = p.a.region(Kind::Buffer, 4096, ALL, 0);
    let qp = p.rc();
    let number = p.a.qps[qp].0.number();
    for n in 0..20u64 {
        let (to, at) = p.b.region(KINDS[n as usize % 3], 4096, ALL, 0);
        p.a.regions[mine].put(0, &pattern(4096, n));
        p.a.send(qp, 1, SendOp::Write(at), &[p.a.regions[mine].sge(0, 4096)]);
        p.b.ask(&format!("recv {} 1 {to} 0 0", qp + n as usize));
        p.a.send(qp, 2, SendOp::Send, &[]);
        assert!(p.a.wait(2).iter().all(|c| c.status == WcStatus::Success));
        p.b.ask("wait 1");
        assert!(p.b.same(to, 0, 4096, n));
        p.a.to(qp, QpState::Reset);
        let theirs = p.b.ask(&format!("qp {}", Shape::default().words())).parse().unwrap();
        p.b.ask(&format!("connect {} {number}", qp + n as usize + 1));
        p.a.connect(qp, theirs);
    }
    let left = p.b.ask(&format!("counters {qp}"));
    assert_eq!(Words::of(&left).next::<u64>(), 0, "NAKs");
    (p.wants.one_sided, p.wants.tx_ring) = (true, true);
}
