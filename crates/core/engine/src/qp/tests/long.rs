//! Packets that cross no network: longer than any path MTU.
use super::harness::*;
use crate::wr::SendOp;
use crate::*;
use adverb_wire::Operation;
use std::boxed::Box;
use std::vec::Vec;

const LONG: u32 = 64 << 10;

/// Connected queue pairs. `sides` leave the network, and their packets carry the longer MTU.
fn pair(sides: &[usize], setup: Setup) -> Pair {
    let mut p = Pair::in_reset(setup);
    for side in [0, 1] {
        p.step_to(side, QpState::Init);
        p.step_to(side, QpState::Rtr);
        if sides.contains(&side) {
            p.sides[side].qp.leave_network(LONG);
            p.link_mtu[side] = Some(LONG);
        }
        p.step_to(side, QpState::Rts);
    }
    p
}

fn setup() -> Setup {
    Setup::new(QpType::Rc)
}

/// Payloads of the packets of these operations, in order.
fn lengths(p: &Pair, from: usize, which: &[Operation]) -> Vec<usize> {
    let of = |f: &Flying| {
        let payload = f.bytes.len() - f.headers.len() - usize::from(f.headers.bth.pad);
        which.contains(&f.op()).then_some(payload)
    };
    p.log.iter().filter(|f| f.from == from).filter_map(of).collect()
}

const SENDS: [Operation; 4] =
    [Operation::SendFirst, Operation::SendMiddle, Operation::SendLast, Operation::SendOnly];
const RESPONSES: [Operation; 4] = [
    Operation::ReadResponseFirst,
    Operation::ReadResponseMiddle,
    Operation::ReadResponseLast,
    Operation::ReadResponseOnly,
];

fn successes(p: &mut Pair, side: usize) -> Vec<u64> {
    let done = p.sides[side].sends();
    assert!(done.iter().all(|c| c.status == WcStatus::Success), "{done:?}");
    done.iter().map(|c| c.wr_id).collect()
}

#[test]
fn messages_and_answers_are_cut_by_the_link() {
    for side in [0, 1] {
        let mut p = pair(&[0, 1], setup());
        let other = 1 - side;
        p.sides[side].fill(0, 200_001, 1);
        p.sides[other].fill(400_000, 150_000, 2);
        p.recv(other, 7, 0, 300_000);
        p.post(side, 1, SendOp::Send, 0, 200_001);
        let remote = p.sides[other].remote(400_000);
        p.post(side, 2, SendOp::Read(remote), 500_000, 150_000);
        p.post(side, 3, SendOp::Read(remote), 700_000, 10);
        p.run();
        assert_eq!(successes(&mut p, side), [1, 2, 3]);
        let got = p.sides[other].recvs();
        assert_eq!((got[0].byte_len, got[0].status), (200_001, WcStatus::Success));
        assert!(p.sides[other].holds(0, 200_001, 1));
        assert!(p.sides[side].holds(500_000, 150_000, 2));
        let long = LONG as usize;
        assert_eq!(lengths(&p, side, &SENDS), [long, long, long, 200_001 - 3 * long]);
        assert_eq!(lengths(&p, other, &RESPONSES), [long, long, 150_000 - 2 * long, 10]);
        let (a, b) = (p.sides[0].qp.counters(), p.sides[1].qp.counters());
        assert_eq!([a.naks_sent, b.naks_sent, a.retransmitted, b.retransmitted], [0; 4]);
    }
}

/// The network's flow window does not apply: a longer message leaves at once.
#[test]
fn nothing_but_the_ring_limits_what_is_on_its_way() {
    let mut p = pair(&[0, 1], Setup { max_inflight: 4000, ..setup() });
    p.recv(1, 7, 0, 1_000_000);
    p.post(0, 1, SendOp::Send, 0, 1_000_000);
    assert_eq!(p.pump(0), 1_000_000_usize.div_ceil(LONG as usize));
    p.run();
    assert_eq!(successes(&mut p, 0), [1]);
}

