//! Deferred requests (DEF-1 … DEF-7). The test of DEF-8 is in `commit.rs`, because its counters
//! count the whole process.
mod common;
use adverb_ndk::{Invalidated, NtStatus, OpFlags, OperationType};
use common::{QpEnd, closed, pair, short};

const DEFER: OpFlags = OpFlags::DEFER;
const SILENT: OpFlags = OpFlags::SILENT_SUCCESS;
const OK: NtStatus = NtStatus::SUCCESS;

/// Posts a deferred request of each type. Returns the types in order.
fn post_every_type(a: &QpEnd, b: &QpEnd) -> Vec<OperationType> {
    let (mr, lam) = a.fast(4);
    let mw = a.window();
    let (remote, token) = b.remote(8192);
    b.receive(100);
    b.receive(101);
    let frmr = |context| {
        let flags = DEFER | OpFlags::ALLOW_REMOTE_READ;
        a.qp.fast_register(context, &mr, &lam.pages[..2], 0, 8192, 0x7000_0000, flags).unwrap();
    };
    a.qp.bind(1, &a.mr, &mw, a.memory.addr(), 4096, DEFER | OpFlags::ALLOW_REMOTE_READ).unwrap();
    frmr(2);
    a.qp.invalidate(3, Invalidated::Mw(&mw), DEFER).unwrap();
    a.qp.read(4, &[a.sge(0, 64)], remote, token, DEFER).unwrap();
    a.qp.write(5, &[a.sge(64, 64)], remote, token, DEFER).unwrap();
    a.qp.send(6, &[a.sge(0, 32)], DEFER).unwrap();
    // The send invalidates a token of the peer: the token of a window that the peer binds now.
    let window = b.window();
    b.qp.bind(50, &b.mr, &window, b.memory.addr(), 64, OpFlags::ALLOW_REMOTE_READ).unwrap();
    assert_eq!(short(&b.results(1)), [(50, OK)]);
    a.qp.send_and_invalidate(7, &[a.sge(0, 32)], DEFER, window.get_remote_token()).unwrap();
    use OperationType::{Bind, FastRegister, Invalidate, Read, Send, Write};
    vec![Bind, FastRegister, Invalidate, Read, Write, Send, Send]
}

#[test]
fn def_1_every_initiator_request_may_be_deferred() {
    let (a, b) = pair();
    let types = post_every_type(&a, &b);
    // This request ends the chain (DEF-5).
    a.qp.write(8, &[], 0, 0, OpFlags::empty()).unwrap();
    let results = a.results(8);
    assert_eq!(short(&results), (1..=8).map(|i| (i, OK)).collect::<Vec<_>>());
    assert!(results.iter().zip(types).all(|(r, t)| r.operation == t), "{results:?}");
    assert!(results.iter().all(|r| r.qp_context == 7));
    assert_eq!(short(&b.results(2)), [(100, OK), (101, OK)]);
    a.assert_no_more();
}

#[test]
fn def_2_a_deferred_request_may_wait_for_the_end_of_its_chain_and_no_longer() {
    let (a, b) = pair();
    for i in 0..10 {
        b.receive(i);
    }
    for i in 0..9 {
        a.qp.send(i, &[a.sge(0, 8)], DEFER).unwrap();
    }
    a.qp.send(9, &[a.sge(0, 8)], OpFlags::empty()).unwrap();
    let all: Vec<_> = (0..10).map(|i| (i, OK)).collect();
    assert_eq!(short(&b.results(10)), all);
    assert_eq!(short(&a.results(10)), all);
}

#[test]
fn def_3_a_post_that_succeeds_completes_once_and_one_that_fails_never() {
    let (a, b) = pair();
    let (remote, token) = b.remote(0);
    let write = |context, flags| a.qp.write(context, &[a.sge(0, 8)], remote, token, flags);
    for round in 0..20 {
        let base = round * 10;
        write(base, DEFER).unwrap();
        write(base + 1, DEFER | SILENT).unwrap();
        // Too many entries, a flag that a write does not allow, and registered memory with INLINE.
        let five = [a.sge(0, 1); 5];
        assert_eq!(
            a.qp.write(base + 2, &five, remote, token, DEFER),
            Err(NtStatus::INVALID_PARAMETER)
        );
        assert_eq!(write(base + 3, OpFlags::ALLOW_REMOTE_READ), Err(NtStatus::INVALID_PARAMETER));
        assert_eq!(write(base + 4, DEFER | OpFlags::INLINE), Err(NtStatus::INVALID_PARAMETER));
        write(base + 5, SILENT).unwrap();
        write(base + 6, OpFlags::empty()).unwrap();
        assert_eq!(short(&a.results(2)), [(base, OK), (base + 6, OK)]);
    }
    a.assert_no_more();
}

