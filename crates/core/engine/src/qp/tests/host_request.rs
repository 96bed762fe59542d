//! Requests that the host performs in the peer's memory.
use super::harness::*;
use crate::attr::AttrMask;
use crate::keys::{MwType, PagedMemory, Region, RegionKind};
use crate::memory::Range;
use crate::packet::Data;
use crate::qp::HostRequest;
use crate::wr::{MwBind, Payload, Remote, SendFlags, SendOp, Sge};
use crate::*;
use adverb_wire::Operation;
use core::time::Duration;
use std::vec;
use std::vec::Vec;

fn rc() -> Pair {
    Pair::new(Setup::new(QpType::Rc))
}

fn is_offered(p: &mut Pair, side: usize) -> bool {
    let s = &mut p.sides[side];
    s.qp.poll_host_request(&s.keys).is_some()
}

fn taken(request: &HostRequest<'_>, from: &impl Memory) -> Vec<u8> {
    match request.local {
        Data::Bytes(bytes) => bytes.to_vec(),
        Data::Gather(ranges) => {
            let mut all = Vec::new();
            for r in ranges {
                let at = all.len();
                all.resize(at + r.len as usize, 0);
                from.read(*r, &mut all[at..]).unwrap();
            }
            all
        }
    }
}

fn given(request: &HostRequest<'_>, to: &impl Memory, bytes: &[u8]) {
    let Data::Gather(ranges) = request.local else { panic!("{request:?} has nowhere to go") };
    let mut at = 0;
    for r in ranges {
        to.write(*r, &bytes[at..at + r.len as usize]).unwrap();
        at += r.len as usize;
    }
    assert_eq!(at, bytes.len());
}

fn carry_out(request: &HostRequest<'_>, near: &impl Memory, far: &Side) {
    let memory = PagedMemory { keys: &far.keys, memory: &far.arena };
    let at = |remote: Remote, needed: Access| -> Range {
        far.keys
            .check_remote(PD, QPN[1], remote.rkey, needed, remote.va, request.len as u32)
            .unwrap()
    };
    let atomic = |remote, op| {
        let old = memory.atomic(at(remote, Access::REMOTE_ATOMIC), op).unwrap();
        given(request, near, &old.to_ne_bytes());
    };
    match request.op {
        SendOp::Write(_) if request.len == 0 => {}
        SendOp::Write(remote) => {
            memory.write(at(remote, Access::REMOTE_WRITE), &taken(request, near)).unwrap();
        }
        SendOp::AtomicWrite(remote) => {
            let value = u64::from_ne_bytes(taken(request, near).try_into().unwrap());
            memory.atomic(at(remote, Access::REMOTE_WRITE), AtomicOp::Write { value }).unwrap();
        }
        SendOp::Read(remote) => {
            let mut bytes = vec![0; request.len as usize];
            memory.read(at(remote, Access::REMOTE_READ), &mut bytes).unwrap();
            given(request, near, &bytes);
        }
        SendOp::CompareSwap { remote, compare, swap } => {
            atomic(remote, AtomicOp::CompareSwap { compare, swap });
        }
        SendOp::FetchAdd { remote, add } => atomic(remote, AtomicOp::FetchAdd { add }),
        SendOp::Flush { .. } => {}
        other => panic!("{other:?} is not one-sided"),
    }
}

/// Does the work of a host that reaches the memory of side 1; answers the number of performed
/// requests.
fn perform(p: &mut Pair) -> usize {
    let mut done = 0;
    loop {
        let [near, far] = &mut p.sides;
        let memory = PagedMemory { keys: &near.keys, memory: &near.arena };
        let Some(request) = near.qp.poll_host_request(&near.keys) else { return done };
        if matches!(request.op, SendOp::WriteImm(..)) {
            // A receive is taken by a packet.
            return done;
        }
        carry_out(&request, &memory, far);
        near.qp.host_request_done(&mut near.effects);
        near.settle();
        done += 1;
    }
}

