//! Processes that start and end: a killed peer, a peer that executes another program, and two
//! processes that connect to each other at once.
use crate::rig::{ALL, KINDS, Kind, Rig, Shape, Words, pattern};
use crate::talk::{Other, Pair};
use crate::{Case, local};
use adverb_device::engine::{Cause, QpState, SendOp, WcStatus};
use std::io::BufRead;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

pub const CASES: &[Case] = &[
    local("a_peer_that_is_killed", killed),
    local("a_peer_that_executes_another_program", executes),
    local("both_start_the_handshake_at_once", many_meet),
];

/// On one queue pair (`busy`), posts receives, and sends that wait for the peer. On another
/// (`idle`), posts only receives.
fn outstanding(p: &mut Pair) -> (usize, usize, usize) {
    let (busy, idle) = (p.rc(), p.rc());
    let mine = p.a.region(Kind::Buffer, 1 << 17, ALL, 0);
    for n in 0..4 {
        p.a.recv(busy, 10 + n, &[p.a.regions[mine].sge(0, 8)]);
        p.a.recv(idle, 20 + n, &[p.a.regions[mine].sge(0, 8)]);
    }
    // The peer has posted no receives for these messages.
    for n in 0..4 {
        p.a.send(busy, n, SendOp::Send, &[p.a.regions[mine].sge(0, 100_000)]);
    }
    (busy, idle, mine)
}

/// All waiting requests of `busy` fail with the reason. The receives of `idle` stay posted until a
/// send fails there.
fn fails(p: &mut Pair, (busy, idle, mine): (usize, usize, usize)) {
    let done = p.a.wait(8);
    assert_eq!((done[0].status, done[0].wr_id), (WcStatus::RetryExcErr, 0));
    assert!(
        matches!(done[0].cause.as_deref(), Some(Cause::PeerEnded { .. })),
        "{:?}",
        done[0].cause
    );
    assert!(done[1..].iter().all(|c| c.status == WcStatus::WrFlushErr), "{done:?}");
    assert_eq!(p.a.qps[busy].0.state(), QpState::Err);
    // The exit of the peer concerns `idle` as well, but its receives stay posted.
    assert_eq!(p.a.qps[idle].0.state(), QpState::Rts);
    assert!(p.a.cq.is_empty());
    p.a.send(idle, 9, SendOp::Send, &[p.a.regions[mine].sge(0, 8)]);
    let done = p.a.wait(5);
    assert_eq!((done[0].status, done[0].wr_id), (WcStatus::RetryExcErr, 9));
    assert!(
        matches!(done[0].cause.as_deref(), Some(Cause::PeerEnded { .. })),
        "{:?}",
        done[0].cause
    );
    assert!(
        done[1..].iter().all(|c| c.status == WcStatus::WrFlushErr && c.wr_id >= 20),
        "{done:?}"
    );
}

/// Starts a new peer and connects a queue pair that was used before.
fn next_works(p: &mut Pair, old: usize) {
    p.b = Other::new();
    let before = p.a.ways();
    let mine = p.a.region(Kind::Buffer, 4096, ALL, 0);
    p.a.regions[mine].put(0, &pattern(4096, 77));
    p.a.to(old, QpState::Reset);
    let other = p.b.ask(&format!("qp {}", Shape::default().words())).parse().unwrap();
    p.b.ask(&format!("connect 0 {}", p.a.qps[old].0.number()));
    p.a.connect(old, other);
    for (n, kind) in KINDS.into_iter().enumerate() {
        let (to, at) = p.b.region(kind, 4096, ALL, 0);
        p.a.send(old, 1, SendOp::Write(at), &[p.a.regions[mine].sge(0, 4096)]);
        p.b.ask(&format!("recv 0 {n} {to} 0 0"));
        p.a.send(old, 2, SendOp::Send, &[]);
        assert!(p.a.wait(2).iter().all(|c| c.status == WcStatus::Success));
        assert_eq!(p.b.ask("wait 1"), format!("Success/Recv/{n}/0/0/0"));
        assert!(p.b.same(to, 0, 4096, 77), "{kind:?}");
    }
    let now = p.a.ways();
    assert!(now[0] >= before[0] + 3 && now[1] >= before[1] + 3, "{before:?} {now:?}");
}

fn killed(p: &mut Pair) {
    for _ in 0..3 {
        // Perform a WRITE first, so that this end has learned where the peer's memory is. This
        // knowledge must not be used for the next peer.
        let qp = p.rc();
        let first = p.a.region(Kind::Buffer, 64, ALL, 0);
        let (_, at) = p.b.region(Kind::Block, 64, ALL, 0);
        p.a.send(qp, 1, SendOp::Write(at), &[p.a.regions[first].sge(0, 8)]);
        assert_eq!(p.a.wait(1)[0].status, WcStatus::Success);
        let ends = outstanding(p);
        p.b.kill();
        fails(p, ends);
        p.a.send(qp, 1, SendOp::Write(at), &[p.a.regions[first].sge(0, 8)]);
        assert_eq!(p.a.wait(1)[0].status, WcStatus::RetryExcErr, "a write into a dead process");
        next_works(p, ends.0);
        // In the next round, indices at both ends must be equal again.
        p.renew();
    }
}

