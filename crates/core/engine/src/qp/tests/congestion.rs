//! Marks and their notifications (RoCEv2 annex A17.9).
use super::harness::*;
use super::loss::small;
use crate::qp::DropReason;
use crate::wr::SendOp;
use crate::*;
use adverb_wire::{Headers, Opcode, Operation, Psn};
use core::time::Duration;

const CE: u8 = 3;

/// Sends the packets of side 0 and marks them on their way.
fn marked(p: &mut Pair) {
    p.pump(0);
    p.net.iter_mut().for_each(|f| f.traffic_class |= CE);
    while p.deliver() {}
}

fn cnps(p: &Pair, from: usize) -> usize {
    p.count(from, |f| f.headers.bth.opcode == Opcode::CNP)
}

#[test]
fn a_mark_draws_a_notification_and_no_more_for_a_while() {
    let mut p = Pair::new(small());
    p.write(1, 5000);
    marked(&mut p);
    p.pump(1);
    let cnp = p.log.iter().find(|f| f.headers.bth.opcode == Opcode::CNP).unwrap().clone();
    let bth = &cnp.headers.bth;
    assert_eq!((bth.dest_qpn, bth.psn, bth.becn, bth.fecn), (QPN[0], Psn::ZERO, true, false));
    assert!(!bth.ack_req && !bth.solicited);
    let (_, payload) = Headers::parse(&cnp.bytes).unwrap();
    assert_eq!((payload, cnp.traffic_class & CE), (&[0; 16][..], 0));
    assert_eq!(cnps(&p, 1), 1);
    p.run();
    assert_eq!((p.sides[0].qp.counters().cnps, p.sides[1].qp.counters().cnps_sent), (1, 1));
    assert_eq!(p.sides[0].sends().len(), 1);

    p.advance(Duration::from_micros(49));
    p.write(1, 10);
    marked(&mut p);
    p.run();
    assert_eq!(cnps(&p, 1), 1, "within 50 µs of the first");
    p.advance(Duration::from_micros(1));
    p.write(1, 10);
    marked(&mut p);
    p.run();
    assert_eq!(cnps(&p, 1), 2);
    p.write(1, 10);
    p.run();
    assert_eq!(cnps(&p, 1), 2, "unmarked");
}

/// Packets sent at once by a requester with a long queue.
fn at_once(p: &mut Pair) -> usize {
    let to = p.sides[1].remote(1 << 21);
    p.post(0, 1, SendOp::Write(to), 0, 1 << 20);
    p.pump(0)
}

#[test]
fn the_window_gives_way_once_a_round_trip_and_comes_back() {
    let setup = Setup { arena: 1 << 22, ..small() };
    let whole = at_once(&mut Pair::new(setup));
    let mut p = Pair::new(setup);
    p.post(1, 9, SendOp::Write(p.sides[0].remote(0)), 0, 10);
    p.pump(1);
    p.net[0].traffic_class |= CE;
    p.deliver();
    p.pump(0);
    let cnp = p.log.iter().find(|f| f.headers.bth.opcode == Opcode::CNP).unwrap().clone();
    // Addressed to the other side.
    let mut cnp = Flying { from: 1, ..cnp };
    cnp.headers.bth.dest_qpn = QPN[0];
    cnp.headers.emit(&mut cnp.bytes);
    p.net.clear();
    p.inject(&cnp);
    p.inject(&cnp);
    let half = at_once(&mut p);
    assert_eq!(half, whole / 2);
    assert_eq!(p.sides[0].qp.counters().cnps, 2);
    // Round trips without a mark.
    p.run_timed();
    for _ in 0..20 {
        at_once(&mut p);
        p.run_timed();
    }
    assert!(at_once(&mut p) > half);
}

