use super::*;
use proptest::prelude::*;

const ADAPTER: ReadLimits = ReadLimits { inbound: 128, outbound: 128 };

fn offer(inbound: u32, outbound: u32, data: &[u8]) -> Offer {
    Offer { limits: ReadLimits { inbound, outbound }, private_data: data.to_vec() }
}

/// The two ends of a connection. Messages are stored until the test delivers them.
struct Pair {
    now: Instant,
    active: Handshake,
    passive: Handshake,
    /// The actions of each end, except sends.
    active_did: Actions,
    passive_did: Actions,
    to_passive: Vec<Message>,
    to_active: Vec<Message>,
}

impl Pair {
    fn new() -> Self {
        let now = Instant::now();
        Pair {
            now,
            active: Handshake::new(ADAPTER),
            passive: Handshake::incoming(ADAPTER),
            active_did: Vec::new(),
            passive_did: Vec::new(),
            to_passive: Vec::new(),
            to_active: Vec::new(),
        }
    }

    fn active(&mut self, step: impl FnOnce(&mut Handshake, &mut Actions)) -> &mut Self {
        let mut out = Vec::new();
        step(&mut self.active, &mut out);
        sort(out, &mut self.to_passive, &mut self.active_did);
        self
    }

    fn passive(&mut self, step: impl FnOnce(&mut Handshake, &mut Actions)) -> &mut Self {
        let mut out = Vec::new();
        step(&mut self.passive, &mut out);
        sort(out, &mut self.to_active, &mut self.passive_did);
        self
    }

    fn deliver(&mut self) {
        while !self.to_passive.is_empty() || !self.to_active.is_empty() {
            for message in std::mem::take(&mut self.to_passive) {
                self.passive(|h, out| h.message(message, out));
            }
            for message in std::mem::take(&mut self.to_active) {
                self.active(|h, out| h.message(message, out));
            }
        }
    }

    /// The initiator's request has arrived at the listener's side.
    fn requested() -> Self {
        let mut pair = Pair::new();
        let now = pair.now;
        pair.active(|h, out| {
            h.connect(ReadLimits { inbound: 16, outbound: 8 }, now).expect("new");
            h.dialed(offer(16, 8, b"call"), out);
        });
        pair.deliver();
        assert_eq!(pair.passive_did, [Action::ConnectEvent]);
        pair.passive_did.clear();
        pair
    }

    fn accepted() -> Self {
        let mut pair = Pair::requested();
        let now = pair.now;
        pair.passive(|h, out| h.accept(offer(4, 12, b"answer"), now, out).expect("requested"));
        pair.deliver();
        assert_eq!(pair.active_did, [Action::Complete(Request::Connect, Ok(()))]);
        pair.active_did.clear();
        pair
    }

    fn established() -> Self {
        let mut pair = Pair::accepted();
        pair.active(|h, out| h.complete(out).expect("replied"));
        pair.deliver();
        assert_eq!(
            pair.passive_did,
            [Action::ReadyToSend, Action::Complete(Request::Accept, Ok(()))]
        );
        pair.passive_did.clear();
        assert_eq!(
            (pair.active.state(), pair.passive.state()),
            (State::Established, State::Established)
        );
        pair
    }

    fn later(&self, by: Duration) -> Instant {
        self.now + by
    }
}

fn sort(out: Actions, messages: &mut Vec<Message>, rest: &mut Actions) {
    for action in out {
        match action {
            Action::Send(message) => messages.push(message),
            other => rest.push(other),
        }
    }
}

#[test]
fn ndk_7_read_limits_are_the_smaller_of_both_ends() {
    let pair = Pair::requested();
    // The limit of reads that the initiator makes is the limit of reads that the listener's side
    // accepts.
    assert_eq!(
        pair.passive.connection_data(),
        Some((ReadLimits { inbound: 8, outbound: 16 }, &b"call"[..]))
    );
    let wanted = ReadLimits { inbound: 4, outbound: 100 };
    assert_eq!(pair.passive.accept_limits(wanted), ReadLimits { inbound: 4, outbound: 16 });
    let pair = Pair::established();
    assert_eq!(
        pair.active.connection_data(),
        Some((ReadLimits { inbound: 12, outbound: 4 }, &b"answer"[..]))
    );
    assert_eq!(pair.passive.limits(), ReadLimits { inbound: 4, outbound: 12 });
}

#[test]
fn a_rejected_initiator_has_the_private_data_and_may_try_again() {
    let mut pair = Pair::requested();
    pair.passive(|h, out| {
        h.reject(Reason::CONSUMER_DEFINED, b"no".to_vec(), out).expect("requested")
    });
    pair.deliver();
    assert_eq!(
        pair.active_did,
        [Action::Hangup, Action::Complete(Request::Connect, Err(NtStatus::CONNECTION_REFUSED))]
    );
    assert_eq!(pair.active.connection_data().map(|(_, data)| data), Some(&b"no"[..]));
    assert_eq!(
        pair.passive.accept(offer(1, 1, b""), pair.now, &mut Vec::new()),
        Err(NtStatus::CONNECTION_INVALID)
    );
    assert_eq!(pair.active.connect(ADAPTER, pair.now), Ok(()));
    assert_eq!(pair.active.connection_data(), None);
}

