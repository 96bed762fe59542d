//! Rejects, and the ways in which connections end.
use super::pair::*;
use crate::mad::{Answered, Apr, AprStatus, Lap, MadKind, Req};
use crate::{
    CommandError, Config, ConnectRequest, Ending, Endpoint, Event, Id, Message, RejectReason,
    State, answer_for_nobody,
};
use core::time::Duration;
use std::string::ToString;
use std::vec::Vec;

/// CM-5.
#[test]
fn a_queue_pair_used_again_ends_the_older_connection() {
    let mut pair = Pair::new();
    let (_, b) = pair.established();
    // The process at the other end has died. A new process with the same queue pair number
    // connects.
    pair.a = reborn();
    let again = pair.a.connect(pair.now, &request(path())).unwrap();
    let req = pair.sent_by_a()[0];
    pair.give_b(&req);
    assert_eq!(pair.b.poll_event(), Some((b, Event::Disconnected(Ending::Stale))));
    let sent = pair.sent_by_b();
    assert_eq!(kinds(&sent), [MadKind::Dreq, MadKind::Rej]);
    sent.iter().for_each(|mad| pair.give_a(mad));
    assert_eq!(rejected(&mut pair.a).1, RejectReason::STALE_CONNECTION);
    assert_eq!(pair.a.state(again), Some(State::Timewait));
    // The next attempt succeeds, although the older connection is in time-wait.
    pair.requested(&request(path()));
}

/// CM-5.
#[test]
fn a_reply_of_a_queue_pair_in_use_is_refused() {
    let mut pair = Pair::new();
    let (a, _) = pair.established();
    pair.b = reborn();
    pair.b.listen(SERVICE, None).unwrap();
    let (second, b) = pair.requested(&ConnectRequest { qpn: 12, ..request(path()) });
    pair.b.accept(pair.now, b, &accept()).unwrap();
    pair.carry();
    assert_eq!(pair.a.poll_event(), Some((a, Event::Disconnected(Ending::Stale))));
    assert_eq!(rejected(&mut pair.a), (second, RejectReason::STALE_CONNECTION));
    assert_eq!(rejected(&mut pair.b).1, RejectReason::STALE_CONNECTION);
}

/// CM-5. The peer has given up a request and uses the same queue pair to accept another request.
/// Then the first request arrives, late.
#[test]
fn a_reply_outlasts_a_late_request_of_the_same_queue_pair() {
    let mut pair = Pair::new();
    pair.a.listen(SERVICE, None).unwrap();
    let back = ConnectRequest { ca_guid: 2, qpn: 22, ..request(path().reversed()) };
    let given_up = pair.b.connect(pair.now, &back).unwrap();
    let late = pair.sent_by_b()[0];
    pair.b.release(pair.now, given_up).unwrap();
    let farewell = pair.sent_by_b()[0];
    pair.give_a(&farewell);
    let (a, b) = pair.replied();
    pair.give_a(&late);
    assert_eq!((pair.a.state(a), pair.a.poll_event()), (Some(State::RepReceived), None));
    let sent = pair.sent_by_a();
    assert_eq!(kinds(&sent), [MadKind::Rej], "no DREQ of what is not confirmed");
    assert_eq!(rej(&sent[0]).reason(), RejectReason::STALE_CONNECTION);
    pair.give_b(&sent[0]);
    pair.a.established(a).unwrap();
    pair.carry();
    assert_eq!((pair.b.poll_event(), pair.b.poll_event()), (Some((b, Event::Established)), None));
    assert_eq!(pair.a.poll_event(), None);
}