#[test]
fn only_the_oldest_and_only_when_nothing_is_on_its_way() {
    let mut p = rc();
    assert!(!is_offered(&mut p, 0), "nothing is posted");
    p.recv(1, 9, 0, 100);
    p.post(0, 1, SendOp::Send, 0, 10);
    p.write(2, 10);
    assert!(!is_offered(&mut p, 0), "a SEND is a packet");
    assert_eq!(p.sides[0].qp.counters().one_sided, 0);
    // The SEND leaves, and the host stops there: the next request waits for the ACK.
    let s = &mut p.sides[0];
    assert!(matches!(s.qp.poll_output(&p.now, &s.keys, &mut s.effects), Output::Packet(_)));
    assert!(!is_offered(&mut p, 0), "the SEND is on its way");

    let mut p = rc();
    p.recv(1, 9, 0, 100);
    p.post(0, 1, SendOp::Send, 0, 10);
    p.pump(0);
    p.write(2, 10);
    assert!(!is_offered(&mut p, 0), "the SEND is not acknowledged");
    p.deliver();
    p.pump(1);
    assert!(!is_offered(&mut p, 0), "its ACK is on its way");
    p.deliver();
    assert!(is_offered(&mut p, 0));
    assert_eq!(p.sides[0].sent(), all_good([1]));
    assert_eq!(perform(&mut p), 1);
    assert_eq!(p.sides[0].sent(), all_good([2]));
}

/// A host that cannot perform a request lets the request go as a packet. Then the host is offered
/// neither this request nor the next.
#[test]
fn what_goes_as_a_packet_is_not_offered_again() {
    let mut p = rc();
    p.sides[0].fill(0, 3000, 3);
    let to = p.sides[1].remote(5000);
    p.post(0, 1, SendOp::Write(to), 0, 3000);
    p.post(0, 2, SendOp::Write(p.sides[1].remote(9000)), 0, 8);
    assert!(is_offered(&mut p, 0));
    assert!(is_offered(&mut p, 0), "asking changes nothing");
    p.pump(0);
    assert!(!is_offered(&mut p, 0));
    p.run();
    assert_eq!(p.sides[0].sends().len(), 2);
    assert!(p.sides[1].holds(5000, 3000, 3));
    assert_eq!(p.sides[0].qp.counters().one_sided, 0);
    // A lost request that will be sent again is on its way, too.
    p.fate = std::boxed::Box::new(|_| Fate::Drop);
    p.post(0, 3, SendOp::Write(to), 0, 3000);
    p.pump(0);
    let later = p.sides[0].qp.ack_timeout().unwrap().since(p.now);
    p.advance(later);
    assert!(p.sides[0].qp.is_retrying());
    assert!(!is_offered(&mut p, 0));
}

#[test]
fn states_and_transports_that_have_none() {
    for qp_type in [QpType::Uc, QpType::Ud, QpType::XrcSend] {
        let mut p = Pair::new(Setup::new(qp_type));
        let to = p.sides[1].remote(0);
        let op = if qp_type == QpType::Ud { SendOp::Send } else { SendOp::Write(to) };
        p.post(0, 1, op, 0, 8);
        assert!(!is_offered(&mut p, 0), "{qp_type:?}");
    }
    let mut p = rc();
    let to = p.sides[1].remote(0);
    p.step_to(0, QpState::Sqd);
    p.post(0, 1, SendOp::Write(to), 0, 8);
    assert!(!is_offered(&mut p, 0), "SQD begins nothing");
    p.step_to(0, QpState::Rts);
    assert!(is_offered(&mut p, 0));
    p.step_to(0, QpState::Err);
    assert!(!is_offered(&mut p, 0));
    p.post(0, 2, SendOp::Write(to), 0, 8);
    assert!(!is_offered(&mut p, 0), "in ERR it is flushed");
    let flushed = [(1, WcStatus::WrFlushErr), (2, WcStatus::WrFlushErr)];
    assert_eq!(p.sides[0].sent(), flushed);
    p.step_to(0, QpState::Reset);
    assert!(!is_offered(&mut p, 0));
}

