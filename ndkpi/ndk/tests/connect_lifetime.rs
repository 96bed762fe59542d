//! Connectors, listeners and shared endpoints that are closed during an operation (NDK-7).
mod common;
mod connect_common;
use adverb_ndk::connect::{Connector, SharedEndpoint};
use adverb_ndk::{NtStatus, PendingMode, RequestOutcome};
use common::{DEADLINE, QpEnd, closed, wait};
use connect_common::*;
use std::net::SocketAddr;
use std::sync::mpsc::channel;

const MODES: [PendingMode; 3] = [PendingMode::Never, PendingMode::Always, PendingMode::Alternate];

fn ends() -> (QpEnd, QpEnd) {
    (QpEnd::new(), QpEnd::new())
}

/// Waits until a connector knows that its peer has given up. The test reads the debug output,
/// because a call to the connector would change the connector's state otherwise.
fn assert_aborted(connector: &Connector) {
    common::eventually("the peer has given up", || {
        format!("{connector:?}").contains("Ended(Aborted)")
    });
}

#[test]
fn ndk_7_closing_while_a_connect_is_pending_cancels_it() {
    let (a, b) = ends();
    let listening = Listening::new(&b);
    let (active, called) = call(&a, listening.address);
    let passive = listening.next();
    closed(|c| active.close(c));
    assert_eq!(called.result(), Err(NtStatus::CANCELLED));
    assert_aborted(&passive);
    assert_eq!(passive.reject(b""), Err(NtStatus::CONNECTION_ABORTED));
    let accepted = wait(|c| passive.accept(&b.qp, reads(1, 1), b"", None, c));
    assert_eq!(accepted, Err(NtStatus::CONNECTION_ABORTED));
    closed(|c| passive.close(c));
    listening.close();
}

#[test]
fn ndk_7_an_abandoned_accept_is_aborted() {
    let (a, b) = ends();
    let listening = Listening::new(&b);
    let (active, called) = call(&a, listening.address);
    let passive = listening.next();
    let accepted = Pending::start(|c| passive.accept(&b.qp, reads(1, 1), b"", None, c)).unwrap();
    called.result().unwrap();
    closed(|c| active.close(c));
    assert_eq!(accepted.result(), Err(NtStatus::CONNECTION_ABORTED));
    closed(|c| passive.close(c));
    listening.close();
}

#[test]
fn ndk_7_closing_while_an_accept_is_pending_cancels_it() {
    let (a, b) = ends();
    let listening = Listening::new(&b);
    let (active, called) = call(&a, listening.address);
    let passive = listening.next();
    let accepted = Pending::start(|c| passive.accept(&b.qp, reads(1, 1), b"", None, c)).unwrap();
    called.result().unwrap();
    closed(|c| passive.close(c));
    assert_eq!(accepted.result(), Err(NtStatus::CANCELLED));
    assert_aborted(&active);
    assert_eq!(active.reject(b""), Err(NtStatus::CONNECTION_ABORTED));
    assert_eq!(wait(|c| active.disconnect(c)), Err(NtStatus::CONNECTION_INVALID));
    assert_eq!(wait(|c| active.complete_connect(None, c)), Err(NtStatus::CONNECTION_ABORTED));
    closed(|c| active.close(c));
    listening.close();
}

#[test]
fn ndk_7_a_flushed_queue_pair_is_not_connected() {
    let (a, b) = ends();
    let listening = Listening::new(&b);
    let (active, called) = call(&a, listening.address);
    let passive = listening.next();
    let accepted = Pending::start(|c| passive.accept(&b.qp, reads(1, 1), b"", None, c)).unwrap();
    called.result().unwrap();
    b.qp.flush();
    let (on_disconnect, left) = event();
    wait(|c| active.complete_connect(on_disconnect, c)).unwrap();
    assert_eq!(accepted.result(), Err(NtStatus::CONNECTION_INVALID));
    told(&left);
    closed(|c| active.close(c));
    closed(|c| passive.close(c));

    let (a, b2) = ends();
    let (active, called) = call(&a, listening.address);
    let passive = listening.next();
    let wrong = wait(|c| passive.accept(&b2.qp, reads(1, 1), b"", None, c));
    assert_eq!(wrong, Err(NtStatus::INVALID_PARAMETER));
    assert_eq!(
        wait(|c| passive.accept(&b.qp, reads(1, 1), b"", None, c)),
        Err(NtStatus::CONNECTION_INVALID)
    );
    let fresh = wait(|c| b.pd.create_qp(&b.cq, &b.cq, 8, common::sizes(), c)).unwrap();
    let accepted = Pending::start(|c| passive.accept(&fresh, reads(1, 1), b"", None, c)).unwrap();
    called.result().unwrap();
    a.qp.flush();
    assert_eq!(wait(|c| active.complete_connect(None, c)), Err(NtStatus::CONNECTION_INVALID));
    closed(|c| active.close(c));
    assert_eq!(accepted.result(), Err(NtStatus::CONNECTION_ABORTED));
    closed(|c| passive.close(c));
    closed(|c| fresh.close(c));
    listening.close();
}

