//! Posting requests (NDK-4) and their flags (NDK-5).
mod common;
use adverb_ndk::{Invalidated, NotifyType, NtStatus, OpFlags, OperationType, Qp, Sge};
use common::{NONE, QpEnd, pair, short};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

const OK: NtStatus = NtStatus::SUCCESS;
const SILENT: OpFlags = OpFlags::SILENT_SUCCESS;

#[test]
fn requests_need_a_connection_and_receives_do_not() {
    let (a, b) = (QpEnd::new(), QpEnd::new());
    let (mr, lam) = a.fast(2);
    let mw = a.window();
    let (remote, token) = b.remote(0);
    let sgl = [a.sge(0, 8)];
    a.receive(1);
    let invalid = Err(NtStatus::CONNECTION_INVALID);
    assert_eq!(a.qp.send(2, &sgl, NONE), invalid);
    assert_eq!(a.qp.send_and_invalidate(2, &sgl, NONE, 1), invalid);
    assert_eq!(a.qp.write(2, &sgl, remote, token, NONE), invalid);
    assert_eq!(a.qp.read(2, &sgl, remote, token, NONE), invalid);
    assert_eq!(a.qp.bind(2, &a.mr, &mw, a.memory.addr(), 8, NONE), invalid);
    assert_eq!(a.qp.fast_register(2, &mr, &lam.pages[..1], 0, 8, 0, NONE), invalid);
    assert_eq!(a.qp.invalidate(2, Invalidated::Mr(&mr), NONE), invalid);
    a.qp.flush();
    assert_eq!(short(&a.results(1)), [(1, NtStatus::CANCELLED)]);
    a.receive(3);
    assert_eq!(short(&a.results(1)), [(3, NtStatus::CANCELLED)]);
    a.assert_no_more();
}

/// Posts until the queue pair refuses, while another thread ends the queue pair. Every accepted
/// request completes once.
fn ended_beside_posts(end: impl Fn(&Qp) + Sync) {
    for _ in 0..20 {
        let (a, b) = pair();
        let (remote, token) = b.remote(0);
        let started = AtomicBool::new(false);
        let mut posted = 0u64;
        let mut done = Vec::new();
        let qp = &a.qp;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                common::eventually("posts", || started.load(SeqCst));
                end(qp);
            });
            let deadline = std::time::Instant::now() + common::DEADLINE;
            loop {
                let flags = if posted.is_multiple_of(3) { NONE } else { OpFlags::DEFER };
                match a.qp.write(posted, &[a.sge(0, 64)], remote, token, flags) {
                    Ok(()) => posted += 1,
                    Err(NtStatus::INSUFFICIENT_RESOURCES) => done.extend(a.cq.drain(64)),
                    Err(status) => {
                        assert_eq!(status, NtStatus::CONNECTION_INVALID);
                        break;
                    }
                }
                started.store(posted > 100, SeqCst);
                assert!(std::time::Instant::now() < deadline);
            }
        });
        done.extend(a.results(posted as usize - done.len()));
        assert!(done.iter().map(|r| r.request_context).eq(0..posted), "in order, each once");
        assert!(done.iter().all(|r| [OK, NtStatus::CANCELLED].contains(&r.status)));
        assert_eq!(a.cq.drain(1), []);
    }
}

#[test]
fn ndk_4_flush_runs_beside_a_post() {
    ended_beside_posts(Qp::flush);
}

#[test]
fn ndk_4_the_end_of_the_connection_runs_beside_a_post() {
    ended_beside_posts(adverb_ndk::joined::part);
}