/// An error on the request's own side goes the way of packets, and fails there as on a network.
#[test]
fn what_is_wrong_is_left_to_the_packet_path() {
    let region =
        |pd, access, len| Region { pd, access, iova: 0, len, addr: BASE, kind: RegionKind::Mapped };
    type Make = fn(&mut Pair, &dyn Fn(PdId, Access, u64) -> Region) -> (SendOp, Vec<Sge>);
    let cases: [(&str, WcStatus, Make); 6] = [
        ("unknown key", WcStatus::LocProtErr, |p, _| {
            (
                SendOp::Write(p.sides[1].remote(0)),
                vec![Sge { lkey: 0x1234_5600, ..p.sides[0].sge(0, 8) }],
            )
        }),
        ("second key unknown", WcStatus::LocProtErr, |p, _| {
            let good = p.sides[0].sge(0, 8);
            (SendOp::Read(p.sides[1].remote(0)), vec![good, Sge { lkey: 0x1234_5600, ..good }])
        }),
        ("another domain's key", WcStatus::LocProtErr, |p, region| {
            let lkey = p.sides[0]
                .keys
                .register(region(PdId(8), Access::LOCAL_WRITE, 64), 0x77_0000)
                .unwrap();
            (SendOp::Write(p.sides[1].remote(0)), vec![Sge { addr: 0, length: 8, lkey }])
        }),
        ("out of bounds", WcStatus::LocProtErr, |p, region| {
            let lkey =
                p.sides[0].keys.register(region(PD, Access::LOCAL_WRITE, 64), 0x77_0000).unwrap();
            (SendOp::Write(p.sides[1].remote(0)), vec![Sge { addr: 60, length: 8, lkey }])
        }),
        ("longer than a message", WcStatus::LocLenErr, |p, region| {
            let lkey =
                p.sides[0].keys.register(region(PD, Access::empty(), 1 << 33), 0x77_0000).unwrap();
            let half = Sge { addr: 0, length: 1 << 30, lkey };
            (SendOp::Write(p.sides[1].remote(0)), vec![half, half, Sge { length: 1, ..half }])
        }),
        ("an atomic of seven bytes", WcStatus::LocLenErr, |p, _| {
            (SendOp::FetchAdd { remote: p.sides[1].remote(0), add: 1 }, vec![p.sides[0].sge(0, 7)])
        }),
    ];
    for (what, status, make) in cases {
        let mut p = rc();
        let (op, sges) = make(&mut p, &region);
        p.stage(0, 1, op, SendFlags::empty(), Payload::Sges(&sges)).unwrap();
        p.commit(0);
        assert!(!is_offered(&mut p, 0), "{what}");
        p.run();
        assert_eq!(p.sides[0].sent(), [(1, status)], "{what}");
    }
    // The longest possible message.
    let mut p = rc();
    let lkey = p.sides[0].keys.register(region(PD, Access::empty(), 1 << 33), 0x77_0000).unwrap();
    let half = Sge { addr: 0, length: 1 << 30, lkey };
    let to = p.sides[1].remote(0);
    p.stage(0, 1, SendOp::Write(to), SendFlags::empty(), Payload::Sges(&[half, half])).unwrap();
    p.commit(0);
    let s = &mut p.sides[0];
    assert_eq!(s.qp.poll_host_request(&s.keys).unwrap().len, 1 << 31);
    // Read-only local memory: good as source of a WRITE, not as destination of a READ.
    let mut p = rc();
    let lkey = p.sides[0].keys.register(region(PD, Access::empty(), 64), 0x77_0000).unwrap();
    let sges = [Sge { addr: 0, length: 8, lkey }];
    for (op, offered) in [
        (SendOp::Write(to), true),
        (SendOp::Read(to), false),
        (SendOp::FetchAdd { remote: to, add: 1 }, false),
        (SendOp::AtomicWrite(to), true),
    ] {
        let mut q = rc();
        core::mem::swap(&mut q.sides[0].keys, &mut p.sides[0].keys);
        q.stage(0, 1, op, SendFlags::empty(), Payload::Sges(&sges)).unwrap();
        q.commit(0);
        assert_eq!(is_offered(&mut q, 0), offered, "{op:?}");
        core::mem::swap(&mut q.sides[0].keys, &mut p.sides[0].keys);
    }
}

