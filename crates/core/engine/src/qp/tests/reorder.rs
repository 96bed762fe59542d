//! Packets before earlier packets: buffered for their turn, within bounds, and reported if the
//! missing packets are lost and not late.
use super::harness::*;
use super::loss::{nth, small};
use super::responder_world::{Request, TARGET, World};
use crate::qp::reorder::{MOST, REACH};
use crate::qp::{Qp, ReorderMemory};
use crate::wr::SendOp;
use crate::{AttrMask, Effects, QpAttr, QpState, WcStatus};
use adverb_wire::{NakCode, Operation::*, Syndrome};
use alloc::sync::Arc;
use core::time::Duration;
use std::vec::Vec;

const ACK: Syndrome = Syndrome::ACK_NO_CREDITS;
const NAK: Syndrome = Syndrome::Nak(NakCode::PsnSequence);
const LATE: Duration = Duration::from_micros(10);

fn only(w: &World, n: u32) -> Request {
    w.packet(SendOnly, n).data(&[n as u8; 8])
}

fn kept(w: &World) -> usize {
    w.qp.inside().kept[0]
}

/// A responder with measured lateness [`LATE`]; the next PSN is 2.
fn world() -> World {
    let mut w = World::rc();
    for n in 0..2 {
        w.recv(8 * n, &[8]);
    }
    w.give(&only(&w, 1));
    assert_eq!(w.one().syndrome(), NAK, "nothing is known of lateness yet");
    w.now = w.now + LATE;
    w.give(&only(&w, 0));
    assert_eq!((w.one().psn(), w.completions().len()), (1, 2));
    // The peer sent the packet again because of the NAK, so nothing was lost.
    w.give(&only(&w, 0));
    assert_eq!(w.one().syndrome(), ACK);
    w
}

#[test]
fn reordered_requests_draw_no_nak_and_are_executed_in_order() {
    let mut w = world();
    let ids: Vec<u64> = (2..7).map(|n| w.recv(8 * n, &[8])).collect();
    for n in [5, 3, 4, 6] {
        w.give(&only(&w, n));
    }
    assert!(w.completions().is_empty());
    w.silent();
    w.give(&only(&w, 2));
    assert_eq!(w.completions().iter().map(|c| c.wr_id).collect::<Vec<_>>(), ids);
    let ack = w.one();
    assert_eq!((ack.psn(), ack.syndrome(), ack.msn()), (6, ACK, 7));
    assert_eq!((kept(&w), w.qp.poll_timeout()), (0, None));
    assert_eq!(w.qp.counters().naks_sent, 1, "the first");
}

#[test]
fn a_gap_that_stays_draws_a_nak_when_its_time_has_come() {
    let mut w = world();
    for n in 2..4 {
        w.recv(8 * n, &[8]);
    }
    w.give(&only(&w, 3));
    w.silent();
    let due = w.qp.poll_timeout().unwrap();
    assert!(due > w.now + LATE && due < w.now + 2 * LATE, "{due:?}");
    w.now = due;
    w.qp.handle_timeout(due, &mut w.effects);
    let nak = w.one();
    assert_eq!((nak.psn(), nak.syndrome()), (2, NAK));
    assert_eq!(w.qp.poll_timeout(), None);
    // The peer sends again, and the first packet is lost again.
    w.give(&only(&w, 3));
    w.silent();
    let again = w.qp.poll_timeout().unwrap();
    w.now = again;
    w.qp.handle_timeout(again, &mut w.effects);
    assert_eq!(w.one().syndrome(), NAK);
    w.give(&only(&w, 2));
    assert_eq!(
        (w.one().psn(), w.completions().len()),
        (3, 2),
        "nothing but the lost one is needed"
    );
}

#[test]
fn a_second_gap_is_told_of_in_its_turn() {
    let mut w = world();
    for n in 2..7 {
        w.recv(8 * n, &[8]);
    }
    for n in [3, 5, 6] {
        w.give(&only(&w, n));
    }
    w.now = w.now + Duration::from_micros(5);
    w.give(&only(&w, 2));
    assert_eq!((w.one().psn(), w.completions().len(), kept(&w)), (3, 2, 2));
    let due = w.qp.poll_timeout().expect("4 is missing since 5 came");
    w.qp.handle_timeout(due, &mut w.effects);
    assert_eq!((w.one().psn(), kept(&w)), (4, 2));
}

