//! The whole device: every operation between two queue pairs of a process, with a check of every
//! byte. Further tests over real sockets cover features of the network alone.
mod common;
use adverb_device::AsyncEvent;
use adverb_device::engine::wr::Remote;
use adverb_device::engine::{AddressVector, PathMtu, QpState, QpType, SendOp, WcStatus};
use common::operations::{atomics, many_sends, sends, writes_and_reads};
use common::{QpEnd, WIRE, child, join, own_path, pair, rc, to_state, until};
use std::time::Duration;

const SIZES: [usize; 9] = [0, 1, 255, 256, 4096, 4097, 65_536, 1_000_003, 2 << 20];

#[test]
fn operations_of_every_size() {
    for mtu in [PathMtu::Mtu256, PathMtu::Mtu1024, PathMtu::Mtu4096] {
        let (a, b) = pair(QpType::Rc, mtu);
        sends(&a, &b, &SIZES);
        writes_and_reads(&a, &b, &SIZES);
        atomics(&a, &b);
    }
}

#[test]
fn many_messages_in_flight() {
    let (a, b) = pair(QpType::Rc, PathMtu::Mtu4096);
    for round in 0..50 {
        many_sends(&a, &b, 200, round);
    }
}

#[test]
fn a_bad_rkey_is_a_remote_access_error_with_a_reason() {
    let (a, b) = rc();
    let remote = Remote { rkey: b.pages.key() ^ 0x5500, ..b.remote(0) };
    a.send(1, SendOp::Write(remote), &[a.sge(0, 64)]);
    a.send(2, SendOp::Send, &[a.sge(0, 64)]);
    let got = a.wait(2);
    assert_eq!(got[0].status, WcStatus::RemAccessErr);
    assert_eq!(got[1].status, WcStatus::WrFlushErr);
    assert!(got[1].cause.as_ref().unwrap().to_string().contains("refused"), "{:?}", got[1].cause);
}

#[test]
fn an_event_follows_an_arm() {
    use adverb_device::engine::cq::arm::ArmKind;
    let (a, b) = rc();
    for i in 0..100 {
        b.cq.req_notify(ArmKind::Next).unwrap();
        b.recv(i, &[b.sge(0, 64)]);
        a.send(i, SendOp::Send, &[a.sge(0, 64)]);
        let cq = b.channel.next_event(None).unwrap();
        cq.ack_events(1);
        assert_eq!(b.wait(1)[0].wr_id, i);
        a.wait(1);
    }
}

#[test]
fn a_full_completion_queue_fails_its_queue_pair_and_says_so() {
    let (a, b) = (QpEnd::with_cq(QpType::Rc, 4), QpEnd::new(QpType::Rc));
    join(&a, &b, PathMtu::Mtu1024);
    for i in 0..8 {
        a.send(i, SendOp::Write(b.remote(0)), &[a.sge(0, 8)]);
    }
    let (event, element) = a.context.next_async_event().unwrap();
    assert_eq!(event, AsyncEvent::CqErr);
    a.context.ack_async_event(&element);
    // The completions in the queue can still be polled in order. After them, the poll reports the
    // overflow.
    let mut got = Vec::new();
    while a.cq.poll(1, |c| got.push(c.wr_id)).is_ok_and(|n| n > 0) {}
    assert_eq!(got, [0, 1, 2, 3]);
    let error = a.cq.poll(1, |_| ()).unwrap_err();
    assert!(error.to_string().contains("overflowed"), "{error}");
    // The device reports the event before the queue pair fails.
    until("the queue pair fails", || a.qp.state() == QpState::Err);
}

/// The ACK of a received message leaves before the queue pair goes to ERR. A receiver may end the
/// connection as soon as it has received the message it waits for.
#[test]
fn what_was_received_is_acknowledged_before_the_end() {
    for _ in 0..10 {
        let (a, b) = rc();
        let message = || {
            b.recv(1, &[b.sge(0, 64)]);
            a.send(2, SendOp::Send, &[a.sge(0, 64)]);
            assert_eq!(b.wait(1)[0].status, WcStatus::Success);
        };
        // If a program polls, the device delays its ACKs until the next poll.
        for _ in 0..500 {
            message();
            assert_eq!(a.wait(1)[0].status, WcStatus::Success);
        }
        message();
        to_state(&b.qp, QpState::Err);
        assert_eq!(a.wait(1)[0].status, WcStatus::Success);
    }
}

/// Requests that the network marked are answered by CNPs as long as the connection lives, with at
/// most one CNP in 50 µs. Each answer needs the arrival time of its packet (RoCEv2 A17.9).
#[test]
fn marked_requests_draw_notifications() {
    child::run("inner_marked_requests_draw_notifications", &[WIRE]);
}

#[test]
#[ignore = "run by marked_requests_draw_notifications"]
fn inner_marked_requests_draw_notifications() {
    const MESSAGES: u64 = 20;
    let (a, b) = (QpEnd::new(QpType::Rc), QpEnd::new(QpType::Rc));
    // The sender sets the ECN mark itself, in place of a switch.
    let marked = AddressVector { traffic_class: 3, ..own_path(&a.context) };
    a.connect_by(marked, b.qp.number(), PathMtu::Mtu1024);
    b.connect(&a.qp, PathMtu::Mtu1024);
    for n in 0..MESSAGES {
        b.recv(n, &[b.sge(0, 64)]);
        a.send(n, SendOp::Send, &[a.sge(0, 64)]);
        assert_eq!(b.wait(1)[0].status, WcStatus::Success);
        assert_eq!(a.wait(1)[0].status, WcStatus::Success);
        std::thread::sleep(Duration::from_millis(1));
    }
    let sent = b.qp.counters().cnps_sent;
    assert!(sent >= MESSAGES / 2, "{sent} notifications");
}