#[test]
fn def_3_a_full_queue_refuses_and_completes_what_it_took() {
    let (a, b) = pair();
    let (remote, token) = b.remote(0);
    let write = |context| a.qp.write(context, &[a.sge(0, 8)], remote, token, DEFER);
    let depth = u64::from(common::DEPTH);
    (0..depth).for_each(|i| write(i).unwrap());
    // The refusal ends the chain, so all requests of the chain complete (DEF-4).
    assert_eq!(write(depth), Err(NtStatus::INSUFFICIENT_RESOURCES));
    assert_eq!(short(&a.results(depth as usize)), (0..depth).map(|i| (i, OK)).collect::<Vec<_>>());
    a.assert_no_more();
}

type Post = fn(&QpEnd, &QpEnd) -> Result<(), NtStatus>;

#[test]
fn def_4_before_a_failure_returns_all_deferred_before_it_is_committed() {
    let failures: [Post; 6] = [
        |a, b| a.qp.write(9, &[a.sge(0, 8); 5], b.remote(0).0, 0, DEFER),
        |a, _| a.qp.send(9, &[adverb_ndk::Sge::Bytes(&[0; 129])], DEFER | OpFlags::INLINE),
        |a, _| a.qp.bind(9, &a.mr, &a.window(), 0, 8, DEFER),
        |a, _| a.qp.fast_register(9, &a.mr, &[], 0, 8, 0, DEFER),
        |a, _| a.qp.invalidate(9, Invalidated::Mr(&a.mr), DEFER),
        |a, _| a.qp.read(9, &[], 0, 0, DEFER | OpFlags::RDMA_READ_LOCAL_INVALIDATE),
    ];
    for failure in failures {
        let (a, b) = pair();
        let (remote, token) = b.remote(0);
        for i in 0..3 {
            a.qp.write(i, &[a.sge(0, 8)], remote, token, DEFER).unwrap();
        }
        failure(&a, &b).unwrap_err();
        assert_eq!(short(&a.results(3)), [(0, OK), (1, OK), (2, OK)]);
        a.assert_no_more();
    }
}

#[test]
fn def_5_flush_completes_what_was_deferred() {
    let (a, b) = pair();
    post_every_type(&a, &b);
    // The peer has no receive for this send.
    a.qp.send(8, &[], DEFER).unwrap();
    a.qp.flush();
    let results = a.results(8);
    assert!(results.iter().map(|r| r.request_context).eq(1..=8));
    // Requests that finished before the flush succeeded.
    assert!(results.iter().all(|r| [OK, NtStatus::CANCELLED].contains(&r.status)), "{results:?}");
    assert!(results.is_sorted_by_key(|r| r.status == NtStatus::CANCELLED), "{results:?}");
    assert_eq!(results[7].status, NtStatus::CANCELLED);
    a.assert_no_more();
    assert_eq!(a.qp.send(8, &[], DEFER), Err(NtStatus::CONNECTION_INVALID));
}

#[test]
fn def_5_a_failed_request_takes_the_deferred_ones_behind_it_along() {
    let (a, b) = pair();
    let (remote, token) = b.remote(0);
    a.qp.write(1, &[a.sge(0, 8)], remote, token ^ 0x100, OpFlags::empty()).unwrap();
    for i in 2..6 {
        // Refused if the failure is already known. Then no request was deferred.
        if a.qp.write(i, &[a.sge(0, 8)], remote, token, DEFER).is_err() {
            assert_eq!(short(&a.results(i as usize - 1))[0], (1, NtStatus::REMOTE_RESOURCES));
            return;
        }
    }
    let expected: Vec<_> = (1..6)
        .map(|i| (i, if i == 1 { NtStatus::REMOTE_RESOURCES } else { NtStatus::CANCELLED }))
        .collect();
    assert_eq!(short(&a.results(5)), expected);
    a.assert_no_more();
}

