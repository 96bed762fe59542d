//! Recovery without waiting for the local ACK timeout: second NAKs, probes, small READs.
use super::harness::*;
use super::loss::{drop_nth, small};
use super::responder_world::World;
use crate::wr::SendOp;
use crate::*;
use adverb_wire::{NakCode, Operation, Syndrome, ack_timeout_ns};
use core::time::Duration;
use std::boxed::Box;
use std::vec::Vec;

const T: Duration = Duration::from_nanos(4096 << 14);
const RTT: Duration = Duration::from_micros(50);

/// A connection with a measured round trip: one request was answered after [`RTT`].
fn acquainted(setup: Setup) -> Pair {
    let mut p = Pair::new(setup);
    p.write(99, 10);
    p.pump(0);
    p.advance(RTT);
    p.run();
    assert_eq!(p.sides[0].sends().len(), 1);
    p.log.clear();
    p
}

fn wait(p: &Pair) -> Option<Duration> {
    p.sides[0].qp.poll_timeout().map(|at| at.since(p.now))
}

#[test]
fn what_is_lost_twice_draws_a_second_nak() {
    let mut w = World::rc();
    let packet = |w: &World, n| w.packet(Operation::WriteMiddle, n).data(&[0; 256]);
    let nak = Syndrome::Nak(NakCode::PsnSequence);
    for n in [2, 3, 4] {
        w.give(&packet(&w, n));
    }
    let first = w.one();
    assert_eq!((first.psn(), first.syndrome()), (0, nak));
    // The packets begin anew, again without the first.
    w.give(&packet(&w, 1));
    let second = w.one();
    assert_eq!((second.psn(), second.syndrome()), (0, nak));
    w.give(&packet(&w, 2));
    w.silent();
    // A NAK that still waits to be sent covers further losses.
    w.give(&packet(&w, 1));
    w.give(&packet(&w, 1));
    assert_eq!(w.one().syndrome(), nak);
}

#[test]
fn after_an_rnr_nak_a_gap_draws_none() {
    let mut w = World::rc();
    w.give(&w.packet(Operation::SendOnly, 0).data(&[0; 8]));
    assert!(matches!(w.one().syndrome(), Syndrome::RnrNak { .. }));
    for n in [1, 2, 1, 2] {
        w.give(&w.packet(Operation::SendOnly, n).data(&[0; 8]));
    }
    w.silent();
}

/// The NAK for a retransmission takes a round trip. An earlier NAK is an echo.
#[test]
fn a_second_nak_counts_after_a_round_trip() {
    let mut p = acquainted(small());
    p.fate = drop_nth(0, |f| f.from == 0);
    p.write(1, 5 * 1024);
    p.pump(0);
    while p.deliver() {}
    p.pump(1);
    let nak = p.net.pop_front().unwrap();
    assert_eq!(nak.headers.aeth.unwrap().syndrome, Syndrome::Nak(NakCode::PsnSequence));
    let again = |p: &Pair| p.sides[0].qp.counters().retransmitted;
    p.inject(&nak);
    p.pump(0);
    assert_eq!(again(&p), 5);
    p.inject(&nak);
    p.pump(0);
    assert_eq!(again(&p), 5, "an echo");
    p.advance(RTT + Duration::from_nanos(1));
    p.inject(&nak);
    p.pump(0);
    assert_eq!(again(&p), 10, "lost again");
    p.run_timed();
    assert_eq!(p.sides[0].sends().len(), 1);
    assert_eq!((p.sides[0].qp.counters().timeouts, p.sides[0].qp.counters().probes), (0, 0));
}

#[test]
fn the_tail_is_sent_again_before_the_timeout_and_costs_no_retry() {
    for lost in [0, 1] {
        // 0: the last packet; 1: its ACK.
        let mut p = acquainted(Setup { retry_cnt: 0, ..small() });
        p.fate = drop_nth(if lost == 0 { 2 } else { 0 }, move |f| f.from == lost);
        p.write(1, 3000);
        p.run();
        assert!(wait(&p).is_some_and(|w| w <= Duration::from_millis(1)), "{:?}", wait(&p));
        p.run_timed();
        let done = p.sides[0].sends();
        assert_eq!((done.len(), done[0].status), (1, WcStatus::Success));
        let c = p.sides[0].qp.counters();
        assert_eq!((c.probes, c.timeouts), (1, 0));
        assert!(p.now.since(Time(1_000_000)) < Duration::from_millis(3));
    }
}

