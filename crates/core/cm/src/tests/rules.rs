//! The state machine, rule by rule.
use super::mads::{LINUX, mad};
use super::pair::*;
use crate::mad::MadKind;
use crate::{
    Accept, CommandError, Config, ConnectRequest, Data, Ece, Ending, Endpoint, Event, Listener,
    MAD_LEN, Message, Path, QpKind, RejectReason, SidrAnswer, SidrRequest, SidrStatus, State,
    Timing,
};
use core::time::Duration;
use std::string::ToString;
use std::vec::Vec;

/// CM-2. The MADs equal those of Linux byte for byte, except for the start of this end's
/// transaction ids.
#[test]
fn it_speaks_as_linux_does() {
    let [req, rep, rtu, dreq, drep, sidr_req, sidr_rep] = LINUX.map(mad);
    let anonymous = |mad: &[u8; MAD_LEN]| {
        let mut mad = *mad;
        mad[8..16].fill(0);
        mad
    };
    let mut pair = Pair::new();
    pair.a = Endpoint::new(Config { first: 0x0288_1963, ..Config::default() });
    pair.b = Endpoint::new(Config { first: 0xec2d_4e69, ..Config::default() });
    pair.b.listen(SERVICE, Some(ip(2))).unwrap();
    let Message::Req(captured) = message(&req) else { panic!("no REQ") };
    let timing = Timing { packet_lifetime: 18, ..Timing::LINUX };
    let asked = ConnectRequest {
        ca_guid: 0x5054_00ff_fe77_0003,
        qpn: 0x1a,
        psn: 0x9e392f,
        flow_label: 0x8b25b,
        timing,
        private_data: captured.private_data,
        ..request(path())
    };
    let a = pair.a.connect(START, &asked).unwrap();
    let sent = pair.sent_by_a();
    assert_eq!(sent.len(), 1);
    assert_eq!(anonymous(&sent[0]), anonymous(&req));
    // The passive side answers the REQ of Linux.
    pair.give_b(&req);
    let Some((b, Event::Request { path: seen, req: read, .. })) = pair.b.poll_event() else {
        panic!("no request")
    };
    assert_eq!((seen, read), (path().reversed(), captured));
    let agreed = Accept {
        qpn: 0x1a,
        psn: 0xb73b8b,
        ca_guid: 0x5054_00ff_fe77_0002,
        responder_resources: 1,
        initiator_depth: 1,
        rnr_retry_count: 7,
        target_ack_delay: 15,
        ..Accept::default()
    };
    pair.b.accept(START, b, &agreed).unwrap();
    assert_eq!(pair.sent_by_b(), [rep]);
    // The active side accepts the REP of Linux, under its own transaction id.
    let mut answer = rep;
    answer[8..16].copy_from_slice(&sent[0][8..16]);
    pair.give_a(&answer);
    assert!(matches!(pair.a.poll_event(), Some((_, Event::Reply(_)))));
    pair.a.established(a).unwrap();
    assert_eq!(anonymous(&pair.sent_by_a()[0]), anonymous(&rtu));
    pair.give_b(&rtu);
    assert_eq!(pair.b.poll_event(), Some((b, Event::Established)));
    pair.a.disconnect(START, a, &[]).unwrap();
    assert_eq!(anonymous(&pair.sent_by_a()[0]), anonymous(&dreq));
    pair.give_b(&dreq);
    assert!(pair.sent_by_b().is_empty(), "the program answers");
    pair.b.disconnect(START, b, &[]).unwrap();
    assert_eq!(pair.sent_by_b(), [drep]);
    pair.give_a(&drep);
    let Some((_, Event::Disconnected(Ending::Confirmed(_)))) = pair.a.poll_event() else {
        panic!("stands")
    };
    // Datagrams.
    pair.a = Endpoint::new(Config { first: 0x0388_1963, ..Config::default() });
    pair.b.listen(0x0111_1c06, None).unwrap();
    let Message::SidrReq(captured) = message(&sidr_req) else { panic!("no SIDR_REQ") };
    let asked = SidrRequest {
        service_id: 0x0111_1c06,
        private_data: captured.private_data,
        ..lookup(path())
    };
    pair.a.sidr_request(START, &asked).unwrap();
    assert_eq!(anonymous(&pair.sent_by_a()[0]), anonymous(&sidr_req));
    pair.give_b(&sidr_req);
    let events: Vec<_> = core::iter::from_fn(|| pair.b.poll_event()).collect();
    let Some((b, Event::SidrRequest { .. })) = events.last() else {
        panic!("no request: {events:?}")
    };
    pair.b
        .sidr_reply(*b, &SidrAnswer { qpn: 0x1b, qkey: 0x0123_4567, ..SidrAnswer::default() })
        .unwrap();
    assert_eq!(pair.sent_by_b(), [sidr_rep]);
}