/// CM-5.
#[test]
fn a_reply_that_the_peer_has_forgotten_ends_at_its_next_request() {
    let mut pair = Pair::new();
    let (a, _) = pair.replied();
    pair.a.listen(SERVICE, None).unwrap();
    // The process at the other end has died. A new process with the same queue pair number
    // connects.
    pair.b = reborn();
    let back = ConnectRequest { ca_guid: 2, qpn: 22, ..request(path().reversed()) };
    pair.b.connect(pair.now, &back).unwrap();
    pair.carry();
    assert_eq!(rejected(&mut pair.b).1, RejectReason::STALE_CONNECTION);
    assert_eq!(pair.a.poll_event(), None);
    pair.a.established(a).unwrap();
    pair.carry();
    assert_eq!(pair.a.poll_event(), None, "an RTU is not answered");
    // The next attempt ends the older connection, as in Linux.
    pair.b.connect(pair.now, &back).unwrap();
    pair.carry();
    let ended = pair.a.poll_event();
    assert_eq!(ended, Some((a, Event::Disconnected(Ending::Stale))));
    assert_eq!(rejected(&mut pair.b).1, RejectReason::STALE_CONNECTION);
    // The following attempt succeeds, although the older connection is in time-wait.
    let again = pair.b.connect(pair.now, &back).unwrap();
    pair.carry();
    assert!(matches!(pair.a.poll_event(), Some((_, Event::Request { .. }))));
    assert_eq!(pair.b.state(again), Some(State::ReqSent));
}

/// CM-5. The same on the side that accepts: the late REQ is older, and the RTU is in flight.
#[test]
fn an_accepted_request_outlasts_a_late_one_of_the_same_queue_pair() {
    let mut pair = Pair::new();
    let given_up = pair.a.connect(pair.now, &request(path())).unwrap();
    let late = pair.sent_by_a()[0];
    pair.a.release(pair.now, given_up).unwrap();
    pair.carry();
    let (a, b) = pair.replied();
    pair.a.established(a).unwrap();
    let rtu = pair.sent_by_a()[0];
    pair.give_b(&late);
    assert_eq!((pair.b.state(b), pair.b.poll_event()), (Some(State::RepSent), None));
    assert!(pair.b.reserves_qpn(22), "packets to it may be on the way");
    let sent = pair.sent_by_b();
    assert_eq!(kinds(&sent), [MadKind::Rep, MadKind::Rej]);
    assert_eq!(rej(&sent[1]).reason(), RejectReason::STALE_CONNECTION);
    pair.give_b(&rtu);
    sent.iter().for_each(|mad| pair.give_a(mad));
    pair.carry();
    assert_eq!((pair.b.poll_event(), pair.b.poll_event()), (Some((b, Event::Established)), None));
    assert_eq!(pair.a.poll_event(), None);
}

/// CM-5.
#[test]
fn an_accepted_request_that_the_peer_has_forgotten_ends() {
    let mut pair = Pair::new();
    let (_, b) = pair.replied();
    // The process at the other end has died. A new process with the same queue pair number
    // connects.
    pair.a = reborn();
    let again = pair.a.connect(pair.now, &request(path())).unwrap();
    pair.carry();
    assert_eq!(rejected(&mut pair.a), (again, RejectReason::STALE_CONNECTION));
    assert_eq!(rejected(&mut pair.b), (b, RejectReason::INVALID_COMMUNICATION_ID));
    // The next attempt succeeds.
    pair.requested(&request(path()));
}

/// CM-5.
#[test]
fn a_request_that_the_peer_has_forgotten_makes_way() {
    let mut pair = Pair::new();
    let (_, old) = pair.requested(&request(path()));
    let (_, new) = pair.requested_again();
    assert_ne!(old, new);
    assert_eq!(pair.b.state(old), Some(State::Idle));
}

impl Pair {
    /// The same queue pair sends a new request under another id, without an end of the first
    /// request.
    fn requested_again(&mut self) -> (Id, Id) {
        let a = self.a.connect(self.now, &request(path())).unwrap();
        self.carry();
        assert_eq!(rejected(&mut self.b).1, RejectReason::TIMEOUT);
        let Some((b, Event::Request { .. })) = self.b.poll_event() else { panic!("no request") };
        (a, b)
    }
}

