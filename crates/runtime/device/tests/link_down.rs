//! A link that goes down on request: the events of the port, and the requests meanwhile.
mod common;
use adverb_device::engine::{PathMtu, QpType, SendOp, WcOpcode, WcStatus};
use adverb_device::{AsyncEvent, faults};
use common::{QpEnd, child, pair};

/// All packets cross the network.
const WIRE: (&str, &str) = ("ADVERB_PATH", "wire");

fn choose(text: &str) {
    child::log();
    faults::set(text.parse().unwrap()).unwrap();
}

fn expect(end: &QpEnd, wanted: AsyncEvent) {
    let (event, element) = end.context.next_async_event().unwrap();
    assert_eq!(event, wanted);
    end.context.ack_async_event(&element);
}

/// FLT-7: a request over a link that is down for good fails after its retries. The same
/// holds within the host.
#[test]
fn flt_7_requests_over_a_link_that_is_down_fail() {
    for variables in [&[WIRE][..], &[]] {
        let text = child::run("inner_for_good", variables);
        assert!(text.contains("injected: the link of adverb_lo is down"), "{text}");
        assert!(!text.contains("up again"), "{text}");
    }
}

#[test]
#[ignore = "run by another test, in a process of its own"]
fn inner_for_good() {
    choose("link-down=adverb_lo@100ms");
    let (a, b) = pair(QpType::Rc, PathMtu::Mtu1024);
    expect(&a, AsyncEvent::PortErr);
    assert!(!a.context.port_state().up);
    b.recv(1, &[b.sge(0, 64)]);
    a.send(1, SendOp::Send, &[a.sge(0, 64)]);
    let failed = &a.wait(1)[0];
    assert_eq!(failed.status, WcStatus::RetryExcErr);
    assert_eq!(b.cq.poll(1, |_| {}).unwrap(), 0);
    expect(&b, AsyncEvent::PortErr);
}

/// FLT-7: a request waits for the link, and completes once. The port is active again, and its GIDs
/// have not changed.
#[test]
fn flt_7_requests_survive_a_short_loss_of_the_link() {
    for variables in [&[WIRE][..], &[]] {
        let text = child::run("inner_for_a_time", variables);
        assert!(text.contains("injected: the link of adverb_lo is up again"), "{text}");
    }
}

#[test]
#[ignore = "run by another test, in a process of its own"]
fn inner_for_a_time() {
    choose("link-down=adverb_lo@100ms+200ms");
    let (a, b) = pair(QpType::Rc, PathMtu::Mtu1024);
    let gids = a.context.port_state().gids();
    expect(&a, AsyncEvent::PortErr);
    b.recv(1, &[b.sge(0, 64)]);
    a.send(1, SendOp::Send, &[a.sge(0, 64)]);
    let (sent, received) = (&a.wait(1)[0], &b.wait(1)[0]);
    assert_eq!((sent.status, sent.opcode), (WcStatus::Success, WcOpcode::Send));
    assert_eq!((received.status, received.byte_len), (WcStatus::Success, 64));
    expect(&a, AsyncEvent::PortActive);
    assert!(a.context.port_state().up);
    assert_eq!(a.context.port_state().gids(), gids);
    assert!(a.context.try_async_event().is_none());
}