fn executes(p: &mut Pair) {
    let (qp, mine) = (p.rc(), p.a.region(Kind::Buffer, 64, ALL, 0));
    let (_, at) = p.b.region(Kind::Block, 4096, ALL, 0);
    p.a.send(qp, 1, SendOp::Write(at), &[p.a.regions[mine].sge(0, 8)]);
    assert_eq!(p.a.wait(1)[0].status, WcStatus::Success);
    let ends = outstanding(p);
    // The process lives on with another program.
    assert_eq!(p.b.ask("exec"), "another program");
    fails(p, ends);
    p.a.send(qp, 1, SendOp::Write(at), &[p.a.regions[mine].sge(0, 8)]);
    assert_eq!(
        p.a.wait(1)[0].status,
        WcStatus::RetryExcErr,
        "a write into a program that is no more"
    );
    next_works(p, ends.0);
}

/// Number of queue pairs. A separate thread connects each queue pair.
const THREADS: usize = 4;

/// Number of rounds. In each round two new processes connect to each other.
fn rounds() -> usize {
    std::env::var("ADVERB_HOST_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(200)
}

/// The work of each of the two processes. The process prints its queue pair numbers and reads those
/// of the peer. Then the processes exchange a message over each queue pair, in both directions.
pub fn meet() {
    let mut rig = Rig::open();
    let numbers: Vec<u32> = (0..THREADS).map(|_| rig.qp(Shape::default())).collect();
    let region = rig.region(Kind::Buffer, 4096 * THREADS * 2, ALL, 0);
    println!("{}", numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(" "));
    let mut lines = std::io::stdin().lock().lines().map(Result::unwrap);
    let line = lines.next().unwrap();
    let mut words = Words::of(&line);
    let others: [u32; THREADS] = std::array::from_fn(|_| words.next());
    for (n, number) in numbers.iter().enumerate() {
        rig.regions[region].put(n * 4096, &pattern(4096, u64::from(*number)));
    }
    std::thread::scope(|scope| {
        for (n, other) in others.into_iter().enumerate() {
            let rig = &rig;
            scope.spawn(move || {
                rig.connect(n, other);
                rig.recv(n, 100 + n as u64, &[rig.regions[region].sge((THREADS + n) * 4096, 4096)]);
                rig.send(n, n as u64, SendOp::Send, &[rig.regions[region].sge(n * 4096, 4096)]);
            });
        }
    });
    for c in rig.wait(2 * THREADS) {
        assert_eq!(c.status, WcStatus::Success, "{:?}", c.cause);
        if c.wr_id >= 100 {
            let n = c.wr_id as usize - 100;
            let got = rig.regions[region].get((THREADS + n) * 4096, 4096);
            assert!(got == pattern(4096, others[n].into()), "a message of queue pair {n}");
        }
    }
    println!("{}", rig.ways().map(|n| n.to_string()).join(" "));
    // The peer may still wait for an answer of this process, so this process stays until its input
    // closes.
    assert!(lines.next().is_none());
}

/// Number of rounds at the same time. Most of a round is waiting.
const AT_ONCE: usize = 4;

fn many_meet(p: &mut Pair) {
    let (over_network, begun, rounds) = (AtomicUsize::new(0), AtomicUsize::new(0), rounds());
    let meetings = || {
        while begun.fetch_add(1, Relaxed) < rounds {
            let mut two = [Other::playing("meet", &[]), Other::playing("meet", &[])];
            let numbers = two.each_mut().map(Other::answer);
            two[0].order(&numbers[1]);
            two[1].order(&numbers[0]);
            for (n, ways) in two.each_mut().map(Other::answer).into_iter().enumerate() {
                let mut words = Words::of(&ways);
                let [_, sent, received, network]: [u64; 4] = std::array::from_fn(|_| words.next());
                assert!(sent + network > 0 && received + network > 0, "end {n}: {ways}");
                over_network.fetch_add(usize::from(network > 0), Relaxed);
            }
            two.into_iter().for_each(Other::leave);
        }
    };
    std::thread::scope(|scope| (0..AT_ONCE).for_each(|_| drop(scope.spawn(meetings))));
    let over_network = over_network.into_inner();
    // A process that does not run for two seconds is reached over the network. This is correct and
    // rare.
    assert!(over_network * 10 <= rounds, "{over_network} of {rounds} rounds went over the network");
    p.rc();
}
