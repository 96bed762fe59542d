//! Messages that consume a receive: the variants of SEND and WRITE with immediate data, over RC,
//! SRQ and XRC.
use crate::cases;
use crate::rig::{ALL, KINDS, Kind, Shape, pattern, request};
use crate::talk::Pair;
use adverb_device::engine::wr::Remote;
use adverb_device::engine::{Payload, SendFlags, SendOp, SendWr, WcStatus};

cases!(
    messages_of_every_size_from_and_to_every_memory,
    gathered_and_inline,
    a_shared_receive_queue_and_xrc,
    windows_and_invalidation,
    solicited_events,
    cqn_3_an_arm_comes_after_a_complete_message,
    receives_of_a_shared_queue,
    writes_with_immediate_data_and_receives_without_memory,
    more_than_the_ring_holds,
);

pub const SIZES: [usize; 8] = [0, 1, 8, 4095, 4096, 65_536, 65_537, (1 << 20) + 3];
pub const MOST: usize = (1 << 20) + 3;

/// Sends a message from a local region to a region of the peer and checks every byte.
fn message(
    p: &mut Pair,
    qp: usize,
    op: SendOp,
    (mine, theirs): (usize, usize),
    len: usize,
    seed: u64,
) -> String {
    p.a.regions[mine].put(0, &pattern(len, seed));
    // A WRITE with immediate data consumes a receive but does not use its memory.
    let room = if matches!(op, SendOp::WriteImm(..)) { 0 } else { len };
    p.b.ask(&format!("recv {qp} {seed} {theirs} 0 {room}"));
    let sges = [p.a.regions[mine].sge(0, len)];
    p.a.send(qp, seed, op, if len == 0 { &[] } else { &sges });
    let done = p.a.wait(1).remove(0);
    assert_eq!(
        (done.status, done.wr_id),
        (WcStatus::Success, seed),
        "{len} {op:?}: {:?}",
        done.cause
    );
    let got = p.b.ask("wait 1");
    assert!(p.b.same(theirs, 0, len, seed), "{len} bytes by {op:?}: {got}");
    got
}

/// A message whose send is complete has arrived before a later arm of the peer, so the arm waits
/// for the next message (CQN-3).
pub fn cqn_3_an_arm_comes_after_a_complete_message(p: &mut Pair) {
    let qp = p.rc();
    let mine = p.a.region(Kind::Buffer, 64, ALL, 0);
    let (theirs, _) = p.b.region(Kind::Buffer, 64, ALL, 0);
    for seed in (0..200).map(|n| n * 2) {
        message(p, qp, SendOp::Send, (mine, theirs), 8, seed);
        p.b.ask(&format!("recv {qp} {seed} {theirs} 0 8"));
        p.b.ask(&format!("recv {qp} {} {theirs} 0 8", seed + 1));
        let sges = [p.a.regions[mine].sge(0, 8)];
        p.a.send(qp, 1, SendOp::Send, &sges);
        assert_eq!(p.a.wait(1)[0].status, WcStatus::Success);
        p.b.ask("arm 0");
        assert!(p.b.ask("wait 1").starts_with("Success"));
        assert_eq!(p.b.ask("any_event"), "false", "an event for what was there");
        p.a.send(qp, 2, SendOp::Send, &sges);
        assert_eq!(p.a.wait(1)[0].status, WcStatus::Success);
        p.b.ask("event");
        assert!(p.b.ask("wait 1").starts_with("Success"));
    }
    p.wants.tx_ring = true;
}

/// Sends `count` messages over the queue pairs in turn. The peer takes the receives from a shared
/// queue.
fn send_to_shared(p: &mut Pair, qps: &[usize], (mine, theirs): (usize, usize), count: usize) {
    p.b.ask(&format!("recvs {} {count} {theirs} 8", qps[0]));
    for n in 0..count {
        p.a.regions[mine].put(0, &pattern(8, n as u64));
        p.a.send(qps[n % qps.len()], 1, SendOp::Send, &[p.a.regions[mine].sge(0, 8)]);
        assert_eq!(p.a.wait(1)[0].status, WcStatus::Success);
    }
    let all: Vec<_> = (0..count).map(|n| format!("Success/Recv/{n}/8/0/0")).collect();
    assert_eq!(p.b.ask(&format!("wait {count}")), all.join(" "));
    assert!(p.b.same(theirs, 0, 8, count as u64 - 1));
}

