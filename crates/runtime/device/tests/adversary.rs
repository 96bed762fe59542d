//! The view of a program with an adversary: completions come later than necessary, and all other
//! behaviour follows the rules.
mod common;
use adverb_choice::{Call, Choice, ChoiceEntry, Schedule, Site, Which};
use adverb_device::engine::cq::arm::ArmKind;
use adverb_device::engine::{PathMtu, QpType, SendFlags, SendOp, Sge};
use adverb_hunt as adversary;
use common::{QpEnd, pair, rc};
use std::time::{Duration, Instant};

/// These numbers stand for addresses in the program's code.
const HOLDS: usize = 0x10;
const DRIPS: usize = 0x20;
const WAITS: usize = 0x30;
const FULL: usize = 0x40;
const AGAIN: usize = 0x50;
const LATE: usize = 0x60;
const TAIL: usize = 0x70;
const READS: usize = 0x80;
const LOST: usize = 0x90;
const SHARED: usize = 0xa0;

fn tried() -> (QpEnd, QpEnd) {
    let entry = |call, address: usize, choice| {
        let site = Site { call, place: format!("{address:#x}") };
        ChoiceEntry { site, object: Which::Any, count: Which::Any, choice }
    };
    // A process has one schedule. The first test sets the schedule, and all tests use the same
    // entries.
    let _ = adversary::set(Schedule::of(vec![
        entry(Call::Poll, HOLDS, Choice::Hold),
        entry(Call::Poll, DRIPS, Choice::Drip),
        entry(Call::Arm, WAITS, Choice::Before),
        entry(Call::Post, FULL, Choice::Full),
        entry(Call::Post, AGAIN, Choice::Full),
        entry(Call::Post, LATE, Choice::Late),
        entry(Call::Post, TAIL, Choice::TailFirst),
        entry(Call::Post, READS, Choice::ReadLate),
        entry(Call::Unreliable, LOST, Choice::Lose),
        entry(Call::Shared, SHARED, Choice::ReceiveFirst),
    ]));
    assert!(adversary::is_on());
    rc()
}

/// A process has 100 holds.
const TRIES: u8 = 90;
/// Set in the processes of [`apart`].
const ALONE: &str = "ADVERB_TEST_ALONE";
/// The exit status of a process whose holds all ended early.
const TOO_EARLY: i32 = 77;

/// Runs a test in a process of its own, which has all holds of a process for this test. On a slow
/// machine all holds may end early. Then another process tries again. Every other failure counts.
fn apart(name: &str, test: impl FnOnce()) {
    if std::env::var_os(ALONE).is_some() {
        return test();
    }
    for _ in 0..50 {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        let output = command.args(["--exact", name]).env(ALONE, "1").output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        match output.status.code() {
            Some(0) if said.contains("1 passed") => return,
            Some(TOO_EARLY) => {}
            _ => panic!("{said}"),
        }
    }
    panic!("{name}: in each process all holds ended early");
}

fn on_wire() -> bool {
    std::env::var("ADVERB_PATH").is_ok_and(|path| path == "wire")
}

fn too_early(what: &str) {
    eprintln!("{what}");
    std::process::exit(TOO_EARLY);
}

/// Polls up to `max` completions, as the code at `address` would.
fn poll(end: &QpEnd, address: usize, max: usize) -> Vec<u64> {
    let mut ids = Vec::new();
    let found = end.cq.poll(max, |c| ids.push(c.wr_id)).unwrap();
    adversary::polled(&end.cq, address, found);
    ids
}

/// Arms the queue, as the code at `address` would.
fn arm(end: &QpEnd, address: usize) {
    let chosen = adversary::arming(&end.cq, address).unwrap();
    end.cq.req_notify(ArmKind::Next).unwrap();
    adversary::armed(&end.cq, &chosen);
}

