//! Requests with every kind of mistake. Both paths must give the same status and cause, and no
//! memory changes.
use crate::cases;
use crate::rig::{ALL, KINDS, Kind, Shape, remote};
use crate::talk::Pair;
use adverb_device::engine::wr::Remote;
use adverb_device::engine::{Access, SendOp, Sge, WcStatus};

cases!(
    keys_bounds_and_rights,
    rights_of_the_queue_pair,
    own_memory,
    messages_and_receives,
    no_bytes_need_no_key
);

const LEN: usize = 8192;
const FLAG: u64 = 0x1122_3344_5566_7788;

/// The five one-sided operations on the same address.
fn operations(at: Remote) -> [SendOp; 5] {
    [
        SendOp::Write(at),
        SendOp::Read(at),
        SendOp::FetchAdd { remote: at, add: 1 },
        SendOp::CompareSwap { remote: at, compare: FLAG, swap: 1 },
        SendOp::AtomicWrite(at),
    ]
}

/// Sends a valid request and then a request that must fail with `status`, over a new queue pair.
fn fails(p: &mut Pair, what: &str, good: Remote, op: SendOp, len: usize, status: WcStatus) {
    let qp = p.rc();
    fails_over(p, qp, what, good, op, len, status);
}

fn fails_over(
    p: &mut Pair,
    qp: usize,
    what: &str,
    good: Remote,
    op: SendOp,
    len: usize,
    status: WcStatus,
) {
    let mine = p.a.region(Kind::Buffer, LEN, ALL, 0);
    p.a.regions[mine].put(0, &[0x5a; LEN]);
    // The device must not apply the result of the valid request's checks to the next request.
    if good.rkey != 0 {
        p.a.send(qp, 1, SendOp::Write(good), &[p.a.regions[mine].sge(0, 16)]);
        assert_eq!(p.a.wait(1)[0].status, WcStatus::Success);
    }
    p.a.send(qp, 2, op, &[p.a.regions[mine].sge(0, len)]);
    p.a.send(qp, 3, SendOp::Send, &[]);
    let done = p.a.wait(2);
    assert_eq!((done[0].status, done[0].wr_id), (status, 2), "{what} {op:?}: {:?}", done[0].cause);
    assert_eq!(done[1].status, WcStatus::WrFlushErr, "{what}");
    p.note(what, &done[0]);
    p.note("behind it", &done[1]);
    assert!(p.a.regions[mine].get(0, LEN).iter().all(|b| *b == 0x5a), "{what}: bytes came");
}

fn keys_bounds_and_rights(p: &mut Pair) {
    for kind in KINDS {
        let (to, at) = p.b.region(kind, LEN, ALL, 0);
        p.b.ask(&format!("put {to} 4096 {FLAG}"));
        let here = remote(at.va + 4096, at.rkey);
        let denied = WcStatus::RemAccessErr;
        for op in operations(Remote { rkey: at.rkey ^ 0x0055_0000, ..here }) {
            fails(p, "another key", at, op, 8, denied);
        }
        for op in operations(Remote { rkey: at.rkey ^ 1, ..here }) {
            fails(p, "a key of another tag", at, op, 8, denied);
        }
        let end = at.va + LEN as u64;
        for va in [at.va - 8, end - 4, end, u64::MAX - 4, 0] {
            for op in [SendOp::Write(remote(va, at.rkey)), SendOp::Read(remote(va, at.rkey))] {
                fails(p, "bounds", at, op, 8, denied);
            }
        }
        fails(p, "too long", at, SendOp::Write(remote(at.va + 1, at.rkey)), LEN, denied);
        let beyond = remote(end, at.rkey);
        fails(p, "bounds", at, SendOp::FetchAdd { remote: beyond, add: 1 }, 8, denied);
        for op in operations(remote(here.va + 4, at.rkey)).into_iter().skip(2) {
            fails(p, "misaligned", at, op, 8, WcStatus::RemInvReqErr);
        }
        let (other, other_pd_key) = p.b.region(kind, LEN, ALL, 1);
        p.b.ask(&format!("put {other} 0 {FLAG}"));
        for op in operations(other_pd_key) {
            fails(p, "another domain", at, op, 8, denied);
        }
        let rights = [Access::REMOTE_WRITE, Access::REMOTE_READ, Access::REMOTE_ATOMIC];
        for (n, right) in rights.into_iter().enumerate() {
            let (poor, lacks) = p.b.region(kind, LEN, ALL - right, 0);
            p.b.ask(&format!("put {poor} 0 {FLAG}"));
            fails(p, &format!("without {right:?}"), at, operations(lacks)[n], 8, denied);
            assert_eq!(p.b.word(poor, 0), FLAG);
        }
        for n in 0..operations(at).len() {
            // A WRITE first makes the region known to this end. Then the peer deregisters the
            // region.
            let (qp, mine) = (p.rc(), p.a.region(Kind::Buffer, LEN, ALL, 0));
            let (fresh, was) = p.b.region(kind, LEN, ALL, 0);
            p.a.send(qp, 1, SendOp::Write(was), &[p.a.regions[mine].sge(0, 8)]);
            assert_eq!(p.a.wait(1)[0].status, WcStatus::Success);
            p.b.ask(&format!("dereg {fresh}"));
            p.b.ask(&format!("put {fresh} 0 {FLAG}"));
            fails_over(p, qp, "deregistered", remote(0, 0), operations(was)[n], 8, denied);
            assert_eq!(p.b.word(fresh, 0), FLAG);
        }
        assert_eq!((p.b.word(to, 4096), p.b.word(other, 0)), (FLAG, FLAG));
    }
    p.wants.one_sided = true;
}