/// One queue pair alone takes receives from the shared queue. Then a second queue pair does so too,
/// and is destroyed. In all cases each message takes the oldest receive.
pub fn receives_of_a_shared_queue(p: &mut Pair) {
    let mine = p.a.region(Kind::Buffer, 64, ALL, 0);
    let (theirs, _) = p.b.region(Kind::Buffer, 64, ALL, 0);
    let at = (mine, theirs);
    let shared = Shape { srq: true, ..Shape::default() };
    let first = p.connect(Shape::default(), shared);
    for _ in 0..3 {
        for count in [1, 60, 7] {
            send_to_shared(p, &[first], at, count);
        }
        let second = p.connect(Shape::default(), shared);
        send_to_shared(p, &[first, second], at, 60);
        send_to_shared(p, &[second], at, 20);
        p.b.ask(&format!("destroy {second}"));
        // No receive is posted, so the message waits for a receive.
        p.a.send(first, 7, SendOp::Send, &[p.a.regions[mine].sge(0, 8)]);
        p.b.ask(&format!("recv {first} 5 {theirs} 0 8"));
        assert_eq!(p.b.ask("wait 1"), "Success/Recv/5/8/0/0");
        assert_eq!(p.a.wait(1)[0].status, WcStatus::Success);
    }
    p.wants.tx_ring = true;
}

/// Each message consumes a receive without an entry. The completion gives the number of written
/// bytes.
pub fn writes_with_immediate_data_and_receives_without_memory(p: &mut Pair) {
    let qp = p.rc();
    let mine = p.a.region(Kind::Buffer, 1 << 20, ALL, 0);
    for kind in KINDS {
        let (to, remote) = p.b.region(kind, 1 << 20, ALL, 0);
        for seed in 0..60 {
            let len = [0, 8, 4096, 1 << 20][seed as usize % 4];
            p.a.regions[mine].put(0, &pattern(len, seed));
            p.b.ask(&format!("recv {qp} {seed}"));
            let sges = [p.a.regions[mine].sge(0, len)];
            let op = SendOp::WriteImm(remote, seed as u32);
            p.a.send(qp, seed, op, if len == 0 { &[] } else { &sges });
            assert_eq!(p.a.wait(1)[0].status, WcStatus::Success, "{kind:?} {seed}");
            assert_eq!(
                p.b.ask("wait 1"),
                format!("Success/RecvRdmaWithImm/{seed}/{len}/{seed:x}/2")
            );
            assert!(p.b.same(to, 0, len, seed), "{kind:?} {seed}");
        }
    }
    // Messages in a queue keep their order.
    let (to, remote) = p.b.region(Kind::Buffer, 4096, ALL, 0);
    let from: Vec<_> = (0..100).map(|n| [p.a.regions[mine].sge(n * 8, 8)]).collect();
    let requests: Vec<_> = (0..100usize)
        .map(|n| {
            let at = Remote { va: remote.va + n as u64 * 8, ..remote };
            request(n as u64, SendFlags::SIGNALED, SendOp::WriteImm(at, n as u32), &from[n])
        })
        .collect();
    (0..100).for_each(|n| drop(p.b.ask(&format!("recv {qp} {n}"))));
    p.a.post(qp, &requests);
    assert!(p.a.wait(100).iter().map(|c| c.wr_id).eq(0..100));
    let all: Vec<_> = (0..100).map(|n| format!("Success/RecvRdmaWithImm/{n}/8/{n:x}/2")).collect();
    assert_eq!(p.b.ask("wait 100"), all.join(" "));
    let whole = p.a.regions[mine].word(792);
    assert_eq!(p.b.word(to, 792), whole);
    // The peer refuses an invalid key.
    p.b.ask(&format!("recv {qp} 1"));
    let bad = Remote { rkey: remote.rkey ^ 0x100, ..remote };
    p.a.send(qp, 1, SendOp::WriteImm(bad, 5), &[p.a.regions[mine].sge(0, 8)]);
    let done = p.a.wait(1).remove(0);
    p.note("a key that is none", &done);
    assert_eq!(done.status, WcStatus::RemAccessErr);
    p.wants.tx_ring = true;
}

