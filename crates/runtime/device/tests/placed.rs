//! A SEND that has succeeded is a message in the receiver's memory, with its completion in the
//! receiver's queue, as with a NIC. Nothing that the sender does later overtakes the message, and
//! no end of the receiving queue pair loses the message.
mod common;
use adverb_device::engine::{Completion, QpType, SendOp, WcOpcode, WcStatus};
use common::party::{Party, listen, meet, tell};
use common::{HANG_LIMIT, QpEnd};
use std::time::{Duration, Instant};

/// Messages of a round.
const MESSAGES: usize = 200;
/// Bytes of a message.
const LEN: usize = 64;
/// Offset of the flag in the memory of the second queue pair.
const FLAG: usize = 4096;

/// Two ends of this process, connected to the two ends of the sender. The sender has receives, too.
fn with_a_sender() -> (QpEnd, QpEnd, Party) {
    let ends = [QpEnd::new(QpType::Rc), QpEnd::new(QpType::Rc)];
    let mut party = Party::start("the_sender", &[]);
    for end in &ends {
        party.meet(end);
    }
    assert_eq!(party.hear(), "ready");
    let [first, second] = ends;
    (first, second, party)
}

/// The sender sends a message, waits for its completion, and then writes a flag on another queue
/// pair. At the flag the message is in memory without any call of the receiver, and one poll finds
/// the completion.
#[test]
fn a_later_write_on_another_queue_pair_does_not_overtake() {
    let (end, flag, mut party) = with_a_sender();
    for n in 1..=3000_u64 {
        end.recv(n, &[end.sge(0, LEN)]);
        party.say(&n.to_string());
        let limit = Instant::now() + HANG_LIMIT;
        while flag.word(FLAG) != n {
            assert!(Instant::now() < limit, "the flag does not come");
            std::hint::spin_loop();
        }
        assert_eq!(end.word(0), n, "the WRITE has overtaken the message");
        let mut got = Vec::new();
        end.cq.poll(1, |c| got.push((c.status, c.wr_id))).unwrap();
        assert_eq!(got, [(WcStatus::Success, n)], "the first poll");
    }
    party.finish();
}

/// The receiver does not poll, and its queue pair fails by a request of its own. Each SEND that has
/// succeeded is a successful receive.
#[test]
fn an_own_error_of_the_receiver_loses_no_message() {
    for round in 0..20 {
        let (end, _flag, mut party) = with_a_sender();
        for id in 0..MESSAGES as u64 {
            end.recv(id, &[end.sge(0, LEN)]);
        }
        party.say("go");
        let until = Instant::now() + Duration::from_micros(50 * round);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        let mut bad = end.sge(0, 8);
        bad.lkey ^= 0x100;
        end.send(1000, SendOp::Send, &[bad]);
        let all = end.wait(MESSAGES + 1);
        let received =
            |c: &&Completion| (c.status, c.opcode) == (WcStatus::Success, WcOpcode::Recv);
        let received = all.iter().filter(received).count();
        let sent: usize = party.hear().parse().unwrap();
        assert!(
            sent <= received,
            "round {round}: {sent} SENDs succeeded, {received} were received"
        );
        party.finish();
    }
}

/// The receiver has been killed and reaped, with receives posted. No later SEND succeeds.
#[test]
fn a_dead_receiver_takes_no_message() {
    for _ in 0..20 {
        let (end, _flag, party) = with_a_sender();
        drop(party);
        assert_ne!(end.perform(SendOp::Send, &[end.sge(0, LEN)]), WcStatus::Success);
    }
}

#[test]
#[ignore = "a process of the tests above"]
fn the_sender() {
    let ends = [QpEnd::new(QpType::Rc), QpEnd::new(QpType::Rc)];
    let [_, (_, mut to)] = ends.each_ref().map(meet);
    let [end, flag] = &ends;
    to.va += FLAG as u64;
    (0..64).for_each(|id| end.recv(id, &[end.sge(0, LEN)]));
    tell("ready");
    while let Some(line) = listen() {
        let Ok(n) = line.parse::<u64>() else {
            tell(&stream(end).to_string());
            continue;
        };
        for (end, op, len) in [(end, SendOp::Send, LEN), (flag, SendOp::Write(to), 8)] {
            end.put(0, &n.to_ne_bytes());
            assert_eq!(end.perform(op, &[end.sge(0, len)]), WcStatus::Success);
        }
    }
}

/// Sends messages until one fails or all have succeeded. Returns the number of successes.
fn stream(end: &QpEnd) -> usize {
    let (mut posted, mut succeeded) = (0, 0);
    while succeeded < MESSAGES {
        for _ in posted - succeeded..16.min(MESSAGES - succeeded) {
            end.send(1, SendOp::Send, &[end.sge(0, LEN)]);
            posted += 1;
        }
        if end.wait(1)[0].status != WcStatus::Success {
            break;
        }
        succeeded += 1;
    }
    succeeded
}
