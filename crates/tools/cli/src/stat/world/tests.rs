use super::*;
use adverb_device::engine::Gid;
use adverb_device::snapshot::Process;

const HERE: [u8; 4] = [127, 0, 0, 1];

fn pair(number: u32, dest: u32) -> Pair {
    let gid = Gid::from_ipv4(HERE);
    Pair {
        number,
        dest,
        own_gid: gid,
        peer_gid: gid,
        state: 3,
        send_cq: 1,
        recv_cq: 2,
        depth: 64,
        ..Pair::default()
    }
}

fn process(slot: u16, at: u64, pairs: &[Pair], queues: &[Queue]) -> Answered {
    Answered {
        pid: 1000 + u32::from(slot),
        process: Process {
            pid: 1000 + u32::from(slot),
            slot,
            at,
            name: format!("p{slot}"),
            ..Process::default()
        },
        pairs: pairs.iter().map(|pair| (pair.number, pair.clone())).collect(),
        queues: queues.iter().map(|queue| (queue.number, queue.clone())).collect(),
        ..Answered::default()
    }
}

fn round(at: Instant, answered: Vec<Answered>) -> Round {
    Round { at, answered, silent: Vec::new() }
}

const A: u32 = 1 << 14 | 5;
const B: u32 = 2 << 14 | 6;

/// TOP-3: rates are differences over the time of the process's own clock. What a peer of this host
/// sends arrives, also without a packet.
#[test]
fn top_3_rates_are_those_of_both_ends() {
    let mut history = History::default();
    let begun = Instant::now();
    let at = |posted, sent_bytes, read_bytes| Pair { posted, sent_bytes, read_bytes, ..pair(A, B) };
    let there = Pair { received: 7, ..pair(B, A) };
    let first = vec![
        process(1, 1_000_000_000, &[at(10, 1000, 50)], &[]),
        process(2, 5, std::slice::from_ref(&there), &[]),
    ];
    let world = history.world(&round(begun, first));
    assert_eq!(
        (world.processes[0].out, world.processes[0].into),
        (Rate::default(), Rate::default())
    );
    let second = vec![
        process(1, 3_000_000_000, &[at(110, 5000, 250)], &[]),
        process(2, 2_000_000_005, &[Pair { received: 9, ..there }], &[]),
    ];
    let world = history.world(&round(begun + Duration::from_secs(9), second));
    let [one, two] = &world.processes[..] else { panic!() };
    assert_eq!(one.out, Rate { messages: 50.0, bytes: 2000.0 });
    assert_eq!(one.into, Rate { messages: 0.0, bytes: 100.0 });
    assert_eq!((two.into, two.out), (Rate { messages: 50.0, bytes: 2000.0 }, Rate::default()));
    assert_eq!((&one.pairs[0].peer, &two.pairs[0].peer), (&Peer::Here(1, B), &Peer::Here(0, A)));
    // A queue pair that was locked in one round has its rates in the next.
    let busy = Pair { busy: true, ..Pair::default() };
    let locked = process(1, 3_500_000_000, &[Pair { number: A, ..busy }], &[]);
    assert_eq!(history.world(&round(begun, vec![locked])).processes[0].out, Rate::default());
    let later = process(1, 4_000_000_000, &[at(120, 6000, 250)], &[]);
    let world = history.world(&round(begun, vec![later]));
    assert_eq!(world.processes[0].out, Rate { messages: 10.0, bytes: 1000.0 });
}

/// TOP-3: an open request is at least as old as the first round in which it was posted.
#[test]
fn top_3_requests_have_ages() {
    let mut history = History::default();
    let begun = Instant::now();
    let mut look = |second: u64, posted: u64, open: u32| {
        let answered = process(1, 1 + second, &[Pair { posted, open, ..pair(A, B) }], &[]);
        let world = history.world(&round(begun + Duration::from_secs(second), vec![answered]));
        let shown = &world.processes[0].pairs[0];
        (shown.oldest.map(|age| age.as_secs()), shown.older)
    };
    assert_eq!(look(0, 10, 0), (None, [0, 0, 0]));
    assert_eq!(look(1, 14, 4), (Some(0), [0, 0, 0]));
    assert_eq!(look(3, 15, 5), (Some(2), [4, 0, 0]));
    assert_eq!(look(11, 20, 10), (Some(10), [5, 4, 0]));
    // Three of the first four are done.
    assert_eq!(look(12, 20, 7), (Some(11), [7, 1, 0]));
    // The fifth was seen at the third second.
    assert_eq!(look(70, 20, 7), (Some(69), [7, 7, 2]));
    assert_eq!(look(71, 25, 5), (Some(0), [0, 0, 0]));
    // The program has reset the queue pair and has counted on.
    assert_eq!(look(72, 26, 0), (None, [0, 0, 0]));
    // A queue pair with ever new requests remembers a bounded number of times.
    for second in 100..400 {
        let (oldest, older) = look(second, 26 + second, 26 + second as u32);
        assert_eq!(oldest, Some(second - 100));
        assert!(older[0] >= older[1] && older[1] >= older[2]);
    }
}