#[test]
fn without_credit_for_reads_there_are_only_writes() {
    let mut p = Pair::new(Setup { rd_atomic: 0, ..Setup::new(QpType::Rc) });
    let to = p.sides[1].remote(0);
    p.post(0, 1, SendOp::Write(to), 0, 8);
    assert_eq!(perform(&mut p), 1);
    p.post(0, 2, SendOp::Read(to), 0, 8);
    assert!(!is_offered(&mut p, 0));
    p.run();
    assert_eq!(p.sides[0].sent(), [(1, WcStatus::Success), (2, WcStatus::LocQpOpErr)]);
}

#[test]
fn not_while_the_peer_is_not_ready_nor_while_a_key_changes() {
    let mut p = rc();
    p.post(0, 1, SendOp::Send, 0, 8);
    p.write(2, 8);
    p.pump(0);
    while p.deliver() || p.pump(1) > 0 {}
    assert_eq!(p.sides[0].qp.counters().rnr_naks, 1, "RNR");
    assert!(!is_offered(&mut p, 0));

    let mut p = rc();
    let mw = p.sides[0].keys.alloc_mw(PD, MwType::Type2, 0x77_0000).unwrap();
    let mr = p.sides[0].key;
    let bind = MwBind { mw, new_key: mw ^ 1, mr, addr: BASE, len: 8, access: Access::REMOTE_WRITE };
    p.post(0, 1, SendOp::BindMw(bind), 0, 0);
    p.write(2, 8);
    assert!(!is_offered(&mut p, 0), "a bind is not one-sided");
    let s = &mut p.sides[0];
    let Output::Key(op) = s.qp.poll_output(&p.now, &s.keys, &mut s.effects) else { panic!() };
    assert!(s.qp.poll_host_request(&s.keys).is_none(), "the host performs it now");
    let result = s.keys.apply(&op);
    s.qp.key_op_done(result, &mut s.effects);
    s.settle();
    assert_eq!(perform(&mut p), 1);
    // An invalidate waits for all earlier requests, and there are none.
    p.post(0, 3, SendOp::LocalInv(mw ^ 1), 0, 0);
    p.run();
    let good = all_good([1, 2, 3]);
    assert_eq!(p.sides[0].sent(), good);
}

