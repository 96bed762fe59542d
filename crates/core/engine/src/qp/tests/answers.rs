//! Answers that are lost, late, forged or wrong.
use super::harness::*;
use super::loss::small;
use crate::wr::SendOp;
use crate::*;
use adverb_wire::{NakCode, Operation, Syndrome};
use core::time::Duration;
use std::boxed::Box;
use std::vec::Vec;

#[test]
fn forged_and_old_answers_change_nothing() {
    let mut p = Pair::new(small());
    let to = p.sides[1].remote(0);
    p.post(0, 1, SendOp::Write(to), 0, 10);
    p.run();
    let ack = p.log.iter().rfind(|f| f.from == 1).unwrap().clone();
    p.sides[0].sends();
    p.post(0, 2, SendOp::Write(to), 0, 10);
    p.pump(0);
    p.net.clear();
    p.inject(&ack);
    for ahead in [2, 5, 1 << 22, 1 << 23, (1 << 24) - 1] {
        let mut forged = ack.clone();
        forged.headers.bth.psn = ack.headers.bth.psn + ahead;
        forged.headers.emit(&mut forged.bytes);
        p.inject(&forged);
    }
    assert!(p.sides[0].sends().is_empty());
    assert_eq!(p.sides[0].qp.counters().dropped(crate::qp::DropReason::GhostResponse), 6);
    p.run_timed();
    assert_eq!(p.sides[0].sends().len(), 1);
}

#[test]
fn a_response_of_the_wrong_length_is_a_bad_response() {
    let mut p = Pair::new(small());
    let from = p.sides[1].remote(0);
    p.post(0, 1, SendOp::Read(from), 50_000, 100);
    p.pump(0);
    while p.deliver() {}
    p.pump(1);
    let mut answer = p.net.pop_front().unwrap();
    answer.bytes.truncate(answer.bytes.len() - 4);
    p.inject(&answer);
    let done = p.sides[0].sends();
    assert_eq!(done[0].status, WcStatus::BadRespErr);
    assert_eq!(p.sides[0].qp.state(), QpState::Err);
}

#[test]
fn naks_become_statuses() {
    // A key nobody has; a send longer than its receive.
    let mut p = Pair::new(small());
    let remote = wr::Remote { va: BASE, rkey: 0xdead_be00 };
    p.post(0, 1, SendOp::Write(remote), 0, 10);
    p.run();
    let done = p.sides[0].sends();
    assert_eq!(done[0].status, WcStatus::RemAccessErr);
    assert!(matches!(done[0].cause.as_deref(), Some(Cause::RemoteNak { psn: 0xff_fff0, .. })));
    assert_eq!(p.sides[1].qp.state(), QpState::Err);
    assert!(matches!(p.sides[1].events[..], [QpEvent::AccessErr(_)]), "{:?}", p.sides[1].events);

    let mut p = Pair::new(small());
    p.recv(1, 3, 0, 9);
    p.post(0, 1, SendOp::Send, 0, 10);
    p.run();
    assert_eq!(p.sides[0].sends()[0].status, WcStatus::RemInvReqErr);
    assert_eq!(p.sides[1].recvs()[0].status, WcStatus::LocLenErr);
}

/// Sends everything a side has and answers the peer's packets, held back.
fn answers_held_back(p: &mut Pair) -> Vec<Flying> {
    p.pump(0);
    while p.deliver() {}
    p.pump(1);
    p.net.drain(..).collect()
}

#[test]
fn a_late_ack_saves_what_was_about_to_be_sent_again() {
    let mut p = Pair::new(small());
    let to = p.sides[1].remote(0);
    for i in 0..3 {
        p.post(0, i, SendOp::Write(to), 0, 2000);
    }
    let answers = answers_held_back(&mut p);
    p.advance(Duration::from_millis(68));
    assert_eq!(p.sides[0].qp.counters().timeouts, 1);
    for a in &answers {
        p.inject(a);
    }
    p.run_timed();
    assert_eq!(p.sides[0].sends().len(), 3);
    assert_eq!(p.sides[0].qp.counters().retransmitted, 0);
}

