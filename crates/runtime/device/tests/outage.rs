//! A link that goes down on request, and a device that fails: the events of the port, and requests
//! and calls meanwhile.
mod common;
use adverb_device::engine::AttrMask;
use adverb_device::engine::cq::arm::ArmKind;
use adverb_device::engine::{QpAttr, QpState, SendOp, WcOpcode, WcStatus};
use adverb_device::{AsyncEvent, Cq, Pd, faults};
use common::{QpEnd, WIRE, child, loopback, rc};
use nix::errno::Errno;

/// `what` of the loopback device, and `when`.
fn choose(what: &str, when: &str) {
    child::log();
    let name = loopback().name().to_owned();
    faults::set(format!("{what}={name}{when}").parse().unwrap()).unwrap();
}

fn expect(end: &QpEnd, wanted: AsyncEvent) {
    let (event, element) = end.context.next_async_event().unwrap();
    assert_eq!(event, wanted);
    end.context.ack_async_event(&element);
}

/// Runs a test in a process of its own, over the network and within the host. Answers the logs.
fn on_both_paths(test: &str) -> [String; 2] {
    [&[WIRE][..], &[]].map(|variables| child::run(test, variables))
}

/// FLT-7: a request over a link that is down for good fails after its retries. The same
/// holds within the host.
#[test]
fn flt_7_requests_over_a_link_that_is_down_fail() {
    for text in on_both_paths("inner_for_good") {
        assert!(text.contains("is down"), "{text}");
        assert!(!text.contains("is up again"), "{text}");
    }
}

#[test]
#[ignore = "run by another test, in a process of its own"]
fn inner_for_good() {
    choose("link-down", "@100ms");
    let (a, b) = rc();
    expect(&a, AsyncEvent::PortErr);
    expect(&b, AsyncEvent::PortErr);
    assert!(!a.context.port_state().up);
    // Queue pairs that are made meanwhile are behind the link as well.
    for (a, b) in [(a, b), rc()] {
        b.recv(1, &[b.sge(0, 64)]);
        assert_eq!(a.perform(SendOp::Send, &[a.sge(0, 64)]), WcStatus::RetryExcErr);
        assert_eq!(b.cq.poll(1, |_| {}).unwrap(), 0);
    }
}

/// FLT-7: a request waits for the link, and completes once. The port is active again, and its GIDs
/// have not changed.
#[test]
fn flt_7_requests_survive_a_short_loss_of_the_link() {
    for text in on_both_paths("inner_for_a_time") {
        assert!(text.contains("is up again"), "{text}");
    }
}

#[test]
#[ignore = "run by another test, in a process of its own"]
fn inner_for_a_time() {
    choose("link-down", "@100ms+200ms");
    let (a, b) = rc();
    let gids = a.context.port_state().gids();
    expect(&a, AsyncEvent::PortErr);
    b.recv(1, &[b.sge(0, 64)]);
    a.send(1, SendOp::Send, &[a.sge(0, 64)]);
    let sent = a.wait(1).remove(0);
    expect(&a, AsyncEvent::PortActive);
    assert_eq!((sent.status, sent.opcode), (WcStatus::Success, WcOpcode::Send));
    let received = b.wait(1).remove(0);
    assert_eq!((received.status, received.byte_len), (WcStatus::Success, 64));
    assert_eq!(b.cq.poll(1, |_| {}).unwrap(), 0, "the message arrives once");
    assert!(a.context.port_state().up);
    assert_eq!(a.context.port_state().gids(), gids);
    assert!(a.context.try_async_event().is_none());
}

/// FLT-8: the events, then nothing but the end of objects.
#[test]
fn flt_8_a_failed_device_only_ends_objects() {
    for text in on_both_paths("inner_fatal") {
        assert!(text.contains("fails for good"), "{text}");
    }
}

#[test]
#[ignore = "run by another test, in a process of its own"]
fn inner_fatal() {
    choose("device-fatal", "@100ms");
    let (a, b) = rc();
    b.recv(1, &[b.sge(0, 64)]);
    b.cq.req_notify(ArmKind::Next).unwrap();
    expect(&a, AsyncEvent::DeviceFatal);
    expect(&b, AsyncEvent::DeviceFatal);
    // The queue of an open request has got its event before.
    let cq = b.channel.try_event().expect("an event of the queue");
    cq.ack_events(1);
    a.send(1, SendOp::Send, &[a.sge(0, 64)]);
    assert_eq!((a.cq.poll(1, |_| {}).unwrap(), b.cq.poll(1, |_| {}).unwrap()), (0, 0));
    let eio = |e: Option<adverb_device::Error>| assert_eq!(e.unwrap().errno(), Errno::EIO as i32);
    eio(Pd::new(&a.context).err());
    eio(Cq::new(&a.context, 1, None, 0).err());
    eio(loopback().open().err());
    let to = |state| a.qp.modify(&QpAttr { state, ..QpAttr::default() }, AttrMask::STATE);
    eio(to(QpState::Sqd).err());
    to(QpState::Err).unwrap();
    drop((a, b));
}
