//! The judge of a failed or hanging process: each state gives its cause, and the state beside it
//! gives none.
use super::{QP, done, ledger, piece, post, receive, send};
use crate::examine::ENDS;
use crate::*;

const ARMED: CodeAddress = 11;
pub(super) const POLLED: CodeAddress = 12;
pub(super) const TAKEN: CodeAddress = 13;
pub(super) const WAITING: CodeAddress = 14;

/// A thread that sleeps for ever in a read.
fn sleeper() -> ThreadScene {
    ThreadScene {
        id: 7,
        name: "loop".into(),
        call: "read(5)".into(),
        place: WAITING,
        ..ThreadScene::default()
    }
}

/// A channel's CQ with completions that no event announces.
pub(super) fn silent(waiting: u32) -> QueueScene {
    QueueScene {
        number: 2,
        waiting,
        unannounced: waiting,
        arms: 1,
        channel: true,
        waiter: "thread 7 \"loop\"".into(),
        ..QueueScene::default()
    }
}

pub(super) fn pair() -> PairScene {
    PairScene {
        number: QP,
        state: "RTS",
        peer: 99,
        dest: 0x41,
        send_cq: 1,
        recv_cq: 2,
        ..PairScene::default()
    }
}

pub(super) fn stuck(queue: QueueScene, pair: PairScene) -> Scene {
    Scene {
        occasion: Occasion::Stuck,
        interrupted: false,
        queues: vec![queue],
        pairs: vec![pair],
        polling: Vec::new(),
        threads: vec![sleeper()],
    }
}

/// The causes, the most telling first.
pub(super) fn causes(l: &mut Ledger, scene: &Scene) -> Vec<Report> {
    l.examine(scene, 0);
    let mut all = l.reports();
    all.sort_by_key(|report| report.code.rank());
    all
}

pub(super) fn first(l: &mut Ledger, scene: &Scene) -> (Code, Vec<CodeAddress>) {
    let all = causes(l, scene);
    let first = all.first().unwrap_or_else(|| panic!("no cause"));
    (first.code, first.places.iter().map(|(_, place)| *place).collect())
}

pub(super) fn received(wr_id: u64) -> Completed {
    Completed { receive: true, ..done(wr_id) }
}

/// A ledger with an arm of CQ 2.
fn armed_ledger() -> Ledger {
    let mut l = ledger(8, 64);
    l.armed(2, ARMED);
    l
}

/// CHK-15: a queue that was armed once, gave its event, and has completions since.
#[test]
fn an_arm_that_was_never_repeated() {
    let mut l = armed_ledger();
    l.event_taken(Source::Completion(2), TAKEN);
    l.polled(2, received(1), POLLED);
    let (code, places) = first(&mut l, &stuck(silent(3), pair()));
    assert_eq!((code, places), (Code::NeverArmedAgain, vec![ARMED, TAKEN, POLLED]));
    let mut l = ledger(8, 64);
    let never = QueueScene { arms: 0, ..silent(3) };
    assert_eq!(first(&mut l, &stuck(never, pair())).0, Code::NeverArmed);
}

/// CHK-15: another thread than the one that polls took the last event, and no thread armed.
#[test]
fn an_event_that_another_thread_dropped() {
    let text = |poller| {
        let mut l = armed_ledger();
        l.polled(2, received(1), POLLED);
        l.event_taken(Source::Completion(2), TAKEN);
        let queue = QueueScene { poller, ..silent(3) };
        let report = causes(&mut l, &stuck(queue, pair())).remove(0);
        assert_eq!(report.code, Code::NeverArmedAgain);
        report.text
    };
    let dropped = "which another thread than 8, which polls, took and dropped";
    assert!(text(8).contains(dropped) && !text(0).contains("dropped"), "{}", text(8));
}

/// CHK-15: completions from before the arm, and completions left after too few polls, are two
/// mistakes with two texts.
#[test]
fn two_kinds_of_lost_wake_ups() {
    let armed = QueueScene { armed: Armed::Next, ..silent(3) };
    let mut l = ledger(8, 64);
    l.poll_returned(2, vec![], POLLED);
    l.armed(2, ARMED);
    let report = causes(&mut l, &stuck(armed.clone(), pair())).remove(0);
    assert_eq!(report.code, Code::LostWakeUp);
    assert_eq!(report.places[0], ("armed too late", ARMED));
    let mut l = armed_ledger();
    l.polled(2, received(1), POLLED);
    let report = causes(&mut l, &stuck(armed.clone(), pair())).remove(0);
    assert_eq!(report.code, Code::LostWakeUp);
    assert_eq!(report.places[0], ("polled last", POLLED));
    // With an unread event the queue is announced.
    let mut l = armed_ledger();
    let unread = QueueScene { unread: 1, ..armed };
    assert_eq!(first(&mut l, &stuck(unread, pair())).0, Code::EventUnread);
}