#[test]
fn every_operation_does_what_it_says() {
    let mut p = rc();
    p.sides[0].fill(0, 1000, 1);
    p.sides[1].fill(2000, 1000, 7);
    let far = |p: &Pair, at| p.sides[1].remote(at);
    // From several pieces, one of them empty, and from inline data.
    let pieces = [p.sides[0].sge(0, 600), p.sides[0].sge(0, 0), p.sides[0].sge(600, 400)];
    let to = far(&p, 8000);
    p.stage(0, 1, SendOp::Write(to), SendFlags::SIGNALED, Payload::Sges(&pieces)).unwrap();
    let to = far(&p, 10000);
    p.stage(0, 2, SendOp::Write(to), SendFlags::empty(), Payload::Inline(&[b"in", b"line"]))
        .unwrap();
    let to = far(&p, 2000);
    let pieces = [p.sides[0].sge(4000, 1), p.sides[0].sge(4001, 899), p.sides[0].sge(4900, 100)];
    p.stage(0, 3, SendOp::Read(to), SendFlags::SIGNALED, Payload::Sges(&pieces)).unwrap();
    p.stage(0, 4, SendOp::Write(to), SendFlags::SIGNALED, Payload::Sges(&[])).unwrap();
    p.commit(0);
    assert_eq!(perform(&mut p), 4);
    assert!(p.sides[1].holds(8000, 1000, 1));
    assert_eq!(&p.sides[1].arena.bytes.borrow()[10000..10007], b"inline\0");
    assert!(p.sides[0].holds(4000, 1000, 7));
    let done: Vec<_> = p.sides[0].sends().iter().map(|c| (c.wr_id, c.opcode, c.byte_len)).collect();
    let write = |id| (id, WcOpcode::RdmaWrite, 0);
    assert_eq!(done, [write(1), (3, WcOpcode::RdmaRead, 1000), write(4)], "2 is not signaled");

    p.sides[1].put_u64(0, 5);
    let remote = far(&p, 0);
    // The old value goes to the first eight bytes of a longer buffer, here in two pieces.
    let pieces = [p.sides[0].sge(300, 3), p.sides[0].sge(303, 61)];
    p.sides[0].fill(300, 64, 9);
    let add = SendOp::FetchAdd { remote, add: 10 };
    p.stage(0, 1, add, SendFlags::SIGNALED, Payload::Sges(&pieces)).unwrap();
    p.commit(0);
    p.post(0, 2, SendOp::CompareSwap { remote, compare: 15, swap: 77 }, 400, 8);
    p.post(0, 3, SendOp::CompareSwap { remote, compare: 15, swap: 88 }, 408, 8);
    assert_eq!(perform(&mut p), 3);
    let near = &p.sides[0];
    assert_eq!([near.u64_at(300), near.u64_at(400), near.u64_at(408)], [5, 15, 77]);
    assert_eq!(p.sides[1].u64_at(0), 77);
    assert!(p.sides[0].sends().iter().all(|c| c.byte_len == 8));
    p.sides[0].put_u64(500, 0x0102_0304_0506_0708);
    p.post(0, 4, SendOp::AtomicWrite(remote), 500, 8);
    let flush = SendOp::Flush { remote, len: 64, placement: 1, selectivity: 0 };
    p.post(0, 5, flush, 0, 0);
    assert_eq!(perform(&mut p), 2);
    assert_eq!(p.sides[1].u64_at(0), 0x0102_0304_0506_0708);
    let opcodes: Vec<_> = p.sides[0].sends().iter().map(|c| c.opcode).collect();
    assert_eq!(opcodes, [WcOpcode::AtomicWrite, WcOpcode::Flush]);
    assert_eq!(p.sides[0].qp.counters().one_sided, 9);
    assert!(p.log.is_empty(), "not a packet");
}

/// Between packets, completions come in the order of posting, and no PSN is missing or used twice.
#[test]
fn neighbours_by_packets_keep_order_and_numbers() {
    let mut p = rc();
    for id in 0..40 {
        p.recv(1, id, 100_000, 2000);
    }
    let mut posted = Vec::new();
    for round in 0..20_u64 {
        let to = p.sides[1].remote(round as usize * 8);
        p.sides[0].put_u64(round as usize * 8, round + 1);
        let ops = [
            (SendOp::Write(to), 8),
            (SendOp::Send, 1500),
            (SendOp::Write(to), 8),
            (SendOp::Read(to), 8),
        ];
        for (i, (op, len)) in ops.into_iter().enumerate() {
            let id = round * 4 + i as u64;
            posted.push((id, WcStatus::Success));
            p.post(0, id, op, round as usize * 8, len);
        }
        let before = perform(&mut p);
        assert_eq!(before, 1, "the SEND is in the way");
        if round % 2 == 0 {
            // All other requests go by packets, too.
            p.run();
        } else {
            // Only the SEND goes by packets.
            let now = p.now;
            for _ in 0..2 {
                let s = &mut p.sides[0];
                let Output::Packet(t) = s.qp.poll_output(&now, &s.keys, &mut s.effects) else {
                    panic!("two packets")
                };
                let (headers, payload) = (*t.headers, vec![0; t.payload.len()]);
                p.inject_headers(1, gid(0), headers, &payload);
            }
            p.pump(1);
            while p.deliver() {}
            assert_eq!(perform(&mut p), 2);
        }
    }
    assert_eq!(p.sides[0].sent(), posted);
    assert_eq!(p.sides[1].recvs().len(), 20);
    assert_eq!(
        (0..20).map(|i| p.sides[1].u64_at(i * 8)).collect::<Vec<_>>(),
        (1..=20).collect::<Vec<_>>()
    );
    let counters = p.sides[1].qp.counters();
    assert_eq!((counters.naks_sent, counters.duplicates, counters.dropped_total()), (0, 0, 0));
    assert_eq!(p.sides[0].qp.counters().retransmitted, 0);
}

