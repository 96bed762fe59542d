//! The last calls of threads and queues.
use crate::{Ledger, Occasion, PastCall, Scene, Source, ToldCall};

fn call(at: u64, thread: i32, queue: u32, result: &'static str) -> PastCall {
    PastCall {
        at,
        thread,
        queue: Some(Source::Completion(queue)),
        call: "ibv_poll_cq".into(),
        place: 0x100,
        result: result.into(),
        times: 1,
    }
}

/// HUN-18: ten calls of each thread and of each queue are kept. A busy thread does not push out the
/// calls of another.
#[test]
fn the_last_ten_of_each_are_kept() {
    let mut ledger = Ledger::default();
    ledger.happened(call(1, 1, 1, "of a thread that waits"));
    let words = ["a", "b"];
    for at in 2..100 {
        ledger.happened(call(at, 2, 2, words[at as usize % 2]));
    }
    ledger.happened(call(100, 2, 3, "c"));
    let all = ledger.picture();
    assert_eq!(all.first().unwrap().result, "of a thread that waits");
    // Ten of thread 2, the last of which is on CQ 3, and the tenth of CQ 2.
    assert_eq!(all.len(), 1 + 10 + 1);
    assert!(all.is_sorted_by_key(|call| call.at));
    for thread in 3..300 {
        ledger.happened(call(200 + thread as u64, thread, 4, "d"));
    }
    assert!(ledger.picture().len() < 200, "{}", ledger.picture().len());
}

/// HUN-18: calls with the same result in a row are one.
#[test]
fn repeated_calls_are_one() {
    let mut ledger = Ledger::default();
    for at in 1..1000 {
        ledger.happened(call(at, 1, 1, "empty"));
        ledger.happened(call(at, 2, 1, "empty"));
    }
    ledger.happened(call(1000, 1, 1, "1 completion"));
    let all: Vec<_> = ledger.picture().iter().map(|c| (c.at, c.thread, c.times)).collect();
    assert_eq!(all, [(999, 1, 999), (999, 2, 999), (1000, 1, 1)]);
}

/// HUN-18: a line of a process is read as written.
#[test]
fn a_line_is_read_as_written() {
    let told = ToldCall {
        process: 7,
        at: 12,
        times: 3,
        thread: "8 \"main\"".into(),
        queue: String::new(),
        call: "ibv_modify_qp".into(),
        place: "a.out+0x12 in f, f.c:3".into(),
        result: "EINVAL".into(),
    };
    assert_eq!(told.to_string().parse(), Ok(told));
    assert!("7\tno-receive\ttext".parse::<ToldCall>().is_err());
}

/// HUN-18: a program that ends after a wait in vain is told the place and the limit of the wait.
#[test]
fn a_wait_that_found_nothing_is_named_at_the_end() {
    let scene = Scene {
        occasion: Occasion::Status(1),
        interrupted: false,
        queues: Vec::new(),
        pairs: Vec::new(),
        polling: Vec::new(),
        threads: Vec::new(),
    };
    let ended = |calls: &[PastCall]| {
        let mut ledger = Ledger::default();
        calls.iter().for_each(|call| ledger.happened(call.clone()));
        ledger.examine(&scene, 7);
        ledger.reports().remove(0)
    };
    let over = PastCall { call: "poll".into(), ..call(2, 1, 1, "nothing within 2ms") };
    let report = ended(&[call(1, 1, 1, "empty"), over.clone()]);
    assert!(report.text.ends_with("status 1 after poll found nothing within 2ms"), "{report:?}");
    assert_eq!(report.places[0], ("waited", over.place));
    let report = ended(&[over, call(3, 1, 1, "empty")]);
    assert!(report.text.ends_with("status 1"), "the program went on: {report:?}");
}