/// CM-6.
#[test]
fn requests_that_cannot_be_are_refused_with_a_reason() {
    let mut pair = Pair::new();
    let mut asked = |change: &dyn Fn(&mut Req)| {
        let id = pair.a.connect(pair.now, &request(path())).unwrap();
        let (transaction, Message::Req(mut req)) = Message::parse(&pair.sent_by_a()[0]).unwrap()
        else {
            panic!("no REQ")
        };
        change(&mut req);
        pair.give_b(&Message::Req(req).emit(transaction));
        pair.carry();
        assert_eq!(pair.b.poll_event(), None);
        let (got, reason) = rejected(&mut pair.a);
        assert_eq!((got, pair.a.state(id)), (id, Some(State::Idle)));
        reason
    };
    assert_eq!(asked(&|req| req.service_id = 5), RejectReason::INVALID_SERVICE_ID);
    assert_eq!(asked(&|req| req.transport = 2), RejectReason::INVALID_TRANSPORT);
    assert_eq!(asked(&|req| req.mtu = 6), RejectReason::INVALID_MTU);
    assert_eq!(asked(&|req| req.mtu = 0), RejectReason::INVALID_MTU);
    assert_eq!(pair.b.leftovers(), (0, 0, 0, 0, 0));
}

/// CM-6.
#[test]
fn a_refusal_brings_reason_and_data_and_is_repeated() {
    let mut pair = Pair::new();
    let a = pair.a.connect(pair.now, &request(path())).unwrap();
    let req = pair.sent_by_a()[0];
    pair.give_b(&req);
    let (b, _) = pair.b.poll_event().unwrap();
    assert_eq!(
        pair.b.reject(b, RejectReason::NO_QP, &[0; 73], &[]).unwrap_err().to_string(),
        "73 bytes of private data, the message has room for 72"
    );
    pair.b.reject(b, RejectReason::CONSUMER_DEFINED, b"info", b"no").unwrap();
    assert_eq!((pair.b.state(b), pair.b.requests), (Some(State::Idle), 0));
    let lost = pair.sent_by_b();
    pair.give_b(&req);
    assert_eq!(pair.sent_by_b(), lost, "the answer of before");
    pair.b.release(pair.now, b).unwrap();
    pair.give_b(&req);
    assert_eq!(pair.sent_by_b(), lost, "even when the id is gone");
    assert_eq!(pair.b.poll_event(), None);
    pair.give_a(&lost[0]);
    let Some((got, Event::Rejected(rejection))) = pair.a.poll_event() else {
        panic!("not rejected")
    };
    assert_eq!((got, rejection.reason, rejection.info_len), (a, RejectReason::CONSUMER_DEFINED, 4));
    assert_eq!((&rejection.info[..4], &rejection.private_data[..2]), (&b"info"[..], &b"no"[..]));
    assert_eq!(pair.a.state(a), Some(State::Idle));
}

/// CM-6.
#[test]
fn a_reply_may_be_refused() {
    let mut pair = Pair::new();
    let (a, b) = pair.replied();
    pair.a.reject(a, RejectReason::CONSUMER_DEFINED, &[], b"no").unwrap();
    let lost = pair.sent_by_a();
    assert_eq!(rej(&lost[0]).message, Answered::Rep as u8);
    pair.wait(Duration::from_secs(5));
    let again = pair.sent_by_b();
    assert_eq!(kinds(&again), [MadKind::Rep]);
    pair.give_a(&again[0]);
    assert_eq!(pair.sent_by_a(), lost, "the REP again, and the REJ again");
    pair.give_b(&lost[0]);
    assert!(matches!(pair.b.poll_event(), Some((got, Event::Rejected(_))) if got == b));
    assert_eq!(pair.b.state(b), Some(State::Idle));
}