fn rights_of_the_queue_pair(p: &mut Pair) {
    for (n, right) in
        [Access::REMOTE_WRITE, Access::REMOTE_READ, Access::REMOTE_ATOMIC].into_iter().enumerate()
    {
        let (to, at) = p.b.region(Kind::Buffer, LEN, ALL, 0);
        p.b.ask(&format!("put {to} 0 {FLAG}"));
        let qp = p.connect(Shape::default(), Shape { access: ALL - right, ..Shape::default() });
        let op = operations(at)[n];
        fails_over(p, qp, &format!("{right:?}"), remote(0, 0), op, 8, WcStatus::RemInvReqErr);
        assert_eq!(p.b.word(to, 0), FLAG);
    }
}

fn own_memory(p: &mut Pair) {
    let (_, at) = p.b.region(Kind::Buffer, LEN, ALL, 0);
    for kind in KINDS {
        let mine = p.a.region(kind, LEN, ALL, 0);
        let poor = p.a.region(kind, LEN, Access::empty(), 0);
        let other_pd_key = p.a.region(kind, LEN, ALL, 1);
        let good = p.a.regions[mine].sge(0, 8);
        let cases = [
            ("another key", SendOp::Write(at), Sge { lkey: good.lkey ^ 0x0055_0000, ..good }),
            ("bounds", SendOp::Write(at), Sge { addr: good.addr + LEN as u64 - 4, ..good }),
            ("another domain", SendOp::Send, p.a.regions[other_pd_key].sge(0, 8)),
            ("not writable", SendOp::Read(at), p.a.regions[poor].sge(0, 8)),
            ("not writable", SendOp::FetchAdd { remote: at, add: 1 }, p.a.regions[poor].sge(0, 8)),
        ];
        for (what, op, sge) in cases {
            let qp = p.rc();
            p.a.send(qp, 1, SendOp::Write(at), &[good]);
            assert_eq!(p.a.wait(1)[0].status, WcStatus::Success);
            p.a.send(qp, 1, op, &[good, sge][usize::from(!matches!(op, SendOp::Write(_)))..]);
            let done = p.a.wait(1).remove(0);
            assert_eq!(done.status, WcStatus::LocProtErr, "{what} {op:?}");
            p.note(what, &done);
        }
    }
}

fn messages_and_receives(p: &mut Pair) {
    for kind in KINDS {
        for (len, room) in [(9, 8usize), (5000, 4999), (100_000, 70_000), (1, 0)] {
            let qp = p.rc();
            let from = p.a.region(kind, 1 << 17, ALL, 0);
            let (to, _) = p.b.region(kind, 1 << 17, ALL, 0);
            p.b.ask(&format!("recv {qp} 1 {to} 0 {room}"));
            p.a.send(qp, 1, SendOp::Send, &[p.a.regions[from].sge(0, len)]);
            let done = p.a.wait(1).remove(0);
            assert_eq!(done.status, WcStatus::RemInvReqErr, "{len} into {room}");
            p.note("too long for its receive", &done);
            assert!(p.b.ask("wait 1").starts_with("LocLenErr/"));
            assert_eq!(p.b.word(to, room.next_multiple_of(8)), 0, "bytes behind the receive");
        }
        // The peer's receive is out of the bounds of its region.
        let qp = p.rc();
        let from = p.a.region(kind, 64, ALL, 0);
        let (to, _) = p.b.region(kind, 64, ALL, 0);
        p.b.ask(&format!("recv {qp} 1 {to} 32 64"));
        p.a.send(qp, 1, SendOp::Send, &[p.a.regions[from].sge(0, 64)]);
        let done = p.a.wait(1).remove(0);
        assert_eq!(done.status, WcStatus::RemOpErr);
        p.note("a bad receive", &done);
        assert!(p.b.ask("wait 1").starts_with("LocProtErr/"));
    }
    p.wants.tx_ring = true;
}

fn no_bytes_need_no_key(p: &mut Pair) {
    let qp = p.rc();
    for op in [SendOp::Write(remote(1, 2)), SendOp::Read(remote(1, 2))] {
        p.a.send(qp, 1, op, &[]);
        let done = p.a.wait(1).remove(0);
        assert_eq!(done.status, WcStatus::Success);
        p.note("no bytes", &done);
    }
}
