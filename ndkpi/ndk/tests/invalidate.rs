//! Tokens that are invalidated locally and by the peer (NDK-6).
mod common;
use adverb_ndk::{Invalidated, NdkResult, NtStatus, OpFlags, OperationType};
use common::{NONE, QpEnd, eventually, pair, short};

const OK: NtStatus = NtStatus::SUCCESS;

/// Registers 4 KiB of `b`'s memory for the peer. Returns the region and its token.
fn register(b: &QpEnd) -> (adverb_ndk::Mr, u32) {
    let (mr, lam) = b.fast(1);
    let flags = OpFlags::ALLOW_REMOTE_READ | OpFlags::ALLOW_REMOTE_WRITE;
    b.qp.fast_register(90, &mr, &lam.pages[..1], 0, 4096, 0x5000, flags).unwrap();
    assert_eq!(short(&b.results(1)), [(90, OK)]);
    let token = mr.get_remote_token();
    (mr, token)
}

#[test]
fn ndk_6_send_and_invalidate_shows_with_its_token() {
    let (a, b) = pair();
    let (mr, token) = register(&b);
    b.receive(1);
    a.qp.write(1, &[a.sge(0, 8)], 0x5000, token, OpFlags::DEFER).unwrap();
    a.qp.send_and_invalidate(2, &[a.sge(0, 5)], OpFlags::SEND_AND_SOLICIT_EVENT, token).unwrap();
    let results = a.results(2);
    assert_eq!(short(&results), [(1, OK), (2, OK)]);
    assert_eq!(results[1].operation, OperationType::Send);
    let got = b.results(1)[0];
    assert_eq!((got.request_context, got.status, got.bytes_transferred), (1, OK, 5));
    assert_eq!(got.operation, OperationType::ReceiveAndInvalidate);
    assert_eq!(got.type_specific_completion_output, u64::from(token));
    // The token is invalid, so the owner's invalidate fails.
    b.qp.invalidate(3, Invalidated::Mr(&mr), NONE).unwrap();
    assert_eq!(short(&b.results(1)), [(3, NtStatus::INVALID_DEVICE_REQUEST)]);
}

#[test]
fn ndk_6_in_plain_results_it_is_a_plain_receive_and_still_invalidates() {
    let (a, b) = pair();
    let (mr, token) = register(&b);
    b.receive(1);
    a.qp.send_and_invalidate(2, &[a.sge(0, 5)], NONE, token).unwrap();
    a.results(1);
    let empty = NdkResult {
        status: NtStatus::PENDING,
        bytes_transferred: 0,
        qp_context: 0,
        request_context: 0,
    };
    let mut results = [empty; 3];
    eventually("the receive completes", || b.cq.get_results(&mut results) == 1);
    let expected =
        NdkResult { status: OK, bytes_transferred: 5, qp_context: 7, request_context: 1 };
    assert_eq!(results, [expected, empty, empty]);
    b.qp.invalidate(3, Invalidated::Mr(&mr), NONE).unwrap();
    assert_eq!(short(&b.results(1)), [(3, NtStatus::INVALID_DEVICE_REQUEST)]);
}

#[test]
fn ndk_6_an_invalidated_token_opens_nothing_and_can_be_registered_anew() {
    let (a, b) = pair();
    let (mr, token) = register(&b);
    b.qp.invalidate(1, Invalidated::Mr(&mr), NONE).unwrap();
    assert_eq!(short(&b.results(1)), [(1, OK)]);
    let lam = b.fast(1).1;
    b.qp.fast_register(2, &mr, &lam.pages[1..2], 0, 4096, 0x5000, OpFlags::ALLOW_REMOTE_READ)
        .unwrap();
    assert_eq!(short(&b.results(1)), [(2, OK)]);
    let new = mr.get_remote_token();
    assert_ne!(new, token);
    b.write(4096, b"anew");
    a.qp.read(3, &[a.sge(0, 4)], 0x5000, new, NONE).unwrap();
    assert_eq!(short(&a.results(1)), [(3, OK)]);
    assert_eq!(a.read(0, 4), b"anew");
    a.qp.read(4, &[a.sge(0, 4)], 0x5000, token, NONE).unwrap();
    assert_eq!(short(&a.results(1)), [(4, NtStatus::REMOTE_RESOURCES)]);
}

#[test]
fn ndk_6_a_wrong_token_ends_the_connection() {
    let (a, b) = pair();
    let (_mr, token) = register(&b);
    b.receive(1);
    b.receive(2);
    a.qp.send_and_invalidate(1, &[a.sge(0, 5)], NONE, token ^ 0x100).unwrap();
    // The message itself arrived (IBTA 9.9.6.3, class J).
    assert_eq!(short(&a.results(1)), [(1, OK)]);
    let results = b.results(2);
    assert!(results.iter().all(|r| r.status != OK), "{results:?}");
    assert_eq!(b.qp.send(2, &[], NONE), Err(NtStatus::CONNECTION_INVALID));
    // The other end does not answer any more.
    a.qp.send(2, &[], NONE).unwrap();
    let results = a.results(1);
    assert!(results[0].status != OK, "{results:?}");
    assert_eq!(a.qp.send(3, &[], NONE), Err(NtStatus::CONNECTION_INVALID));
}

#[test]
fn an_invalidate_of_what_is_not_registered_fails_with_a_completion() {
    let (a, _b) = pair();
    let (mr, _) = a.fast(1);
    a.qp.invalidate(1, Invalidated::Mr(&mr), NONE).unwrap();
    assert_eq!(short(&a.results(1)), [(1, NtStatus::INVALID_DEVICE_REQUEST)]);
    let (a, _b) = pair();
    a.qp.invalidate(1, Invalidated::Mw(&a.window()), NONE).unwrap();
    assert_eq!(short(&a.results(1)), [(1, NtStatus::INVALID_DEVICE_REQUEST)]);
}
