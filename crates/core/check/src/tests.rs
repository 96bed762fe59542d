//! The ledger with calls as programs make them. A wrong call causes one report, a right call none.
use crate::*;

mod examine;
mod orphans;
mod picture;
mod waits;

const QP: u32 = 0x40;
const SEND: CodeAddress = 1;
const POLL: CodeAddress = 2;

fn ledger(max_send: usize, entries: usize) -> Ledger {
    let mut l = Ledger::default();
    l.cq(1, entries, 90);
    l.cq(2, entries, 91);
    let of = QueuePair { number: QP, send_cq: Some(1), recv_cq: Some(2), max_send, max_recv: 8 };
    l.queue_pair(of, 92);
    l.registered(Region {
        lkey: 7,
        start: 0x1000,
        length: 0x1000,
        memory: Some(0x1000),
        place: 50,
    });
    l
}

fn piece(addr: u64, length: u32) -> Piece {
    Piece { addr, length, lkey: 7 }
}

fn send(wr_id: u64, signaled: bool) -> Request {
    Request {
        wr_id,
        at: 100,
        signaled,
        pieces: vec![piece(0x1000 + 64 * wr_id, 64)],
        place: SEND,
        ..Request::default()
    }
}

fn receive(wr_id: u64) -> Request {
    Request { signaled: true, writes: true, ..send(wr_id, true) }
}

/// Posts as many requests as fit, as a NIC does.
fn post(l: &mut Ledger, requests: &[Request]) -> usize {
    let room = l.room(QP, false).unwrap_or(usize::MAX).min(requests.len());
    l.posting(QP, requests, false, SEND);
    let refused = Refused { taken: room, full: true, why: String::new() };
    l.posted(QP, requests, Some(&refused).filter(|_| room < requests.len()), SEND);
    room
}

fn done(wr_id: u64) -> Completed {
    Completed { queue_pair: QP, wr_id, ok: true, receive: false, status: "success", flushed: false }
}

fn codes(l: &mut Ledger) -> Vec<Code> {
    l.reports().iter().map(|r| r.code).collect()
}

/// The first report, with this code and these words.
fn one(l: &mut Ledger, code: Code, words: &[&str]) -> Report {
    let report = l.reports().remove(0);
    assert_eq!(report.code, code);
    assert!(words.iter().all(|word| report.text.contains(word)), "{}", report.text);
    report
}

/// CHK-1: a completion frees its own request and all earlier requests, and no others.
#[test]
fn a_completion_frees_what_was_before_it() {
    let mut l = ledger(4, 64);
    assert_eq!(post(&mut l, &[send(1, false), send(2, true), send(3, false), send(4, true)]), 4);
    assert_eq!(post(&mut l, &[send(5, true)]), 0);
    let freed: Vec<_> = l.polled(1, done(2), POLL).iter().map(|r| r.wr_id).collect();
    assert_eq!(freed, [1, 2]);
    assert_eq!(l.room(QP, false), Some(2));
    assert_eq!(l.room(QP, true), None, "what is flushed waits for no place");
    assert_eq!(post(&mut l, &[send(5, true)]), 1);
    l.at_exit(0, 0);
    assert_eq!(codes(&mut l), [], "who posts again has reckoned with it");
}

/// CHK-1: a program fails without a new post after a refusal, so the program assumed a free place.
/// The report has what the last completions before the refusal freed, and what is lost is not
/// reported a second time.
#[test]
fn a_place_taken_for_free_is_reported_at_the_end() {
    let mut l = ledger(4, 64);
    for burst in [1, 1, 4, 1, 2] {
        (1..=burst).for_each(|n| assert_eq!(post(&mut l, &[send(0, n == burst)]), 1));
        l.polled(1, done(0), POLL);
    }
    (0..4).for_each(|_| assert_eq!(post(&mut l, &[send(0, true)]), 1));
    assert_eq!(post(&mut l, &[send(0, true)]), 0);
    l.polled(1, done(0), POLL);
    l.lost_requests();
    assert_eq!(codes(&mut l), []);
    l.at_exit(1, 0);
    let report = one(&mut l, Code::SendQueueOverposted, &["4 places, 1 free now"]);
    assert!(report.text.ends_with("in order: 1, 4, 1, 2"), "{}", report.text);
    assert_eq!(report.places[0], ("posted", SEND));
    l.at_exit(1, 0);
    assert_eq!(codes(&mut l), [], "once");
}