/// CM-8. In every state, the peer learns of the release, no event comes, and nothing is left.
#[test]
fn an_id_can_be_let_go_in_every_state() {
    type Reach = fn(&mut Pair) -> (Option<Id>, Option<Id>);
    let states: [(&str, Reach); 12] = [
        ("REQ sent", |p| (Some(p.a.connect(p.now, &request(path())).unwrap()), None)),
        ("REQ received, active", |p| (Some(p.requested(&request(path())).0), None)),
        ("REQ received, passive", |p| (None, Some(p.requested(&request(path())).1))),
        ("MRA received", |p| {
            let (a, _) = p.requested(&request(path()));
            p.wait(Duration::from_secs(5));
            p.carry();
            (Some(a), None)
        }),
        ("REP sent", |p| {
            let (_, b) = p.requested(&request(path()));
            p.b.accept(p.now, b, &accept()).unwrap();
            (None, Some(b))
        }),
        ("REP received, active", |p| (Some(p.replied().0), None)),
        ("REP received, passive", |p| (None, Some(p.replied().1))),
        ("established, active", |p| (Some(p.established().0), None)),
        ("established, passive", |p| (None, Some(p.established().1))),
        ("DREQ sent", |p| {
            let (a, _) = p.established();
            p.a.disconnect(p.now, a, &[]).unwrap();
            (Some(a), None)
        }),
        ("DREQ received", |p| {
            let (a, b) = p.established();
            p.a.disconnect(p.now, a, &[]).unwrap();
            p.carry();
            assert!(matches!(p.b.poll_event(), Some((_, Event::Disconnected(_)))));
            (None, Some(b))
        }),
        ("time-wait", |p| {
            let (a, b) = p.established();
            p.a.disconnect(p.now, a, &[]).unwrap();
            p.carry();
            p.b.release(p.now, b).unwrap();
            p.carry();
            (Some(a), None)
        }),
    ];
    for (name, reach) in states {
        let mut pair = Pair::new();
        let (a, b) = reach(&mut pair);
        if let Some(a) = a {
            pair.a.release(pair.now, a).unwrap();
            assert_eq!(pair.a.state(a), None);
        }
        if let Some(b) = b {
            pair.b.release(pair.now, b).unwrap();
        }
        for _ in 0..40 {
            pair.carry();
            // The other end answers requests, and releases ids that end.
            while let Some((id, event)) = pair.a.poll_event() {
                assert_ne!(Some(id), a, "{name}: {event:?}");
                if let Event::Reply(_) = event
                    && pair.a.state(id) == Some(State::RepReceived)
                {
                    pair.a.established(id).unwrap();
                }
            }
            while let Some((id, event)) = pair.b.poll_event() {
                assert_ne!(Some(id), b, "{name}: {event:?}");
                if let Event::Request { .. } = event
                    && pair.b.state(id) != Some(State::Idle)
                {
                    pair.b.accept(pair.now, id, &accept()).unwrap();
                }
            }
            for (endpoint, id) in [(&mut pair.a, a), (&mut pair.b, b)] {
                let others = endpoint.conns.keys().map(|&n| Id(n)).filter(|&n| Some(n) != id);
                for other in others.collect::<Vec<_>>() {
                    if endpoint.state(other) == Some(State::DreqReceived) {
                        endpoint.disconnect(pair.now, other, &[]).unwrap();
                    }
                }
            }
            pair.wait(Duration::from_secs(5));
        }
        for endpoint in [&mut pair.a, &mut pair.b] {
            let ids: Vec<u32> = endpoint.conns.keys().copied().collect();
            for id in ids {
                assert_eq!(endpoint.state(Id(id)), Some(State::Idle), "{name}");
                endpoint.release(pair.now, Id(id)).unwrap();
            }
            assert_eq!(endpoint.leftovers(), (0, 0, 0, 0, 0), "{name}");
        }
    }
}

/// CM-8. A REJ after the REP is lost: the peer establishes the connection, and the endpoint
/// disconnects it.
#[test]
fn a_lost_refusal_after_the_reply_comes_to_light() {
    let mut pair = Pair::new();
    let (a, b) = pair.replied();
    pair.b.release(pair.now, b).unwrap();
    assert_eq!(kinds(&pair.sent_by_b()), [MadKind::Rej]);
    pair.a.established(a).unwrap();
    pair.carry();
    assert!(matches!(pair.a.poll_event(), Some((_, Event::Disconnected(Ending::Peer(_))))));
    assert_eq!(pair.b.poll_forgotten(), None, "the time-wait goes on");
    pair.wait_out();
    assert_eq!(pair.b.poll_forgotten(), Some(b));
    assert_eq!(pair.b.leftovers(), (0, 0, 0, 0, 0));
}

/// CM-6.
#[test]
fn a_peer_that_gave_up_is_known_by_its_guid() {
    let mut pair = Pair::new();
    let (a, b) = pair.requested(&request(path()));
    pair.a.release(pair.now, a).unwrap();
    pair.carry();
    assert_eq!(rejected(&mut pair.b), (b, RejectReason::TIMEOUT));
    assert_eq!(
        pair.b.accept(pair.now, b, &accept()).unwrap_err(),
        CommandError::WrongState { command: "accept", state: State::Idle }
    );
}