/// CM-1.
#[test]
fn a_connection_is_made_ended_and_forgotten() {
    let mut pair = Pair::new();
    let (a, b) = pair.established();
    assert_eq!(
        (pair.a.state(a), pair.b.state(b)),
        (Some(State::Established), Some(State::Established))
    );
    assert_eq!(pair.a.poll_timeout(), None, "nothing is waited for");
    pair.a.disconnect(pair.now, a, b"bye").unwrap();
    pair.carry();
    let Some((_, Event::Disconnected(Ending::Peer(data)))) = pair.b.poll_event() else { panic!() };
    assert_eq!(data[..4], *b"bye\0");
    assert!(pair.b.reserves_qpn(22));
    pair.b.disconnect(pair.now, b, b"you too").unwrap();
    pair.carry();
    let Some((_, Event::Disconnected(Ending::Confirmed(data)))) = pair.a.poll_event() else {
        panic!()
    };
    assert_eq!(data[..8], *b"you too\0");
    assert_eq!((pair.a.state(a), pair.b.state(b)), (Some(State::Timewait), Some(State::Timewait)));
    assert!(pair.a.reserves_qpn(11) && pair.b.reserves_qpn(22));
    pair.a.disconnect(pair.now, a, &[]).unwrap();
    assert!(pair.sent_by_a().is_empty(), "it has ended already");
    assert!(!pair.a.awaits_answer(a), "no answer ends a time-wait");
    // Twice the packet lifetime.
    assert_eq!(pair.a.poll_timeout(), Some(pair.now + Duration::from_nanos(4096 << 17)));
    pair.wait_out();
    assert_eq!(pair.a.poll_event(), Some((a, Event::TimewaitExit)));
    assert_eq!(pair.b.poll_event(), Some((b, Event::TimewaitExit)));
    assert!(!pair.a.reserves_qpn(11));
    assert_eq!(pair.a.poll_forgotten(), None, "the program has the id");
    pair.a.release(pair.now, a).unwrap();
    pair.b.release(pair.now, b).unwrap();
    assert_eq!((pair.a.poll_forgotten(), pair.a.poll_forgotten()), (Some(a), None));
    assert_eq!([pair.a.leftovers(), pair.b.leftovers()], [(0, 0, 0, 0, 0); 2]);
}

/// CM-2.
#[test]
fn the_times_of_linux_are_kept() {
    let mut pair = Pair::new();
    let a = pair.a.connect(START, &request(path())).unwrap();
    let every = Duration::from_nanos((4096 << 20) + 2 * (4096 << 16));
    let first = pair.sent_by_a();
    for n in 1..=15 {
        assert_eq!(pair.a.poll_timeout(), Some(START + every * n));
        pair.a.handle_timeout(START + every * n);
        assert_eq!(pair.sent_by_a(), first, "the same bytes again");
        assert_eq!(pair.a.poll_event(), None);
        assert!(pair.a.awaits_answer(a));
    }
    pair.a.handle_timeout(START + every * 16);
    let expected = Event::Unanswered { message: MadKind::Req, sent: 16, waited: every * 16 };
    assert_eq!(pair.a.poll_event(), Some((a, expected)));
    // The REJ names this end by its GUID, because the peer has not sent a communication id.
    let last = rej(&pair.sent_by_a()[0]);
    assert_eq!((last.reason(), last.local_id, last.remote_id), (RejectReason::TIMEOUT, a.0, 0));
    assert!(!pair.a.awaits_answer(a));
    assert_eq!(last.info(), 1_u64.to_be_bytes());
    assert_eq!((pair.a.state(a), pair.a.poll_timeout()), (Some(State::Idle), None));
}