/// CHK-1: a queue full of unsignaled requests stays full.
#[test]
fn unsignaled_requests_alone_are_never_freed() {
    let mut l = ledger(2, 64);
    post(&mut l, &[send(1, false), send(2, false)]);
    assert_eq!(codes(&mut l), []);
    post(&mut l, &[send(3, true)]);
    assert_eq!(codes(&mut l), [Code::SendQueueNeverFreed]);
}

/// CHK-2: the accepted part of a chain must not be posted again; the rest must.
#[test]
fn a_chain_is_posted_again_from_bad_wr() {
    for (again, expected) in [(0, vec![Code::ChainPostedAgain]), (2, vec![])] {
        let mut l = ledger(2, 64);
        let mut chain: Vec<_> = (0..4).map(|n| send(n, true)).collect();
        chain.iter_mut().enumerate().for_each(|(n, r)| r.at = 100 + n);
        assert_eq!(post(&mut l, &chain), 2);
        l.polled(1, done(1), POLL);
        post(&mut l, &chain[again..]);
        assert_eq!(codes(&mut l), expected);
    }
}

/// CHK-2: a refused request from a pool is lost if the program never posts the request again.
#[test]
fn a_refused_request_is_lost_when_it_is_never_posted_again() {
    for returns in [false, true] {
        let mut l = ledger(4, 64);
        for n in 0..4 {
            post(&mut l, &[send(n, true)]);
        }
        l.polled(1, done(0), POLL);
        post(&mut l, &[send(0, true)]);
        assert_eq!(post(&mut l, &[send(1, true)]), 0);
        for n in 1..20 {
            let next = [1, 2, 3, 0][n % 4];
            l.polled(1, Completed { ok: false, ..done(next) }, POLL);
            post(&mut l, &[send(if returns && n == 3 { 1 } else { 2 }, true)]);
        }
        let lost = codes(&mut l).contains(&Code::RequestLost);
        assert_eq!(lost, !returns, "returns: {returns}");
    }
}

/// CHK-2: if a post is refused because of its contents, the report names the reason.
#[test]
fn a_refused_post_is_told_with_its_reason() {
    let mut l = ledger(4, 64);
    l.posting(QP, &[send(1, true)], false, SEND);
    let refused = Refused { taken: 0, full: false, why: "17 bytes of inline data".into() };
    l.posted(QP, &[send(1, true)], Some(&refused), SEND);
    assert!(l.reports()[0].text.contains("17 bytes of inline data"));
    assert_eq!(l.room(QP, false), Some(4));
}

/// CHK-2: flushed requests are posted again in a loop. A marker request in the error state is not a
/// mistake.
#[test]
fn posting_in_the_error_state_is_reported_when_it_goes_on() {
    let mut l = ledger(4, 1000);
    l.receiving(QP, &[receive(1)], true, SEND);
    for _ in 0..24 {
        l.polled(2, Completed { ok: false, receive: true, ..done(1) }, POLL);
        l.receiving(QP, &[receive(1)], true, SEND);
    }
    assert_eq!(codes(&mut l), []);
    l.receiving(QP, &[receive(1)], true, SEND);
    assert_eq!(codes(&mut l), [Code::PostedInError]);
}

/// CHK-3: a completion may come for each request that is posted, signaled and not polled.
#[test]
fn a_cq_is_too_small_when_more_may_come_than_it_holds() {
    let mut l = ledger(8, 2);
    let two = [receive(1), receive(2)];
    for _ in 0..10 {
        l.receiving(QP, &two, false, SEND);
        post(&mut l, &[send(1, false), send(2, true)]);
        l.polled(1, done(2), POLL);
        two.iter()
            .for_each(|r| drop(l.polled(2, Completed { receive: true, ..done(r.wr_id) }, POLL)));
    }
    assert_eq!(codes(&mut l), []);
    l.queue_pair_reset(QP);
    l.receiving(QP, &two, false, SEND);
    assert_eq!(codes(&mut l), []);
    l.receiving(QP, &[receive(3)], false, SEND);
    let report = one(&mut l, Code::CqTooSmall, &["may complete", "2 entries"]);
    assert_eq!(report.places[0], ("made", 91));
}

