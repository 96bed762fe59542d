//! What strangers, lying peers and floods of MADs can do.
use super::pair::*;
use crate::mad::{Answered, Dreq, MadKind, Mra, Rep, Req, SidrRep};
use crate::{
    Accept, CommandError, Config, ConnectRequest, Endpoint, Event, Id, MAD_LEN, Message, Path,
    RejectReason, State,
};
use core::net::{IpAddr, Ipv4Addr};
use core::time::Duration;
use proptest::prelude::*;
use std::string::ToString;
use std::vec::Vec;

/// CM-7.
#[test]
fn a_full_backlog_is_the_listeners_business_and_bounded() {
    let mut pair = Pair::with(Config { max_requests: 2, ..Config::default() });
    let a = pair.a.connect(pair.now, &request(path())).unwrap();
    pair.carry();
    let (b, _) = pair.b.poll_event().unwrap();
    pair.b.drop_request(b).unwrap();
    assert_eq!((pair.b.drop_request(b), pair.b.len()), (Err(CommandError::UnknownId(b)), 0));
    pair.wait(Duration::from_secs(5));
    pair.carry();
    assert!(
        matches!(pair.b.poll_event(), Some((_, Event::Request { .. }))),
        "it comes again as a new one"
    );
    assert_eq!(pair.a.poll_event(), None);
    for qpn in 50..60 {
        pair.a.connect(pair.now, &ConnectRequest { qpn, ..request(path()) }).unwrap();
    }
    pair.carry();
    assert_eq!((pair.b.len(), pair.b.requests), (2, 2));
    assert_eq!(pair.a.state(a), Some(State::ReqSent));
}

/// CM-7.
#[test]
fn a_connection_beyond_the_limit_is_refused_at_both_ends() {
    let mut pair = Pair::new();
    pair.b = Endpoint::new(Config { max_connections: 1, ..Config::default() });
    pair.b.listen(SERVICE, None).unwrap();
    pair.requested(&request(path()));
    let second = pair.a.connect(pair.now, &ConnectRequest { qpn: 12, ..request(path()) }).unwrap();
    pair.carry();
    assert_eq!(rejected(&mut pair.a), (second, RejectReason::NO_RESOURCES));
    let error = pair.b.connect(pair.now, &request(path())).unwrap_err();
    assert_eq!(error.to_string(), "there are 1 connections, as many as are allowed; release some");
}

#[test]
fn ids_carry_the_prefix_and_do_not_come_again_soon() {
    let config =
        Config { prefix: 0x155, prefix_bits: 10, first: u32::MAX - 3, ..Config::default() };
    let mut endpoint = Endpoint::new(config);
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..1000 {
        let id = endpoint.connect(START, &request(path())).unwrap();
        assert_eq!(id.0 >> 22, 0x155);
        assert!(seen.insert(id));
        endpoint.release(START, id).unwrap();
    }
    assert_eq!(endpoint.len(), 0);
    // A prefix with few low bits: ids in use are skipped, and 0 is never an id.
    let mut endpoint = Endpoint::new(Config { prefix_bits: 20, first: 0xffe, ..Config::default() });
    let held = endpoint.connect(START, &request(path())).unwrap();
    for _ in 0..5000 {
        let id = endpoint.connect(START, &request(path())).unwrap();
        assert!(id != held && id.0 != 0);
        endpoint.release(START, id).unwrap();
    }
}

#[test]
#[should_panic(expected = "the prefix 0x400 has more than 10 bits")]
fn a_prefix_that_does_not_fit_is_no_prefix() {
    let _ = Endpoint::new(Config { prefix: 0x400, prefix_bits: 10, ..Config::default() });
}