/// CM-2.
#[test]
fn a_reply_and_a_disconnect_are_repeated_and_given_up() {
    let mut pair = Pair::new();
    let (_, b) = pair.requested(&request(path()));
    pair.b.accept(pair.now, b, &accept()).unwrap();
    assert_eq!(pair.sent_by_b().len(), 1);
    assert_eq!(pair.wait_out().1, 15 + 1, "15 REPs and the REJ");
    assert!(matches!(
        pair.b.poll_event(),
        Some((_, Event::Unanswered { message: MadKind::Rep, sent: 16, .. }))
    ));
    let mut pair = Pair::new();
    let (a, _) = pair.established();
    pair.a.disconnect(pair.now, a, &[]).unwrap();
    pair.wait_out();
    assert_eq!(
        pair.a.poll_event(),
        Some((a, Event::Disconnected(Ending::Unanswered { sent: 16 })))
    );
    assert_eq!(pair.a.poll_event(), Some((a, Event::TimewaitExit)));
}

/// CM-4.
#[test]
fn a_peer_that_needs_longer_says_so() {
    let mut pair = Pair::new();
    let (a, b) = pair.requested(&request(path()));
    pair.wait(Duration::from_secs(5));
    pair.carry();
    let wait = Duration::from_nanos((4096 << 24) + 2 * (4096 << 16));
    assert_eq!(pair.a.poll_event(), Some((a, Event::Delayed(wait))));
    assert_eq!(pair.a.state(a), Some(State::MraReqReceived));
    assert_eq!(pair.a.poll_timeout(), Some(pair.now + wait));
    assert_eq!(pair.b.poll_event(), None, "it is the same request");
    // The next REQ comes after the longer wait, and the next MRA changes nothing.
    pair.wait(wait);
    pair.carry();
    assert_eq!(pair.a.poll_event(), None);
    assert_eq!(pair.a.poll_timeout(), Some(pair.now + wait));
    pair.b.accept(pair.now, b, &accept()).unwrap();
    let rep = pair.sent_by_b();
    pair.give_a(&rep[0]);
    assert!(matches!(pair.a.poll_event(), Some((_, Event::Reply(_)))));
    // Now the active side needs more time.
    pair.wait(Duration::from_secs(5));
    pair.carry();
    assert_eq!(pair.b.poll_event(), Some((b, Event::Delayed(wait))));
    assert_eq!(pair.b.state(b), Some(State::MraRepReceived));
    pair.a.established(a).unwrap();
    pair.carry();
    assert_eq!(pair.b.poll_event(), Some((b, Event::Established)));
}

/// CM-4: an MRA would make the peer wait for a minute if the RTU behind it is lost.
#[test]
fn what_the_network_repeats_is_not_asked_again() {
    let mut pair = Pair::new();
    let a = pair.a.connect(pair.now, &request(path())).unwrap();
    let req = pair.sent_by_a()[0];
    pair.give_b(&req);
    let (b, _) = pair.b.poll_event().unwrap();
    pair.give_b(&req);
    assert!(pair.sent_by_b().is_empty(), "no MRA for an echo of the REQ");
    pair.b.accept(pair.now, b, &accept()).unwrap();
    let rep = pair.sent_by_b()[0];
    for after in [0, 2] {
        pair.now = pair.now + Duration::from_secs(after);
        pair.give_a(&rep);
        assert!(pair.sent_by_a().is_empty(), "no MRA for an echo of the REP");
    }
    // The RTU is lost. The REP comes again after its timeout, and then the RTU again.
    pair.a.established(a).unwrap();
    pair.sent_by_a();
    pair.wait(Duration::from_secs(3));
    pair.carry();
    assert_eq!(pair.b.poll_event(), Some((b, Event::Established)));
}