/// One side has left the network and the other has not. Each side cuts its own messages, and
/// answers in pieces like the request's.
#[test]
fn each_side_cuts_its_own_messages() {
    let mut p = pair(&[0], setup());
    p.sides[0].fill(0, 100_000, 1);
    p.sides[1].fill(200_000, 100_000, 2);
    p.recv(0, 7, 400_000, 100_000);
    p.recv(1, 7, 400_000, 100_000);
    let to = [1, 0].map(|side: usize| p.sides[side].remote(if side == 0 { 0 } else { 200_000 }));
    p.post(0, 1, SendOp::Send, 0, 100_000);
    p.post(0, 2, SendOp::Read(to[0]), 600_000, 100_000);
    p.post(1, 1, SendOp::Send, 200_000, 100_000);
    p.post(1, 2, SendOp::Read(to[1]), 600_000, 100_000);
    p.run();
    assert_eq!((successes(&mut p, 0), successes(&mut p, 1)), ([1, 2].to_vec(), [1, 2].to_vec()));
    assert!(p.sides[1].holds(400_000, 100_000, 1) && p.sides[1].holds(600_000, 100_000, 1));
    assert!(p.sides[0].holds(400_000, 100_000, 2) && p.sides[0].holds(600_000, 100_000, 2));
    assert_eq!(lengths(&p, 0, &SENDS).len(), 2);
    assert_eq!(lengths(&p, 1, &SENDS).len(), 98);
    assert_eq!(lengths(&p, 1, &RESPONSES).len(), 2, "to who asked for long ones");
    assert_eq!(lengths(&p, 0, &RESPONSES).len(), 98, "to who did not");
}

/// A long packet without a longer MTU is an invalid request, as on a network.
#[test]
fn length_is_judged_by_what_the_link_says() {
    let mut p = pair(&[0, 1], setup());
    p.link_mtu[0] = None;
    p.recv(1, 7, 0, 100_000);
    p.post(0, 1, SendOp::Send, 0, 100_000);
    p.run();
    let done: Vec<_> = p.sides[0].sends().iter().map(|c| c.status).collect();
    assert_eq!(done, [WcStatus::RemInvReqErr]);
}

/// Lost packets come again, and duplicates are answered, cut as before.
#[test]
fn losses_and_duplicates() {
    for what in [Fate::Drop, Fate::Twice, Fate::Late(3)] {
        let mut p = pair(&[0, 1], setup());
        p.sides[0].fill(0, 300_000, 1);
        p.sides[1].fill(300_000, 300_000, 2);
        p.recv(1, 7, 0, 300_000);
        p.post(0, 1, SendOp::Send, 0, 300_000);
        p.post(0, 2, SendOp::Read(p.sides[1].remote(300_000)), 600_000, 300_000);
        let mut seen = 0;
        p.fate = Box::new(move |_| {
            seen += 1;
            if seen % 4 == 2 && seen < 40 { what } else { Fate::Deliver }
        });
        p.run_timed();
        assert_eq!(successes(&mut p, 0), [1, 2], "{what:?}");
        assert!(p.sides[1].holds(0, 300_000, 1) && p.sides[0].holds(600_000, 300_000, 2));
        let longest = p.log.iter().map(|f| f.bytes.len() - f.headers.len()).max();
        assert_eq!(longest, Some(LONG as usize));
        assert!(
            lengths(&p, 1, &RESPONSES)
                .iter()
                .all(|n| *n == LONG as usize || *n == 300_000 % LONG as usize)
        );
    }
}

#[test]
fn reset_returns_to_the_network() {
    let mut p = pair(&[0, 1], setup());
    for side in [0, 1] {
        p.step_to(side, QpState::Reset);
        p.link_mtu[side] = None;
        p.connect(side);
    }
    p.recv(1, 7, 0, 10_000);
    p.post(0, 1, SendOp::Send, 0, 5000);
    p.post(0, 2, SendOp::Read(p.sides[1].remote(0)), 0, 3000);
    p.run();
    assert_eq!(successes(&mut p, 0), [1, 2]);
    assert_eq!(lengths(&p, 0, &SENDS), [1024, 1024, 1024, 1024, 904]);
    assert_eq!(lengths(&p, 1, &RESPONSES), [1024, 1024, 952]);
}

/// The attributes keep the path MTU given by the program, and later changes do not change the cut.
#[test]
fn attributes_do_not_bring_it_back() {
    let mut p = pair(&[0, 1], setup());
    assert_eq!(p.sides[0].qp.query().path_mtu, PathMtu::Mtu1024);
    p.step_to(0, QpState::Sqd);
    p.step_to(0, QpState::Rts);
    p.recv(1, 7, 0, 100_000);
    p.post(0, 1, SendOp::Send, 0, 100_000);
    p.run();
    assert_eq!(successes(&mut p, 0), [1]);
    assert_eq!(lengths(&p, 0, &SENDS).len(), 2);
}