#[test]
fn a_late_ack_does_not_stand_for_a_lost_response() {
    let mut p = Pair::new(small());
    p.sides[1].fill(0, 100, 3);
    let remote = p.sides[1].remote(0);
    p.post(0, 1, SendOp::Read(remote), 50_000, 100);
    p.post(0, 2, SendOp::Write(p.sides[1].remote(9000)), 0, 10);
    let answers = answers_held_back(&mut p);
    assert_eq!(
        answers.iter().map(Flying::op).collect::<Vec<_>>(),
        [Operation::ReadResponseOnly, Operation::Acknowledge]
    );
    // The response is lost; the timer restarts at the READ; then the ACK of the WRITE behind it
    // comes.
    p.advance(Duration::from_millis(68));
    p.inject(&answers[1]);
    assert!(p.sides[0].completions.is_empty(), "{:?}", p.sides[0].completions);
    p.run_timed();
    assert_eq!(p.sides[0].sends().iter().map(|c| c.wr_id).collect::<Vec<_>>(), [1, 2]);
    assert!(p.sides[0].holds(50_000, 100, 3));
}

/// A NAK that ends the connection is as easily lost as any packet: the request that comes again
/// draws it again, so that the requester hears the reason and not just a timeout.
#[test]
fn a_final_nak_that_was_lost_is_sent_again() {
    type Case = (&'static str, WcStatus, fn(&mut Pair));
    let cases: [Case; 4] = [
        ("bad rkey of a write", WcStatus::RemAccessErr, |p| {
            let to = wr::Remote { rkey: 0x1234_5600, ..p.sides[1].remote(0) };
            p.post(0, 1, SendOp::Write(to), 0, 3000);
        }),
        ("bad rkey of a read", WcStatus::RemAccessErr, |p| {
            let to = wr::Remote { rkey: 0x1234_5600, ..p.sides[1].remote(0) };
            p.post(0, 1, SendOp::Read(to), 0, 3000);
        }),
        ("receive too short", WcStatus::RemInvReqErr, |p| {
            p.recv(1, 9, 0, 8);
            p.post(0, 1, SendOp::Send, 0, 3000);
        }),
        ("after a good one", WcStatus::RemAccessErr, |p| {
            let good = p.sides[1].remote(0);
            p.post_flags(0, 7, SendOp::Write(good), 0, 3000, wr::SendFlags::empty());
            p.post(0, 1, SendOp::Write(wr::Remote { rkey: 0x1234_5600, ..good }), 0, 8);
        }),
    ];
    for (what, status, post) in cases {
        for lost in 1..=3 {
            let mut p = Pair::new(small());
            post(&mut p);
            let mut seen = 0;
            p.fate = Box::new(move |f| {
                seen += usize::from(f.from == 1);
                if f.from == 1 && seen <= lost { Fate::Drop } else { Fate::Deliver }
            });
            p.run_timed();
            let done = p.sides[0].sends();
            assert_eq!((done.len(), done[0].status), (1, status), "{what}, {lost} lost");
            assert_eq!(p.sides[1].qp.state(), QpState::Err, "{what}");
        }
    }
    // What else comes in ERR draws nothing, and neither does anything after the consumer's own move
    // there.
    let mut p = Pair::new(small());
    let now = p.now;
    p.sides[1].modify(&QpAttr { state: QpState::Err, ..QpAttr::default() }, AttrMask::STATE, now).unwrap();
    let to = p.sides[1].remote(0);
    p.post(0, 1, SendOp::Write(to), 0, 8);
    p.run_timed();
    assert_eq!(p.count(1, |_| true), 0);
    assert_eq!(p.sides[0].sends()[0].status, WcStatus::RetryExcErr);
}

/// A READ of five packets whose memory goes away when `sent` responses have left, the `lost`th of
/// which (0: none) is lost.
fn read_what_goes(what: &str, sent: usize, lost: usize) -> Pair {
    let mut p = Pair::new(small());
    let to = p.sides[1].remote(0);
    let mut seen = 0;
    p.fate = Box::new(move |f| {
        seen += usize::from(f.from == 1);
        if f.from == 1 && seen == lost { Fate::Drop } else { Fate::Deliver }
    });
    p.post(0, 1, SendOp::Read(to), 0, 5000);
    p.pump(0);
    while p.deliver() {}
    assert_eq!(p.pump_some(1, sent), sent);
    if what == "vanished" {
        // What is still to be sent, or what has to be sent again.
        let first = if sent == 5 { lost - 1 } else { sent };
        p.sides[1].arena.hole.set(Some(BASE + 1024 * first as u64 + 1));
    } else {
        let key = p.sides[1].key;
        p.sides[1].keys.deregister(key).unwrap();
    }
    p.run_timed();
    p
}

/// Ways for memory to go, and how a READ of it ends.
const GONE: [(&str, WcStatus); 2] =
    [("deregistered", WcStatus::RemAccessErr), ("vanished", WcStatus::RemOpErr)];

/// The memory of a READ goes away while it is answered, and a response before the NAK was lost: the
/// READ comes again, and hears why it fails. A NAK at the place of the first would say that
/// everything before it was received.
#[test]
fn a_read_that_is_refused_half_way_hears_why_whatever_was_lost() {
    for (what, status) in GONE {
        for sent in 1..5 {
            for lost in 0..=sent {
                let mut p = read_what_goes(what, sent, lost);
                let done = p.sides[0].sends();
                assert_eq!((done.len(), done[0].status), (1, status), "{what} after {sent}, {lost} lost");
                assert_eq!(p.sides[0].qp.counters().timeouts, 0, "{what} after {sent}, {lost} lost");
            }
        }
    }
}

/// The memory of a READ goes away when all of it was answered, and a response was lost. Whoever
/// asks again hears why there is no answer any more; the connection of the responder stands, to
/// which the request had succeeded.
#[test]
fn a_read_asked_again_of_memory_that_is_gone_is_refused() {
    for (what, status) in GONE {
        for lost in 1..=5 {
            let mut p = read_what_goes(what, 5, lost);
            let done = p.sides[0].sends();
            assert_eq!((done.len(), done[0].status), (1, status), "{what}, {lost} lost");
            assert_eq!(p.sides[0].qp.counters().timeouts, 0, "{what}, {lost} lost");
            assert_eq!(p.sides[1].qp.state(), QpState::Rts, "{what}, {lost} lost");
        }
    }
}

/// A copy of an old READ that the network kept names memory that is gone: it is refused, and nobody
/// takes notice.
#[test]
fn an_old_read_of_memory_that_is_gone_disturbs_nobody() {
    let mut p = Pair::new(small());
    let to = p.sides[1].remote(0);
    p.post(0, 1, SendOp::Read(to), 0, 5000);
    p.run();
    let old = p.log.iter().find(|f| f.op() == Operation::ReadRequest).unwrap().clone();
    let key = p.sides[1].key;
    p.sides[1].keys.deregister(key).unwrap();
    // Beside a request that is under way.
    p.recv(1, 9, 0, 0);
    p.post(0, 2, SendOp::Send, 0, 0);
    p.inject(&old);
    p.run_timed();
    let refused =
        |f: &Flying| f.headers.aeth.is_some_and(|aeth| aeth.syndrome == Syndrome::Nak(NakCode::RemoteAccess));
    assert_eq!(p.count(1, refused), 1);
    let done: Vec<_> = p.sides[0].sends().iter().map(|c| c.status).collect();
    assert_eq!(done, [WcStatus::Success; 2]);
    assert_eq!([0, 1].map(|side: usize| p.sides[side].qp.state()), [QpState::Rts; 2]);
}
