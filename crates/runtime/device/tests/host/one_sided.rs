//! Operations in which the program of the peer takes no part.
use crate::cases;
use crate::rig::{ALL, KINDS, Kind, Shape, pattern, remote};
use crate::talk::Pair;
use crate::two_sided::{MOST, SIZES};
use adverb_device::engine::wr::Remote;
use adverb_device::engine::{SendOp, WcOpcode, WcStatus};

cases!(
    writes_and_reads_of_every_size,
    atomics_and_flush,
    other_memory,
    who_only_looks_at_memory_sees_writes,
    atomics_of_two_processes_and_the_processor,
    atomics_count_once_whatever_changes,
);

/// Performs one request and returns the opcode of its completion.
fn one(
    p: &mut Pair,
    qp: usize,
    op: SendOp,
    (region, offset, len): (usize, usize, usize),
) -> WcOpcode {
    let sges = [p.a.regions[region].sge(offset, len)];
    p.a.send(qp, 1, op, if len == 0 { &[] } else { &sges });
    let done = p.a.wait(1).remove(0);
    assert_eq!(done.status, WcStatus::Success, "{op:?} of {len}: {:?}", done.cause);
    done.opcode
}

pub fn writes_and_reads_of_every_size(p: &mut Pair) {
    let qp = p.rc();
    let mine = KINDS.map(|kind| p.a.region(kind, MOST + 8, ALL, 0));
    let theirs = KINDS.map(|kind| p.b.region(kind, MOST + 8, ALL, 0));
    let mut seed = 0;
    for from in mine {
        for (to, at) in theirs {
            for len in SIZES {
                seed += 1;
                p.a.regions[from].put(0, &pattern(len, seed));
                p.b.ask(&format!("put {to} {} {seed}", len.next_multiple_of(8).min(MOST)));
                assert_eq!(one(p, qp, SendOp::Write(at), (from, 0, len)), WcOpcode::RdmaWrite);
                assert!(p.b.same(to, 0, len, seed), "write of {len}");
                if len.is_multiple_of(8) {
                    assert_eq!(p.b.word(to, len), seed, "what lies behind a write of {len}");
                }
                p.a.regions[from].put(0, &pattern(len + 8, seed + 1000));
                assert_eq!(one(p, qp, SendOp::Read(at), (from, 0, len)), WcOpcode::RdmaRead);
                assert!(p.a.regions[from].get(0, len) == pattern(len, seed), "read of {len}");
                let behind = &pattern(len + 8, seed + 1000)[len..];
                assert!(
                    p.a.regions[from].get(len, 8) == behind,
                    "what lies behind a read of {len}"
                );
            }
        }
    }
    p.wants.one_sided = true;
}

pub fn atomics_and_flush(p: &mut Pair) {
    let qp = p.rc();
    let mine = p.a.region(Kind::Block, 4096, ALL, 0);
    for kind in KINDS {
        let (to, at) = p.b.region(kind, 4096, ALL, 0);
        for offset in [0, 8, 4088] {
            let at = Remote { va: at.va + offset as u64, ..at };
            p.b.ask(&format!("put {to} {offset} {}", u64::MAX));
            assert_eq!(
                one(p, qp, SendOp::FetchAdd { remote: at, add: 6 }, (mine, 0, 8)),
                WcOpcode::FetchAdd
            );
            assert_eq!((p.a.regions[mine].word(0), p.b.word(to, offset)), (u64::MAX, 5));
            let swap = |compare, swap| SendOp::CompareSwap { remote: at, compare, swap };
            assert_eq!(one(p, qp, swap(4, 9), (mine, 0, 8)), WcOpcode::CompSwap);
            assert_eq!((p.a.regions[mine].word(0), p.b.word(to, offset)), (5, 5));
            one(p, qp, swap(5, 9), (mine, 0, 8));
            assert_eq!((p.a.regions[mine].word(0), p.b.word(to, offset)), (5, 9));
            p.a.regions[mine].put(0, &77u64.to_ne_bytes());
            assert_eq!(one(p, qp, SendOp::AtomicWrite(at), (mine, 0, 8)), WcOpcode::AtomicWrite);
            assert_eq!(p.b.word(to, offset), 77);
            let flush = SendOp::Flush { remote: at, len: 8, placement: 1, selectivity: 0 };
            assert_eq!(one(p, qp, flush, (mine, 0, 0)), WcOpcode::Flush);
        }
    }
    p.wants.one_sided = true;
}