#[test]
fn host_requests_take_no_psn() {
    let setup = Setup::new(QpType::Rc);
    let mut p = Pair::new(setup);
    p.recv(1, 1, 0, 100);
    for i in 0..50 {
        p.post(0, i, SendOp::Write(p.sides[1].remote(0)), 0, 5000);
        assert_eq!(perform(&mut p), 1);
    }
    p.post(0, 50, SendOp::Send, 0, 10);
    p.run();
    let sends: Vec<u32> = p.log.iter().filter(|f| f.from == 0).map(|f| f.psn()).collect();
    assert_eq!(sends, [setup.psn & 0xff_ffff], "its first packet has the first number");
    assert_eq!(p.sides[0].sends().len(), 51);
    assert!(p.sides[0].qp.poll_timeout().is_none(), "no timer runs");
}

#[test]
fn a_fence_finds_nothing_to_wait_for() {
    let mut p = rc();
    let to = p.sides[1].remote(0);
    let fence = SendFlags::SIGNALED | SendFlags::FENCE;
    p.post(0, 1, SendOp::Read(to), 0, 8);
    p.post_flags(0, 2, SendOp::Write(to), 0, 8, fence);
    assert_eq!(perform(&mut p), 2);
    // A READ by packets delays the fenced WRITE.
    p.post(0, 3, SendOp::Read(to), 0, 8);
    p.post_flags(0, 4, SendOp::Write(to), 0, 8, fence);
    p.pump(0);
    assert!(!is_offered(&mut p, 0));
    assert_eq!(p.count(0, |_| true), 1);
    while p.deliver() || p.pump(1) > 0 {}
    assert_eq!(perform(&mut p), 1);
    assert_eq!(p.sides[0].sent(), all_good([1, 2, 3, 4]));
}

#[test]
fn the_queue_drains_and_holds_as_many_as_it_says() {
    let mut p = rc();
    let to = p.sides[1].remote(0);
    // Several rounds: places in the queue are freed.
    for round in 0..5 {
        for id in 0..64 {
            p.post_flags(0, round * 64 + id, SendOp::Write(to), 0, 8, SendFlags::empty());
        }
        let full = p.stage(0, 0, SendOp::Write(to), SendFlags::empty(), Payload::Sges(&[]));
        assert!(matches!(full, Err(PostError::QueueFull(_))));
        assert_eq!(perform(&mut p), 64);
    }
    p.post(0, 1, SendOp::Write(to), 0, 8);
    assert_eq!(perform(&mut p), 1);
    let attr = QpAttr { state: QpState::Sqd, en_sqd_async_notify: true, ..p.attr[0] };
    p.sides[0].modify(&attr, AttrMask::EN_SQD_ASYNC_NOTIFY).unwrap();
    assert_eq!(p.sides[0].events, [QpEvent::SqDrained]);
    p.step_to(0, QpState::Rts);
    p.post(0, 2, SendOp::Write(to), 0, 8);
    assert_eq!(perform(&mut p), 1);
    assert_eq!(p.sides[0].sent(), all_good([1, 2]));
}

/// Longer than requests to an ended process wait.
const AFTER_FAREWELL: Duration = Duration::from_millis(101);

/// The host reports the end of the peer, as at each later pump.
fn peer_ends(p: &mut Pair) {
    let s = &mut p.sides[0];
    s.qp.peer_ended(p.now, &mut s.effects);
    s.settle();
}

