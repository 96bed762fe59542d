//! Lost, late, forged and wrong answers.
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
    p.write(1, 10);
    p.run();
    let ack = p.log.iter().rfind(|f| f.from == 1).unwrap().clone();
    p.sides[0].sends();
    p.write(2, 10);
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
    // An unknown key; a send longer than its receive.
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

/// Sends all packets of side 0, and answers the peer's packets without delivering them.
fn answers_held_back(p: &mut Pair) -> Vec<Flying> {
    p.pump(0);
    while p.deliver() {}
    p.pump(1);
    p.net.drain(..).collect()
}

#[test]
fn a_late_ack_saves_what_was_about_to_be_sent_again() {
    let mut p = Pair::new(small());
    for i in 0..3 {
        p.write(i, 2000);
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
    // The response is lost. The timer restarts at the READ. Then the ACK of the later WRITE comes.
    p.advance(Duration::from_millis(68));
    p.inject(&answers[1]);
    assert!(p.sides[0].completions.is_empty(), "{:?}", p.sides[0].completions);
    p.run_timed();
    assert_eq!(p.sides[0].sends().iter().map(|c| c.wr_id).collect::<Vec<_>>(), [1, 2]);
    assert!(p.sides[0].holds(50_000, 100, 3));
}

/// A NAK that ends the connection may be lost like any packet. The repeated request draws the NAK
/// again, so that the requester gets the reason and not just a timeout.
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
    // Other packets in ERR draw no answer, and neither does any packet after the consumer's own
    // move to ERR.
    let mut p = Pair::new(small());
    p.sides[1]
        .modify(&QpAttr { state: QpState::Err, ..QpAttr::default() }, AttrMask::STATE)
        .unwrap();
    let to = p.sides[1].remote(0);
    p.post(0, 1, SendOp::Write(to), 0, 8);
    p.run_timed();
    assert_eq!(p.count(1, |_| true), 0);
    assert_eq!(p.sides[0].sends()[0].status, WcStatus::RetryExcErr);
}

/// A READ of five packets. Its memory goes away when `sent` responses have left. Response number
/// `lost` is lost (0: none).
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
        // The part not sent yet, or the part to be sent again.
        let first = if sent == 5 { lost - 1 } else { sent };
        p.sides[1].arena.hole.set(Some(BASE + 1024 * first as u64 + 1));
    } else {
        let key = p.sides[1].key;
        p.sides[1].keys.deregister(key).unwrap();
    }
    p.run_timed();
    p
}

/// How memory goes away, and how a READ of this memory ends.
const DEREGISTERED: [(&str, WcStatus); 2] =
    [("deregistered", WcStatus::RemAccessErr), ("vanished", WcStatus::RemOpErr)];

/// The memory of a READ goes away while the READ is answered, and a response before the NAK is
/// lost. The READ comes again, and its requester gets the reason. A NAK at the old PSN would
/// acknowledge all earlier responses.
#[test]
fn a_read_that_is_refused_half_way_hears_why_whatever_was_lost() {
    for (what, status) in DEREGISTERED {
        for sent in 1..5 {
            for lost in 0..=sent {
                let mut p = read_what_goes(what, sent, lost);
                let done = p.sides[0].sends();
                assert_eq!(
                    (done.len(), done[0].status),
                    (1, status),
                    "{what} after {sent}, {lost} lost"
                );
                assert_eq!(
                    p.sides[0].qp.counters().timeouts,
                    0,
                    "{what} after {sent}, {lost} lost"
                );
            }
        }
    }
}

/// The memory of a READ goes away after all responses were sent, and a response was lost. The
/// repeated READ is refused with the reason. The connection of the responder stays, because for the
/// responder the request had succeeded.
#[test]
fn a_read_asked_again_of_deregistered_memory_is_refused() {
    for (what, status) in DEREGISTERED {
        for lost in 1..=5 {
            let mut p = read_what_goes(what, 5, lost);
            let done = p.sides[0].sends();
            assert_eq!((done.len(), done[0].status), (1, status), "{what}, {lost} lost");
            assert_eq!(p.sides[0].qp.counters().timeouts, 0, "{what}, {lost} lost");
            assert_eq!(p.sides[1].qp.state(), QpState::Rts, "{what}, {lost} lost");
        }
    }
}

/// An old copy of a READ from the network names memory that is no longer registered. The READ is
/// refused and nothing else happens.
#[test]
fn an_old_read_of_deregistered_memory_disturbs_no_queue_pair() {
    let mut p = Pair::new(small());
    let to = p.sides[1].remote(0);
    p.post(0, 1, SendOp::Read(to), 0, 5000);
    p.run();
    let old = p.log.iter().find(|f| f.op() == Operation::ReadRequest).unwrap().clone();
    let key = p.sides[1].key;
    p.sides[1].keys.deregister(key).unwrap();
    // Another request is under way.
    p.recv(1, 9, 0, 0);
    p.post(0, 2, SendOp::Send, 0, 0);
    p.inject(&old);
    p.run_timed();
    let refused = |f: &Flying| {
        f.headers.aeth.is_some_and(|aeth| aeth.syndrome == Syndrome::Nak(NakCode::RemoteAccess))
    };
    assert_eq!(p.count(1, refused), 1);
    let done: Vec<_> = p.sides[0].sends().iter().map(|c| c.status).collect();
    assert_eq!(done, [WcStatus::Success; 2]);
    assert_eq!([0, 1].map(|side: usize| p.sides[side].qp.state()), [QpState::Rts; 2]);
}
