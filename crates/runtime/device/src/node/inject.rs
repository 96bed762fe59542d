//! Faults on request at queue pairs: their end after a number of messages, and receives that seem
//! absent.
use super::carriers::relay::takes_receive;
use super::core::Node;
use super::queue_pair::{AnyQp, QpInner};
use crate::faults::QpFaults;
use adverb_engine::{Effects, QpState};
use adverb_wire::Headers;

/// The faults on request of a new queue pair.
pub(crate) fn of_qp(node: &Node, number: u32) -> Option<QpFaults> {
    let faults = node.faults.as_ref()?.new_qp();
    node.link.add_qp(number, faults.nth);
    if let Some(of_packets) = node.packet_faults() {
        of_packets.rules.add_qp(number, faults.nth);
    }
    Some(faults)
}

/// Called before a queue pair takes a packet. `true` if the queue pair ended instead.
pub(super) fn packet(
    node: &Node,
    qp: &AnyQp,
    inner: &mut QpInner,
    headers: &Headers,
    effects: &mut Effects,
) -> bool {
    let opcode = headers.bth.opcode;
    let begins = opcode.is_request() && opcode.starts_message();
    if messages(node, qp, inner, begins.into(), effects) {
        return true;
    }
    let (Some(injector), Some(faults)) = (&node.faults, &mut inner.faults) else { return false };
    let hide = qp.qp_type().is_reliable()
        && takes_receive(opcode)
        && injector.hides_receives(faults, node.now());
    inner.engine.hide_receives(hide);
    false
}

/// Called before a queue pair carries messages. `true` if the queue pair ended instead.
pub(crate) fn messages(
    node: &Node,
    qp: &AnyQp,
    inner: &mut QpInner,
    begun: u64,
    effects: &mut Effects,
) -> bool {
    let (Some(injector), Some(faults)) = (&node.faults, &mut inner.faults) else { return false };
    if matches!(inner.engine.state(), QpState::Reset | QpState::Init | QpState::Err) {
        return false;
    }
    let end = injector.carry(faults, qp.number(), begun);
    for event in injector.events(faults) {
        qp.own.raise_injected(event);
    }
    match end {
        Some((cause, None)) => {
            inner.engine.fail(cause, effects);
            true
        }
        Some((cause, Some(status))) => {
            inner.engine.fail_oldest_send(status, cause, effects);
            true
        }
        None => false,
    }
}
