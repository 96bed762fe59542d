//! Arms and notification callbacks (NDK-1 … NDK-3).
mod common;
use adverb_ndk::{NotifyType, NtStatus, OpFlags, PendingMode, joined};
use common::{GRACE, NONE, QpEnd, adapter, closed, eventually, pair, results, sizes, wait};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use NotifyType::{Any, Errors, Solicited};
const OK: NtStatus = NtStatus::SUCCESS;

/// Sends a message to `b`. Its receive has completed when this function returns.
fn message(a: &QpEnd, b: &QpEnd, flags: OpFlags) {
    b.receive(1);
    a.qp.send(1, &[a.sge(0, 8)], flags).unwrap();
    a.results(1);
    b.results(1);
}

#[test]
fn ndk_1_what_arms_wait_for_and_how_two_of_them_combine() {
    let wider = |x, y| match (x, y) {
        (Any, _) | (_, Any) => Any,
        (Solicited, _) | (_, Solicited) => Solicited,
        (Errors, Errors) => Errors,
    };
    for first in [Errors, Any, Solicited] {
        for second in [None, Some(Errors), Some(Any), Some(Solicited)] {
            let (a, b) = pair();
            b.cq.arm(first);
            let combined = second.map_or(first, |second| {
                b.cq.arm(second);
                wider(first, second)
            });
            let arms = format!("{first:?} then {second:?}");
            message(&a, &b, NONE);
            if combined != Any {
                b.assert_no_call(&arms);
                message(&a, &b, OpFlags::SEND_AND_SOLICIT_EVENT);
                if combined != Solicited {
                    b.assert_no_call(&arms);
                    b.receive(2);
                    b.qp.flush();
                }
            }
            assert_eq!(b.call(), OK, "{arms}");
            b.assert_no_call("one arm, one call");
        }
    }
}

#[test]
fn ndk_1_an_overrun_satisfies_an_arm_of_any_type_and_shows_its_status() {
    for arm in [Errors, Any, Solicited] {
        let (a, b) = (QpEnd::new(), QpEnd::with(PendingMode::Never, 2));
        joined::join(&a.qp, &b.qp).unwrap();
        (0..4).for_each(|i| b.receive(i));
        (0..2).for_each(|i| a.qp.send(i, &[a.sge(0, 8)], NONE).unwrap());
        a.results(2);
        eventually("both are in the queue", || {
            let stats = b.adapter.context().node().stats();
            stats.packets_received + stats.ring_received > 0
        });
        // An existing completion satisfies the arm at once (NDK-2).
        b.cq.arm(arm);
        assert_eq!(b.call(), OK);
        b.cq.arm(arm);
        b.assert_no_call("nothing new");
        a.qp.send(3, &[a.sge(0, 8)], NONE).unwrap();
        assert_eq!(b.call(), NtStatus::BUFFER_OVERFLOW, "{arm:?}");
        // Completions from before the overrun can be read. Then no completion comes any more.
        assert_eq!(b.results(2).len(), 2);
        assert_eq!(b.cq.drain(4), []);
    }
}

#[test]
fn ndk_2_a_completion_since_the_last_callback_satisfies_an_arm_at_once() {
    let (a, b) = pair();
    let receive = |i| {
        b.receive(i);
        a.qp.send(i, &[a.sge(0, 8)], NONE).unwrap();
        a.results(1);
    };
    receive(1);
    b.assert_no_call("not armed");
    b.cq.arm(Any);
    assert_eq!(b.call(), OK);
    // All completions in the queue were there at the last callback. A provider may call the
    // callback; this provider waits for the next completion.
    b.cq.arm(Any);
    b.assert_no_call("nothing new");
    receive(2);
    assert_eq!(b.call(), OK);
    receive(3);
    b.assert_no_call("not armed");
    assert_eq!(b.results(1)[0].request_context, 1);
    b.cq.arm(Any);
    assert_eq!(b.call(), OK);
    assert_eq!(b.results(2).len(), 2);
    // The completion is taken before the arm, so the queue is empty.
    receive(4);
    b.results(1);
    b.cq.arm(Any);
    b.assert_no_call("empty");
    receive(5);
    assert_eq!(b.call(), OK);
}