#[test]
fn a_peer_that_has_ended_fails_what_waits_and_what_arrives() {
    let mut p = rc();
    p.recv(0, 30, 0, 100);
    p.post(0, 1, SendOp::Send, 0, 10);
    p.write(2, 10);
    p.pump(0);
    peer_ends(&mut p);
    // The program first polls earlier completions, and may still post.
    assert_eq!(p.sides[0].qp.state(), QpState::Rts);
    p.post(0, 3, SendOp::Send, 0, 10);
    peer_ends(&mut p);
    assert_eq!(p.pump(0), 0, "nothing is sent to a process that has ended");
    assert!(p.sides[0].completions.is_empty());
    assert!(p.sides[0].qp.poll_timeout().is_some_and(|at| at <= p.now + AFTER_FAREWELL));
    p.advance(AFTER_FAREWELL);
    let done = p.sides[0].sends();
    let flushed = WcStatus::WrFlushErr;
    assert_eq!(statuses(&done), [(1, WcStatus::RetryExcErr), (2, flushed), (3, flushed)]);
    assert!(
        matches!(done[0].cause.as_deref(), Some(Cause::PeerEnded { dest_qpn, .. }) if *dest_qpn == QPN[1])
    );
    assert_eq!(p.sides[0].qp.state(), QpState::Err);
    assert_eq!(p.sides[0].received(), [(30, WcStatus::WrFlushErr)]);
    assert!(p.sides[0].qp.poll_timeout().is_none());

    // Nothing is outstanding: receives stay, and the first request fails.
    let mut p = rc();
    p.recv(0, 30, 0, 100);
    peer_ends(&mut p);
    p.advance(AFTER_FAREWELL);
    assert!(p.sides[0].qp.poll_timeout().is_none());
    assert_eq!(p.sides[0].qp.state(), QpState::Rts);
    assert!(p.sides[0].completions.is_empty() && p.sides[0].events.is_empty());
    p.write(1, 10);
    assert!(!is_offered(&mut p, 0), "memory of a process that has ended is nobody's");
    p.post(0, 2, SendOp::Send, 0, 10);
    assert_eq!(p.pump(0), 0);
    peer_ends(&mut p);
    assert_eq!(p.sides[0].sent(), [(1, WcStatus::RetryExcErr), (2, WcStatus::WrFlushErr)]);
    assert_eq!(p.sides[0].received(), [(30, WcStatus::WrFlushErr)]);

    // RESET forgets the end of the peer.
    p.step_to(0, QpState::Reset);
    p.connect(0);
    p.sides[1].fill(0, 10, 1);
    p.sides[0].fill(0, 10, 4);
    p.write(3, 10);
    assert_eq!(perform(&mut p), 1);
    assert!(p.sides[1].holds(0, 10, 4));
    p.recv(1, 1, 0, 100);
    p.step_to(1, QpState::Reset);
    p.connect(1);
    p.recv(1, 1, 0, 100);
    p.post(0, 4, SendOp::Send, 0, 10);
    p.run();
    assert_eq!(p.sides[0].sent(), all_good([3, 4]));
}

#[test]
fn a_peer_that_has_ended_in_other_states() {
    // Before RTS: the first sends fail.
    let mut p = Pair::in_reset(Setup::new(QpType::Rc));
    p.step_to(0, QpState::Init);
    p.step_to(0, QpState::Rtr);
    p.recv(0, 30, 0, 100);
    peer_ends(&mut p);
    assert_eq!(p.sides[0].qp.state(), QpState::Rtr);
    p.step_to(0, QpState::Rts);
    p.post(0, 1, SendOp::Send, 0, 10);
    p.pump(0);
    p.advance(AFTER_FAREWELL);
    assert_eq!(p.sides[0].sent(), [(1, WcStatus::RetryExcErr)]);
    // While it drains.
    let mut p = rc();
    p.post(0, 1, SendOp::Send, 0, 10);
    p.pump(0);
    p.step_to(0, QpState::Sqd);
    peer_ends(&mut p);
    p.advance(AFTER_FAREWELL);
    assert_eq!(p.sides[0].sent(), [(1, WcStatus::RetryExcErr)]);
    // Transports without acknowledgements do not care.
    let mut p = Pair::new(Setup::new(QpType::Uc));
    p.recv(1, 1, 0, 100);
    peer_ends(&mut p);
    p.post(0, 1, SendOp::Send, 0, 10);
    p.run();
    assert_eq!(p.sides[0].sent(), all_good([1]));
    assert_eq!(p.count(0, |f| f.op() == Operation::SendOnly), 1);
}