#[test]
fn ndk_5_silent_requests_complete_when_they_fail_and_only_then() {
    let (a, b) = pair();
    let (remote, token) = b.remote(0);
    // Many more requests than the queue's depth: the consumer does not need to free them.
    let mut posted = 0;
    while posted < 1000 {
        match a.qp.write(posted, &[a.sge(0, 8)], remote, token, SILENT) {
            Ok(()) => posted += 1,
            Err(status) => assert_eq!(status, NtStatus::INSUFFICIENT_RESOURCES),
        }
        assert_eq!(a.cq.drain(4), []);
    }
    a.qp.write(1000, &[a.sge(0, 8)], remote, token, NONE).unwrap();
    assert_eq!(short(&a.results(1)), [(1000, OK)]);
    a.qp.write(1001, &[a.sge(0, 8)], remote, token, SILENT | OpFlags::DEFER).unwrap();
    a.qp.write(1002, &[a.sge(0, 8)], remote, token ^ 0x100, SILENT | OpFlags::DEFER).unwrap();
    a.qp.read(1003, &[a.sge(0, 8)], remote, token, SILENT).unwrap();
    let results = a.results(2);
    assert_eq!(short(&results), [(1002, NtStatus::REMOTE_RESOURCES), (1003, NtStatus::CANCELLED)]);
    assert_eq!(
        (results[0].operation, results[1].operation),
        (OperationType::Write, OperationType::Read)
    );
    a.assert_no_more();
}

#[test]
fn ndk_5_a_fenced_request_sees_what_reads_before_it_brought() {
    let (a, b) = pair();
    let (remote, token) = b.remote(0);
    b.write(0, b"from the peer");
    for i in 0..50 {
        a.write(0, &[0; 13]);
        b.write(100, &[0; 13]);
        a.qp.read(2 * i, &[a.sge(0, 13)], remote, token, SILENT | OpFlags::DEFER).unwrap();
        let back = a.qp.write(2 * i + 1, &[a.sge(0, 13)], remote + 100, token, OpFlags::READ_FENCE);
        back.unwrap();
        assert_eq!(short(&a.results(1)), [(2 * i + 1, OK)]);
        assert_eq!(b.read(100, 13), b"from the peer");
    }
}

#[test]
fn ndk_5_a_solicited_send_satisfies_the_peers_arm() {
    let (a, b) = pair();
    b.cq.arm(NotifyType::Solicited);
    for (i, flags) in [NONE, SILENT, OpFlags::SEND_AND_SOLICIT_EVENT].into_iter().enumerate() {
        b.assert_no_call("not solicited");
        b.receive(i as u64);
        a.qp.send(i as u64, &[a.sge(0, 8)], flags).unwrap();
    }
    assert_eq!(b.call(), OK);
    assert_eq!(b.results(3).len(), 3);
}

#[test]
fn ndk_5_inline_bytes_are_copied_by_the_call_in_any_number_of_entries() {
    let (a, b) = pair();
    let (remote, token) = b.remote(512);
    let mut bytes: Vec<u8> = (0..128).collect();
    b.receive(1);
    // One entry for each byte, many more than the queue pair's limit for registered entries.
    let sgl: Vec<Sge<'_>> = bytes.chunks(1).map(Sge::Bytes).collect();
    a.qp.send(1, &sgl, OpFlags::INLINE | OpFlags::DEFER).unwrap();
    let sgl: Vec<Sge<'_>> = bytes.chunks(64).map(Sge::Bytes).collect();
    a.qp.write(2, &sgl, remote, token, OpFlags::INLINE | OpFlags::DEFER).unwrap();
    bytes.fill(0xff);
    a.qp.write(3, &[], remote, token, NONE).unwrap();
    assert_eq!(short(&a.results(3)), [(1, OK), (2, OK), (3, OK)]);
    assert_eq!(b.results(1)[0].bytes_transferred, 128);
    let expected: Vec<u8> = (0..128).collect();
    assert_eq!(b.read(0, 128), expected);
    assert_eq!(b.read(512, 128), expected);
    // More bytes than the queue pair's limit. Then bytes without INLINE, and registered memory with
    // INLINE.
    let long = [0; 129];
    let invalid = Err(NtStatus::INVALID_PARAMETER);
    assert_eq!(a.qp.send(4, &[Sge::Bytes(&long)], OpFlags::INLINE), invalid);
    assert_eq!(a.qp.send(4, &[Sge::Bytes(&long)], NONE), invalid);
    assert_eq!(a.qp.send(4, &[a.sge(0, 8)], OpFlags::INLINE), invalid);
    assert_eq!(a.qp.read(4, &[Sge::Bytes(&long)], remote, token, OpFlags::INLINE), invalid);
    a.assert_no_more();
}