/// CHK-4: events are acknowledged on their own queue, once for each event.
#[test]
fn events_are_acknowledged_once_and_on_their_own_queue() {
    let (own, other) = (Source::Completion(1), Source::Completion(2));
    let mut l = ledger(4, 64);
    l.event_taken(own, 30);
    l.events_acknowledged(own, 1, 31);
    l.not_acknowledged(own, 32);
    assert_eq!(codes(&mut l), []);
    l.event_taken(own, 30);
    l.events_acknowledged(other, 1, 31);
    let words = ["1 event of CQ 1 is not acknowledged"];
    let report = one(&mut l, Code::EventOveracknowledged, &words);
    assert_eq!(report.places, [("acknowledged", 31), ("the other's event taken", 30)]);
    assert_eq!(l.unacknowledged(own), 1);
    l.not_acknowledged(own, 32);
    assert_eq!(codes(&mut l), [Code::EventNotAcknowledged]);
}

/// CHK-12: a program that takes one event and sleeps leaves events behind. A program that ever
/// polled until there was no event empties the descriptor later.
#[test]
fn events_left_at_an_edge_are_reported_once() {
    let of = Descriptor { number: 7, file: 70, handle: 0 };
    let mut l = ledger(4, 64);
    assert!(!l.taken_from(of, Reads::Completions, false, 9), "nothing is left");
    assert_eq!(l.left(), []);
    assert!(l.taken_from(of, Reads::Completions, true, 9));
    l.taken_by(of, vec![30, 31]);
    let left = l.left()[0];
    assert_eq!((left.of, left.thread, left.taken), (of, 9, 2));
    l.overslept(Left { taken: 1, ..left }, 4);
    assert_eq!(codes(&mut l), [], "somebody has come since");
    l.overslept(left, 4);
    let report = one(&mut l, Code::EdgeNotDrained, &["left in descriptor 7", "EAGAIN"]);
    assert_eq!(report.places, [("last event taken", 30), ("called", 31)]);
    assert!(!l.taken_from(of, Reads::Completions, true, 9), "once a descriptor");
    assert_eq!(l.left(), []);
    // Another file now has the number.
    let next = Descriptor { file: 71, ..of };
    l.found_empty(next, Reads::Asynchronous);
    assert!(!l.taken_from(next, Reads::Asynchronous, true, 9), "it looks until there is none");
    let last = Descriptor { file: 72, ..of };
    assert!(l.taken_from(last, Reads::Asynchronous, true, 9));
    let left = l.left()[0];
    l.descriptor_closed(next);
    assert_eq!(l.left(), [left]);
    l.found_empty(last, Reads::Asynchronous);
    l.overslept(left, 4);
    assert_eq!(codes(&mut l), []);
    l.descriptor_closed(last);
    assert!(l.taken_from(last, Reads::Asynchronous, true, 9), "it begins anew");
}

/// CHK-5: the memory named in a request must be registered.
#[test]
fn elements_lie_in_their_regions() {
    let mut l = ledger(8, 64);
    let with = |piece| Request { pieces: vec![piece], ..send(1, true) };
    post(&mut l, &[with(piece(0x1fc0, 0x40)), with(piece(0x1000, 0))]);
    assert_eq!(codes(&mut l), []);
    post(&mut l, &[with(piece(0x1fc0, 0x41))]);
    let report = one(&mut l, Code::OutsideRegion, &["exceeds the region"]);
    assert_eq!(report.places, [("posted", SEND), ("registered", 50)]);
    post(&mut l, &[with(Piece { addr: 0, length: 0, lkey: 0xdead })]);
    assert_eq!(codes(&mut l), [Code::ZeroLengthElement]);
}

/// CHK-5: a region is in use until a completion reports the request with its key.
#[test]
fn a_region_is_in_use_until_the_completion() {
    for (told, expected) in [(true, vec![]), (false, vec![Code::RegionInUse])] {
        let mut l = ledger(8, 64);
        post(&mut l, &[send(1, true)]);
        if told {
            l.polled(1, done(1), POLL);
        }
        l.deregistering(7, 40);
        assert_eq!(codes(&mut l), expected);
    }
    let mut l = ledger(8, 64);
    post(&mut l, &[send(1, false)]);
    l.deregistering(7, 40);
    post(&mut l, &[send(2, true)]);
    l.queue_pair_stopped(QP);
    l.deregistering(7, 40);
    assert_eq!(codes(&mut l), [], "no completion tells of it; or the queue pair was stopped");
}