/// CM-9.
#[test]
fn connections_to_a_process_that_has_ended_end_at_once() {
    let bits = Config { prefix_bits: 10, ..Config::default() };
    let mut pair = Pair::new();
    pair.a = Endpoint::new(Config { prefix: 3, ..bits });
    let (_, standing) = pair.established();
    let (_, asked) = pair.requested(&ConnectRequest { qpn: 12, ..request(path()) });
    pair.b.peer_ended(pair.now, 4, |_| true);
    pair.b.peer_ended(pair.now, 3, |_| false);
    // The prefixes of both ends have the same length.
    pair.b.config.prefix_bits = 10;
    pair.b.peer_ended(pair.now, 4, |_| true);
    pair.b.peer_ended(pair.now, 3, |path| path.remote != ip(3));
    assert_eq!(pair.b.poll_event(), None);
    pair.b.peer_ended(pair.now, 3, |path| path.remote == ip(3));
    assert_eq!(pair.b.poll_event(), Some((standing, Event::Disconnected(Ending::PeerEnded))));
    assert!(matches!(pair.b.poll_event(), Some((id, Event::Rejected(_))) if id == asked));
    pair.wait_out();
    assert_eq!(pair.b.poll_event(), Some((standing, Event::TimewaitExit)));
}

/// CM-9.
#[test]
fn an_established_connection_ends_with_a_rej() {
    let mut pair = Pair::new();
    let (a, b) = pair.requested(&request(path()));
    pair.b.accept(pair.now, b, &accept()).unwrap();
    let rep = pair.sent_by_b()[0];
    pair.give_a(&rep);
    assert!(matches!(pair.a.poll_event(), Some((id, Event::Reply(_))) if id == a));
    pair.a.established(a).unwrap();
    pair.carry();
    assert_eq!(pair.b.poll_event(), Some((b, Event::Established)));
    // The active side releases the id. Its DREQs are lost, and its process ends. A second copy of
    // the REP arrives late, and the host of the active side rejects it.
    pair.a.release(pair.now, a).unwrap();
    pair.sent_by_a();
    let answer = answer_for_nobody(&rep).unwrap();
    pair.give_b(&answer);
    let Some((id, Event::Disconnected(Ending::Rejected(rejection)))) = pair.b.poll_event() else {
        panic!()
    };
    assert_eq!((id, rejection.reason), (b, RejectReason::INVALID_COMMUNICATION_ID));
}

/// CM-6.
#[test]
fn a_move_to_another_path_is_refused() {
    let mut pair = Pair::new();
    let (a, b) = pair.established();
    let lap = |remote_id| Lap { local_id: a.0, remote_id, ..Lap::default() };
    pair.give_b(&Message::from(lap(b.0)).emit(9));
    let Message::Apr(apr) = message(&pair.sent_by_b()[0]) else { panic!("no APR") };
    let status = AprStatus::NotSupported as u8;
    assert_eq!(*apr, Apr { local_id: b.0, remote_id: a.0, status, ..Apr::default() });
    pair.give_b(&Message::from(lap(77)).emit(9));
    let Message::Apr(apr) = message(&pair.sent_by_b()[0]) else { panic!("no APR") };
    assert_eq!(apr.status, AprStatus::InvalidCommunicationId as u8);
    pair.give_b(&Message::Apr(apr).emit(9));
    assert!(pair.sent_by_b().is_empty());
    assert_eq!((pair.b.state(b), pair.b.poll_event()), (Some(State::Established), None));
}

/// CM-6.
#[test]
fn an_alternate_path_is_refused_in_the_reply() {
    let mut pair = Pair::new();
    pair.a.connect(pair.now, &request(path())).unwrap();
    let (transaction, Message::Req(mut req)) = Message::parse(&pair.sent_by_a()[0]).unwrap() else {
        panic!()
    };
    req.alternate_local_lid = 0xffff;
    pair.give_b(&Message::Req(req).emit(transaction));
    let (b, _) = pair.b.poll_event().unwrap();
    pair.b.accept(pair.now, b, &accept()).unwrap();
    let Message::Rep(rep) = message(&pair.sent_by_b()[0]) else { panic!("no REP") };
    assert_eq!(rep.failover, 1);
}