#[test]
fn ndk_7_a_callback_may_close_its_connector() {
    for mode in MODES {
        let a = QpEnd::with(mode, 64);
        let endpoint = wait(|c| a.adapter.create_shared_endpoint(any(), c)).unwrap();
        let nobody = endpoint.get_local_address();
        let connector = connector(&a);
        let (tx, rx) = channel();
        let mine = connector.clone();
        let completion = move |result| {
            let closes = tx.clone();
            let close = mine.close(move || closes.send("closed").unwrap());
            // The running callback keeps the close from completing.
            assert_eq!(
                (result, close),
                (Err(NtStatus::CONNECTION_REFUSED), Ok(RequestOutcome::Pending))
            );
            tx.send("returns").unwrap();
        };
        // From another port of the same address, without a listener, so that the answer comes from
        // the network.
        let outcome = connector.connect(&a.qp, any(), nobody, reads(1, 1), b"", completion);
        match outcome {
            Ok(RequestOutcome::Pending) => {
                assert_eq!(rx.recv_timeout(DEADLINE), Ok("returns"));
                assert_eq!(rx.recv_timeout(DEADLINE), Ok("closed"));
            }
            // The kernel may know the answer at once.
            other => {
                assert_eq!(other, Err(NtStatus::CONNECTION_REFUSED));
                closed(|c| connector.close(c));
            }
        }
        closed(|c| endpoint.close(c));
    }
}

#[test]
fn ndk_7_a_listener_closes_behind_its_connectors() {
    let (a, b) = ends();
    let listening = Listening::new(&b);
    let address = listening.address;
    let (active, called) = call(&a, address);
    let passive = listening.next();
    let (tx, rx) = channel();
    assert_eq!(listening.listener.close(move || tx.send(()).unwrap()), Ok(RequestOutcome::Pending));
    // From now on, no connection is accepted. But the address stays taken.
    let other = QpEnd::new();
    assert_eq!(call_result(&other, address), Err(NtStatus::CONNECTION_REFUSED));
    let second = wait(|c| b.adapter.create_listener(|_| (), c)).unwrap();
    assert_eq!(wait(|c| second.listen(address, c)), Err(NtStatus::SHARING_VIOLATION));
    // A connection that was requested before can still be made.
    let accepted = Pending::start(|c| passive.accept(&b.qp, reads(1, 1), b"", None, c)).unwrap();
    called.result().unwrap();
    wait(|c| active.complete_connect(None, c)).unwrap();
    accepted.result().unwrap();
    wait(|c| active.disconnect(c)).unwrap();
    closed(|c| active.close(c));
    assert!(rx.try_recv().is_err(), "a connector is open");
    closed(|c| passive.close(c));
    rx.recv_timeout(DEADLINE).expect("the close completes");
    wait(|c| second.listen(address, c)).unwrap();
    closed(|c| second.close(c));
}

fn call_shared(a: &QpEnd, from: &SharedEndpoint, to: SocketAddr) -> Result<(), NtStatus> {
    let connector = connector(a);
    let result =
        wait(|c| connector.connect_with_shared_endpoint(&a.qp, from, to, reads(1, 1), b"", c));
    closed(|c| connector.close(c));
    result
}