/// CHK-5: sends that the device has carried out are compared once, and open sends later.
#[test]
fn sends_that_were_carried_out_are_compared_once() {
    let mut l = ledger(8, 64);
    let summed = |n| Request { sum: Some(n), ..send(n, n == 3) };
    post(&mut l, &[summed(1), summed(2), summed(3)]);
    let numbers = |all: Vec<(Vec<(u64, u32)>, Request)>| {
        all.iter().map(|(_, request)| (request.wr_id, request.sum)).collect::<Vec<_>>()
    };
    assert_eq!(numbers(l.carried_out(QP, 1)), [(1, Some(1)), (2, Some(2))]);
    assert_eq!(numbers(l.carried_out(QP, 1)), [], "once");
    let sums: Vec<_> = l.polled(1, done(3), POLL).iter().map(|r| r.sum).collect();
    assert_eq!(sums, [None, None, Some(3)]);
}

/// CHK-5: bytes are compared only in memory changed by the program alone.
#[test]
fn memory_that_the_device_writes_is_not_compared() {
    let mut l = ledger(8, 64);
    assert_eq!(l.bytes_of(&send(1, true)), Some(vec![(0x1040, 64)]));
    l.receiving(QP, &[receive(2)], false, SEND);
    l.write_to(piece(0x10c0, 8));
    assert_eq!(l.bytes_of(&send(1, true)), Some(vec![(0x1040, 64)]));
    assert_eq!(l.bytes_of(&send(2, true)), None);
    assert_eq!(l.bytes_of(&send(3, true)), None);
    assert_eq!(l.bytes_of(&Request { pieces: vec![piece(0x1fff, 2)], ..send(1, true) }), None);
    l.changed(QP, &send(1, true), POLL);
    assert_eq!(codes(&mut l), [Code::BufferChanged]);
}

/// CHK-5: a fork, with registered memory that the child also gets.
#[test]
fn a_fork_shares_what_is_not_kept_from_the_child() {
    let mut l = ledger(8, 64);
    let fork = |l: &mut Ledger, copied: &[(u64, u64)]| {
        let mut shared = Shared::default();
        copied.iter().for_each(|(start, end)| l.share(&mut shared, *start, *end));
        l.forked(shared, 60);
        l.reports()
    };
    assert_eq!(fork(&mut l, &[]), []);
    assert_eq!(fork(&mut l, &[(0, 0x1000), (0x2000, 0x3000)]), []);
    // A region in two of the three mappings is counted once.
    let reports = fork(&mut l, &[(0, 0x1000), (0x1000, 0x1800), (0x1800, 0x3000)]);
    assert_eq!(reports[0].code, Code::RegisteredMemoryForked);
    assert!(reports[0].text.contains("while 1 registered region is shared"), "{}", reports[0].text);
    assert_eq!(reports.len(), 1);
}

/// CHK-6: code 0 is the longest time.
#[test]
fn the_longest_rnr_timer_is_reported() {
    let mut l = ledger(8, 64);
    l.rnr_timer(QP, 12, 70);
    l.receive_was_late(QP);
    assert_eq!(codes(&mut l), []);
    l.rnr_timer(QP, 0, 70);
    assert_eq!(codes(&mut l), []);
    l.receive_was_late(QP);
    assert!(l.reports()[0].text.contains("655.36 ms"));
}

/// CHK-14.
#[test]
fn a_value_that_is_cut_is_reported_once_a_place() {
    let mut l = ledger(8, 64);
    for place in [70, 70, 71] {
        l.value_cut("min_rnr_timer is 32: it becomes 0", place);
    }
    let reports = l.reports();
    assert_eq!(reports.iter().map(|r| r.code).collect::<Vec<_>>(), [Code::ValueCut; 2]);
    assert!(reports[0].text.starts_with("min_rnr_timer is 32"), "{}", reports[0].text);
}

/// CHK-7: an object is left over if the program destroyed later objects. If the program destroys no
/// object, or the object is in use, there is no report.
#[test]
fn objects_are_left_when_later_ones_were_ended() {
    let made = Made { place: 80, way: 5 };
    for (ends, expected) in
        [(vec![], vec![]), (vec![1, 2], vec![]), (vec![1, 3], vec![Code::LeftAtExit])]
    {
        let mut l = ledger(8, 64);
        (1..=3).for_each(|handle| l.made(Kind::Region, handle, made));
        ends.into_iter().for_each(|handle| l.ended(Kind::Region, handle));
        l.at_exit(0, 0);
        assert_eq!(codes(&mut l), expected);
    }
}