/// CHK-15: an arm for solicited completions, and unmarked messages.
#[test]
fn an_arm_for_solicited_completions() {
    let mut l = armed_ledger();
    let queue = QueueScene { armed: Armed::Solicited, unannounced: 0, ..silent(2) };
    assert_eq!(first(&mut l, &stuck(queue.clone(), pair())).0, Code::ArmedForSolicited);
    let mut l = armed_ledger();
    let empty = QueueScene { waiting: 0, ..queue };
    assert_eq!(first(&mut l, &stuck(empty, pair())).0, Code::Waits);
}

/// CHK-15: a message without a receive is the receiver's mistake, and the sender's state.
#[test]
fn a_message_without_a_receive() {
    let queue = QueueScene { waiting: 0, unannounced: 0, ..silent(0) };
    let mut l = ledger(8, 64);
    l.receiving(QP, &[receive(1)], false, 40);
    let dry = PairScene { refused: 3, receives: 0, ..pair() };
    let (code, places) = first(&mut l, &stuck(queue.clone(), dry.clone()));
    assert_eq!((code, places), (Code::NoReceive, vec![1, WAITING]));
    let mut l = ledger(8, 64);
    let late = PairScene { receives: 1, ..dry };
    assert_eq!(first(&mut l, &stuck(queue.clone(), late)).0, Code::Waits, "a receive waits now");
    let mut l = ledger(8, 64);
    post(&mut l, &[send(1, true)]);
    let sender = PairScene { rnr_naks: 3, open: 1, ..pair() };
    assert_eq!(first(&mut l, &stuck(queue, sender)).0, Code::PeerHasNoReceive);
}

/// CHK-15: a program that fails after a failed call, and after a failed completion.
#[test]
fn failures_before_the_end() {
    let scene = |pair| Scene { occasion: Occasion::Status(1), ..stuck(silent(0), pair) };
    let mut l = ledger(8, 64);
    l.called("ibv_modify_qp", Some("is_global is 0".into()), 60);
    assert_eq!(first(&mut l, &scene(pair())), (Code::CallFailed, vec![60]));
    let mut l = ledger(8, 64);
    l.called("ibv_modify_qp", Some("is_global is 0".into()), 60);
    (0..10).for_each(|_| l.called("ibv_post_send", None, 61));
    assert_eq!(causes(&mut l, &scene(pair())), [], "long ago");
    let mut l = ledger(8, 64);
    post(&mut l, &[send(1, true)]);
    let failed = PairScene { state: "ERR", error: "no answer".into(), ..pair() };
    l.polled(1, Completed { ok: false, status: "transport retry counter exceeded", ..done(1) }, 62);
    assert_eq!(first(&mut l, &scene(failed)), (Code::QueuePairFailed, vec![1, 62]));
    l.at_exit(1, 1);
    assert!(l.reports().iter().all(|r| r.code != Code::UndefinedFields), "the failure says more");
}

/// CHK-15: a program that waits, or that a user ends, has not failed. A timer's signal is a
/// failure.
#[test]
fn waiting_is_a_state() {
    let states = |occasion| {
        let mut l = ledger(8, 64);
        l.called("ibv_reg_mr", Some("refused".into()), 60);
        let reports = causes(&mut l, &Scene { occasion, ..stuck(silent(0), pair()) });
        assert_eq!(reports[0].code, Code::CallFailed);
        reports.iter().all(|report| report.state)
    };
    for occasion in [Occasion::Stuck, Occasion::Signal(15), Occasion::Signal(2)] {
        assert!(states(occasion), "{occasion:?}");
    }
    for occasion in [Occasion::Status(1), Occasion::Signal(14), Occasion::Signal(6)] {
        assert!(!states(occasion), "{occasion:?}");
    }
    // The same report comes again when the program has failed.
    let mut l = armed_ledger();
    l.event_taken(Source::Completion(2), TAKEN);
    for (occasion, state) in [(Occasion::Stuck, true), (Occasion::Signal(14), false)] {
        let reports = causes(&mut l, &Scene { occasion, ..stuck(silent(3), pair()) });
        assert_eq!((reports[0].code, reports[0].state), (Code::NeverArmedAgain, state));
    }
}

