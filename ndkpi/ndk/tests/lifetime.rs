//! Objects are made, used and closed, in line or pending (NDK-7).
mod common;
use adverb_ndk::device::Mapping;
use adverb_ndk::{Adapter, Mdl, MrFlags, NtStatus, Pd, PendingMode, RequestOutcome};
use common::{DEADLINE, GRACE, adapter, closed, sizes, wait};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

fn pd_of(adapter: &Adapter) -> Pd {
    wait(|c| adapter.create_pd(c)).unwrap()
}

/// Makes, uses and closes an object of each type. Returns how many requests completed in line, and
/// how many through their callback.
fn every_request(pending: PendingMode) -> (usize, usize) {
    let adapter = adapter(pending);
    let (mut in_line, mut called) = (0, 0);
    macro_rules! ask {
        ($request:expr) => {{
            let (tx, rx) = channel();
            let outcome = $request(Box::new(move |result| tx.send(result).unwrap())).unwrap();
            match outcome {
                RequestOutcome::Done(value) => {
                    in_line += 1;
                    assert!(rx.recv_timeout(DEADLINE).is_err(), "dropped without a call");
                    value
                }
                RequestOutcome::Pending => {
                    called += 1;
                    let value =
                        rx.recv_timeout(DEADLINE).expect("the completion is called").unwrap();
                    assert!(rx.recv_timeout(DEADLINE).is_err(), "called once");
                    value
                }
            }
        }};
    }
    let memory = Mapping::alloc(8192).unwrap();
    let mdl = Mdl::of(&memory);
    let cq = ask!(|c: adverb_ndk::object::Completion<_>| adapter.create_cq(64, |_| (), c));
    let pd = ask!(|c: adverb_ndk::object::Completion<_>| adapter.create_pd(c));
    let srq = ask!(|c: adverb_ndk::object::Completion<_>| pd.create_srq(16, 2, 0, None, c));
    let qp = ask!(|c: adverb_ndk::object::Completion<_>| pd.create_qp(&cq, &cq, 0, sizes(), c));
    let shared = ask!(|c: adverb_ndk::object::Completion<_>| pd.create_qp_with_srq(
        &cq,
        &cq,
        &srq,
        0,
        sizes(),
        c
    ));
    let mr = ask!(|c: adverb_ndk::object::Completion<_>| pd.create_mr(false, c));
    let fast = ask!(|c: adverb_ndk::object::Completion<_>| pd.create_mr(true, c));
    let mw = ask!(|c: adverb_ndk::object::Completion<_>| pd.create_mw(c));
    let lam = ask!(|c: adverb_ndk::object::Completion<_>| adapter.build_lam(&mdl, 8192, c));
    ask!(|c: adverb_ndk::object::Completion<_>| mr.register(&mdl, 8192, MrFlags::empty(), c));
    ask!(|c: adverb_ndk::object::Completion<_>| mr.deregister(c));
    ask!(|c: adverb_ndk::object::Completion<_>| fast.initialize_fast_register(16, true, c));
    ask!(|c: adverb_ndk::object::Completion<_>| cq.resize(32, c));
    ask!(|c: adverb_ndk::object::Completion<_>| srq.modify(8, 2, c));
    adapter.release_lam(&lam);
    macro_rules! close {
        ($($object:ident),*) => {$(
            ask!(|c: adverb_ndk::object::Completion<()>| $object.close(move || c(Ok(()))));
        )*};
    }
    close!(qp, shared, srq, mr, fast, mw, pd, cq);
    adapter.close().unwrap();
    (in_line, called)
}

#[test]
fn ndk_7_every_request_completes_in_line_or_through_its_callback_as_configured() {
    assert_eq!(every_request(PendingMode::Never), (22, 0));
    assert_eq!(every_request(PendingMode::Always), (0, 22));
    let (in_line, called) = every_request(PendingMode::Alternate);
    assert!(in_line >= 8 && called >= 8, "{in_line} in line, {called} called");
}

