//! The whole device: every operation between two queue pairs of a process, with a check of every
//! byte. Further tests over real sockets cover features of the network alone.
mod common;
use adverb_device::AsyncEvent;
use adverb_device::engine::wr::Remote;
use adverb_device::engine::{AddressVector, PathMtu, QpState, QpType, SendOp, WcOpcode, WcStatus};
use common::{QpEnd, child, pair, pattern};
use std::time::{Duration, Instant};

const SIZES: [usize; 9] = [0, 1, 255, 256, 4096, 4097, 65_536, 1_000_003, 2 << 20];

#[test]
fn send_of_every_size() {
    for mtu in [PathMtu::Mtu256, PathMtu::Mtu1024, PathMtu::Mtu4096] {
        let (a, b) = pair(QpType::Rc, mtu);
        for size in SIZES {
            let data = pattern(size, 7);
            assert!(a.pages.write_at(0, &data));
            b.recv(1, &[b.sge(0, size.max(1))]);
            a.send(2, SendOp::Send, &[a.sge(0, size)]);
            let got = b.wait(1).remove(0);
            assert_eq!((got.status, got.opcode, got.wr_id), (WcStatus::Success, WcOpcode::Recv, 1));
            assert_eq!(got.byte_len as usize, size);
            let mut back = vec![0; size];
            assert!(b.pages.read_at(0, &mut back));
            assert!(back == data, "size {size} at {mtu:?}");
            assert_eq!(a.wait(1)[0].status, WcStatus::Success);
        }
    }
}

#[test]
fn write_read_and_atomics() {
    let (a, b) = pair(QpType::Rc, PathMtu::Mtu1024);
    let remote = Remote { va: b.pages.addr(), rkey: b.pages.key() };
    for size in SIZES {
        let data = pattern(size, 3);
        assert!(a.pages.write_at(0, &data));
        a.send(1, SendOp::Write(remote), &[a.sge(0, size)]);
        assert_eq!(a.wait(1)[0].status, WcStatus::Success);
        let mut back = vec![0; size];
        assert!(b.pages.read_at(0, &mut back));
        assert!(back == data, "write of {size}");
        a.send(2, SendOp::Read(remote), &[a.sge(2 << 20, size)]);
        let c = a.wait(1).remove(0);
        assert_eq!((c.status, c.opcode), (WcStatus::Success, WcOpcode::RdmaRead));
        assert!(a.pages.read_at(2 << 20, &mut back));
        assert!(back == data, "read of {size}");
    }
    assert!(b.pages.write_at(0, &5u64.to_ne_bytes()));
    a.send(3, SendOp::FetchAdd { remote, add: 4 }, &[a.sge(0, 8)]);
    a.send(4, SendOp::CompareSwap { remote, compare: 9, swap: 77 }, &[a.sge(8, 8)]);
    assert!(a.wait(2).iter().all(|c| c.status == WcStatus::Success));
    let mut word = [0; 8];
    assert!(a.pages.read_at(0, &mut word));
    assert_eq!(u64::from_ne_bytes(word), 5);
    assert!(a.pages.read_at(8, &mut word));
    assert_eq!(u64::from_ne_bytes(word), 9);
    assert!(b.pages.read_at(0, &mut word));
    assert_eq!(u64::from_ne_bytes(word), 77);
}

#[test]
fn many_messages_in_flight() {
    let (a, b) = pair(QpType::Rc, PathMtu::Mtu4096);
    for round in 0..50u64 {
        for i in 0..200 {
            b.recv(i, &[b.sge(i as usize * 8192, 8192)]);
        }
        for i in 0..200u64 {
            assert!(a.pages.write_at(i as usize * 8192, &pattern(8192, (i + round) as u8)));
            a.send(i, SendOp::Send, &[a.sge(i as usize * 8192, 8192)]);
        }
        for (i, c) in b.wait(200).into_iter().enumerate() {
            assert_eq!((c.status, c.wr_id, c.byte_len), (WcStatus::Success, i as u64, 8192));
            let mut back = vec![0; 8192];
            assert!(b.pages.read_at(i * 8192, &mut back));
            assert!(back == pattern(8192, (i as u64 + round) as u8));
        }
        assert!(a.wait(200).iter().all(|c| c.status == WcStatus::Success));
    }
}

#[test]
fn a_bad_rkey_is_a_remote_access_error_with_a_reason() {
    let (a, b) = pair(QpType::Rc, PathMtu::Mtu1024);
    let remote = Remote { va: b.pages.addr(), rkey: b.pages.key() ^ 0x5500 };
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
    let (a, b) = pair(QpType::Rc, PathMtu::Mtu1024);
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
    a.connect(&b.qp, PathMtu::Mtu1024);
    b.connect(&a.qp, PathMtu::Mtu1024);
    let remote = Remote { va: b.pages.addr(), rkey: b.pages.key() };
    for i in 0..8 {
        a.send(i, SendOp::Write(remote), &[a.sge(0, 8)]);
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
    let limit = Instant::now() + Duration::from_secs(30);
    while a.qp.state() != QpState::Err {
        assert!(Instant::now() < limit, "{:?}", a.qp.state());
        std::thread::yield_now();
    }
}

/// The ACK of a received message leaves before the queue pair goes to ERR. A receiver may end the
/// connection as soon as it has received the message it waits for.
#[test]
fn what_was_received_is_acknowledged_before_the_end() {
    use adverb_device::engine::{AttrMask, QpAttr};
    for _ in 0..10 {
        let (a, b) = pair(QpType::Rc, PathMtu::Mtu1024);
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
        let err = QpAttr { state: QpState::Err, ..QpAttr::default() };
        b.qp.modify(&err, AttrMask::STATE).unwrap();
        assert_eq!(a.wait(1)[0].status, WcStatus::Success);
    }
}

/// Requests that the network marked are answered by CNPs as long as the connection lives, with at
/// most one CNP in 50 µs. Each answer needs the arrival time of its packet (RoCEv2 A17.9).
#[test]
fn marked_requests_draw_notifications() {
    child::run("inner_marked_requests_draw_notifications", &[("ADVERB_PATH", "wire")]);
}

#[test]
#[ignore = "run by marked_requests_draw_notifications"]
fn inner_marked_requests_draw_notifications() {
    const MESSAGES: u64 = 20;
    let (a, b) = (QpEnd::new(QpType::Rc), QpEnd::new(QpType::Rc));
    // The sender sets the ECN mark itself, in place of a switch.
    let marked = AddressVector { traffic_class: 3, ..a.own_path() };
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