#[test]
fn ndk_5_a_read_with_local_invalidate_is_one_request() {
    for flags in [NONE, SILENT] {
        let (a, b) = pair();
        let (mr, lam) = a.fast(2);
        let (remote, token) = b.remote(0);
        b.write(0, b"brought by a read");
        let register = |context| {
            let flags =
                OpFlags::DEFER | SILENT | OpFlags::ALLOW_LOCAL_WRITE | OpFlags::RDMA_READ_SINK;
            a.qp.fast_register(context, &mr, &lam.pages[..1], 0, 4096, 0x9000, flags).unwrap();
            Sge::Registered { address: 0x9000, length: 17, token: mr.get_local_token() }
        };
        for i in 0..5 {
            a.write(0, &[0; 17]);
            let sge = register(10);
            a.qp.read(i, &[sge], remote, token, flags | OpFlags::RDMA_READ_LOCAL_INVALIDATE)
                .unwrap();
            a.qp.write(20, &[], remote, token, NONE).unwrap();
            let expected = if flags == SILENT { vec![20] } else { vec![i, 20] };
            let results = a.results(expected.len());
            assert_eq!(results.iter().map(|r| r.request_context).collect::<Vec<_>>(), expected);
            assert!(results.iter().all(|r| r.status == OK), "{results:?}");
            assert_eq!(a.read(0, 17), b"brought by a read");
        }
        // The token is invalid, so a second invalidate fails.
        a.qp.invalidate(30, Invalidated::Mr(&mr), NONE).unwrap();
        assert_eq!(short(&a.results(1)), [(30, NtStatus::INVALID_DEVICE_REQUEST)]);
    }
}

#[test]
fn ndk_5_a_failed_read_with_local_invalidate_completes_once() {
    for flags in [NONE, SILENT] {
        let (a, b) = pair();
        let (mr, lam) = a.fast(2);
        let (remote, token) = b.remote(0);
        let register = SILENT | OpFlags::DEFER | OpFlags::ALLOW_LOCAL_WRITE;
        a.qp.fast_register(1, &mr, &lam.pages[..1], 0, 4096, 0x9000, register).unwrap();
        let sge = Sge::Registered { address: 0x9000, length: 17, token: mr.get_local_token() };
        let flags = flags | OpFlags::RDMA_READ_LOCAL_INVALIDATE;
        a.qp.read(2, &[sge], remote, token ^ 0x100, flags | OpFlags::DEFER).unwrap();
        a.qp.read(3, &[sge], remote, token, flags).unwrap();
        let results = a.results(2);
        assert_eq!(short(&results), [(2, NtStatus::REMOTE_RESOURCES), (3, NtStatus::CANCELLED)]);
        assert!(results.iter().all(|r| r.operation == OperationType::Read));
        a.assert_no_more();
    }
}

#[test]
fn ndk_5_reads_with_local_invalidate_need_no_more_of_the_completion_queue() {
    let depth = common::DEPTH;
    // As deep as the number of requests. When cancelled, each request is two completions of the
    // device.
    let (a, b) = (QpEnd::with(adverb_ndk::PendingMode::Never, depth), QpEnd::new());
    adverb_ndk::joined::join(&a.qp, &b.qp).unwrap();
    let (mr, lam) = a.fast(1);
    let (remote, token) = b.remote(0);
    let register = SILENT | OpFlags::ALLOW_LOCAL_WRITE;
    a.qp.fast_register(1, &mr, &lam.pages[..1], 0, 4096, 0x9000, register).unwrap();
    let sge = Sge::Registered { address: 0x9000, length: 17, token: mr.get_local_token() };
    let flags = OpFlags::RDMA_READ_LOCAL_INVALIDATE | OpFlags::DEFER;
    // The peer has no receive for this send, so no later request completes.
    a.qp.send(0, &[], NONE).unwrap();
    (1..depth).for_each(|i| a.qp.read(i.into(), &[sge], remote, token, flags).unwrap());
    a.qp.flush();
    // Exactly the number of requests, so hidden completions would remain.
    let results = a.results(depth as usize);
    assert!(results.iter().map(|r| r.request_context).eq(0..depth.into()));
    a.cq.arm(NotifyType::Errors);
    a.assert_no_call("no overrun");
    // A resize keeps the extra room.
    common::wait(|c| a.cq.resize(depth, c)).unwrap();
}

