//! Regions that are deregistered under posted receives.
use super::{POLL, QP, SEND, codes, done, ledger, post, receive, send};
use crate::*;

/// CHK-5: a posted receive needs its region as long as messages can come.
#[test]
fn a_region_of_posted_receives_is_in_use() {
    // Whether a report comes when the program does this after the deregistration, and then ends.
    let reported = |before: fn(&mut Ledger), after: fn(&mut Ledger)| {
        let mut l = ledger(8, 64);
        l.receiving(QP, &[receive(1), receive(2)], false, SEND);
        before(&mut l);
        l.deregistering(7, 40);
        l.deregistered(7);
        assert_eq!(codes(&mut l), [], "no message may come any more");
        after(&mut l);
        let at_once = codes(&mut l);
        l.at_exit(0, 0);
        (at_once, codes(&mut l))
    };
    let message = |wr_id| Completed { receive: true, ..done(wr_id) };
    let none = (vec![], vec![]);
    let nothing: fn(&mut Ledger) = |_| ();
    assert_eq!(reported(nothing, nothing), (vec![], vec![Code::RegionInUse]));
    let goes_on: fn(&mut Ledger) = |l| {
        post(l, &[Request { pieces: vec![], ..send(5, true) }]);
    };
    assert_eq!(reported(nothing, goes_on), (vec![Code::RegionInUse], vec![]));
    let fails: fn(&mut Ledger) = |l| {
        let failed = Completed { ok: false, status: "local protection error", ..done(1) };
        l.polled(2, Completed { receive: true, ..failed }, POLL);
    };
    assert_eq!(reported(nothing, fails), (vec![Code::RegionInUse], vec![]));
    // Right programs.
    let consumed = move |l: &mut Ledger| (1..3).for_each(|n| drop(l.polled(2, message(n), POLL)));
    let mut l = ledger(8, 64);
    l.receiving(QP, &[receive(1), receive(2)], false, SEND);
    consumed(&mut l);
    l.deregistering(7, 40);
    goes_on(&mut l);
    l.at_exit(0, 0);
    assert_eq!(codes(&mut l), []);
    for ends in [Ledger::queue_pair_destroyed, Ledger::queue_pair_reset, Ledger::queue_pair_stopped]
    {
        for first in [true, false] {
            let mut l = ledger(8, 64);
            l.receiving(QP, &[receive(1)], false, SEND);
            if first {
                ends(&mut l, QP);
            }
            l.deregistering(7, 40);
            ends(&mut l, QP);
            l.at_exit(0, 0);
            assert_eq!(codes(&mut l), []);
        }
    }
    let registers_again: fn(&mut Ledger) = |l| {
        let of = Region { lkey: 7, start: 0x1000, length: 0x1000, memory: None, place: 51 };
        l.registered(of);
    };
    assert_eq!(reported(nothing, registers_again), none);
}

/// CHK-5: the same for the receives of a shared receive queue.
#[test]
fn a_region_of_shared_receives_is_in_use() {
    for (consumed, destroyed, expected) in
        [(true, false, 0), (false, true, 0), (false, false, 1), (true, true, 0)]
    {
        let mut l = ledger(8, 64);
        l.shared_receiving(3, &[receive(1)]);
        l.shared_receiving(3, &[receive(2)]);
        l.shared_refused(3, &[receive(2)]);
        if consumed {
            l.polled(2, Completed { receive: true, ..done(1) }, POLL);
        }
        l.deregistering(7, 40);
        if destroyed {
            l.srq_destroyed(3);
        } else {
            l.shared_receiving(3, &[Request { pieces: vec![], ..receive(4) }]);
        }
        l.at_exit(0, 0);
        assert_eq!(codes(&mut l), vec![Code::RegionInUse; expected], "{consumed} {destroyed}");
    }
}