#[test]
fn ndk_7_a_failure_comes_in_line_or_through_the_callback() {
    for pending in [PendingMode::Never, PendingMode::Always] {
        let adapter = adapter(pending);
        let info = adapter.query_info();
        let pd = pd_of(&adapter);
        let cq = wait(|c| adapter.create_cq(64, |_| (), c)).unwrap();
        let (tx, rx) = channel();
        let asked = adapter.create_cq(
            info.max_cq_depth + 1,
            |_| (),
            move |r| tx.send(r.map(drop)).unwrap(),
        );
        match pending {
            PendingMode::Never => assert_eq!(asked.unwrap_err(), NtStatus::INVALID_PARAMETER),
            _ => {
                assert!(matches!(asked, Ok(RequestOutcome::Pending)));
                assert_eq!(rx.recv_timeout(DEADLINE).unwrap(), Err(NtStatus::INVALID_PARAMETER));
            }
        }
        let too_large = [
            adverb_ndk::QpSizes {
                receive_queue_depth: info.max_receive_queue_depth + 1,
                ..sizes()
            },
            adverb_ndk::QpSizes {
                initiator_queue_depth: info.max_initiator_queue_depth + 1,
                ..sizes()
            },
            adverb_ndk::QpSizes {
                max_receive_request_sge: info.max_receive_request_sge + 1,
                ..sizes()
            },
            adverb_ndk::QpSizes {
                max_initiator_request_sge: info.max_initiator_request_sge + 1,
                ..sizes()
            },
            adverb_ndk::QpSizes { inline_data_size: info.max_inline_data_size + 1, ..sizes() },
        ];
        for sizes in too_large {
            let made = wait(|c| pd.create_qp(&cq, &cq, 0, sizes, c));
            assert_eq!(made.unwrap_err(), NtStatus::INVALID_PARAMETER, "{sizes:?}");
        }
        for (depth, sge, threshold) in [
            (info.max_srq_depth + 1, 1, 0),
            (16, info.max_receive_request_sge + 1, 0),
            (16, 1, 17),
            (0, 1, 0),
        ] {
            let made = wait(|c| pd.create_srq(depth, sge, threshold, None, c));
            assert_eq!(made.unwrap_err(), NtStatus::INVALID_PARAMETER);
        }
        closed(|c| cq.close(c));
        closed(|c| pd.close(c));
        adapter.close().unwrap();
    }
}

#[test]
fn ndk_7_a_queue_pair_is_of_one_adapter() {
    let (one, other) = (adapter(PendingMode::Never), adapter(PendingMode::Never));
    let (pd, other_pd) = (pd_of(&one), pd_of(&other));
    let cq = wait(|c| one.create_cq(64, |_| (), c)).unwrap();
    let other_cq = wait(|c| other.create_cq(64, |_| (), c)).unwrap();
    let other_srq = wait(|c| other_pd.create_srq(16, 1, 0, None, c)).unwrap();
    for (receive, initiator) in [(&cq, &other_cq), (&other_cq, &cq)] {
        let made = wait(|c| pd.create_qp(receive, initiator, 0, sizes(), c));
        assert_eq!(made.unwrap_err(), NtStatus::INVALID_PARAMETER);
    }
    let made = wait(|c| pd.create_qp_with_srq(&cq, &cq, &other_srq, 0, sizes(), c));
    assert_eq!(made.unwrap_err(), NtStatus::INVALID_PARAMETER);
    // The failed creations hold nothing: each adapter can be closed.
    closed(|c| cq.close(c));
    closed(|c| pd.close(c));
    one.close().unwrap();
    closed(|c| other_srq.close(c));
    closed(|c| other_cq.close(c));
    closed(|c| other_pd.close(c));
    other.close().unwrap();
}

type Log = Arc<Mutex<Vec<&'static str>>>;

fn noting(log: &Log, what: &'static str) -> impl FnOnce() + Send + use<> {
    let log = log.clone();
    move || log.lock().unwrap().push(what)
}