#[test]
fn def_5_a_failure_of_the_peers_request_takes_the_deferred_ones_along() {
    let (a, b) = pair();
    let ((to_a, token_a), (to_b, token_b)) = (a.remote(0), b.remote(0));
    for i in 0..3 {
        a.qp.write(i, &[a.sge(0, 8)], to_b, token_b, DEFER).unwrap();
    }
    b.qp.write(9, &[b.sge(0, 8)], to_a, token_a ^ 0x100, OpFlags::empty()).unwrap();
    assert_eq!(short(&b.results(1)), [(9, NtStatus::REMOTE_RESOURCES)]);
    assert_eq!(short(&a.results(3)), [0, 1, 2].map(|i| (i, NtStatus::CANCELLED)));
    a.assert_no_more();
}

#[test]
fn def_5_close_completes_what_was_deferred_and_the_queue_keeps_it() {
    let (a, _b) = pair();
    for i in 0..5 {
        // The peer has no receives.
        a.qp.send(i, &[a.sge(0, 8)], DEFER).unwrap();
        a.receive(10 + i);
    }
    closed(|c| a.qp.close(c));
    let results = a.results(10);
    let mut contexts: Vec<_> = results.iter().map(|r| r.request_context).collect();
    contexts.sort_unstable();
    assert_eq!(contexts, [0, 1, 2, 3, 4, 10, 11, 12, 13, 14]);
    assert!(
        results.iter().all(|r| r.qp_context == 7 && r.status == NtStatus::CANCELLED),
        "{results:?}"
    );
}

#[test]
fn def_6_order_of_posting_is_order_of_execution() {
    let (a, b) = pair();
    for i in 0..32 {
        b.receive(i);
    }
    for i in 0..32u64 {
        a.write(i as usize * 8, &i.to_le_bytes());
        let flags = if i % 5 == 4 { OpFlags::empty() } else { DEFER };
        a.qp.send(i, &[a.sge(i * 8, 8)], if i == 31 { OpFlags::empty() } else { flags }).unwrap();
    }
    assert_eq!(
        a.results(32).iter().map(|r| r.request_context).collect::<Vec<_>>(),
        Vec::from_iter(0..32)
    );
    let received = b.results(32);
    assert_eq!(
        received.iter().map(|r| r.request_context).collect::<Vec<_>>(),
        Vec::from_iter(0..32)
    );
    // All messages use the same buffer, which holds the last message.
    assert_eq!(b.read(0, 8), 31u64.to_le_bytes());
}

#[test]
fn def_6_a_registration_is_there_for_the_request_behind_it() {
    let (a, b) = pair();
    let (mr, lam) = a.fast(4);
    let base = 0x4000_0000;
    b.receive(1);
    a.write(4096, b"behind");
    a.qp.fast_register(1, &mr, &lam.pages[1..3], 0, 8192, base, DEFER | SILENT).unwrap();
    let sge = adverb_ndk::Sge::Registered { address: base, length: 6, token: mr.get_local_token() };
    a.qp.send(2, &[sge], OpFlags::empty()).unwrap();
    assert_eq!(short(&a.results(1)), [(2, OK)]);
    assert_eq!(short(&b.results(1)), [(1, OK)]);
    assert_eq!(b.read(0, 6), b"behind");
}

#[test]
fn def_7_the_documented_example() {
    let (a, _b) = pair();
    let ((first, lam), (second, _)) = (a.fast(2), a.fast(2));
    a.qp.fast_register(1, &first, &lam.pages[..2], 0, 8192, 0x1000, DEFER).unwrap();
    // More pages than the region was prepared for.
    let failed = a.qp.fast_register(2, &second, &lam.pages[..3], 0, 12288, 0x1000, DEFER);
    assert_eq!(failed, Err(NtStatus::INVALID_PARAMETER));
    // No send follows.
    let results = a.results(1);
    assert_eq!(short(&results), [(1, OK)]);
    assert_eq!(results[0].operation, OperationType::FastRegister);
    a.assert_no_more();
}