#[test]
fn ndk_5_the_room_for_hidden_completions_goes_with_its_queue_pair() {
    let depth = common::DEPTH;
    let (a, b) = (QpEnd::with(adverb_ndk::PendingMode::Never, depth), QpEnd::new());
    adverb_ndk::joined::join(&a.qp, &b.qp).unwrap();
    read_and_invalidate(&a, &b);
    common::closed(|c| a.qp.close(c));
    a.assert_no_more();
    // The queue holds as many completions as the consumer asked for, and no more.
    let sizes = adverb_ndk::QpSizes { receive_queue_depth: depth + 1, ..common::sizes() };
    let qp = common::wait(|c| a.pd.create_qp(&a.cq, &a.cq, 0, sizes, c)).unwrap();
    let opened = qp.clone();
    a.at_end(move || common::closed(|c| opened.close(c)));
    (0..=depth).for_each(|i| qp.receive(i.into(), &[]).unwrap());
    qp.flush();
    a.cq.arm(NotifyType::Errors);
    assert_eq!(a.call(), NtStatus::BUFFER_OVERFLOW);
}

#[test]
fn ndk_5_a_completion_queue_of_the_largest_depth_takes_reads_with_local_invalidate() {
    let adapter = common::adapter(adverb_ndk::PendingMode::Never);
    let depth = adapter.query_info().max_cq_depth;
    adapter.close().unwrap();
    let (a, b) = (QpEnd::with(adverb_ndk::PendingMode::Never, depth), QpEnd::new());
    adverb_ndk::joined::join(&a.qp, &b.qp).unwrap();
    read_and_invalidate(&a, &b);
    // Although there is extra room, the largest depth is still allowed, and no larger depth.
    let resize = |depth| common::wait(|c| a.cq.resize(depth, c));
    assert_eq!([resize(64), resize(depth)], [Ok(()), Ok(())]);
    assert_eq!(resize(depth + 1), Err(NtStatus::INVALID_PARAMETER));
}

/// Performs one read that invalidates, from `b`'s memory to a page of `a`'s.
fn read_and_invalidate(a: &QpEnd, b: &QpEnd) {
    let (mr, lam) = a.fast(1);
    let (remote, token) = b.remote(0);
    let register = SILENT | OpFlags::ALLOW_LOCAL_WRITE;
    a.qp.fast_register(1, &mr, &lam.pages[..1], 0, 4096, 0x9000, register).unwrap();
    let sge = Sge::Registered { address: 0x9000, length: 17, token: mr.get_local_token() };
    a.qp.read(2, &[sge], remote, token, OpFlags::RDMA_READ_LOCAL_INVALIDATE).unwrap();
    assert_eq!(short(&a.results(1)), [(2, OK)]);
}

#[test]
fn ndk_5_a_read_with_local_invalidate_is_taken_whole_or_not_at_all() {
    let (a, b) = pair();
    let (remote, token) = b.remote(0);
    // The peer has no receive for this send, so no later request leaves the queue. Silent requests
    // then fill the queue.
    a.qp.send(0, &[], NONE).unwrap();
    let silent = u64::from(common::DEPTH) - 1;
    (1..=silent).for_each(|i| a.qp.write(i, &[a.sge(0, 8)], remote, token, SILENT).unwrap());
    let flags = OpFlags::RDMA_READ_LOCAL_INVALIDATE;
    let refused = a.qp.read(9999, &[a.sge(0, 8)], remote, token, flags);
    assert_eq!(refused, Err(NtStatus::INSUFFICIENT_RESOURCES));
    a.qp.flush();
    let results = a.results(silent as usize + 1);
    assert!(results.iter().map(|r| r.request_context).eq(0..=silent));
    a.assert_no_more();
}