#[test]
fn ndk_7_an_antecedent_closes_after_its_successors() {
    for pending in [PendingMode::Never, PendingMode::Always] {
        let adapter = adapter(pending);
        let pd = pd_of(&adapter);
        let cq = wait(|c| adapter.create_cq(64, |_| (), c)).unwrap();
        let qp = wait(|c| pd.create_qp(&cq, &cq, 0, sizes(), c)).unwrap();
        let log = Log::default();
        assert_eq!(cq.close(noting(&log, "cq")), Ok(RequestOutcome::Pending));
        assert_eq!(pd.close(noting(&log, "pd")), Ok(RequestOutcome::Pending));
        // The protection domain cannot be used any more.
        assert_eq!(wait(|c| pd.create_mw(c)).unwrap_err(), NtStatus::DELETE_PENDING);
        assert_eq!(pd.close(|| ()), Err(NtStatus::DELETE_PENDING));
        let slow = {
            let log = log.clone();
            move || {
                std::thread::sleep(GRACE);
                log.lock().unwrap().push("qp");
            }
        };
        std::thread::sleep(GRACE);
        assert!(log.lock().unwrap().is_empty());
        let in_line = qp.close(slow).unwrap() == RequestOutcome::Done(());
        assert_eq!(in_line, pending == PendingMode::Never);
        adapter.close().unwrap();
        let mut log = log.lock().unwrap();
        if !in_line {
            assert_eq!(
                log.remove(0),
                "qp",
                "its completion has returned before the others are called"
            );
        }
        log.sort_unstable();
        assert_eq!(*log, ["cq", "pd"]);
    }
}

/// A completion that blocks until the test lets it continue.
fn slow<T: Send + 'static>() -> (impl FnOnce(T) + Send + 'static, Receiver<T>, Sender<()>) {
    let (entered, has_entered) = channel();
    let (go_on, may_go_on) = channel();
    let completion = move |value| {
        entered.send(value).unwrap();
        may_go_on.recv_timeout(DEADLINE).unwrap();
    };
    (completion, has_entered, go_on)
}

#[test]
fn ndk_7_a_close_waits_for_the_completion_of_a_pending_request() {
    let adapter = adapter(PendingMode::Always);
    let pd = pd_of(&adapter);
    let mr = wait(|c| pd.create_mr(false, c)).unwrap();
    let memory = Mapping::alloc(4096).unwrap();
    let (completion, entered, go_on) = slow();
    assert_eq!(
        mr.register(&Mdl::of(&memory), 4096, MrFlags::empty(), completion),
        Ok(RequestOutcome::Pending)
    );
    assert_eq!(entered.recv_timeout(DEADLINE).unwrap(), Ok(()));
    let (tx, rx) = channel();
    assert_eq!(mr.close(move || tx.send(()).unwrap()), Ok(RequestOutcome::Pending));
    assert!(rx.recv_timeout(GRACE).is_err(), "the completion still runs");
    go_on.send(()).unwrap();
    rx.recv_timeout(DEADLINE).unwrap();
    closed(|c| pd.close(c));
    adapter.close().unwrap();
}

#[test]
fn ndk_7_a_close_in_line_waits_for_the_completion_of_a_pending_request() {
    let adapter = adapter(PendingMode::Alternate);
    let cq = wait(|c| adapter.create_cq(64, |_| (), c)).unwrap();
    // Every second request pends. The next request, the close, would be done in line.
    let (entered, go_on) = loop {
        let (completion, entered, go_on) = slow();
        if cq.resize(64, completion) == Ok(RequestOutcome::Pending) {
            break (entered, go_on);
        }
    };
    assert_eq!(entered.recv_timeout(DEADLINE).unwrap(), Ok(()));
    let (tx, rx) = channel();
    assert_eq!(
        cq.close(move || tx.send(()).unwrap()),
        Ok(RequestOutcome::Pending),
        "the completion still runs"
    );
    go_on.send(()).unwrap();
    rx.recv_timeout(DEADLINE).unwrap();
    adapter.close().unwrap();
}

#[test]
fn ndk_7_an_antecedent_is_held_until_the_close_completion_of_its_successor_has_returned() {
    let adapter = adapter(PendingMode::Never);
    let pd = pd_of(&adapter);
    let cq = wait(|c| adapter.create_cq(64, |_| (), c)).unwrap();
    let srq = wait(|c| pd.create_srq(16, 1, 0, None, c)).unwrap();
    let qp = wait(|c| pd.create_qp_with_srq(&cq, &cq, &srq, 0, sizes(), c)).unwrap();
    let (completion, entered, go_on) = slow();
    assert_eq!(
        srq.close(move || completion(())),
        Ok(RequestOutcome::Pending),
        "the queue pair uses it"
    );
    assert_eq!(qp.close(|| ()), Ok(RequestOutcome::Done(())));
    entered.recv_timeout(DEADLINE).unwrap();
    let (tx, rx) = channel();
    assert_eq!(
        pd.close(move || tx.send(()).unwrap()),
        Ok(RequestOutcome::Pending),
        "the completion still runs"
    );
    go_on.send(()).unwrap();
    rx.recv_timeout(DEADLINE).unwrap();
    closed(|c| cq.close(c));
    adapter.close().unwrap();
}

