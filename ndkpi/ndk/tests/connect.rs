//! Connections between two adapters of one process (NDK-7).
mod common;
mod connect_common;
use adverb_ndk::connect::DisconnectReason;
use adverb_ndk::{NtStatus, OpFlags, OperationType, PendingMode, Sge};
use adverb_ucma::ids::{Id, QpKind};
use common::{NONE, QpEnd, closed, short, wait};
use connect_common::*;
use std::net::SocketAddr;

const MODES: [PendingMode; 3] = [PendingMode::Never, PendingMode::Always, PendingMode::Alternate];

fn ends() -> (QpEnd, QpEnd) {
    (QpEnd::new(), QpEnd::new())
}

fn text(bytes: &[u8]) -> [Sge<'_>; 1] {
    [Sge::Bytes(bytes)]
}

#[test]
fn ndk_7_a_connection_from_listen_to_close() {
    for mode in MODES {
        let (a, b) = (QpEnd::with(mode, 64), QpEnd::with(mode, 64));
        // Receives need no connection. Other requests do.
        a.receive(1);
        b.receive(2);
        assert_eq!(
            a.qp.send(3, &text(b"early"), OpFlags::INLINE),
            Err(NtStatus::CONNECTION_INVALID)
        );
        let listening = Listening::new(&b);
        let (active, called) = call(&a, listening.address);
        let passive = listening.next();
        assert_eq!(passive.get_connection_data(), Ok(said(reads(8, 16), b"call", CALL)));
        let accepted =
            Pending::start(|c| passive.accept(&b.qp, reads(4, 120), b"answer", None, c)).unwrap();
        called.result().unwrap();
        assert_eq!(active.get_connection_data(), Ok(said(reads(16, 4), b"answer", ANSWER)));
        accepted.assert_pending();
        wait(|c| active.complete_connect(None, c)).unwrap();
        accepted.result().unwrap();
        assert_eq!(active.get_peer_address(), Ok(listening.address));
        assert_eq!(passive.get_local_address(), Ok(listening.address));
        assert_eq!(active.get_local_address(), passive.get_peer_address());
        a.qp.send(5, &text(b"to b"), OpFlags::INLINE).unwrap();
        b.qp.send(6, &text(b"to a"), OpFlags::INLINE).unwrap();
        for (end, contexts, bytes) in [(&a, [1, 5], b"to a"), (&b, [2, 6], b"to b")] {
            let mut got = short(&end.results(2));
            got.sort_unstable_by_key(|r| r.0);
            assert_eq!(got, contexts.map(|c| (c, NtStatus::SUCCESS)), "{mode:?}");
            assert_eq!(end.read(0, 4), bytes);
        }
        wait(|c| active.disconnect(c)).unwrap();
        closed(|c| active.close(c));
        closed(|c| passive.close(c));
        listening.close();
    }
}

#[test]
fn ndk_7_a_connection_over_ipv6() {
    let (a, b) = ends();
    let Some(ip) =
        a.adapter.context().device().interface().addresses.iter().find(|ip| ip.is_ipv6())
    else {
        // The machine's loopback interface has no IPv6 address.
        return;
    };
    b.receive(1);
    let listening = Listening::at(&b, SocketAddr::new(*ip, 0));
    let connection = connect_to(&a, &b, &listening);
    a.qp.send(2, &text(b"six"), OpFlags::INLINE).unwrap();
    assert_eq!(short(&b.results(1)), [(1, NtStatus::SUCCESS)]);
    assert_eq!(short(&a.results(1)), [(2, NtStatus::SUCCESS)]);
    connection.close();
    listening.close();
}

#[test]
fn ndk_7_read_limits_are_capped_by_the_adapter() {
    let (a, b) = ends();
    let info = a.adapter.query_info();
    let (max_in, max_out) = (info.max_inbound_read_limit, info.max_outbound_read_limit);
    let listening = Listening::new(&b);
    let active = connector(&a);
    let called = Pending::start(|c| {
        active.connect(&a.qp, any(), listening.address, reads(u32::MAX, u32::MAX), b"", c)
    });
    let called = called.unwrap();
    let passive = listening.next();
    assert_eq!(passive.get_connection_data().unwrap().reads, reads(max_in, max_out));
    let accepted =
        Pending::start(|c| passive.accept(&b.qp, reads(u32::MAX, 0), b"", None, c)).unwrap();
    called.result().unwrap();
    assert_eq!(active.get_connection_data().unwrap().reads, reads(0, max_out));
    wait(|c| active.complete_connect(None, c)).unwrap();
    accepted.result().unwrap();
    // The outbound limit applies to the queue pair, too: 0 allows no reads.
    let (remote, token) = a.remote(0);
    b.qp.read(1, &[b.sge(0, 8)], remote, token, NONE).unwrap();
    assert_eq!(short(&b.results(1)), [(1, NtStatus::INVALID_DEVICE_REQUEST)]);
    closed(|c| active.close(c));
    closed(|c| passive.close(c));
    listening.close();
}