/// CM-3.
#[test]
fn what_comes_twice_is_answered_twice_and_changes_nothing() {
    let mut pair = Pair::new();
    let a = pair.a.connect(pair.now, &request(path())).unwrap();
    let req = pair.sent_by_a()[0];
    pair.give_b(&req);
    let (b, _) = pair.b.poll_event().unwrap();
    pair.b.accept(pair.now, b, &accept()).unwrap();
    let rep = pair.sent_by_b()[0];
    pair.give_b(&req);
    assert_eq!(pair.sent_by_b(), [rep]);
    pair.give_a(&rep);
    assert!(matches!(pair.a.poll_event(), Some((_, Event::Reply(_)))));
    pair.now = pair.now + Duration::from_secs(4);
    pair.give_a(&rep);
    assert_eq!(kinds(&pair.sent_by_a()), [MadKind::Mra]);
    pair.a.established(a).unwrap();
    let rtu = pair.sent_by_a()[0];
    pair.give_a(&rep);
    assert_eq!(pair.sent_by_a(), [rtu]);
    pair.give_b(&rtu);
    pair.give_b(&rtu);
    pair.give_b(&req);
    assert!(pair.sent_by_b().is_empty());
    assert_eq!(pair.b.poll_event(), Some((b, Event::Established)));
    assert_eq!(pair.b.poll_event(), None);
    pair.a.disconnect(pair.now, a, &[]).unwrap();
    let dreq = pair.sent_by_a()[0];
    pair.give_b(&dreq);
    pair.give_b(&dreq);
    assert!(pair.sent_by_b().is_empty(), "the program has not answered");
    pair.b.disconnect(pair.now, b, b"you too").unwrap();
    let drep = pair.sent_by_b();
    pair.give_b(&dreq);
    assert_eq!(pair.sent_by_b(), drep);
    pair.give_a(&drep[0]);
    pair.give_a(&drep[0]);
    assert!(matches!(pair.a.poll_event(), Some((_, Event::Disconnected(_)))));
    assert!(matches!(pair.b.poll_event(), Some((_, Event::Disconnected(_)))));
    assert_eq!((pair.a.poll_event(), pair.b.poll_event()), (None, None));
    // In time-wait the repeated REQ is stale. After time-wait it is not a new request either.
    pair.give_b(&req);
    assert_eq!(rej(&pair.sent_by_b()[0]).reason(), RejectReason::STALE_CONNECTION);
    pair.wait_out();
    pair.b.release(pair.now, b).unwrap();
    pair.give_b(&req);
    assert_eq!(rej(&pair.sent_by_b()[0]).reason(), RejectReason::INVALID_COMMUNICATION_ID);
    assert_eq!(pair.b.poll_event(), None);
    pair.give_b(&dreq);
    assert_eq!(kinds(&pair.sent_by_b()), [MadKind::Drep], "so that the sender need not wait");
}

#[test]
fn data_before_the_rtu_establishes() {
    let mut pair = Pair::new();
    let (a, b) = pair.replied();
    pair.a.established(a).unwrap();
    let rtu = pair.sent_by_a()[0];
    pair.b.established(b).unwrap();
    assert_eq!(pair.b.poll_event(), Some((b, Event::Established)));
    pair.give_b(&rtu);
    assert_eq!((pair.b.poll_event(), pair.b.poll_timeout()), (None, None));
    let error = pair.b.established(b).unwrap_err();
    assert_eq!(error.to_string(), "established is not possible in the state Established");
}

/// CM-1.
#[test]
fn both_may_connect_at_once() {
    let mut pair = Pair::new();
    pair.a.listen(SERVICE, None).unwrap();
    let a = pair.a.connect(pair.now, &request(path())).unwrap();
    let from_b = ConnectRequest { qpn: 33, ca_guid: 2, ..request(path().reversed()) };
    let b = pair.b.connect(pair.now, &from_b).unwrap();
    pair.carry();
    let Some((at_a, Event::Request { .. })) = pair.a.poll_event() else { panic!() };
    let Some((at_b, Event::Request { .. })) = pair.b.poll_event() else { panic!() };
    pair.a.accept(pair.now, at_a, &Accept { qpn: 44, ca_guid: 1, ..Accept::default() }).unwrap();
    pair.b.accept(pair.now, at_b, &accept()).unwrap();
    pair.carry();
    pair.a.established(a).unwrap();
    pair.b.established(b).unwrap();
    pair.carry();
    for (endpoint, ids) in [(&pair.a, [a, at_a]), (&pair.b, [b, at_b])] {
        assert_eq!(ids.map(|id| endpoint.state(id)), [Some(State::Established); 2]);
    }
}