pub fn messages_of_every_size_from_and_to_every_memory(p: &mut Pair) {
    let qp = p.rc();
    let mine = KINDS.map(|kind| p.a.region(kind, MOST, ALL, 0));
    let theirs = KINDS.map(|kind| p.b.region(kind, MOST, ALL, 0));
    let mut seed = 0;
    for from in mine {
        for (to, remote) in theirs {
            for len in SIZES {
                for (op, expected) in [
                    (SendOp::Send, "Success/Recv/# * /0/0"),
                    (SendOp::SendImm(0x1234_5678), "Success/Recv/# * /12345678/2"),
                    (
                        SendOp::WriteImm(remote, 0x0bad_cafe),
                        "Success/RecvRdmaWithImm/# * /badcafe/2",
                    ),
                ] {
                    seed += 1;
                    let got = message(p, qp, op, (from, to), len, seed);
                    let (head, tail) = expected.split_once(" * ").unwrap();
                    assert_eq!(
                        got,
                        format!("{}/{len}{tail}", head.replace('#', &seed.to_string()))
                    );
                }
            }
        }
    }
    p.wants.tx_ring = true;
}

pub fn gathered_and_inline(p: &mut Pair) {
    let qp = p.rc();
    let kinds = KINDS.map(|kind| p.a.region(kind, 1 << 16, ALL, 0));
    let (to, remote) = p.b.region(Kind::Buffer, 1 << 18, ALL, 0);
    let whole = pattern(100_000, 7);
    for (op, at) in
        [(SendOp::Send, 0), (SendOp::Write(remote), 0), (SendOp::WriteImm(remote, 1), 0)]
    {
        let mut sges = Vec::new();
        for (n, (from, to)) in
            [(0, 40_000), (40_000, 40_001), (40_001, 100_000)].into_iter().enumerate()
        {
            p.a.regions[kinds[n]].put(n * 11, &whole[from..to]);
            sges.push(p.a.regions[kinds[n]].sge(n * 11, to - from));
        }
        p.b.ask(&format!("fill {to} 0 100000 1"));
        if !matches!(op, SendOp::Write(_)) {
            p.b.ask(&format!("recv {qp} 5 {to} {at} 100000"));
        }
        p.a.send(qp, 1, op, &sges);
        let done = p.a.wait(1).remove(0);
        p.note("gathered", &done);
        assert_eq!(done.status, WcStatus::Success);
        if !matches!(op, SendOp::Write(_)) {
            p.b.ask("wait 1");
        }
        assert!(p.b.same(to, at, 100_000, 7), "{op:?}");
    }
    // A READ scatters into three pieces.
    let pieces: Vec<_> = (0..3).map(|n| p.a.regions[kinds[n]].sge(100, 30_000 + n)).collect();
    p.a.send(qp, 2, SendOp::Read(remote), &pieces);
    assert_eq!(p.a.wait(1)[0].status, WcStatus::Success);
    let back: Vec<u8> = (0..3).flat_map(|n| p.a.regions[kinds[n]].get(100, 30_000 + n)).collect();
    assert!(back == whole[..back.len()]);
    for len in [0usize, 1, 63, 64, 128] {
        let data = pattern(len, len as u64);
        for op in [SendOp::Send, SendOp::Write(remote), SendOp::WriteImm(remote, 3)] {
            p.b.ask(&format!("fill {to} 0 256 9"));
            if !matches!(op, SendOp::Write(_)) {
                p.b.ask(&format!("recv {qp} 5 {to} 0 128"));
            }
            // The program may change the bytes of an inline request after the post.
            let mut bytes = data.clone();
            let parts: [&[u8]; 1] = [&bytes];
            let flags = SendFlags::SIGNALED | SendFlags::INLINE;
            let wr = SendWr {
                wr_id: 3,
                flags,
                op,
                data: Payload::Inline(&parts),
                ud: None,
                xrc_srqn: 0,
            };
            p.a.post(qp, &[wr]);
            bytes.fill(0xff);
            assert_eq!(p.a.wait(1)[0].status, WcStatus::Success);
            if !matches!(op, SendOp::Write(_)) {
                p.b.ask("wait 1");
            }
            assert!(p.b.same(to, 0, len, len as u64), "{len} inline by {op:?}");
        }
    }
    (p.wants.tx_ring, p.wants.one_sided) = (true, true);
}