/// Polls until `n` completions have arrived.
fn take(end: &QpEnd, n: usize) -> Vec<u64> {
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut got = Vec::new();
    while got.len() < n {
        assert!(Instant::now() < deadline, "{got:?}");
        got.extend(poll(end, 0, 8));
    }
    got
}

fn send(a: &QpEnd, b: &QpEnd, n: u64) {
    for i in 0..n {
        b.recv(i, &[b.sge(i as usize * 64, 64)]);
    }
    for i in 0..n {
        a.send(i, SendOp::Send, &[a.sge(0, 64)]);
    }
}

/// HUN-5, CQN-3, CQN-7: a withheld completion is added after the arm and makes an event. After the
/// program has read the event, the program can poll the withheld completions in order.
#[test]
fn withheld_completions_come_after_the_arm_with_their_event() {
    apart("withheld_completions_come_after_the_arm_with_their_event", || {
        let (a, b) = tried();
        for _ in 0..TRIES {
            assert!(poll(&b, HOLDS, 8).is_empty());
            send(&a, &b, 3);
            a.wait(3);
            let was_withheld = b.cq.is_empty();
            arm(&b, 0);
            let soon = Instant::now() + Duration::from_millis(500);
            let event = b.channel.next_event(Some(soon));
            assert_eq!(take(&b, 3), [0, 1, 2]);
            if let Ok(cq) = event {
                cq.ack_events(1);
                assert!(b.channel.try_event().is_none(), "one arm, one event");
                if was_withheld {
                    return;
                }
            }
        }
        too_early("no completion was held until after an arm");
    });
}

/// HUN-5: withheld completions arrive even without an arm, so a correct program makes progress.
#[test]
fn withheld_completions_come_in_the_end() {
    let (a, b) = tried();
    assert!(poll(&b, HOLDS, 8).is_empty());
    send(&a, &b, 4);
    a.wait(4);
    assert_eq!(take(&b, 4), [0, 1, 2, 3]);
}

/// HUN-5: a poll finds a single completion at a time, in order, and no completion is lost.
#[test]
fn completions_drip() {
    apart("completions_drip", || {
        let (a, b) = tried();
        for _ in 0..TRIES {
            let begun = Instant::now();
            assert!(poll(&b, DRIPS, 8).is_empty());
            send(&a, &b, 4);
            a.wait(4);
            let (mut got, mut most) = (Vec::new(), 0);
            while got.len() < 4 {
                assert!(begun.elapsed() < Duration::from_secs(20), "{got:?}");
                let some = poll(&b, 0, 8);
                most = most.max(some.len());
                got.extend(some);
            }
            assert_eq!(got, [0, 1, 2, 3]);
            if most == 1 {
                return;
            }
        }
        too_early("completions never came one at a time");
    });
}

/// HUN-5, CQN-3: a late arm makes no event for earlier completions in the queue. The next poll
/// finds all of them.
#[test]
fn an_arm_that_waits_makes_no_event_of_what_was_there() {
    let (a, b) = tried();
    // Repeat, because another thread may lose the processor between the receipt and the processing
    // of the packets.
    for _ in 0..2000 {
        send(&a, &b, 3);
        arm(&b, WAITS);
        let (arrived, event) = (b.cq.len(), b.channel.try_event());
        a.wait(3);
        assert_eq!(take(&b, 3), [0, 1, 2]);
        event.iter().for_each(|cq| cq.ack_events(1));
        if arrived == 3 {
            assert!(event.is_none(), "an event for what was there before the arm");
            return;
        }
        while let Some(cq) = b.channel.try_event() {
            cq.ack_events(1);
        }
    }
    panic!("an arm never waited until everything had come");
}

/// Posts a SEND as the code at `address` would, and returns the errno.
fn post(end: &QpEnd, address: usize, i: usize) -> i32 {
    request(end, address, i, SendOp::Send, SendFlags::empty(), &[end.sge(0, 64)])
}