/// CM-1.
#[test]
fn both_may_disconnect_at_once() {
    let mut pair = Pair::new();
    let (a, b) = pair.established();
    pair.a.disconnect(pair.now, a, &[]).unwrap();
    pair.b.disconnect(pair.now, b, &[]).unwrap();
    pair.carry();
    for (endpoint, id) in [(&mut pair.a, a), (&mut pair.b, b)] {
        assert!(matches!(endpoint.poll_event(), Some((_, Event::Disconnected(Ending::Peer(_))))));
        assert_eq!((endpoint.poll_event(), endpoint.state(id)), (None, Some(State::DreqReceived)));
        assert_eq!(endpoint.poll_timeout(), None, "neither end repeats its DREQ");
    }
    // One end answers or is destroyed: both ends are in time-wait, and both have had their event.
    pair.a.release(pair.now, a).unwrap();
    pair.carry();
    assert_eq!(pair.b.state(b), Some(State::Timewait));
    pair.wait_out();
    assert_eq!(pair.b.poll_event(), Some((b, Event::TimewaitExit)));
    pair.b.release(pair.now, b).unwrap();
    assert_eq!([pair.a.leftovers(), pair.b.leftovers()], [(0, 0, 0, 0, 0); 2]);
}

/// CM-11.
#[test]
fn the_program_and_no_library_answers_a_disconnect() {
    for destroyed in [false, true] {
        let mut pair = Pair::new();
        let (a, b) = pair.established();
        pair.a.disconnect(pair.now, a, &[]).unwrap();
        for n in 0..3 {
            pair.carry();
            assert_eq!(pair.a.poll_event(), None, "after {n} repetitions");
            pair.wait(Duration::from_secs(5));
        }
        assert!(matches!(
            (pair.b.poll_event(), pair.b.poll_event()),
            (Some((id, Event::Disconnected(Ending::Peer(_)))), None) if id == b
        ));
        assert_eq!((pair.b.state(b), pair.b.poll_timeout()), (Some(State::DreqReceived), None));
        if destroyed {
            pair.b.release(pair.now, b).unwrap();
        } else {
            pair.b.disconnect(pair.now, b, &[]).unwrap();
        }
        pair.carry();
        assert!(matches!(
            pair.a.poll_event(),
            Some((id, Event::Disconnected(Ending::Confirmed(_)))) if id == a
        ));
        pair.wait_out();
        assert_eq!(pair.a.poll_event(), Some((a, Event::TimewaitExit)));
        let answered = (!destroyed).then_some((b, Event::TimewaitExit));
        assert_eq!(pair.b.poll_event(), answered);
    }
}

/// CM-11. The program has not confirmed the reply, so the DREQ is for later.
#[test]
fn a_reply_is_decided_before_a_disconnect() {
    let mut pair = Pair::new();
    let (a, b) = pair.replied();
    pair.b.established(b).unwrap();
    pair.b.disconnect(pair.now, b, &[]).unwrap();
    pair.carry();
    assert_eq!((pair.a.state(a), pair.a.poll_event()), (Some(State::RepReceived), None));
    pair.a.established(a).unwrap();
    pair.wait(Duration::from_secs(5));
    pair.carry();
    assert!(matches!(pair.a.poll_event(), Some((_, Event::Disconnected(Ending::Peer(_))))));
}

/// CM-5, CM-11. The program has not answered the DREQ, and its peer is another process by now.
#[test]
fn an_unanswered_disconnect_makes_way() {
    let mut pair = Pair::new();
    let (a, b) = pair.established();
    pair.a.disconnect(pair.now, a, &[]).unwrap();
    pair.carry();
    pair.a = reborn();
    pair.a.connect(pair.now, &request(path())).unwrap();
    pair.carry();
    assert_eq!(rejected(&mut pair.a).1, RejectReason::STALE_CONNECTION);
    assert!(matches!(pair.b.poll_event(), Some((_, Event::Disconnected(_)))));
    assert_eq!((pair.b.state(b), pair.b.poll_event()), (Some(State::DreqReceived), None));
    pair.requested(&request(path()));
}