#[test]
fn an_initiator_may_reject_the_reply() {
    let mut pair = Pair::accepted();
    pair.active(|h, out| {
        h.reject(Reason::CONSUMER_DEFINED, b"too few".to_vec(), out).expect("replied")
    });
    pair.deliver();
    let aborted = Action::Complete(Request::Accept, Err(NtStatus::CONNECTION_ABORTED));
    assert_eq!(pair.passive_did, [Action::Flush, Action::Hangup, aborted]);
    assert_eq!(pair.passive.connection_data().map(|(_, data)| data), Some(&b"too few"[..]));
    assert_eq!(pair.active.complete(&mut Vec::new()), Err(NtStatus::CONNECTION_INVALID));
}

#[test]
fn a_peer_that_disconnects_does_not_flush_the_other_side() {
    let mut pair = Pair::established();
    let now = pair.now;
    pair.active(|h, out| assert_eq!(h.disconnect(now, out), Ok(false)));
    pair.deliver();
    assert_eq!(pair.passive_did, [Action::DisconnectEvent(DisconnectReason::PeerDisconnected)]);
    assert_eq!(
        pair.active_did,
        [Action::Flush, Action::Hangup, Action::Complete(Request::Disconnect, Ok(()))]
    );
    pair.passive_did.clear();
    // The peer is lost. Then the consumer disconnects, too.
    pair.passive(|h, out| h.lost(NtStatus::CONNECTION_DISCONNECTED, out));
    assert_eq!(pair.passive_did, [Action::Hangup]);
    pair.passive(|h, out| assert_eq!(h.disconnect(now, out), Ok(true)));
    assert_eq!(pair.passive_did, [Action::Hangup, Action::Flush, Action::Hangup]);
    pair.passive(|h, out| assert_eq!(h.disconnect(now, out), Err(NtStatus::CONNECTION_INVALID)));
}

#[test]
fn both_may_disconnect_at_once() {
    let mut pair = Pair::established();
    let now = pair.now;
    pair.active(|h, out| assert_eq!(h.disconnect(now, out), Ok(false)));
    pair.passive(|h, out| assert_eq!(h.disconnect(now, out), Ok(false)));
    pair.deliver();
    let over = [Action::Flush, Action::Hangup, Action::Complete(Request::Disconnect, Ok(()))];
    assert_eq!((&pair.active_did[..], &pair.passive_did[..]), (&over[..], &over[..]));
}

#[test]
fn a_lost_peer_is_told_once_and_flushes() {
    let mut pair = Pair::established();
    pair.active(|h, out| {
        h.lost(NtStatus::CONNECTION_RESET, out);
        h.lost(NtStatus::CONNECTION_RESET, out);
        h.failed(out);
    });
    let event = Action::DisconnectEvent(DisconnectReason::PeerLost);
    let over = [Action::Flush, event, Action::Hangup];
    assert_eq!(pair.active_did[..3], over);
    let told = pair.active_did.iter().filter(|a| matches!(a, Action::DisconnectEvent(_)));
    assert_eq!(told.count(), 1);
}

#[test]
fn a_failed_queue_pair_is_the_reason() {
    let mut pair = Pair::established();
    pair.active(|h, out| {
        h.failed(out);
        h.lost(NtStatus::CONNECTION_RESET, out);
    });
    let event = Action::DisconnectEvent(DisconnectReason::QpFailed);
    assert_eq!(pair.active_did, [Action::Flush, event, Action::Hangup, Action::Hangup]);
}

#[test]
fn an_abandoned_request_aborts_the_answer() {
    let mut pair = Pair::requested();
    let now = pair.now;
    pair.passive(|h, out| h.lost(NtStatus::CONNECTION_ABORTED, out));
    let mut out = Vec::new();
    assert_eq!(
        pair.passive.accept(offer(1, 1, b""), now, &mut out),
        Err(NtStatus::CONNECTION_ABORTED)
    );
    assert_eq!(
        pair.passive.reject(Reason::CONSUMER_DEFINED, Vec::new(), &mut out),
        Err(NtStatus::CONNECTION_ABORTED)
    );
    assert_eq!(out, []);
    let mut pair = Pair::accepted();
    pair.active(|h, out| h.lost(NtStatus::CONNECTION_ABORTED, out));
    assert_eq!(pair.active.complete(&mut out), Err(NtStatus::CONNECTION_ABORTED));
}