/// CHK-8: undefined fields are reported if the program fails after they were filled.
#[test]
fn undefined_fields_are_named_when_the_program_fails() {
    for (status, filled, expected) in
        [(0, 3, vec![]), (1, 0, vec![]), (1, 3, vec![Code::UndefinedFields])]
    {
        let mut l = ledger(8, 64);
        l.at_exit(status, filled);
        assert_eq!(codes(&mut l), expected);
    }
}

/// CHK-9: a suppression line has a code and a pattern.
#[test]
fn suppressions_name_a_code_and_words() {
    let s: Suppressions =
        "# ours\n\nbuffer-changed  *ucp_*.c:1\n* in library.so\nlongest-rnr-timer\n"
            .parse()
            .unwrap();
    assert!(s.has(Code::BufferChanged, "posted at x in ucp_send, y.c:12"));
    assert!(!s.has(Code::BufferChanged, "posted at x in uct_send, y.c:12"));
    assert!(!s.has(Code::CqTooSmall, "in ucp_send, y.c:12"));
    assert!(s.has(Code::CqTooSmall, "posted at 5 in library.so"));
    assert!(s.has(Code::LongestRnrTimer, ""));
    let bad = "buffer-changed\nbufer-changed x".parse::<Suppressions>().unwrap_err().to_string();
    assert!(bad.contains("line 2: \"bufer-changed\"") && bad.contains("cq-too-small"), "{bad}");
    assert!(Code::ALL.iter().all(|code| Code::of(code.name()) == Some(*code)));
}

/// CHK-13: a report converts to a line of text and back, for any text.
#[test]
fn a_report_is_a_line_of_text() {
    let places = vec![
        ("posted".to_owned(), "a+0x1 in f, /src/a b.c:7".to_owned()),
        ("from".into(), "b".into()),
    ];
    let text = "bytes: 1".into();
    let told = Told { process: 12, code: Code::BufferChanged, text, places, state: false };
    assert_eq!(told.to_string().parse(), Ok(told.clone()));
    let none = Told { places: vec![], ..told.clone() };
    assert_eq!(none.to_string().parse(), Ok(none.clone()));
    let state = Told { state: true, ..told.clone() };
    assert_eq!(state.to_string().parse(), Ok(state.clone()));
    let lines = Told { text: "a\nb\tc".into(), ..told.clone() };
    assert_eq!(lines.to_string().parse(), Ok(Told { text: "a b c".into(), ..told.clone() }));
    let line = told.to_string();
    for cut in [
        "",
        "12",
        "12\tbuffer-changed",
        "x\tbuffer-changed\ta",
        "1\tbufer-changed\ta",
        &line[..line.len() - 2],
    ] {
        assert_eq!(cut.parse::<Told>(), Err(()), "{cut:?}");
    }
    assert!(
        Code::ALL.iter().all(|code| code.meaning().len() > 20 && !code.meaning().ends_with('.'))
    );
}

/// CHK-4: an event of rdma_cm that is not acknowledged is named with the call that took the event,
/// and an acknowledged event, or an event of another id, is not.
#[test]
fn events_of_a_connection_are_acknowledged() {
    let mut l = ledger(8, 16);
    let (id, other) = (0x1000, 0x2000);
    l.connection_event_taken(id, 0xa0, 9, 30);
    l.connection_event_taken(id, 0xb0, 10, 31);
    l.connection_event_taken(other, 0xc0, 10, 32);
    l.connection_event_acknowledged(0xa0);
    assert_eq!([id, other].map(|id| l.unacknowledged_of_connection(id)), [1, 1]);
    l.connection_not_acknowledged(id, "rdma_destroy_id", 33);
    let report = one(&mut l, Code::EventNotAcknowledged, &["RDMA_CM_EVENT_DISCONNECTED"]);
    assert_eq!(report.places, [("event taken", 31), ("waits", 33)]);
    l.connection_event_acknowledged(0xb0);
    l.connection_not_acknowledged(id, "rdma_destroy_id", 34);
    assert_eq!(l.reports(), []);
}