#[test]
fn ndk_2_a_completion_placed_while_the_callback_runs_is_new() {
    let a = QpEnd::new();
    let adapter = adapter(PendingMode::Never);
    let (entered, has_entered) = channel();
    let (go_on, may_go_on) = channel::<()>();
    let may_go_on = std::sync::Mutex::new(may_go_on);
    let notification = move |_| {
        entered.send(()).unwrap();
        may_go_on.lock().unwrap().recv_timeout(common::DEADLINE).unwrap();
    };
    let cq = wait(|c| adapter.create_cq(64, notification, c)).unwrap();
    let pd = wait(|c| adapter.create_pd(c)).unwrap();
    let qp = wait(|c| pd.create_qp(&cq, &cq, 0, sizes(), c)).unwrap();
    joined::join(&a.qp, &qp).unwrap();
    let send = |i| {
        qp.receive(i, &[]).unwrap();
        a.qp.send(i, &[], NONE).unwrap();
        a.results(1);
    };
    cq.arm(Any);
    send(1);
    has_entered.recv_timeout(common::DEADLINE).unwrap();
    send(2);
    go_on.send(()).unwrap();
    // The callback has returned when the queue is armed.
    std::thread::sleep(GRACE);
    cq.arm(Any);
    has_entered
        .recv_timeout(common::DEADLINE)
        .expect("the second completion came after the callback began");
    go_on.send(()).unwrap();
    assert_eq!(results(&cq, 2).len(), 2);
    closed(|c| qp.close(c));
    closed(|c| cq.close(c));
    closed(|c| pd.close(c));
    adapter.close().unwrap();
}

#[test]
fn ndk_3_callbacks_come_once_an_arm_and_never_overlap() {
    // An odd number, so that two calls for each arm cannot add up to it.
    const ARMS: usize = 301;
    let a = QpEnd::new();
    let adapter = adapter(PendingMode::Never);
    let cq = Arc::new(OnceLock::<adverb_ndk::Cq>::new());
    let (running, overlaps, calls) =
        (AtomicBool::new(false), Arc::new(AtomicUsize::new(0)), Arc::default());
    let (callback_cq, callback_overlaps) = (cq.clone(), overlaps.clone());
    let callback_calls: Arc<AtomicUsize> = Arc::clone(&calls);
    let notification = move |_| {
        if running.swap(true, SeqCst) {
            callback_overlaps.fetch_add(1, SeqCst);
        }
        let cq = callback_cq.get().unwrap();
        // New completions satisfy the arm at once, while this call still runs.
        if callback_calls.fetch_add(1, SeqCst) + 1 < ARMS {
            cq.arm(Any);
        }
        std::thread::sleep(Duration::from_micros(300));
        let _ = cq.drain(4);
        running.store(false, SeqCst);
    };
    let made = wait(|c| adapter.create_cq(4096, notification, c)).unwrap();
    cq.set(made.clone()).unwrap();
    let pd = wait(|c| adapter.create_pd(c)).unwrap();
    let qp = wait(|c| pd.create_qp(&made, &made, 0, sizes(), c)).unwrap();
    joined::join(&a.qp, &qp).unwrap();
    made.arm(Any);
    let mut i = 0;
    while calls.load(SeqCst) < ARMS {
        qp.receive(i, &[]).unwrap();
        a.qp.send(i, &[], NONE).unwrap();
        a.results(1);
        i += 1;
    }
    std::thread::sleep(GRACE);
    assert_eq!(overlaps.load(SeqCst), 0);
    assert_eq!(calls.load(SeqCst), ARMS, "not armed any more");
    closed(|c| qp.close(c));
    closed(|c| made.close(c));
    closed(|c| pd.close(c));
    adapter.close().unwrap();
}