/// CHK-13: a wake-up that the device has judged as lost is a failure, also if a user or `timeout`
/// ends the program.
#[test]
fn a_lost_wake_up_is_no_state() {
    for occasion in [Occasion::Stuck, Occasion::Signal(15)] {
        for (lost, state) in [("", true), ("CQ 2 holds 3 completions", false)] {
            let mut l = armed_ledger();
            let queue = QueueScene { lost: lost.into(), armed: Armed::Next, ..silent(3) };
            let reports = causes(&mut l, &Scene { occasion, ..stuck(queue, pair()) });
            assert_eq!((reports[0].code, reports[0].state), (Code::LostWakeUp, state));
        }
    }
}

/// CHK-15: an error path that destroys the objects leaves the failed call in the report.
#[test]
fn an_error_path_keeps_the_first_failures() {
    let scene = Scene { occasion: Occasion::Status(1), ..stuck(silent(0), pair()) };
    let places = |l: &mut Ledger| {
        causes(l, &scene).iter().map(|report| report.places[0].1).collect::<Vec<_>>()
    };
    let down = ["ibv_destroy_qp", "ibv_dereg_mr", "ibv_destroy_cq", "ibv_dealloc_pd"];
    let mut l = ledger(8, 64);
    l.called("ibv_modify_qp", Some("is_global is 0".into()), 60);
    (0..2).for_each(|_| down.iter().for_each(|name| l.called(name, None, 61)));
    l.called("ibv_close_device", Some("busy".into()), 62);
    assert_eq!(places(&mut l), [60, 62], "the first failure leads");
    let mut l = ledger(8, 64);
    l.called("ibv_reg_mr", Some("no paging on demand".into()), 60);
    l.called("ibv_reg_mr", None, 61);
    down.iter().for_each(|name| l.called(name, None, 62));
    assert_eq!(places(&mut l), [], "the program found another way");
}

/// CHK-15: with several queue pairs the first failure leads, and not a flush that follows.
#[test]
fn a_flush_does_not_hide_the_first_failure() {
    let other = QP + 1;
    let of =
        QueuePair { number: other, send_cq: Some(1), recv_cq: Some(2), ..QueuePair::default() };
    let refused = Completed { ok: false, status: "remote access error", ..done(1) };
    let flush = Completed { flushed: true, status: "flushed", ..refused };
    let flush = Completed { queue_pair: other, receive: true, ..flush };
    let scene = Scene { occasion: Occasion::Status(1), pairs: vec![], ..stuck(silent(0), pair()) };
    for all in [[(1, refused), (2, flush)], [(2, flush), (1, refused)]] {
        let mut l = ledger(8, 64);
        l.queue_pair(of, 93);
        post(&mut l, &[send(1, true)]);
        l.receiving(other, &[receive(1)], false, 2);
        all.iter().for_each(|(cq, done)| drop(l.polled(*cq, *done, 62)));
        [QP, other].into_iter().for_each(|number| l.queue_pair_destroyed(number));
        assert_eq!(first(&mut l, &scene), (Code::CompletionFailed, vec![62, 1]));
        l.at_exit(1, 2);
        assert_eq!(l.reports(), [], "the failure says more than undefined fields");
    }
    // A program that begins anew has overcome the failure.
    let mut l = ledger(8, 64);
    l.polled(1, refused, 62);
    l.queue_pair(of, 93);
    l.polled(2, flush, 63);
    assert_eq!(first(&mut l, &scene).1, [63]);
    l.at_exit(1, 2);
    assert_eq!(l.reports(), [], "the queue pair failed, and the program did not stop it");
    let mut l = ledger(8, 64);
    l.queue_pair_stopped(QP);
    l.polled(2, Completed { queue_pair: QP, ..flush }, 63);
    l.at_exit(1, 1);
    assert_eq!(l.reports()[0].code, Code::UndefinedFields, "the program stopped the queue pair");
}

