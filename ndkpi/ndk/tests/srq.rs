//! Shared receive queues and their notification.
mod common;
use adverb_ndk::{NtStatus, PendingMode, Qp, Srq, SrqNotification, joined};
use common::{DEADLINE, GRACE, NONE, QpEnd, closed, sizes, wait};
use std::sync::mpsc::{Receiver, channel};

const OK: NtStatus = NtStatus::SUCCESS;

/// A queue of `depth`, and the receiver of the statuses with which its callback is called.
fn srq(end: &QpEnd, depth: u32, threshold: u32) -> (Srq, Receiver<NtStatus>) {
    let (tx, rx) = channel();
    let notification: SrqNotification = Box::new(move |status| _ = tx.send(status));
    let srq = wait(|c| end.pd.create_srq(depth, 2, threshold, Some(notification), c)).unwrap();
    (srq, rx)
}

fn shared_qp(end: &QpEnd, srq: &Srq, context: u64) -> Qp {
    wait(|c| end.pd.create_qp_with_srq(&end.cq, &end.cq, srq, context, sizes(), c)).unwrap()
}

#[test]
fn queue_pairs_share_receives_in_order() {
    let (a, b, c) = (QpEnd::new(), QpEnd::new(), QpEnd::new());
    let (srq, _calls) = srq(&b, 8, 0);
    let (first, second) = (shared_qp(&b, &srq, 1), shared_qp(&b, &srq, 2));
    joined::join(&a.qp, &first).unwrap();
    joined::join(&c.qp, &second).unwrap();
    (0..8).for_each(|i| srq.receive(i, &[b.sge(i * 64, 64)]).unwrap());
    assert_eq!(srq.receive(9, &[b.sge(0, 64)]), Err(NtStatus::INSUFFICIENT_RESOURCES));
    assert_eq!(srq.receive(9, &[b.sge(0, 8); 3]), Err(NtStatus::INVALID_PARAMETER));
    assert_eq!(first.receive(9, &[]), Err(NtStatus::INVALID_DEVICE_REQUEST));
    for i in 0..8 {
        let (from, qp_context) = if i % 2 == 0 { (&a, 1) } else { (&c, 2) };
        from.write(0, &[i as u8; 64]);
        from.qp.send(i, &[from.sge(0, 64)], NONE).unwrap();
        let got = b.results(1)[0];
        assert_eq!(
            (got.request_context, got.qp_context, got.bytes_transferred),
            (i, qp_context, 64)
        );
        assert_eq!(b.read(i as usize * 64, 64), [i as u8; 64]);
        from.results(1);
    }
    // The queue pairs use the shared queue, so its close waits for their closes.
    let (tx, rx) = channel();
    assert_eq!(srq.close(move || tx.send(()).unwrap()), Ok(adverb_ndk::RequestOutcome::Pending));
    assert!(rx.recv_timeout(GRACE).is_err());
    closed(|c| first.close(c));
    closed(|c| second.close(c));
    rx.recv_timeout(DEADLINE).unwrap();
}

#[test]
fn the_callback_comes_once_when_receives_fall_below_the_threshold() {
    let (a, b) = (QpEnd::new(), QpEnd::with(PendingMode::Alternate, 64));
    let (srq, calls) = srq(&b, 16, 3);
    let qp = shared_qp(&b, &srq, 0);
    joined::join(&a.qp, &qp).unwrap();
    let send = || {
        a.qp.send(0, &[], NONE).unwrap();
        a.results(1);
        b.results(1);
    };
    (0..5).for_each(|i| srq.receive(i, &[]).unwrap());
    assert!(calls.recv_timeout(GRACE).is_err(), "nothing fell");
    send();
    send();
    assert!(calls.recv_timeout(GRACE).is_err(), "three are left");
    send();
    assert_eq!(calls.recv_timeout(DEADLINE), Ok(OK));
    send();
    assert!(calls.recv_timeout(GRACE).is_err(), "once");
    // Armed again while below the limit: the callback comes at once, and then only after another
    // arm.
    wait(|c| srq.modify(0, 2, c)).unwrap();
    assert_eq!(calls.recv_timeout(DEADLINE), Ok(OK));
    send();
    assert!(calls.recv_timeout(GRACE).is_err(), "once, though it fell further");
    (0..4).for_each(|i| srq.receive(i, &[]).unwrap());
    wait(|c| srq.modify(0, 2, c)).unwrap();
    assert!(calls.recv_timeout(GRACE).is_err(), "four are there");
    // A threshold of 0 keeps the queue armed.
    wait(|c| srq.modify(8, 0, c)).unwrap();
    (0..3).for_each(|_| send());
    assert_eq!(calls.recv_timeout(DEADLINE), Ok(OK));
    let invalid = Err(NtStatus::INVALID_PARAMETER);
    assert_eq!(wait(|c| srq.modify(b.adapter.query_info().max_srq_depth + 1, 0, c)), invalid);
    assert_eq!(wait(|c| srq.modify(0, 9, c)), invalid, "above its depth");
    assert!(calls.recv_timeout(GRACE).is_err(), "a refused modify arms nothing");
    closed(|c| qp.close(c));
    closed(|c| srq.close(c));
}

#[test]
fn ndk_7_a_close_waits_for_a_running_notification() {
    let b = QpEnd::new();
    let (entered, has_entered) = channel();
    let (go_on, may_go_on) = channel::<()>();
    let may_go_on = std::sync::Mutex::new(may_go_on);
    let notification: SrqNotification = Box::new(move |_| {
        entered.send(()).unwrap();
        may_go_on.lock().unwrap().recv_timeout(DEADLINE).unwrap();
    });
    let srq = wait(|c| b.pd.create_srq(8, 1, 0, Some(notification), c)).unwrap();
    // Empty, so below the threshold at once.
    wait(|c| srq.modify(0, 1, c)).unwrap();
    has_entered.recv_timeout(DEADLINE).unwrap();
    let (tx, rx) = channel();
    assert_eq!(srq.close(move || tx.send(()).unwrap()), Ok(adverb_ndk::RequestOutcome::Pending));
    assert!(rx.recv_timeout(GRACE).is_err(), "the callback still runs");
    go_on.send(()).unwrap();
    rx.recv_timeout(DEADLINE).unwrap();
}