/// TRU-5.
#[test]
fn what_is_kept_is_bounded_and_the_nearest_stay() {
    let memory = Arc::new(ReorderMemory::new(1 << 20));
    let mut w = world();
    w.qp = w.qp.with_reorder_memory(&memory);
    let before = memory.left();
    let far = MOST as u32 + 100;
    let write = |w: &World, n| w.packet(WriteOnly, n).reth(w.rkey, TARGET, 8).data(&[1; 8]);
    for n in 0..far {
        w.give(&write(&w, 2 + far - n));
        assert!(kept(&w) <= MOST);
    }
    assert_eq!(kept(&w), MOST);
    assert!(before - memory.left() < 1024 * MOST);
    let executed = w.qp.counters().executed;
    w.give(&write(&w, 2));
    assert_eq!(
        (w.qp.counters().executed - executed, kept(&w)),
        (1 + MOST as u64, 0),
        "the nearest"
    );
    assert_eq!(memory.left(), before);
}

/// TRU-5.
#[test]
fn a_flood_of_far_psns_holds_nothing() {
    let memory = Arc::new(ReorderMemory::new(1 << 20));
    let mut w = world();
    w.qp = w.qp.with_reorder_memory(&memory);
    for n in 0..10_000 {
        w.give(&only(&w, 2 + REACH as u32 + n * 97 % 8_000_000));
    }
    assert_eq!((kept(&w), memory.left()), (0, 1 << 20));
    assert_eq!(w.out().len(), 1, "one NAK");
}

#[test]
fn without_memory_nothing_is_kept() {
    let memory = Arc::new(ReorderMemory::new(10));
    let mut w = World::rc();
    w.qp = w.qp.with_reorder_memory(&memory);
    for n in 0..2 {
        w.recv(8 * n, &[8]);
    }
    w.give(&only(&w, 1));
    assert_eq!((w.one().syndrome(), kept(&w), memory.left()), (NAK, 0, 10));
    w.give(&only(&w, 0));
    assert_eq!(w.completions().len(), 1);
}

#[test]
fn a_repetition_of_what_is_kept_changes_nothing() {
    let mut w = world();
    for n in 2..4 {
        w.recv(8 * n, &[8]);
    }
    for _ in 0..5 {
        w.give(&only(&w, 3));
        assert_eq!(kept(&w), 1);
    }
    w.silent();
    w.give(&only(&w, 2));
    assert_eq!(w.completions().len(), 2);
    w.give(&only(&w, 3));
    assert!(w.completions().is_empty());
}

/// RESET, ERR and the end of the queue pair free all buffered packets.
#[test]
fn the_end_of_a_connection_drops_what_was_kept() {
    let ends: [fn(&mut World); 3] = [
        |w| modify(&mut w.qp, QpState::Reset),
        |w| modify(&mut w.qp, QpState::Err),
        |w| w.qp = Qp::new(w.qp.config).unwrap(),
    ];
    for end in ends {
        let memory = Arc::new(ReorderMemory::new(1 << 20));
        let mut w = world();
        w.qp = w.qp.with_reorder_memory(&memory);
        w.give(&only(&w, 3));
        w.give(&only(&w, 4));
        assert!(kept(&w) == 2 && memory.left() < 1 << 20);
        end(&mut w);
        assert_eq!((kept(&w), memory.left(), w.qp.poll_timeout()), (0, 1 << 20, None));
    }
}

fn modify(qp: &mut Qp, state: QpState) {
    let attr = QpAttr { state, ..QpAttr::default() };
    qp.modify(&attr, AttrMask::STATE, &LIMITS, &mut Effects::default()).unwrap();
}

/// After an RNR NAK all packets come again.
#[test]
fn a_receiver_that_is_not_ready_keeps_nothing() {
    let mut w = world();
    w.give(&only(&w, 3));
    w.give(&only(&w, 2));
    assert!(matches!(w.one().syndrome(), Syndrome::RnrNak { .. }));
    assert_eq!((kept(&w), w.qp.poll_timeout()), (0, None));
}

/// Each READ response in turn is late. Later responses are buffered, and each byte lands in place.
#[test]
fn late_read_responses_are_put_in_order() {
    for late in 0..10 {
        for by in [1, 3, 20] {
            let mut p = Pair::new(small());
            p.sides[1].fill(0, 10 * 1024, 9);
            p.fate = nth(late, Fate::Late(by), |f| f.from == 1);
            let from = p.sides[1].remote(0);
            p.post(0, 1, SendOp::Read(from), 50_000, 10 * 1024);
            p.run_timed();
            assert_eq!(p.sides[0].sends()[0].status, WcStatus::Success);
            assert!(p.sides[0].holds(50_000, 10 * 1024, 9), "{late} late by {by}");
            assert_eq!(p.sides[0].qp.inside().kept, [0, 0]);
            assert!(p.sides[0].qp.counters().retransmitted <= 2, "{late} late by {by}");
        }
    }
}