/// CHK-15: a timer's signal ends a program that stands still; a fault has a place.
#[test]
fn signals() {
    let mut scene = Scene { occasion: Occasion::Signal(14), ..stuck(silent(3), pair()) };
    let mut l = armed_ledger();
    l.event_taken(Source::Completion(2), TAKEN);
    assert_eq!(first(&mut l, &scene).0, Code::NeverArmedAgain);
    scene = Scene { occasion: Occasion::Signal(11), ..stuck(silent(0), pair()) };
    let mut l = ledger(8, 64);
    l.examine(&scene, 77);
    let reports = l.reports();
    assert_eq!((reports[0].code, reports[0].places[0]), (Code::Crashed, ("stopped", 77)));
    scene = Scene { occasion: Occasion::Status(3), interrupted: true, ..scene };
    let mut l = ledger(8, 64);
    l.examine(&scene, 78);
    let reports = l.reports();
    assert_eq!((reports[0].code, reports[0].places[0]), (Code::CallFailed, (ENDS, 78)));
    assert!(reports[0].text.contains("EINTR"));
}

/// CHK-16: bytes that an earlier READ has yet to write are not sent without a fence.
#[test]
fn a_read_is_fenced() {
    let read = Request { writes: true, ..send(1, true) };
    let uses = |fenced| Request { wr_id: 2, fenced, ..send(1, true) };
    let reported = |requests: &[Request], polled: bool| {
        let mut l = ledger(8, 64);
        post(&mut l, std::slice::from_ref(&read));
        if polled {
            l.polled(1, done(1), POLLED);
        }
        post(&mut l, requests);
        l.reports().iter().any(|r| r.code == Code::ReadNotFenced)
    };
    assert!(reported(&[uses(false)], false));
    assert!(!reported(&[uses(true)], false), "the fence waits for the READ");
    assert!(!reported(&[uses(false)], true), "the READ is done");
    let elsewhere = Request { pieces: vec![piece(0x1800, 64)], ..uses(false) };
    assert!(!reported(&[elsewhere], false));
}

/// CHK-15: a message that is polled before its connection is known, and a connection that failed.
#[test]
fn events_of_a_connection() {
    let scene = Scene { occasion: Occasion::Status(1), ..stuck(silent(0), pair()) };
    let codes = |established: bool| {
        let mut l = ledger(8, 64);
        l.connecting(5, QP);
        if established {
            l.connection_event(5, 9, 0, 70);
        }
        l.polled(2, received(1), POLLED);
        causes(&mut l, &scene).iter().map(|report| report.code).collect::<Vec<_>>()
    };
    assert_eq!(codes(false), [Code::MessageBeforeEstablished]);
    assert_eq!(codes(true), []);
    let mut l = ledger(8, 64);
    l.connection_event(5, 8, 28, 71);
    assert_eq!(first(&mut l, &scene), (Code::CallFailed, vec![71]));
}

/// CHK-15: another thread took the event, and the thread that polls sleeps for a thread. The arm is
/// accused only if the thread that polls does not wait for another thread.
#[test]
fn an_event_that_did_not_reach_the_poller() {
    let queue = QueueScene {
        armed: Armed::Next,
        poller: 8,
        lost: "CQ 2 holds 3 completions".into(),
        ..silent(3)
    };
    let poller = |call: &str, limit_ms| ThreadScene {
        id: 8,
        call: call.into(),
        limit_ms,
        place: 15,
        ..ThreadScene::default()
    };
    let scene = |poller| {
        let mut scene = stuck(queue.clone(), pair());
        scene.threads.push(poller);
        scene
    };
    let ledger = || {
        let mut l = ledger(8, 64);
        l.poll_returned(2, vec![], POLLED);
        l.event_taken(Source::Completion(2), TAKEN);
        l.armed(2, ARMED);
        l
    };
    let (code, places) = first(&mut ledger(), &scene(poller("futex", None)));
    assert_eq!((code, places), (Code::PollerNotWoken, vec![15, TAKEN, POLLED]));
    for other in [poller("read(5)", None), poller("futex", Some(5)), poller("", None)] {
        assert_eq!(first(&mut ledger(), &scene(other)).0, Code::LostWakeUp);
    }
    let same = QueueScene { poller: 0, ..queue.clone() };
    assert_eq!(first(&mut ledger(), &stuck(same, pair())).0, Code::LostWakeUp);
}