#[test]
fn ndk_7_a_rejected_connector_has_the_private_data_and_may_try_again() {
    let (a, b) = ends();
    let listening = Listening::new(&b);
    let (active, called) = call(&a, listening.address);
    let passive = listening.next();
    let from = active.get_local_address().unwrap();
    passive.reject(b"not now").unwrap();
    assert_eq!(passive.reject(b"again"), Err(NtStatus::CONNECTION_INVALID));
    assert_eq!(called.result(), Err(NtStatus::CONNECTION_REFUSED));
    assert_eq!(active.get_connection_data(), Ok(said(reads(0, 0), b"not now", REFUSAL)));
    closed(|c| passive.close(c));
    // The address is free again, for this connector and for others.
    assert_eq!(active.get_local_address(), Err(NtStatus::CONNECTION_INVALID));
    let called =
        Pending::start(|c| active.connect(&a.qp, from, listening.address, reads(1, 1), b"", c))
            .unwrap();
    let passive = listening.next();
    let accepted = Pending::start(|c| passive.accept(&b.qp, reads(1, 1), b"", None, c)).unwrap();
    called.result().unwrap();
    wait(|c| active.complete_connect(None, c)).unwrap();
    accepted.result().unwrap();
    closed(|c| active.close(c));
    closed(|c| passive.close(c));
    listening.close();
}

/// When the connect has completed, the address is free, and so is the combination with the peer's
/// address.
#[test]
fn ndk_7_a_rejected_connector_may_try_again_from_the_same_address_at_once() {
    let (a, b) = ends();
    let listening = Listening::new(&b);
    let active = connector(&a);
    let mut from = any();
    for round in 0..200 {
        let called =
            Pending::start(|c| active.connect(&a.qp, from, listening.address, reads(1, 1), b"", c));
        let called = called.unwrap_or_else(|e| panic!("round {round}: {e}"));
        let passive = listening.next();
        from = active.get_local_address().unwrap();
        passive.reject(b"").unwrap();
        assert_eq!(called.result(), Err(NtStatus::CONNECTION_REFUSED), "round {round}");
        closed(|c| passive.close(c));
    }
    closed(|c| active.close(c));
    listening.close();
}

#[test]
fn ndk_7_the_initiator_may_reject_what_was_accepted() {
    let (a, b) = ends();
    let listening = Listening::new(&b);
    let (active, called) = call(&a, listening.address);
    let passive = listening.next();
    let accepted = Pending::start(|c| passive.accept(&b.qp, reads(1, 1), b"", None, c)).unwrap();
    called.result().unwrap();
    active.reject(b"too few").unwrap();
    assert_eq!(accepted.result(), Err(NtStatus::CONNECTION_ABORTED));
    assert_eq!(passive.get_connection_data(), Ok(said(reads(0, 0), b"too few", REFUSAL)));
    assert_eq!(wait(|c| active.complete_connect(None, c)), Err(NtStatus::CONNECTION_INVALID));
    closed(|c| active.close(c));
    closed(|c| passive.close(c));
    listening.close();
}

#[test]
fn ndk_7_calls_that_reach_nobody() {
    for mode in MODES {
        let a = QpEnd::with(mode, 64);
        // Claimed, but without a listener.
        let endpoint = wait(|c| a.adapter.create_shared_endpoint(any(), c)).unwrap();
        assert_eq!(
            call_result(&a, endpoint.get_local_address()),
            Err(NtStatus::CONNECTION_REFUSED)
        );
        // The kernel does not even try a connection from a loopback address.
        let connector = connector(&a);
        let away = "192.0.2.1:5000".parse().unwrap();
        let result = wait(|c| connector.connect(&a.qp, any(), away, reads(1, 1), b"", c));
        assert_eq!(result, Err(NtStatus::NETWORK_UNREACHABLE));
        closed(|c| connector.close(c));
        closed(|c| endpoint.close(c));
    }
}