#[test]
fn ndk_3_a_close_waits_for_a_running_callback_and_none_comes_after() {
    let a = QpEnd::new();
    let adapter = adapter(PendingMode::Never);
    let (entered, has_entered) = channel();
    let (go_on, may_go_on) = channel::<()>();
    let may_go_on = std::sync::Mutex::new(may_go_on);
    let returned = Arc::new(AtomicBool::new(false));
    let flag = returned.clone();
    let notification = move |_| {
        entered.send(()).unwrap();
        may_go_on.lock().unwrap().recv_timeout(common::DEADLINE).unwrap();
        flag.store(true, SeqCst);
    };
    let cq = wait(|c| adapter.create_cq(64, notification, c)).unwrap();
    let pd = wait(|c| adapter.create_pd(c)).unwrap();
    let qp = wait(|c| pd.create_qp(&cq, &cq, 0, sizes(), c)).unwrap();
    joined::join(&a.qp, &qp).unwrap();
    let send = || {
        qp.receive(1, &[]).unwrap();
        a.qp.send(1, &[], NONE).unwrap();
        a.results(1);
    };
    cq.arm(Any);
    send();
    has_entered.recv_timeout(common::DEADLINE).unwrap();
    // Another arm is satisfied while the callback runs. Its call must not come after the close.
    send();
    cq.arm(Any);
    closed(|c| qp.close(c));
    let (tx, rx) = channel();
    let seen = returned.clone();
    let pending = cq.close(move || tx.send(seen.load(SeqCst)).unwrap()).unwrap();
    assert_eq!(pending, adverb_ndk::RequestOutcome::Pending);
    assert!(rx.recv_timeout(GRACE).is_err(), "the callback still runs");
    go_on.send(()).unwrap();
    assert!(rx.recv_timeout(common::DEADLINE).unwrap(), "the callback had returned");
    assert!(has_entered.recv_timeout(GRACE).is_err(), "no call after the close");
    closed(|c| pd.close(c));
    adapter.close().unwrap();
}

#[test]
fn moderation_holds_the_callback_back() {
    let (a, b) = pair();
    let cq = &b.cq;
    let max = u32::MAX;
    assert_eq!(cq.control_interrupt_moderation(max, max), Err(NtStatus::INVALID_PARAMETER_MIX));
    assert_eq!(cq.control_interrupt_moderation(max, 1025), Err(NtStatus::INVALID_PARAMETER_MIX));
    // Moderation by count alone.
    cq.control_interrupt_moderation(max, 3).unwrap();
    cq.arm(Any);
    message(&a, &b, NONE);
    message(&a, &b, NONE);
    b.assert_no_call("two of three");
    message(&a, &b, NONE);
    assert_eq!(b.call(), OK);
    // Moderation by time alone, in microseconds.
    cq.control_interrupt_moderation(1000, max).unwrap();
    cq.arm(Any);
    message(&a, &b, NONE);
    assert_eq!(b.call(), OK);
    // A count of 1, or an interval of 0, ends the moderation.
    for (interval, count) in [(0, 100), (max, 1)] {
        cq.control_interrupt_moderation(interval, count).unwrap();
        cq.arm(Any);
        message(&a, &b, NONE);
        assert_eq!(b.call(), OK);
    }
}

#[test]
fn a_queue_is_resized() {
    let (a, b) = pair();
    assert_eq!(wait(|c| b.cq.resize(0, c)), Err(NtStatus::INVALID_PARAMETER));
    let max = b.adapter.query_info().max_cq_depth;
    assert_eq!(wait(|c| b.cq.resize(max + 1, c)), Err(NtStatus::INVALID_PARAMETER));
    for i in 0..4 {
        b.receive(i);
        a.qp.send(i, &[], NONE).unwrap();
    }
    a.results(4);
    assert_eq!(wait(|c| b.cq.resize(3, c)), Err(NtStatus::INVALID_PARAMETER), "four are waiting");
    wait(|c| b.cq.resize(4, c)).unwrap();
    wait(|c| b.cq.resize(8, c)).unwrap();
    assert_eq!(results(&b.cq, 4).len(), 4);
}