fn a_shared_receive_queue_and_xrc(p: &mut Pair) {
    let shared = Shape { srq: true, ..Shape::default() };
    let (one, two) = (p.connect(Shape::default(), shared), p.connect(Shape::default(), shared));
    let xrc = p.xrc();
    let srqn = p.b.ask("xrc_srq").parse().unwrap();
    let from = p.a.region(Kind::Buffer, MOST, ALL, 0);
    let (to, remote) = p.b.region(Kind::Block, MOST, ALL, 0);
    for (n, len) in SIZES.into_iter().enumerate() {
        for (at, qp) in [one, two].into_iter().enumerate() {
            let got = message(p, qp, SendOp::Send, (from, to), len, 100 + n as u64 * 2 + at as u64);
            assert!(got.starts_with("Success/Recv/"), "{got}");
        }
        for op in [SendOp::Send, SendOp::SendImm(9), SendOp::Write(remote), SendOp::Read(remote)] {
            let takes = matches!(op, SendOp::Send | SendOp::SendImm(_));
            p.a.regions[from].put(0, &pattern(len, 50 + n as u64));
            if takes {
                p.b.ask(&format!("recv {xrc} 4 {to} 0 {len}"));
            }
            let sges = [p.a.regions[from].sge(0, len)];
            let mut wr = request(4, SendFlags::SIGNALED, op, if len == 0 { &[] } else { &sges });
            wr.xrc_srqn = srqn;
            p.a.post(xrc, &[wr]);
            let done = p.a.wait(1).remove(0);
            assert_eq!(done.status, WcStatus::Success, "{op:?} over XRC: {:?}", done.cause);
            if takes {
                p.b.ask("wait 1");
            }
            assert!(p.b.same(to, 0, len, 50 + n as u64), "{len} bytes by {op:?} over XRC");
            assert!(p.a.regions[from].get(0, len) == pattern(len, 50 + n as u64));
        }
    }
    p.wants.tx_ring = true;
}

fn windows_and_invalidation(p: &mut Pair) {
    let from = p.a.region(Kind::Buffer, 4096, ALL, 0);
    for (ty, kind) in [(1, Kind::Buffer), (2, Kind::Buffer), (2, Kind::Block), (2, Kind::Private)] {
        let qp = p.rc();
        let (to, region) = p.b.region(kind, 8192, ALL, 0);
        let key: u32 = p.b.ask(&format!("bind {qp} {ty} {to} 4096 2048")).parse().unwrap();
        let window = Remote { va: region.va + 4096, rkey: key };
        p.a.regions[from].put(0, &pattern(2048, 3));
        let data = [p.a.regions[from].sge(0, 2048)];
        for op in [SendOp::Write(window), SendOp::Read(window)] {
            p.a.send(qp, 1, op, &data);
            assert_eq!(
                p.a.wait(1)[0].status,
                WcStatus::Success,
                "{op:?} through a window of type {ty}"
            );
        }
        assert!(p.b.same(to, 4096, 2048, 3));
        if ty == 1 {
            continue;
        }
        // A SEND with Invalidate invalidates the window of the peer. The next access through the
        // window fails.
        p.b.ask(&format!("recv {qp} 8 {to} 0 64"));
        p.a.send(qp, 2, SendOp::SendInv(key), &[p.a.regions[from].sge(0, 64)]);
        assert_eq!(p.a.wait(1)[0].status, WcStatus::Success);
        assert_eq!(p.b.ask("wait 1"), format!("Success/Recv/8/64/{key:x}/8"));
        p.a.regions[from].put(0, &pattern(64, 4));
        p.a.send(qp, 3, SendOp::Write(window), &[p.a.regions[from].sge(0, 64)]);
        let done = p.a.wait(1).remove(0);
        assert_eq!(done.status, WcStatus::RemAccessErr);
        p.note("a window that was taken away", &done);
        assert!(p.b.same(to, 4096, 64, 3), "bytes came through a window that was taken away");
    }
    p.wants.tx_ring = true;
}