fn other_memory(p: &mut Pair) {
    let qp = p.rc();
    let mine = p.a.region(Kind::Buffer, 1 << 17, ALL, 0);
    for kind in [Kind::OnDemand, Kind::Dm] {
        let here = p.a.region(kind, 1 << 16, ALL, 0);
        let (to, at) = p.b.region(kind, 1 << 16, ALL, 0);
        for (n, len) in [1, 4097, 65_536].into_iter().enumerate() {
            let seed = 20 + n as u64;
            p.a.regions[here].put(0, &pattern(len, seed));
            one(p, qp, SendOp::Write(at), (here, 0, len));
            assert!(p.b.same(to, 0, len, seed), "{kind:?}");
            one(p, qp, SendOp::Read(at), (mine, 0, len));
            assert!(p.a.regions[mine].get(0, len) == pattern(len, seed));
            p.b.ask(&format!("recv {qp} 1 {to} 0 {len}"));
            one(p, qp, SendOp::Send, (here, 0, len));
            p.b.ask("wait 1");
            one(p, qp, SendOp::Read(at), (here, 0, len));
            assert!(p.a.regions[here].get(0, len) == pattern(len, seed));
        }
        p.b.ask(&format!("put {to} 8 40"));
        one(p, qp, SendOp::FetchAdd { remote: remote(at.va + 8, at.rkey), add: 2 }, (mine, 0, 8));
        assert_eq!((p.a.regions[mine].word(0), p.b.word(to, 8)), (40, 42), "{kind:?}");
    }
    // A null region reads as zeros and discards writes. A null region has no remote key.
    let null = p.a.region(Kind::Null, 0, ALL, 0);
    let (to, at) = p.b.region(Kind::Block, 1 << 17, ALL, 0);
    for op in [SendOp::Write(at), SendOp::Send] {
        p.b.ask(&format!("fill {to} 0 70000 3"));
        if op == SendOp::Send {
            p.b.ask(&format!("recv {qp} 1 {to} 0 70000"));
        }
        one(p, qp, op, (null, 0, 70_000));
        if op == SendOp::Send {
            p.b.ask("wait 1");
        }
        assert_eq!((p.b.word(to, 0), p.b.word(to, 69_992)), (0, 0), "{op:?}");
    }
    one(p, qp, SendOp::Read(at), (null, 0, 70_000));
    p.wants.one_sided = true;
}

/// The target polls its memory and calls no verb, as in `ib_write_lat`.
fn who_only_looks_at_memory_sees_writes(p: &mut Pair) {
    let qp = p.rc();
    let mine = p.a.region(Kind::Buffer, 64, ALL, 0);
    for kind in KINDS {
        let (to, at) = p.b.region(kind, 4096, ALL, 0);
        for n in 1..=50u64 {
            p.b.order(&format!("spin {to} 128 {n}"));
            p.a.regions[mine].put(0, &n.to_ne_bytes());
            one(p, qp, SendOp::Write(remote(at.va + 128, at.rkey)), (mine, 0, 8));
            assert_eq!(p.b.answer(), n.to_string(), "{kind:?}");
        }
    }
    p.wants.one_sided = true;
}

/// Each FetchAdd counts exactly once, although the peer changes the access rights of the queue pair
/// meanwhile.
fn atomics_count_once_whatever_changes(p: &mut Pair) {
    const ROUNDS: usize = 20;
    const EACH: usize = 1000;
    let qp = p.connect(Shape::default(), Shape::default());
    let mine = p.a.region(Kind::Buffer, 4096, ALL, 0);
    let (to, at) = p.b.region(Kind::Block, 4096, ALL, 0);
    for _ in 0..ROUNDS {
        p.b.order(&format!("change {qp} {EACH}"));
        for _ in 0..EACH {
            p.a.send(
                qp,
                1,
                SendOp::FetchAdd { remote: at, add: 1 },
                &[p.a.regions[mine].sge(0, 8)],
            );
            p.a.wait(1);
        }
        p.b.answer();
    }
    assert_eq!(p.b.word(to, 0), (EACH * ROUNDS) as u64);
    p.wants.one_sided = true;
}

/// Four threads of this end add to the same word of the peer, each over its own queue pair.
pub fn atomics_of_two_processes_and_the_processor(p: &mut Pair) {
    const EACH: usize = 500;
    let qps: Vec<usize> = (0..4).map(|_| p.connect(Shape::default(), Shape::default())).collect();
    let mine = p.a.region(Kind::Buffer, 4096, ALL, 0);
    let (to, at) = p.b.region(Kind::Block, 4096, ALL, 0);
    std::thread::scope(|scope| {
        for (n, qp) in qps.iter().enumerate() {
            let a = &p.a;
            scope.spawn(move || {
                for _ in 0..EACH {
                    a.send(
                        *qp,
                        1,
                        SendOp::FetchAdd { remote: at, add: 3 },
                        &[a.regions[mine].sge(n * 8, 8)],
                    );
                    a.wait(1);
                }
            });
        }
    });
    assert_eq!(p.b.word(to, 0), (3 * EACH * qps.len()) as u64);
    p.wants.one_sided = true;
}