/// CHK-15: a dropped message is the cause at its receiver, with the post of the receives.
#[test]
fn a_message_that_is_longer_than_its_receive() {
    let mut l = ledger(8, 64);
    l.receiving(QP, &[receive(1)], false, 40);
    let dropped = PairScene { receives: 1, unfit: "a datagram was dropped".into(), ..pair() };
    let scene = stuck(QueueScene::default(), dropped);
    let report = causes(&mut l, &scene).remove(0);
    assert_eq!(report.code, Code::ReceiveTooShort);
    assert!(report.text.contains("a datagram was dropped"), "{}", report.text);
    let fits = stuck(QueueScene::default(), PairScene { receives: 1, ..pair() });
    assert_eq!(first(&mut l, &fits).0, Code::Waits);
}

/// CHK-15: a message without a receive of a shared receive queue names this queue, and not the
/// queue with the most receives.
#[test]
fn the_shared_queue_without_a_receive_is_named() {
    let mut l = ledger(8, 64);
    l.shared_receiving(5, &[receive(1), receive(2)]);
    l.shared_receiving(6, &[Request { place: 3, ..receive(3) }]);
    let dry = PairScene { refused: 3, srq: 6, ..pair() };
    let report = causes(&mut l, &stuck(QueueScene::default(), dry)).remove(0);
    assert_eq!((report.code, report.places[0].1), (Code::NoReceive, 3));
    assert!(report.text.starts_with("shared receive queue 6 of queue pair"), "{}", report.text);
    assert!(report.text.contains("1 was posted"), "{}", report.text);
    assert!(report.text.contains("(2 in shared receive queue 5)"), "{}", report.text);
    assert_eq!(report.places[1].1, receive(1).place);
}

/// CHK-15: a queue pair that failed because its CQ overflowed names the call that made the CQ.
#[test]
fn the_size_of_an_overflowed_queue_is_named() {
    let failed = PairScene { state: "ERR", error: "the CQ overflowed".into(), ..pair() };
    let mut l = ledger(8, 64);
    let scene = |overflowed| stuck(QueueScene { overflowed, ..silent(0) }, failed.clone());
    assert_eq!(first(&mut l, &scene(true)), (Code::QueuePairFailed, vec![91]));
    let mut l = ledger(8, 64);
    assert_eq!(first(&mut l, &scene(false)).1, []);
}

/// CHK-15: a failure for a key of no region names the last deregistration of this key.
#[test]
fn the_deregistration_before_a_failure_is_named() {
    let failed = PairScene {
        state: "ERR",
        error: "key 0x9 names no memory region or window".into(),
        unknown_key: 9,
        ..pair()
    };
    let region = |lkey, place| Region { lkey, start: 0, length: 8, memory: None, place };
    let dereg = |l: &mut Ledger, lkey, place| {
        l.registered(region(lkey, place));
        l.deregistering(lkey, place + 1);
        l.deregistered(lkey);
    };
    let mut l = ledger(8, 64);
    dereg(&mut l, 9, 50);
    dereg(&mut l, 9, 60);
    let scene = stuck(QueueScene::default(), failed);
    assert_eq!(first(&mut l, &scene), (Code::QueuePairFailed, vec![61, 60]));
    // A key that is a region's again, and one of long ago.
    l.registered(region(9, 70));
    assert_eq!(first(&mut l, &scene).1, []);
    dereg(&mut l, 9, 80);
    (100..200).for_each(|lkey| dereg(&mut l, lkey, 90));
    assert_eq!(first(&mut l, &scene).1, []);
}

/// CHK-15: a crash whose stack names no place has the last call of its thread.
#[test]
fn a_crash_without_a_stack_names_the_last_call() {
    let call = |thread, name: &'static str, place| PastCall {
        at: place as u64,
        thread,
        queue: None,
        call: name.into(),
        place,
        result: "".into(),
        times: 1,
    };
    let crashed = |signal| Scene {
        occasion: Occasion::Signal(signal),
        threads: vec![ThreadScene { signalled: true, place: 0, ..sleeper() }],
        ..stuck(QueueScene::default(), pair())
    };
    let mut l = ledger(8, 64);
    l.happened(call(7, "ibv_post_send", 31));
    l.happened(call(8, "ibv_poll_cq", 32));
    let report = causes(&mut l, &crashed(11)).remove(0);
    assert_eq!((report.code, &*report.places), (Code::Crashed, &[("last call", 31)][..]));
    assert!(report.text.ends_with("was ibv_post_send"), "{}", report.text);
    // A user's signal is no crash, and a known place says more.
    assert!(causes(&mut l, &crashed(15)).iter().all(|report| report.code != Code::Crashed));
    l.examine(&crashed(11), 77);
    assert_eq!(l.reports()[0].places, [("stopped", 77)]);
}