#[test]
fn ndk_7_an_object_may_be_closed_in_the_completion_that_brings_it() {
    let adapter = adapter(PendingMode::Always);
    let returned = Arc::new(AtomicBool::new(false));
    let (tx, rx) = channel();
    let flag = returned.clone();
    let created = move |made: Result<Pd, NtStatus>| {
        let seen = flag.clone();
        let closing = made.unwrap().close(move || tx.send(seen.load(SeqCst)).unwrap());
        assert_eq!(closing, Ok(RequestOutcome::Pending));
        std::thread::sleep(GRACE);
        flag.store(true, SeqCst);
    };
    assert!(matches!(adapter.create_pd(created), Ok(RequestOutcome::Pending)));
    assert!(rx.recv_timeout(DEADLINE).unwrap(), "the callback that closed it had returned");
    adapter.close().unwrap();
}

#[test]
fn ndk_7_closing_the_adapter_waits_for_objects_and_callbacks() {
    let adapter = adapter(PendingMode::Always);
    let pd = pd_of(&adapter);
    let (completion, entered, go_on) = slow();
    let done = Arc::new(AtomicBool::new(false));
    let (closing, flag) = (adapter.clone(), done.clone());
    let thread = std::thread::spawn(move || {
        let result = closing.close();
        flag.store(true, SeqCst);
        result
    });
    // From now on, a second close and new objects are refused.
    common::eventually("the close begins", || match wait(|c| adapter.create_pd(c)) {
        Ok(early) => {
            closed(|c| early.close(c));
            false
        }
        Err(status) => {
            assert_eq!(status, NtStatus::DELETE_PENDING);
            true
        }
    });
    assert_eq!(adapter.close(), Err(NtStatus::DELETE_PENDING));
    std::thread::sleep(GRACE);
    assert!(!done.load(SeqCst), "a PD is open");
    assert_eq!(pd.close(move || completion(())), Ok(RequestOutcome::Pending));
    entered.recv_timeout(DEADLINE).unwrap();
    std::thread::sleep(GRACE);
    assert!(!done.load(SeqCst), "its close completion runs");
    go_on.send(()).unwrap();
    assert_eq!(thread.join().unwrap(), Ok(()));
}

#[test]
fn ndk_7_an_adapter_is_not_closed_from_inside_a_callback() {
    let adapter = adapter(PendingMode::Always);
    let (tx, rx) = channel();
    let inside = adapter.clone();
    let _ = adapter.create_pd(move |made| {
        tx.send((inside.close(), made.unwrap())).unwrap();
    });
    let (refused, pd) = rx.recv_timeout(DEADLINE).unwrap();
    assert_eq!(refused, Err(NtStatus::POSSIBLE_DEADLOCK));
    closed(|c| pd.close(c));
    adapter.close().unwrap();
}

#[test]
fn ndk_7_an_object_lives_until_its_close_not_until_its_handles_are_dropped() {
    let (a, b) = common::pair();
    let mr = wait(|c| a.pd.create_mr(true, c)).unwrap();
    wait(|c| mr.initialize_fast_register(1, true, c)).unwrap();
    let lam = wait(|c| a.adapter.build_lam(&Mdl::of(&a.memory), 4096, c)).unwrap();
    b.receive(1);
    a.write(0, b"kept");
    a.qp.fast_register(1, &mr, &lam.pages[..1], 0, 4096, 0x8000, common::NONE).unwrap();
    let token = mr.get_local_token();
    drop(mr);
    let sge = adverb_ndk::Sge::Registered { address: 0x8000, length: 4, token };
    a.qp.send(2, &[sge], common::NONE).unwrap();
    assert!(a.results(2).iter().all(|r| r.status == NtStatus::SUCCESS));
    b.results(1);
    assert_eq!(b.read(0, 4), b"kept");
    // Without a handle the region cannot be closed, so the adapter can never be closed either.
    std::mem::forget(a);
}

#[test]
fn a_callback_that_panics_takes_no_other_along() {
    let adapter = adapter(PendingMode::Always);
    let _ = adapter.create_pd(|made| {
        let _ = made.unwrap().close(|| ());
        std::panic::panic_any("on purpose");
    });
    closed(|c| pd_of(&adapter).close(c));
    adapter.close().unwrap();
}