/// Posts a request as the code at `address` would, and returns the errno.
fn request(
    end: &QpEnd,
    address: usize,
    i: usize,
    op: SendOp,
    flags: SendFlags,
    sges: &[Sge],
) -> i32 {
    adversary::post(&end.qp, address, || {
        let wr = common::request(i as u64, SendFlags::SIGNALED | flags, op, sges);
        end.qp.post_sends(&[wr], false).map_or_else(|e| e.errno(), |()| 0)
    })
}

/// HUN-5: a place in the send queue becomes free exactly when the program polls the completion of
/// the request or of a later request.
#[test]
fn a_full_queue_is_full_until_its_completions_are_polled() {
    let (a, b) = tried();
    let depth = a.qp.query().cap.max_send_wr as usize;
    for round in 0..2 {
        for i in 0..depth {
            b.recv(i as u64, &[b.sge(0, 64)]);
            assert_eq!(post(&a, FULL, i), 0, "{round}: {i} of {depth}");
            b.wait(1);
        }
        assert_eq!(post(&a, FULL, depth), adverb_device::Errno::ENOMEM as i32);
        a.wait(depth);
    }
}

/// HUN-10: a program that is refused and posts again without a completion in between is refused
/// even if the queue has room. The refusals end after a limited number.
#[test]
fn a_post_that_has_room_is_refused_where_the_program_tries_again() {
    let (a, b) = tried();
    let depth = a.qp.query().cap.max_send_wr as usize;
    for i in 0..depth {
        b.recv(i as u64, &[b.sge(0, 64)]);
        assert_eq!(post(&a, AGAIN, i), 0, "{i} of {depth}");
        b.wait(1);
    }
    // Try many times, because completions of other tests arrive in between now and then.
    for _ in 0..1000 {
        assert_ne!(post(&a, AGAIN, depth), 0, "the queue is full");
    }
    a.wait(depth);
    b.recv(0, &[b.sge(0, 64)]);
    // The thousand attempts have used up the refusals of this process.
    assert_eq!(post(&a, AGAIN, 0), 0, "it is refused for ever");
    b.wait(1);
    a.wait(1);
}

/// HUN-13: a late queue pair carries out its requests after a later request of another queue pair,
/// and all the same without a further call of the program.
#[test]
fn a_late_queue_pair_is_overtaken_by_another() {
    apart("a_late_queue_pair_is_overtaken_by_another", || {
        let ((a, b), (c, d)) = (tried(), tried());
        for i in 1..=TRIES {
            a.put(0, &[i; 64]);
            d.recv(0, &[d.sge(0, 64)]);
            let write = SendOp::Write(b.remote(0));
            assert_eq!(request(&a, LATE, 1, write, SendFlags::empty(), &[a.sge(0, 64)]), 0);
            assert_eq!(post(&c, 0, 2), 0);
            take(&d, 1);
            let overtaken = b.get(0, 1)[0] != i;
            take(&c, 1);
            assert_eq!(take(&a, 1), [1]);
            assert_eq!(b.get(0, 64), [i; 64]);
            if overtaken {
                return;
            }
        }
        too_early("a WRITE always came before a later SEND of another queue pair");
    });
}

/// Finds a request of 4096 bytes whose last line is placed before the rest. The bytes move from
/// `from` to `to`, by a request of `a`.
fn last_line_comes_first(a: &QpEnd, op: SendOp, from: &QpEnd, to: &QpEnd) {
    const LEN: usize = 4096;
    if on_wire() {
        return;
    }
    for i in 1..=TRIES {
        from.put(0, &[i; LEN]);
        assert_eq!(request(a, TAIL, 1, op, SendFlags::empty(), &[a.sge(0, LEN)]), 0);
        let (first, last) = (to.get(0, 1)[0], to.get(LEN - 64, 64));
        assert_eq!(take(a, 1), [1]);
        assert_eq!(to.get(0, LEN), [i; LEN]);
        if first != i && last == [i; 64] {
            return;
        }
    }
    too_early("the last line never came first");
}