#[test]
fn ndk_5_after_a_failure_requests_are_refused_before_its_completion_is_read() {
    let (a, b) = pair();
    let (remote, token) = b.remote(0);
    a.cq.arm(NotifyType::Errors);
    a.qp.write(0, &[a.sge(0, 8)], remote, token ^ 0x100, NONE).unwrap();
    assert_eq!(a.call(), OK, "the failure is in the completion queue");
    for flags in [SILENT, NONE, OpFlags::DEFER] {
        let refused = a.qp.write(1, &[a.sge(0, 8)], remote, token, flags);
        assert_eq!(refused, Err(NtStatus::CONNECTION_INVALID));
    }
    assert_eq!(short(&a.results(1)), [(0, NtStatus::REMOTE_RESOURCES)]);
    a.assert_no_more();
}

#[test]
fn ndk_5_flags_that_a_request_does_not_have_are_refused() {
    let (a, b) = pair();
    let (remote, token) = b.remote(0);
    let (mr, lam) = a.fast(2);
    let mw = a.window();
    let sgl = [a.sge(0, 8)];
    let invalid = Err(NtStatus::INVALID_PARAMETER);
    let beyond = OpFlags::from_bits_retain(0x400);
    for flags in [OpFlags::ALLOW_REMOTE_READ, OpFlags::RDMA_READ_LOCAL_INVALIDATE, beyond] {
        assert_eq!(a.qp.send(1, &sgl, flags), invalid);
        assert_eq!(a.qp.write(1, &sgl, remote, token, flags), invalid);
        assert_eq!(a.qp.invalidate(1, Invalidated::Mr(&mr), flags), invalid);
    }
    let remote_write_alone = OpFlags::ALLOW_REMOTE_WRITE - OpFlags::ALLOW_LOCAL_WRITE;
    for flags in [OpFlags::INLINE, OpFlags::SEND_AND_SOLICIT_EVENT, beyond, remote_write_alone] {
        assert_eq!(a.qp.read(1, &sgl, remote, token, flags), invalid);
        assert_eq!(a.qp.bind(1, &a.mr, &mw, a.memory.addr(), 8, flags), invalid);
        assert_eq!(a.qp.fast_register(1, &mr, &lam.pages[..1], 0, 8, 0, flags), invalid);
    }
    a.assert_no_more();
}

#[test]
fn ndk_8_a_failed_request_says_why() {
    let (a, b) = pair();
    let (remote, token) = b.remote(0);
    a.qp.write(1, &[a.sge(0, 8)], remote, token, NONE).unwrap();
    assert_eq!(a.results(1)[0].provider_error_code, 0);
    a.qp.write(2, &[a.sge(0, 8)], remote, token ^ 0x100, NONE).unwrap();
    let failed = a.results(1)[0];
    assert_eq!(failed.status, NtStatus::REMOTE_RESOURCES);
    assert_ne!(failed.provider_error_code, 0);
}

#[test]
fn ndk_9_a_queue_is_as_deep_as_asked_for_silent_requests_included() {
    let (a, b) = pair();
    let (remote, token) = b.remote(0);
    let write = |id, flags| a.qp.write(id, &[a.sge(0, 8)], remote, token, flags);
    let full = Err(NtStatus::INSUFFICIENT_RESOURCES);
    // Deferred: no request leaves the queue before the queue is full. The refused request ends the
    // chain.
    for i in 0..u64::from(common::DEPTH) {
        write(i, SILENT | OpFlags::DEFER).unwrap();
    }
    assert_eq!(write(99, SILENT), full);
    // The silent requests are done and do not count any more.
    common::eventually("there is room", || write(100, NONE).is_ok());
    assert_eq!(short(&a.results(1)), [(100, OK)]);
    // Requests with a completion count until the completion was read.
    common::eventually("there is room", || write(0, NONE).is_ok());
    for i in 1..u64::from(common::DEPTH) {
        write(i, NONE).unwrap();
    }
    std::thread::sleep(common::GRACE);
    assert_eq!(write(99, SILENT), full);
    assert_eq!(short(&a.results(1)), [(0, OK)]);
    write(101, SILENT).unwrap();
    for i in 0..u64::from(common::DEPTH) {
        a.qp.receive(i, &[a.sge(0, 8)]).unwrap();
    }
    assert_eq!(a.qp.receive(99, &[a.sge(0, 8)]), full);
}