#[test]
fn every_wait_ends() {
    let timed_out = |request| Action::Complete(request, Err(NtStatus::IO_TIMEOUT));
    let mut pair = Pair::requested();
    let (early, late) =
        (pair.later(CONNECT_TIMEOUT - Duration::from_millis(1)), pair.later(CONNECT_TIMEOUT));
    pair.active(|h, out| h.timeout(early, out));
    assert_eq!(pair.active_did, []);
    pair.active(|h, out| h.timeout(late, out));
    assert_eq!(pair.active_did, [Action::Hangup, timed_out(Request::Connect)]);

    let mut pair = Pair::accepted();
    let late = pair.later(ACCEPT_TIMEOUT);
    pair.passive(|h, out| h.timeout(late, out));
    assert_eq!(pair.passive_did, [Action::Flush, Action::Hangup, timed_out(Request::Accept)]);

    let mut pair = Pair::established();
    let (now, late) = (pair.now, pair.later(DISCONNECT_TIMEOUT));
    pair.active(|h, out| {
        assert_eq!(h.disconnect(now, out), Ok(false));
        h.timeout(late, out);
    });
    assert_eq!(pair.active_did, [Action::Flush, Action::Hangup, timed_out(Request::Disconnect)]);

    // An id of a listener waits only for its consumer.
    let mut pair = Pair::new();
    let late = pair.later(ACCEPT_TIMEOUT);
    pair.passive(|h, out| h.timeout(late, out));
    assert_eq!(pair.passive_did, []);
}

#[test]
fn a_message_out_of_turn_ends_the_connection() {
    let mut pair = Pair::established();
    pair.passive(|h, out| h.message(Message::Reply(offer(1, 1, b"")), out));
    let event = Action::DisconnectEvent(DisconnectReason::PeerLost);
    assert_eq!(pair.passive_did, [Action::Flush, event, Action::Hangup]);
    let mut pair = Pair::new();
    pair.passive(|h, out| h.message(Message::Ready, out));
    assert_eq!(pair.passive_did, [Action::Hangup]);
}

#[derive(Clone, Copy, Debug)]
enum Input {
    Connect,
    Dialed,
    Accept,
    Reject,
    Complete,
    Disconnect,
    Failed,
    Lost,
    Timeout,
    Message(u8),
}

fn inputs() -> impl Strategy<Value = Input> {
    prop_oneof![
        Just(Input::Connect),
        Just(Input::Dialed),
        Just(Input::Accept),
        Just(Input::Reject),
        Just(Input::Complete),
        Just(Input::Disconnect),
        Just(Input::Failed),
        Just(Input::Lost),
        Just(Input::Timeout),
        (0u8..6).prop_map(Input::Message),
    ]
}

fn message(kind: u8) -> Message {
    match kind {
        0 => Message::Request(offer(3, 3, b"")),
        1 => Message::Reply(offer(3, 3, b"")),
        2 => Message::Ready,
        3 => Message::Reject(Reason::CONSUMER_DEFINED, Vec::new()),
        4 => Message::Disconnect,
        _ => Message::Disconnected,
    }
}

/// Applies an input. Returns the request that the input makes pending, if the input was accepted.
fn apply(h: &mut Handshake, input: Input, now: Instant, out: &mut Actions) -> Option<Request> {
    match input {
        Input::Connect => return h.connect(ADAPTER, now).ok().map(|()| Request::Connect),
        Input::Dialed => h.dialed(offer(1, 1, b""), out),
        Input::Accept => {
            return h.accept(offer(1, 1, b""), now, out).ok().map(|()| Request::Accept);
        }
        Input::Reject => drop(h.reject(Reason::CONSUMER_DEFINED, Vec::new(), out)),
        Input::Complete => drop(h.complete(out)),
        Input::Disconnect => {
            return h.disconnect(now, out).ok().filter(|done| !done).map(|_| Request::Disconnect);
        }
        Input::Failed => h.failed(out),
        Input::Lost => h.lost(NtStatus::CONNECTION_RESET, out),
        Input::Timeout => h.timeout(now + Duration::from_secs(60), out),
        Input::Message(kind) => h.message(message(kind), out),
    }
    None
}

proptest! {
    /// For every order of inputs: a pending request completes once, and no other request completes.
    /// An established connection has at most one disconnect event. A close leaves no request
    /// pending.
    #[test]
    fn requests_complete_once(passive in any::<bool>(), steps in proptest::collection::vec(inputs(), 0..40)) {
        let now = Instant::now();
        let mut h = if passive { Handshake::incoming(ADAPTER) } else { Handshake::new(ADAPTER) };
        let mut pending = Vec::new();
        let mut established = 0;
        let mut told = 0;
        for step in steps.into_iter().map(Some).chain([None]) {
            let mut out = Vec::new();
            let before = h.state();
            let began = match step {
                Some(input) => apply(&mut h, input, now, &mut out),
                None => {
                    h.close(&mut out);
                    None
                }
            };
            pending.extend(began);
            established += usize::from(before != State::Established && h.state() == State::Established);
            for action in out {
                match action {
                    Action::Complete(request, _) => {
                        let at = pending.iter().position(|p| *p == request);
                        prop_assert!(at.is_some(), "{:?} was not pending", request);
                        pending.remove(at.expect("checked"));
                    }
                    Action::DisconnectEvent(_) => told += 1,
                    _ => {}
                }
            }
            prop_assert!(told <= established);
            prop_assert!(pending.len() <= 1);
        }
        prop_assert_eq!(pending, []);
        prop_assert_eq!(h.state(), State::Ended(ConnectionEnd::Closed));
        prop_assert_eq!(h.deadline(), None);
    }
}