#[test]
fn listeners_with_an_address_go_before_those_without() {
    let mut endpoint = Endpoint::new(Config::default());
    let any = endpoint.listen(SERVICE, None).unwrap();
    let here = endpoint.listen(SERVICE, Some(ip(2))).unwrap();
    assert_eq!(endpoint.listen(SERVICE, Some(ip(2))), Err(CommandError::ServiceInUse(SERVICE)));
    assert_eq!(endpoint.listener_for(SERVICE, ip(2)), Some(here));
    assert_eq!(endpoint.listener_for(SERVICE, ip(9)), Some(any));
    endpoint.unlisten(any).unwrap();
    assert_eq!(endpoint.unlisten(any), Err(CommandError::UnknownListener(any)));
    assert_eq!(endpoint.unlisten(Listener(0)).unwrap_err().to_string(), "there is no listener 0");
    assert_eq!(endpoint.listener_for(SERVICE, ip(9)), None);
    endpoint.listen(SERVICE, None).unwrap();
}

#[test]
fn transports_and_options_get_across() {
    for kind in [QpKind::Rc, QpKind::Uc, QpKind::Xrc] {
        let mut pair = Pair::new();
        let ece = Ece { vendor_id: 0x15b3, attr_mod: 9 };
        pair.a
            .connect(pair.now, &ConnectRequest { kind, ece, srq: true, ..request(path()) })
            .unwrap();
        pair.carry();
        let Some((b, Event::Request { req, .. })) = pair.b.poll_event() else {
            panic!("no request")
        };
        assert_eq!((req.qp_kind(), req.ece(), req.srq), (Some(kind), ece, true));
        pair.b.accept(pair.now, b, &Accept { ece, initiator_depth: 4, ..accept() }).unwrap();
        pair.carry();
        let Some((a, Event::Reply(rep))) = pair.a.poll_event() else { panic!("no reply") };
        assert_eq!((rep.queue_pair(kind), rep.ece()), (22, ece));
        let xrc = kind == QpKind::Xrc;
        assert_eq!((rep.srq, rep.initiator_depth), (xrc, if xrc { 0 } else { 4 }));
        assert_eq!(pair.a.remote(a).unwrap().remote_qpn, 22);
        pair.a.established(a).unwrap();
        pair.carry();
        // An XRC target outlives its id.
        pair.b.release(pair.now, b).unwrap();
        assert_eq!(
            kinds(&pair.sent_by_b()),
            if xrc { Vec::new() } else { Vec::from([MadKind::Dreq]) }
        );
    }
}

/// CM-10.
#[test]
fn datagram_services_are_looked_up() {
    let mut pair = Pair::new();
    let a = pair.a.sidr_request(pair.now, &lookup(path())).unwrap();
    let asked = pair.sent_by_a()[0];
    pair.give_b(&asked);
    pair.give_b(&asked);
    let Some((b, Event::SidrRequest { .. })) = pair.b.poll_event() else { panic!("no request") };
    assert_eq!(pair.b.poll_event(), None, "once");
    let answer = SidrAnswer {
        qpn: 5,
        qkey: 6,
        info: Data::new(b"hi").unwrap(),
        info_len: 2,
        ..SidrAnswer::default()
    };
    let error = pair.b.sidr_reply(b, &SidrAnswer { info_len: 73, ..answer.clone() }).unwrap_err();
    assert_eq!(error.to_string(), "length of the information is 73, at most 72 fits");
    pair.b.sidr_reply(b, &answer).unwrap();
    pair.b.release(pair.now, b).unwrap();
    let lost = pair.sent_by_b();
    pair.give_b(&asked);
    assert_eq!(pair.sent_by_b(), lost);
    pair.give_a(&lost[0]);
    pair.give_a(&lost[0]);
    let Some((got, Event::SidrReply(rep))) = pair.a.poll_event() else { panic!("no reply") };
    assert_eq!(
        (got, rep.status(), rep.qpn, rep.qkey, rep.info_len),
        (a, SidrStatus::SUCCESS, 5, 6, 2)
    );
    assert_eq!((pair.a.poll_event(), pair.a.state(a)), (None, Some(State::Idle)));
    // Three lookups: a service without a listener, a release without an answer, and no answer at
    // all.
    let b =
        pair.a.sidr_request(pair.now, &SidrRequest { service_id: 9, ..lookup(path()) }).unwrap();
    pair.carry();
    let Some((_, Event::SidrReply(rep))) = pair.a.poll_event() else { panic!("no reply") };
    assert_eq!(rep.status(), SidrStatus::UNSUPPORTED);
    let c = pair.a.sidr_request(pair.now, &lookup(path())).unwrap();
    pair.carry();
    let (asked, _) = pair.b.poll_event().unwrap();
    pair.b.release(pair.now, asked).unwrap();
    pair.carry();
    let Some((_, Event::SidrReply(rep))) = pair.a.poll_event() else { panic!("no reply") };
    assert_eq!(rep.status(), SidrStatus::REJECT);
    let d = pair.a.sidr_request(pair.now, &lookup(path())).unwrap();
    pair.wait_out();
    assert!(matches!(pair.a.poll_event(),
        Some((id, Event::Unanswered { message: MadKind::SidrReq, sent: 16, .. })) if id == d));
    [a, b, c, d].iter().for_each(|&id| pair.a.release(pair.now, id).unwrap());
    assert_eq!([pair.a.leftovers(), pair.b.leftovers()], [(0, 0, 0, 0, 0); 2]);
}