#[test]
fn ndk_7_bad_arguments_are_named() {
    let (a, b) = ends();
    let listening = Listening::new(&b);
    let to = listening.address;
    let c = connector(&a);
    let connect = |from: SocketAddr, to: SocketAddr, data: &[u8]| {
        wait(|done| c.connect(&a.qp, from, to, reads(1, 1), data, done))
    };
    let elsewhere: SocketAddr = "192.0.2.1:0".parse().unwrap();
    assert_eq!(connect(elsewhere, to, b""), Err(NtStatus::INVALID_ADDRESS));
    assert_eq!(connect("0.0.0.0:0".parse().unwrap(), to, b""), Err(NtStatus::INVALID_ADDRESS));
    assert_eq!(connect("[::1]:0".parse().unwrap(), to, b""), Err(NtStatus::INVALID_PARAMETER));
    assert_eq!(connect(any(), "0.0.0.0:7".parse().unwrap(), b""), Err(NtStatus::INVALID_PARAMETER));
    assert_eq!(connect(any(), to, &[0; 57]), Err(NtStatus::INVALID_PARAMETER));
    assert_eq!(connect(to, to, b""), Err(NtStatus::CONNECTION_REFUSED));
    assert_eq!(connect(to, any(), b""), Err(NtStatus::SHARING_VIOLATION));
    let others = wait(|done| c.connect(&b.qp, any(), to, reads(1, 1), b"", done));
    assert_eq!(others, Err(NtStatus::INVALID_PARAMETER));
    assert_eq!(wait(|done| c.complete_connect(None, done)), Err(NtStatus::CONNECTION_INVALID));
    assert_eq!(wait(|done| c.disconnect(done)), Err(NtStatus::CONNECTION_INVALID));
    assert_eq!(
        wait(|done| c.accept(&a.qp, reads(1, 1), b"", None, done)),
        Err(NtStatus::CONNECTION_INVALID)
    );
    assert_eq!(c.reject(b""), Err(NtStatus::CONNECTION_INVALID));
    assert_eq!(c.get_connection_data(), Err(NtStatus::CONNECTION_INVALID));
    assert_eq!(c.get_local_address(), Err(NtStatus::CONNECTION_INVALID));
    assert_eq!(c.get_peer_address(), Err(NtStatus::CONNECTION_INVALID));
    // Errors of listening.
    let other = wait(|done| b.adapter.create_listener(|_| (), done)).unwrap();
    assert_eq!(other.get_local_address(), Err(NtStatus::INVALID_DEVICE_STATE));
    assert_eq!(wait(|done| other.listen(elsewhere, done)), Err(NtStatus::INVALID_ADDRESS));
    assert_eq!(wait(|done| other.listen(to, done)), Err(NtStatus::SHARING_VIOLATION));
    assert_eq!(
        wait(|done| listening.listener.listen(any(), done)),
        Err(NtStatus::INVALID_DEVICE_STATE)
    );
    listening.assert_no_event();
    closed(|done| other.close(done));
    assert_eq!(other.close(|| ()), Err(NtStatus::DELETE_PENDING));
    assert_eq!(wait(|done| other.listen(any(), done)), Err(NtStatus::DELETE_PENDING));
    // A queue pair can have only one connection.
    let connection = connect_to(&a, &b, &listening);
    assert_eq!(connect(any(), to, b""), Err(NtStatus::CONNECTION_ACTIVE));
    let again = wait(|done| connection.active.connect(&a.qp, any(), to, reads(1, 1), b"", done));
    assert_eq!(again, Err(NtStatus::CONNECTION_ACTIVE));
    connection.close();
    assert_eq!(connect(any(), to, b""), Err(NtStatus::CONNECTION_INVALID));
    closed(|done| c.close(done));
    assert_eq!(connect(any(), to, b""), Err(NtStatus::DELETE_PENDING));
    listening.close();
}

#[test]
fn ndk_7_a_disconnect_tells_the_peer_once_and_flushes_its_own_side() {
    for active_leaves in [true, false] {
        let (a, b) = ends();
        let connection = connect(&a, &b);
        let (active, passive) = (&connection.active, &connection.passive);
        let (leaver, stayer) = if active_leaves { (active, passive) } else { (passive, active) };
        let (told_first, told_second) = if active_leaves {
            (&connection.passive_told, &connection.active_told)
        } else {
            (&connection.active_told, &connection.passive_told)
        };
        let (leaving, staying) = if active_leaves { (&a, &b) } else { (&b, &a) };
        a.receive(1);
        b.receive(2);
        wait(|c| leaver.disconnect(c)).unwrap();
        assert_eq!(leaving.results(1)[0].status, NtStatus::CANCELLED);
        assert_eq!(told(told_first), DisconnectReason::PeerDisconnected);
        // Only the peer cancels the peer's requests.
        staying.assert_no_more();
        wait(|c| stayer.disconnect(c)).unwrap();
        assert_eq!(staying.results(1)[0].status, NtStatus::CANCELLED);
        assert_eq!(wait(|c| stayer.disconnect(c)), Err(NtStatus::CONNECTION_INVALID));
        assert_eq!(wait(|c| leaver.disconnect(c)), Err(NtStatus::CONNECTION_INVALID));
        connection.close();
        not_told(told_first);
        not_told(told_second);
    }
}