#[test]
fn what_fits_no_message_is_named() {
    let mut endpoint = Endpoint::new(Config::default());
    let mut refused = |change: &dyn Fn(&mut ConnectRequest)| {
        let mut request = request(path());
        change(&mut request);
        let error = endpoint.connect(START, &request).unwrap_err().to_string();
        assert!(endpoint.is_empty() && endpoint.poll_transmit().is_none());
        error
    };
    assert_eq!(
        refused(&|r| r.qpn = 1 << 24),
        "queue pair number is 16777216, at most 16777215 fits"
    );
    assert_eq!(refused(&|r| r.psn = 1 << 24), "PSN is 16777216, at most 16777215 fits");
    assert_eq!(refused(&|r| r.retry_count = 8), "retry count is 8, at most 7 fits");
    assert_eq!(refused(&|r| r.mtu = 6), "path MTU (code) is 6, at most 5 fits");
    assert_eq!(refused(&|r| r.timing.max_retries = 16), "CM retries is 16, at most 15 fits");
    assert_eq!(refused(&|r| r.ack_timeout = Some(32)), "local ACK timeout is 32, at most 31 fits");
    assert_eq!(
        refused(&|r| r.path.local = "::1".parse().unwrap()),
        "::1 and 10.77.0.2 are of different address families"
    );
    let mut pair = Pair::new();
    let (_, b) = pair.requested(&request(path()));
    assert!(pair.b.accept(pair.now, b, &Accept { qpn: 1 << 24, ..accept() }).is_err());
    assert_eq!(pair.b.state(b), Some(State::ReqReceived));
    assert_eq!(
        pair.b.accept(pair.now, Id(9), &accept()).unwrap_err().to_string(),
        "no connection has the id 0x9"
    );
    assert!(pair.b.disconnect(pair.now, b, &[0; 221]).is_err());
}

/// CM-7. A REQ or an MRA can ask for 2.4 hours for an answer. The endpoint limits this time.
#[test]
fn a_peer_cannot_make_us_wait_for_ever() {
    let mut pair = Pair::new();
    pair.a.connect(pair.now, &request(path())).unwrap();
    let (transaction, Message::Req(mut req)) = Message::parse(&pair.sent_by_a()[0]).unwrap() else {
        panic!()
    };
    (req.local_response_timeout, req.primary_ack_timeout) = (31, 31);
    pair.give_b(&Message::Req(req.clone()).emit(transaction));
    let (b, _) = pair.b.poll_event().unwrap();
    pair.b.accept(pair.now, b, &accept()).unwrap();
    assert_eq!(pair.b.poll_timeout(), Some(pair.now + Duration::from_nanos(2 * (4096 << 22))));
    let mra = Mra {
        local_id: req.local_id,
        remote_id: b.0,
        message: Answered::Rep as u8,
        service_timeout: 31,
        ..Mra::default()
    };
    pair.give_b(&Message::from(mra).emit(transaction));
    let wait = Duration::from_nanos((4096 << 26) + (4096 << 22));
    assert_eq!(pair.b.poll_event(), Some((b, Event::Delayed(wait))));
}

/// CM-7.
#[test]
fn a_flood_takes_bounded_memory() {
    let config = Config { max_requests: 100, max_answers: 50, ..Config::default() };
    let mut pair = Pair::with(config);
    for n in 0..20_000_u32 {
        let from = IpAddr::from(Ipv4Addr::from(0x0b00_0000 + n));
        let req = Req { local_id: n, service_id: SERVICE, mtu: 1, qpn: n, ..Req::default() };
        let req = Message::from(Req { service_id: if n % 2 == 0 { SERVICE } else { 1 }, ..req });
        pair.b.handle_mad(START, Path { local: ip(2), remote: from }, &req.emit(n.into())).unwrap();
        if n % 3 == 0
            && let Some((id, _)) = pair.b.poll_event()
        {
            pair.b.reject(id, RejectReason::NO_RESOURCES, &[], &[]).unwrap();
            pair.b.release(START, id).unwrap();
        }
    }
    assert!(pair.b.len() <= 100 && pair.b.by_remote.len() <= 100 && pair.b.by_qp.len() <= 100);
    assert!(pair.b.kept_answers() <= 50);
    // Rejects that no peer fetches are dropped. Rejects by the program are as many as the program
    // sent.
    assert!(pair.sent_by_b().len() <= 4096 + 20_000 / 3);
}

/// The whole relevant state: the state of each id, and the timers.
fn picture(endpoint: &Endpoint) -> std::string::String {
    let conns: Vec<_> =
        endpoint.conns.iter().map(|(id, conn)| (id, std::format!("{conn:?}"))).collect();
    std::format!(
        "{conns:?} {:?} {:?} {:?} {}",
        endpoint.by_remote,
        endpoint.by_qp,
        endpoint.poll_timeout(),
        endpoint.requests
    )
}

