//! The order of READ responses: First, Middle, Last, or Only (IBTA 9.7.5.1).
use super::harness::*;
use super::loss::small;
use crate::wr::SendOp;
use crate::*;
use adverb_wire::{Aeth, Opcode, Operation, Syndrome, Transport};
use core::time::Duration;
use std::vec::Vec;

const RESPONSES: [Operation; 4] = [
    Operation::ReadResponseFirst,
    Operation::ReadResponseMiddle,
    Operation::ReadResponseLast,
    Operation::ReadResponseOnly,
];

/// The same response with another opcode and the headers of this opcode.
fn under(response: &Flying, operation: Operation) -> Flying {
    let mut out = response.clone();
    let payload = &response.bytes[response.headers.bth.opcode.header_len()..];
    let opcode = Opcode::new(Transport::Rc, operation).unwrap();
    out.headers.bth.opcode = opcode;
    out.headers.aeth =
        opcode.has_aeth().then_some(Aeth { syndrome: Syndrome::ACK_NO_CREDITS, msn: 1 });
    let mut headers = [0; adverb_wire::MAX_HEADER_LEN];
    let n = out.headers.emit(&mut headers);
    out.bytes = [&headers[..n], payload].concat();
    out
}

/// The responses to one request of side 0, not delivered.
fn responses(op: impl Fn(wr::Remote) -> SendOp, len: usize) -> (Pair, Vec<Flying>) {
    let mut p = Pair::new(small());
    let from = p.sides[1].remote(0);
    p.post(0, 1, op(from), 50_000, len);
    p.pump(0);
    while p.deliver() {}
    p.pump(1);
    let answers = p.net.drain(..).collect();
    (p, answers)
}

/// Delivers the responses to side 0, with another opcode for the response at `at`. Answers how the
/// request ended.
fn with_one_replaced(
    p: &mut Pair,
    answers: &[Flying],
    at: usize,
    operation: Operation,
) -> Option<WcStatus> {
    for (n, answer) in answers.iter().enumerate() {
        p.inject(&if n == at { under(answer, operation) } else { answer.clone() });
    }
    p.sides[0].sends().first().map(|c| c.status)
}

#[test]
fn a_response_opcode_out_of_sequence_is_a_bad_response() {
    let atomic_write: fn(wr::Remote) -> SendOp = SendOp::AtomicWrite;
    let cases = [
        (SendOp::Read as fn(wr::Remote) -> SendOp, 3 * 1024),
        (SendOp::Read, 1500),
        (SendOp::Read, 1024),
        (SendOp::Read, 0),
        (atomic_write, 8),
    ];
    for (op, len) in cases {
        let count = responses(op, len).1.len();
        assert_eq!(count, len.div_ceil(1024).max(1));
        for at in 0..count {
            for operation in RESPONSES {
                let (mut p, answers) = responses(op, len);
                let right = answers[at].op() == operation;
                let status = with_one_replaced(&mut p, &answers, at, operation);
                let expected = if right { WcStatus::Success } else { WcStatus::BadRespErr };
                assert_eq!(status, Some(expected), "{len} bytes, response {at} is {operation:?}");
                let state = if right { QpState::Rts } else { QpState::Err };
                assert_eq!(p.sides[0].qp.state(), state);
            }
        }
    }
}

/// A READ requested again from its middle. A late response to the first request may come, or a
/// response to the second request: both are right. An end without Last is wrong.
#[test]
fn a_read_that_is_asked_for_again_ends_with_last_as_well() {
    for second in RESPONSES {
        for third in RESPONSES {
            let (mut p, answers) = responses(SendOp::Read, 3 * 1024);
            p.inject(&answers[0]);
            // The other responses are lost. After the timeout their packets are requested again,
            // one packet at first.
            p.advance(Duration::from_secs(1));
            p.pump(0);
            let asked = p.net.pop_back().unwrap();
            let reth = asked.headers.reth.unwrap();
            assert_eq!(
                (asked.op(), asked.psn(), reth.len),
                (Operation::ReadRequest, answers[1].psn(), 1024)
            );
            p.inject(&under(&answers[1], second));
            p.pump(0);
            p.inject(&under(&answers[2], third));
            let ends = matches!(third, Operation::ReadResponseLast | Operation::ReadResponseOnly);
            let expected = if ends { WcStatus::Success } else { WcStatus::BadRespErr };
            let status = p.sides[0].sends().first().map(|c| c.status);
            assert_eq!(status, Some(expected), "{second:?}, {third:?}");
        }
    }
}