#[test]
fn def_5_a_disconnect_commits_what_was_deferred() {
    let (a, b) = ends();
    let connection = connect(&a, &b);
    let (remote, token) = b.remote(0);
    a.qp.write(1, &[a.sge(0, 8)], remote, token, OpFlags::DEFER).unwrap();
    a.qp.write(2, &[a.sge(0, 8)], remote, token, OpFlags::DEFER).unwrap();
    wait(|c| connection.active.disconnect(c)).unwrap();
    let results = a.results(2);
    assert_eq!(results.iter().map(|r| r.request_context).collect::<Vec<_>>(), [1, 2]);
    assert!(
        results.iter().all(|r| [NtStatus::SUCCESS, NtStatus::CANCELLED].contains(&r.status)),
        "{results:?}"
    );
    a.assert_no_more();
    connection.close();
}

#[test]
fn ndk_7_a_peer_that_is_lost_flushes_both_sides() {
    let (a, b) = ends();
    let connection = connect(&a, &b);
    a.receive(1);
    b.receive(2);
    closed(|c| connection.active.close(c));
    assert_eq!(told(&connection.passive_told), DisconnectReason::PeerLost, "NDK-8");
    assert_eq!(short(&a.results(1)), [(1, NtStatus::CANCELLED)]);
    assert_eq!(short(&b.results(1)), [(2, NtStatus::CANCELLED)]);
    assert_eq!(b.qp.send(3, &text(b"late"), OpFlags::INLINE), Err(NtStatus::CONNECTION_INVALID));
    // A consumer usually disconnects then.
    wait(|c| connection.passive.disconnect(c)).unwrap();
    closed(|c| connection.passive.close(c));
    not_told(&connection.passive_told);
    not_told(&connection.active_told);
}

/// A wrong token that the peer cannot invalidate.
#[test]
fn ndk_6_a_wrong_token_ends_the_connection_of_both() {
    let (a, b) = ends();
    let connection = connect(&a, &b);
    b.receive(1);
    a.qp.send_and_invalidate(2, &text(b"bad"), OpFlags::INLINE, b.mr.get_remote_token()).unwrap();
    // The message arrived, and the acknowledgement says only this (IBTA 9.9.6.3, class J). The
    // receive failed.
    assert_eq!(a.results(1)[0].status, NtStatus::SUCCESS);
    let received = b.results(1)[0];
    assert_eq!(received.operation, OperationType::Receive);
    assert_ne!(received.status, NtStatus::SUCCESS);
    told(&connection.passive_told);
    told(&connection.active_told);
    connection.close();
}

#[test]
fn ndk_7_a_paused_listener_refuses_as_if_nobody_listened() {
    let (a, b) = ends();
    let listening = Listening::new(&b);
    listening.listener.control_connect_events(true);
    assert_eq!(call_result(&a, listening.address), Err(NtStatus::CONNECTION_REFUSED));
    listening.assert_no_event();
    listening.listener.control_connect_events(false);
    let connection = connect_to(&a, &b, &listening);
    // Pausing affects only new connections.
    listening.listener.control_connect_events(true);
    wait(|c| connection.active.disconnect(c)).unwrap();
    told(&connection.passive_told);
    connection.close();
    listening.close();
}

/// A program that uses rdma_cm without endpoints has the port.
#[test]
fn ndk_7_a_port_of_another_program_is_taken() {
    struct Silent;
    impl adverb_ucma::Tokens for Silent {
        fn give(&self) {}
        fn take(&self) {}
    }
    let a = QpEnd::new();
    let other = Id::new(QpKind::Rc, std::sync::Arc::new(Silent)).unwrap();
    other.bind(any()).unwrap();
    let taken = other.local_addr().unwrap();
    let listener = wait(|c| a.adapter.create_listener(|_| (), c)).unwrap();
    assert_eq!(wait(|c| listener.listen(taken, c)), Err(NtStatus::SHARING_VIOLATION));
    let endpoint = wait(|c| a.adapter.create_shared_endpoint(taken, c));
    assert_eq!(endpoint.err(), Some(NtStatus::SHARING_VIOLATION));
    drop(other);
    wait(|c| listener.listen(taken, c)).unwrap();
    closed(|c| listener.close(c));
}