/// CM-1: both ends in one process, over the loopback device, by IPv6.
#[test]
fn a_process_may_connect_to_itself() {
    let here = Path { local: "::1".parse().unwrap(), remote: "::1".parse().unwrap() };
    let mut endpoint = Endpoint::new(Config::default());
    endpoint.listen(SERVICE, Some(here.local)).unwrap();
    let carry = |endpoint: &mut Endpoint| {
        while let Some(sent) = endpoint.poll_transmit() {
            endpoint.handle_mad(START, sent.path.reversed(), &sent.mad).unwrap();
        }
    };
    let a = endpoint.connect(START, &request(here)).unwrap();
    carry(&mut endpoint);
    let Some((b, Event::Request { req, .. })) = endpoint.poll_event() else { panic!("no request") };
    assert_eq!(req.primary_remote_gid, here.remote);
    endpoint.accept(START, b, &Accept { ca_guid: 1, ..accept() }).unwrap();
    carry(&mut endpoint);
    assert!(matches!(endpoint.poll_event(), Some((id, Event::Reply(_))) if id == a));
    endpoint.established(a).unwrap();
    carry(&mut endpoint);
    assert_eq!(endpoint.poll_event(), Some((b, Event::Established)));
    endpoint.disconnect(START, b, &[]).unwrap();
    carry(&mut endpoint);
    let Some((first, Event::Disconnected(Ending::Peer(_)))) = endpoint.poll_event() else {
        panic!()
    };
    endpoint.disconnect(START, first, &[]).unwrap();
    carry(&mut endpoint);
    let Some((second, Event::Disconnected(Ending::Confirmed(_)))) = endpoint.poll_event() else {
        panic!()
    };
    assert_eq!((first, second), (a, b));
}

/// CM-1.
#[test]
fn ten_thousand_connections_leave_nothing() {
    let mut pair = Pair::new();
    for n in 0..10_000_u32 {
        let (a, b) = pair.established();
        let (first, second) = if n % 2 == 0 { (a, b) } else { (b, a) };
        let (one, other) =
            if n % 2 == 0 { (&mut pair.a, &mut pair.b) } else { (&mut pair.b, &mut pair.a) };
        one.disconnect(pair.now, first, &[]).unwrap();
        if n % 3 == 0 {
            one.release(pair.now, first).unwrap();
        }
        if n % 5 == 0 {
            other.release(pair.now, second).unwrap();
        }
        pair.carry();
        for (endpoint, id) in [(&mut pair.a, a), (&mut pair.b, b)] {
            if endpoint.state(id) == Some(State::DreqReceived) {
                endpoint.disconnect(pair.now, id, &[]).unwrap();
            }
        }
        pair.carry();
        while pair.a.poll_event().is_some() || pair.b.poll_event().is_some() {}
        pair.wait(Duration::from_secs(1));
        while pair.a.poll_event().is_some() || pair.b.poll_event().is_some() {}
        let _ = (pair.a.release(pair.now, a), pair.b.release(pair.now, b));
        assert_eq!([pair.a.leftovers(), pair.b.leftovers()], [(0, 0, 0, 0, 0); 2]);
    }
    assert!(pair.a.kept_answers() <= 1024 && pair.b.kept_answers() <= 1024);
}