#[test]
fn ndk_7_a_shared_endpoint_is_the_address_of_several_connections() {
    let (a, b) = ends();
    let (a2, b2) =
        (wait(|c| a.pd.create_qp(&a.cq, &a.cq, 8, common::sizes(), c)).unwrap(), QpEnd::new());
    let endpoint = wait(|c| a.adapter.create_shared_endpoint(any(), c)).unwrap();
    let address = endpoint.get_local_address();
    assert_ne!(address.port(), 0);
    let listenings = [Listening::new(&b), Listening::new(&b2)];
    let mut connectors = Vec::new();
    for (listening, (active_qp, passive_end)) in listenings.iter().zip([(&a.qp, &b), (&a2, &b2)]) {
        let active = connector(&a);
        let called = Pending::start(|c| {
            active.connect_with_shared_endpoint(
                active_qp,
                &endpoint,
                listening.address,
                reads(1, 1),
                b"",
                c,
            )
        });
        let passive = listening.next();
        assert_eq!(passive.get_peer_address(), Ok(address));
        let accepted =
            Pending::start(|c| passive.accept(&passive_end.qp, reads(1, 1), b"", None, c)).unwrap();
        called.unwrap().result().unwrap();
        wait(|c| active.complete_connect(None, c)).unwrap();
        accepted.result().unwrap();
        assert_eq!(active.get_local_address(), Ok(address));
        connectors.push((active, passive));
    }
    // One connection to each peer. Other adapters and other uses are refused.
    let a3 = wait(|c| a.pd.create_qp(&a.cq, &a.cq, 9, common::sizes(), c)).unwrap();
    let third = connector(&a);
    let to = listenings[0].address;
    let same =
        wait(|c| third.connect_with_shared_endpoint(&a3, &endpoint, to, reads(1, 1), b"", c));
    assert_eq!(same, Err(NtStatus::ADDRESS_ALREADY_EXISTS));
    assert_eq!(
        wait(|c| third.connect(&a3, address, to, reads(1, 1), b"", c)),
        Err(NtStatus::SHARING_VIOLATION)
    );
    let taken = wait(|c| b.adapter.create_shared_endpoint(address, c));
    assert_eq!(taken.err(), Some(NtStatus::SHARING_VIOLATION));
    assert_eq!(call_shared(&b, &endpoint, to), Err(NtStatus::INVALID_PARAMETER));
    // After a disconnect, the same peer can be called from the same address at once.
    let (active, passive) = &connectors[0];
    wait(|c| active.disconnect(c)).unwrap();
    closed(|c| active.close(c));
    let called = Pending::start(|c| {
        third.connect_with_shared_endpoint(&a3, &endpoint, to, reads(1, 1), b"", c)
    })
    .unwrap();
    let again = listenings[0].next();
    again.reject(b"").unwrap();
    assert_eq!(called.result(), Err(NtStatus::CONNECTION_REFUSED));
    closed(|c| again.close(c));
    // The endpoint closes after its connectors.
    let (tx, rx) = channel();
    assert_eq!(endpoint.close(move || tx.send(()).unwrap()), Ok(RequestOutcome::Pending));
    closed(|c| passive.close(c));
    let (active, passive) = &connectors[1];
    assert!(rx.try_recv().is_err(), "a connector is open");
    closed(|c| active.close(c));
    rx.recv_timeout(DEADLINE).expect("the close completes");
    closed(|c| passive.close(c));
    closed(|c| third.close(c));
    let again = wait(|c| b.adapter.create_shared_endpoint(address, c)).unwrap();
    closed(|c| again.close(c));
    for qp in [a2, a3] {
        closed(|c| qp.close(c));
    }
    listenings.into_iter().for_each(Listening::close);
}

#[test]
fn ndk_7_a_queue_pair_closes_behind_its_connector() {
    let (a, b) = ends();
    let connection = connect(&a, &b);
    let (tx, rx) = channel();
    assert_eq!(a.qp.close(move || tx.send(()).unwrap()), Ok(RequestOutcome::Pending));
    assert!(rx.try_recv().is_err(), "its connector is open");
    connection.close();
    rx.recv_timeout(DEADLINE).expect("the close completes");
}

/// Antecedents are released when the close completion of the connector has returned. This also
/// holds for a connect that is cancelled.
#[test]
fn ndk_7_closes_complete_from_the_connector_down() {
    let (a, b) = ends();
    let listening = Listening::new(&b);
    let endpoint = wait(|c| a.adapter.create_shared_endpoint(any(), c)).unwrap();
    let qp = wait(|c| a.pd.create_qp(&a.cq, &a.cq, 8, common::sizes(), c)).unwrap();
    let connector = connector(&a);
    let (tx, rx) = channel();
    let note = |what| {
        let tx = tx.clone();
        move || tx.send(what).unwrap()
    };
    let cancelled = note("cancelled");
    let completion = move |result| {
        assert_eq!(result, Err(NtStatus::CANCELLED));
        cancelled();
    };
    let to = listening.address;
    let called =
        connector.connect_with_shared_endpoint(&qp, &endpoint, to, reads(1, 1), b"", completion);
    assert_eq!(called, Ok(RequestOutcome::Pending));
    let passive = listening.next();
    assert_eq!(endpoint.close(note("endpoint")), Ok(RequestOutcome::Pending));
    assert_eq!(qp.close(note("queue pair")), Ok(RequestOutcome::Pending));
    assert_eq!(connector.close(note("connector")), Ok(RequestOutcome::Pending));
    let mut order: Vec<_> =
        (0..4).map(|_| rx.recv_timeout(DEADLINE).expect("all complete")).collect();
    // The order of the endpoint and the queue pair is not defined.
    order[2..].sort_unstable();
    assert_eq!(order, ["cancelled", "connector", "endpoint", "queue pair"]);
    closed(|c| passive.close(c));
    listening.close();
}