fn note_of(
    queues: &[Queue],
    second: Pair,
    there: Pair,
    there_queues: &[Queue],
) -> (Weight, String) {
    let mut history = History::default();
    let begun = Instant::now();
    let mut world = World::default();
    for at in 1..3 {
        let mine = process(1, at, std::slice::from_ref(&second), queues);
        let theirs = process(2, at, std::slice::from_ref(&there), there_queues);
        world = history.world(&round(begun + Duration::from_secs(at), vec![mine, theirs]));
    }
    let shown = &world.processes[0].pairs[0];
    (shown.weight, shown.note.clone())
}

/// TOP-4: the note of a queue pair names what it waits for: the own completion queue, or the peer's
/// process and why this process does not take the message.
#[test]
fn top_4_a_queue_pair_says_what_it_waits_for() {
    let open = || Pair { posted: 3, open: 1, ..pair(A, B) };
    let there = || Pair { receives: 4, ..pair(B, A) };
    let quiet = Queue { number: 2, channel: true, ..Queue::default() };
    let lost = Queue {
        stuck: "CQ 2 holds 8 completions that came before its last arm (armed at r.c:1): no event"
            .into(),
        ..quiet.clone()
    };
    let asleep = Queue { arm: Arm::Next, waiter: "thread 7".into(), ..quiet.clone() };
    let (weight, text) = note_of(std::slice::from_ref(&lost), pair(A, B), there(), &[]);
    assert_eq!(text, "LOST WAKE-UP on CQ 2: 8 completions that came before its last arm");
    assert_eq!(weight, Weight::Wrong);
    let (weight, text) = note_of(std::slice::from_ref(&quiet), open(), there(), &[lost]);
    assert_eq!(weight, Weight::Odd);
    assert_eq!(text, "waits for 1002 p2: LOST WAKE-UP on CQ 2");
    let word = |mine: &[Queue], pair: Pair, there: Pair, theirs: &[Queue]| {
        note_of(mine, pair, there, theirs).1
    };
    assert_eq!(
        word(&[], open(), there(), std::slice::from_ref(&asleep)),
        "waits for 1002 p2: asleep on armed CQ 2"
    );
    assert_eq!(
        word(std::slice::from_ref(&asleep), pair(A, B), there(), &[]),
        "asleep on armed CQ 2"
    );
    let unread = Queue { unread: 1, waiting: 3, ..quiet.clone() };
    assert_eq!(word(&[unread], pair(A, B), there(), &[]), "1 unread event of CQ 2, 3 completions");
    let unpolled = Queue { waiting: 3, silent_ms: 2500, ..quiet };
    assert_eq!(
        word(&[unpolled], pair(A, B), there(), &[]),
        "3 completions unpolled in CQ 2 for 2 s"
    );
    let empty = Pair { receives: 0, ..there() };
    let rnr = Pair { rnr_naks: 5, ..open() };
    assert_eq!(
        word(&[], rnr, empty, &[asleep]),
        format!("waits for 1002 p2: no receive posted at {B:#08x}")
    );
    // The peer is another host, and a queue pair of this host with the same number is not its.
    let stranger = Pair { dest: 99, ..there() };
    assert_eq!(word(&[], open(), stranger, &[]), "waits for 127.0.0.1");
    let failed = Pair { state: 6, error: "remote access error".into(), ..pair(A, B) };
    assert_eq!(
        note_of(&[], failed, there(), &[]),
        (Weight::Wrong, "ERR: remote access error".into())
    );
    // A queue pair that gets on waits for nothing.
    let mut history = History::default();
    for (second, posted) in [(1, 3), (2, 4)] {
        let mine = process(1, second, &[Pair { posted, ..open() }], &[]);
        let world = history.world(&round(Instant::now(), vec![mine]));
        assert_eq!(world.processes[0].pairs[0].note, "");
    }
}

/// TOP-4: a queue pair that waits for a process without an answer says so.
#[test]
fn top_4_a_stopped_peer_is_named() {
    let mut history = History::default();
    let mut note = String::new();
    for at in 1..3 {
        let open = Pair { posted: 3, open: 1, peer_pid: 77, ..pair(A, B) };
        let silent =
            Silent { pid: 77, slot: 2, name: "sleepy".into(), why: "no answer: stopped".into() };
        let round = Round {
            at: Instant::now(),
            answered: vec![process(1, at, &[open], &[])],
            silent: vec![silent],
        };
        note = history.world(&round).processes[0].pairs[0].note.clone();
    }
    assert_eq!(note, "waits for 77 sleepy: no answer: stopped");
}