fn any_message(from: (Id, Id), transaction: u64) -> impl Strategy<Value = (u64, Message)> {
    let ours = from.0.0;
    let ids = prop_oneof![Just(from.0.0), Just(from.1.0), Just(0), any::<u32>()];
    let transaction = prop_oneof![Just(transaction), any::<u64>()];
    (
        0..MadKind::ALL.len(),
        ids,
        any::<u32>(),
        proptest::collection::vec(any::<u8>(), MAD_LEN),
        transaction,
    )
        .prop_map(move |(kind, id, number, mut bytes, transaction)| {
            bytes[..4].copy_from_slice(&[1, 7, 2, 3]);
            bytes[16..18].copy_from_slice(&(MadKind::ALL[kind] as u16).to_be_bytes());
            bytes[24..28].copy_from_slice(&id.to_be_bytes());
            bytes[28..32]
                .copy_from_slice(&(if number % 4 == 0 { number } else { ours }).to_be_bytes());
            (transaction, Message::parse(&bytes).unwrap().1)
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    /// CM-7. A MAD from another address has no effect, even if its ids and transaction id are
    /// right.
    #[test]
    fn strangers_change_nothing(
        (transaction, message) in any_message((Id(0x200), Id(0x100)), 1 << 32 | 0x100), stage in 0..5,
    ) {
        let mut pair = Pair::new();
        match stage {
            0 => drop(pair.a.connect(START, &request(path()))),
            1 => drop(pair.requested(&request(path()))),
            2 => drop(pair.replied()),
            3 => drop(pair.established()),
            _ => {
                let (a, _) = pair.established();
                pair.a.disconnect(START, a, &[]).unwrap();
            }
        }
        let message = match message {
            // Strangers may send requests, but here for a service without a listener.
            Message::Req(req) => Message::from(Req { service_id: 5, ..*req }),
            Message::SidrReq(req) => Message::from(crate::mad::SidrReq { service_id: 5, ..*req }),
            // The ids in swapped order.
            Message::Dreq(dreq) if transaction % 2 == 0 => Message::from(Dreq { local_id: 0x200, remote_id: 0x100, ..*dreq }),
            Message::Rep(rep) if transaction % 2 == 0 => Message::from(Rep { local_id: 0x200, remote_id: 0x100, ..*rep }),
            Message::SidrRep(rep) if transaction % 2 == 0 => Message::from(SidrRep { request_id: 0x100, ..*rep }),
            other => other,
        };
        pair.sent_by_a();
        pair.sent_by_b();
        let before = (picture(&pair.a), picture(&pair.b));
        let stranger = Path { local: ip(2), remote: ip(66) };
        pair.a.handle_mad(START, stranger, &message.emit(transaction)).unwrap();
        pair.b.handle_mad(START, stranger, &message.emit(transaction)).unwrap();
        prop_assert_eq!(before, (picture(&pair.a), picture(&pair.b)));
        prop_assert_eq!((pair.a.poll_event(), pair.b.poll_event()), (None, None));
        prop_assert!(pair.sent_by_a().len() <= 1 && pair.sent_by_b().len() <= 1);
    }

    /// CM-7. The opposite case: the peer itself sends any message in any order. Both ends must come
    /// to rest and leave nothing.
    #[test]
    fn a_peer_that_lies_leaves_nothing(
        lies in proptest::collection::vec(any_message((Id(0x200), Id(0x100)), 1 << 32 | 0x100), 1..30),
    ) {
        let mut pair = Pair::new();
        pair.a.listen(SERVICE, None).unwrap();
        pair.replied();
        for (n, (transaction, message)) in lies.iter().enumerate() {
            let mad = message.emit(*transaction);
            pair.a.handle_mad(pair.now, path(), &mad).unwrap();
            pair.b.handle_mad(pair.now, path().reversed(), &mad).unwrap();
            if n % 4 == 0 {
                pair.wait(Duration::from_secs(3));
            }
        }
        for endpoint in [&mut pair.a, &mut pair.b] {
            let ids: Vec<u32> = endpoint.conns.keys().copied().collect();
            for id in ids.into_iter().map(Id) {
                if endpoint.state(id).is_some() {
                    endpoint.release(pair.now, id).unwrap();
                }
            }
            prop_assert_eq!(endpoint.poll_event(), None);
        }
        pair.wait_out();
        prop_assert_eq!([pair.a.leftovers(), pair.b.leftovers()], [(0, 0, 0, 0, 0); 2]);
    }
}