/// Probes become rarer. The failure comes as the formula says: `retry_cnt` + 1 timeouts after the
/// last progress.
#[test]
fn probes_do_not_count() {
    for retry_cnt in [0, 2, 7] {
        let mut p = acquainted(Setup { retry_cnt, ..small() });
        p.fate = Box::new(|_| Fate::Drop);
        let start = p.now;
        p.write(1, 10);
        let mut waits = Vec::new();
        while p.sides[0].completions.is_empty() {
            p.run();
            let left = wait(&p).unwrap();
            waits.push(left.as_millis());
            p.advance(left);
        }
        let tries = u32::from(retry_cnt) + 1;
        assert_eq!(p.now.since(start), T * tries);
        assert_eq!(waits[..6], [1, 2, 4, 8, 16, 32]);
        let done = p.sides[0].sends();
        assert!(matches!(done[0].cause.as_deref(),
            Some(Cause::RetryExceeded { attempts, .. }) if *attempts == tries));
        let c = p.sides[0].qp.counters();
        assert_eq!(c.timeouts, u64::from(tries));
        assert!((6..=6 + 2 * u64::from(tries)).contains(&c.probes), "{}", c.probes);
    }
}

/// Without a timer there are no probes, and neither without a measured round trip.
#[test]
fn no_probe_without_a_measure_or_a_timer() {
    let mut p = acquainted(Setup { timeout: 0, ..small() });
    p.fate = Box::new(|_| Fate::Drop);
    p.write(1, 10);
    p.run();
    assert_eq!(wait(&p), None);

    let mut p = Pair::new(small());
    p.fate = Box::new(|_| Fate::Drop);
    p.write(1, 10);
    p.run();
    assert_eq!(wait(&p), Some(T));
}

/// A late answer of a slow peer is no loss: the window returns to its size.
#[test]
fn a_late_answer_gives_the_window_back() {
    let mut p = acquainted(Setup { arena: 1 << 22, ..small() });
    let to = p.sides[1].remote(1 << 21);
    p.post(0, 1, SendOp::Write(to), 0, 1 << 20);
    // The whole window is sent, and no answer comes for a long time.
    let whole = p.pump(0);
    while p.deliver() {}
    p.pump(1);
    let acks: Vec<_> = p.net.drain(..).collect();
    p.advance(wait(&p).unwrap());
    assert_eq!(p.pump(0), 2, "a probe is small");
    p.net.clear();
    for ack in &acks {
        p.inject(ack);
    }
    let then = p.pump(0);
    assert!(then >= 2 * whole - 2, "{then}: twice as much as at first ({whole}), as all arrived");
}

/// The timer of every code, by the formula: between T and 4T (IBTA 9.7.6.1.3).
#[test]
fn the_timeout_is_between_t_and_four() {
    for code in 1..=31u8 {
        let mut p = Pair::new(Setup { timeout: code, retry_cnt: 1, ..small() });
        p.fate = Box::new(|_| Fate::Drop);
        p.write(1, 10);
        let t = Duration::from_nanos(ack_timeout_ns(code).unwrap());
        for _ in 0..2 {
            p.run();
            let left = wait(&p).unwrap();
            assert!(t <= left && left <= 4 * t, "code {code}: {left:?}");
            assert!(left == t || left <= Duration::from_millis(20), "code {code}: {left:?}");
            p.advance(left);
        }
        assert_eq!(p.sides[0].sends()[0].status, WcStatus::RetryExcErr);
    }
}

/// READ requests: address and length.
fn asked(p: &Pair) -> Vec<(u64, u32)> {
    let reads = p.log.iter().filter(|f| f.op() == Operation::ReadRequest);
    reads.map(|f| f.headers.reth.map(|r| (r.va - BASE, r.len)).unwrap()).collect()
}

/// After losses a READ is requested in smaller parts. No part reaches beyond the end of an earlier
/// request.
#[test]
fn reads_shrink_with_the_window_and_keep_their_ends() {
    const LEN: usize = 60 * 1024;
    let setup = Setup { mtu: PathMtu::Mtu1024, max_inflight: 28 * 1792, ..small() };
    let mut p = Pair::new(setup);
    p.sides[1].fill(0, LEN, 4);
    let mut responses = 0;
    // The fifth response and many later responses are lost.
    p.fate = Box::new(move |f| {
        responses += usize::from(f.from == 1);
        if f.from == 1 && matches!(responses, 5 | 18 | 19 | 24) {
            Fate::Drop
        } else {
            Fate::Deliver
        }
    });
    let from = p.sides[1].remote(0);
    p.post(0, 1, SendOp::Read(from), 100_000, LEN);
    p.run_timed();
    assert_eq!(p.sides[0].sends().len(), 1);
    assert!(p.sides[0].holds(100_000, LEN, 4));
    let asked = asked(&p);
    assert_eq!(asked[..2], [(0, 14 * 1024), (14 * 1024, 14 * 1024)], "half a window each");
    let fresh = asked.iter().find(|(at, _)| *at >= 28 * 1024).unwrap();
    assert!(fresh.1 < 14 * 1024, "{asked:?}");
    for (i, (at, len)) in asked.iter().enumerate() {
        for (from, whole) in &asked[..i] {
            let end = from + u64::from(*whole);
            let inside = (*from..end).contains(at);
            assert!(
                !inside || at + u64::from(*len) <= end,
                "{at} of {len} crosses {end}: {asked:?}"
            );
        }
    }
}