/// A notification comes in the middle of a burst, and more is on its way than the smaller window
/// holds. Every 16th packet asks for an ACK. If no packet on its way asks, the next packet leaves
/// all the same and asks.
#[test]
fn a_window_that_gives_way_never_leaves_silence() {
    for (burst, more) in [(15, 1), (20, 0)] {
        let mut p = Pair::new(Setup { max_inflight: 40_000, ..small() });
        p.write(1, 30 * 1024);
        assert_eq!(p.pump_some(0, burst), burst);
        p.net.iter_mut().for_each(|f| f.traffic_class |= CE);
        while p.deliver() {}
        p.pump(1);
        p.deliver();
        assert_eq!(p.sides[0].qp.counters().cnps, 1);
        assert_eq!(p.pump(0), more, "after {burst}");
        let asked =
            |p: &Pair| p.log.iter().filter(|f| f.from == 0).position(|f| f.headers.bth.ack_req);
        assert_eq!(asked(&p), Some(15));
        p.run();
        assert_eq!(p.sides[0].sends().len(), 1, "without a timer, after {burst}");
    }
}

#[test]
fn marked_responses_shrink_the_reads_too() {
    let mut p = Pair::new(Setup { arena: 1 << 22, ..small() });
    let from = p.sides[1].remote(0);
    p.post(0, 1, SendOp::Read(from), 1 << 21, 1 << 20);
    p.pump(0);
    while p.deliver() {}
    p.pump(1);
    p.net.iter_mut().for_each(|f| f.traffic_class |= CE);
    p.run_timed();
    assert_eq!(p.sides[0].sends().len(), 1);
    assert_eq!(cnps(&p, 0), 1);
    let reads = p.log.iter().filter(|f| f.op() == Operation::ReadRequest);
    let lens: std::vec::Vec<_> = reads.filter_map(|f| f.headers.reth).map(|r| r.len).collect();
    assert!(lens[1..].iter().any(|len| *len < lens[0]), "{lens:?}");
}

#[test]
fn only_reliable_packets_may_be_marked() {
    for qp_type in [QpType::Rc, QpType::Uc, QpType::Ud] {
        let mut p = Pair::new(Setup { types: [qp_type; 2], ..small() });
        p.recv(1, 1, 0, 100);
        p.post(0, 1, SendOp::Send, 0, 10);
        marked(&mut p);
        p.run();
        let reliable = qp_type == QpType::Rc;
        assert_eq!(p.log[0].traffic_class, if reliable { 2 } else { 0 }, "{qp_type:?}");
        assert_eq!(cnps(&p, 1), usize::from(reliable), "{qp_type:?}");
    }
}

/// An ECN field set by the consumer is kept.
#[test]
fn the_paths_own_traffic_class_goes_out() {
    for (class, out) in [(0x60, 0x62), (0x61, 0x61), (0, 2)] {
        let mut p = Pair::in_reset(small());
        for side in 0..2 {
            p.attr[side].av.traffic_class = class;
            p.connect(side);
        }
        p.write(1, 10);
        p.run();
        assert!(p.log.iter().all(|f| f.traffic_class == out), "{class:#x}");
    }
}

#[test]
fn forged_notifications_change_nothing() {
    let mut p = Pair::new(small());
    p.write(1, 5000);
    marked(&mut p);
    p.pump(1);
    let cnp = p.log.iter().find(|f| f.headers.bth.opcode == Opcode::CNP).unwrap().clone();
    let dropped = |p: &Pair, why| p.sides[0].qp.counters().dropped(why);
    p.inject_headers(0, gid(7), cnp.headers, &[0; 16]);
    assert_eq!(dropped(&p, DropReason::Source), 1);
    let mut other = cnp.headers;
    other.bth.dest_qpn = 0x99;
    p.inject_headers(0, gid(1), other, &[0; 16]);
    assert_eq!(dropped(&p, DropReason::DestQpn), 1);
    let mut p = Pair::in_reset(small());
    p.step_to(0, QpState::Init);
    p.inject_headers(0, gid(1), cnp.headers, &[0; 16]);
    assert_eq!(dropped(&p, DropReason::State), 1);
    assert_eq!(p.sides[0].qp.counters().cnps, 0);
}