fn solicited_events(p: &mut Pair) {
    let qp = p.rc();
    let from = p.a.region(Kind::Buffer, 64, ALL, 0);
    let (to, remote) = p.b.region(Kind::Buffer, 64, ALL, 0);
    let data = [p.a.regions[from].sge(0, 8)];
    for op in [SendOp::Send, SendOp::SendImm(1), SendOp::WriteImm(remote, 1)] {
        p.b.ask("arm 1");
        p.b.ask(&format!("recv {qp} 1 {to} 0 8"));
        p.b.ask(&format!("recv {qp} 2 {to} 0 8"));
        p.a.post(qp, &[request(1, SendFlags::SIGNALED, op, &data)]);
        p.a.wait(1);
        assert_eq!(p.b.ask("any_event"), "false", "{op:?} without the flag");
        p.a.post(qp, &[request(2, SendFlags::SIGNALED | SendFlags::SOLICITED, op, &data)]);
        // The peer sleeps until the message arrives, on either path.
        assert_eq!(p.b.ask("event"), "true", "{op:?} with the flag");
        p.a.wait(1);
        p.b.ask("wait 2");
    }
    // Sleep without the solicited flag: any message wakes the peer.
    for n in 0..200 {
        p.b.ask("arm 0");
        p.b.ask(&format!("recv {qp} {n} {to} 0 8"));
        p.b.order("event");
        p.a.post(qp, &[request(n, SendFlags::SIGNALED, SendOp::Send, &data)]);
        assert_eq!(p.b.answer(), "true");
        p.a.wait(1);
        p.b.ask("wait 1");
    }
    p.wants.tx_ring = true;
}

/// The peer does not poll until all requests are posted. The peer's background thread alone
/// receives messages, and the ring becomes full many times.
fn more_than_the_ring_holds(p: &mut Pair) {
    const COUNT: usize = 200;
    const LEN: usize = 16_000;
    let qp = p.rc();
    let from = p.a.region(Kind::Private, COUNT * LEN, ALL, 0);
    let (to, _) = p.b.region(Kind::Private, COUNT * LEN, ALL, 0);
    p.a.regions[from].put(0, &pattern(COUNT * LEN, 5));
    for n in 0..COUNT {
        p.b.ask(&format!("recv {qp} {n} {to} {} {LEN}", n * LEN));
    }
    for n in 0..COUNT {
        p.a.send(qp, n as u64, SendOp::Send, &[p.a.regions[from].sge(n * LEN, LEN)]);
    }
    assert!(p.a.wait(COUNT).iter().all(|c| c.status == WcStatus::Success));
    let got = p.b.ask(&format!("wait {COUNT}"));
    let ids: Vec<_> =
        got.split(' ').map(|c| c.split('/').nth(2).unwrap().parse::<usize>().unwrap()).collect();
    assert!(ids.iter().copied().eq(0..COUNT), "{ids:?}");
    assert!(p.b.same(to, 0, COUNT * LEN, 5));
    p.wants.tx_ring = true;
}