/// HUN-13: the last line of a WRITE is placed before the rest, and the WRITE completes when all its
/// bytes are there.
#[test]
fn the_last_line_of_a_write_comes_first() {
    apart("the_last_line_of_a_write_comes_first", || {
        let (a, b) = tried();
        last_line_comes_first(&a, SendOp::Write(b.remote(0)), &a, &b);
    });
}

/// HUN-13: the last line of a READ is placed before the rest.
#[test]
fn the_last_line_of_a_read_comes_first() {
    apart("the_last_line_of_a_read_comes_first", || {
        let (a, b) = tried();
        last_line_comes_first(&a, SendOp::Read(b.remote(0)), &b, &a);
    });
}

/// HUN-17: a lost message of UC completes and never arrives. The next message arrives.
#[test]
fn a_message_is_lost() {
    drop(tried());
    let (a, b) = pair(QpType::Uc, PathMtu::Mtu1024);
    for round in [1, 3, 5] {
        b.recv(7, &[b.sge(0, 64)]);
        for (i, address) in [(0, LOST), (1, 0)] {
            a.put(0, &[round + i; 64]);
            let (op, flags) = (SendOp::Send, SendFlags::empty());
            assert_eq!(request(&a, address, i.into(), op, flags, &[a.sge(0, 64)]), 0);
            assert_eq!(take(&a, 1), [u64::from(i)]);
        }
        assert_eq!((take(&b, 1), b.get(0, 64)), (vec![7], vec![round + 1; 64]));
        assert!(b.cq.is_empty());
    }
}

/// HUN-13: the completions of sends come behind the next completion of a receive in their queue,
/// and in order.
#[test]
fn a_receive_comes_before_sends() {
    apart("a_receive_comes_before_sends", || {
        let (a, b) = tried();
        for _ in 0..TRIES {
            a.recv(7, &[a.sge(0, 64)]);
            for i in 0..2 {
                b.recv(8, &[b.sge(0, 64)]);
                let op = SendOp::Send;
                assert_eq!(request(&a, SHARED, i, op, SendFlags::empty(), &[a.sge(0, 64)]), 0);
            }
            b.send(9, SendOp::Send, &[b.sge(0, 64)]);
            let ids = take(&a, 3);
            take(&b, 3);
            if ids == [7, 0, 1] {
                return;
            }
            assert!(ids.iter().filter(|id| **id != 7).is_sorted(), "{ids:?}");
        }
        too_early("no receive came first");
    });
}

/// HUN-13: the data of a READ is taken after a later SEND without a fence, and before the READ
/// completes. With a fence the data is taken before the SEND.
#[test]
fn a_read_is_overtaken_by_a_send_without_a_fence() {
    apart("a_read_is_overtaken_by_a_send_without_a_fence", || {
        let (a, b) = tried();
        if on_wire() {
            return;
        }
        let run = |i: u8, fence| {
            b.put(0, &[i; 64]);
            b.recv(0, &[b.sge(4096, 64)]);
            let read = SendOp::Read(b.remote(0));
            assert_eq!(request(&a, READS, 1, read, SendFlags::empty(), &[a.sge(128, 64)]), 0);
            assert_eq!(request(&a, 0, 2, SendOp::Send, fence, &[a.sge(0, 64)]), 0);
            take(&b, 1);
            // The peer takes the message for the end of the READ.
            b.put(0, &[0xee; 64]);
            assert_eq!(take(&a, 2), [1, 2]);
            a.get(128, 64)
        };
        for i in 1..=10 {
            assert_eq!(run(i, SendFlags::FENCE), [i; 64], "the SEND waits for the READ");
        }
        if !(1..=TRIES).any(|i| run(i, SendFlags::empty()) == [0xee; 64]) {
            too_early("no READ was late");
        }
    });
}
