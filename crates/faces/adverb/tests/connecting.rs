//! Setting up connections through the connection manager: blocking, as futures, and on tokio.
use adverb::connect::{
    self, ConnectError, Connector, Listener, MAX_PRIVATE, Options, RejectReason,
};
use adverb::testing::{Endpoint, HANG_LIMIT};
use adverb::{Error, QpState};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

fn end() -> Endpoint {
    Endpoint::new(|qp| qp).unwrap()
}

fn listening() -> (Listener, SocketAddr) {
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    (listener, addr)
}

/// Connects `a` to the listener, which accepts with `b`.
fn meet(listener: &Listener, a: &Endpoint, b: &Endpoint) -> [connect::Connection; 2] {
    let addr = listener.local_addr().unwrap();
    std::thread::scope(|scope| {
        let accepting = scope.spawn(|| listener.accept_with(&b.qp, &Options::default()).unwrap());
        [connect::connect(addr, &a.qp).unwrap(), accepting.join().unwrap()]
    })
}

/// Sends a message each way.
fn talk(a: &Endpoint, b: &Endpoint) {
    for (from, to) in [(a, b), (b, a)] {
        let into = to.buffer(8).unwrap();
        to.qp.recv(&into).post().unwrap();
        from.qp.send("hi").post().unwrap();
        from.completion().unwrap();
        to.completion().unwrap();
        assert_eq!(into.to_vec(..2).unwrap(), b"hi");
    }
}

fn why(e: &Error) -> &ConnectError {
    match e {
        Error::Connect(why) => why,
        other => panic!("{other}"),
    }
}

/// Whether the private data is `text`, followed by zeros only.
fn says(private_data: &[u8], text: &[u8]) -> bool {
    private_data.starts_with(text) && private_data[text.len()..].iter().all(|b| *b == 0)
}

fn is_rejected(e: &Error, with: RejectReason, text: &[u8]) -> bool {
    matches!(why(e), ConnectError::Rejected { reason, private_data } if *reason == with && says(private_data, text))
}

#[test]
fn two_ends_meet() {
    for ip in ["127.0.0.1", "::1"] {
        let (a, b) = (end(), end());
        let ip: IpAddr = ip.parse().unwrap();
        if b.context.gid_index_of(ip).is_none() {
            continue; // a machine without IPv6
        }
        let listener = Listener::bind((ip, 0)).unwrap();
        let addr = listener.local_addr().unwrap();
        let (at_a, at_b) = std::thread::scope(|scope| {
            let accepting =
                scope.spawn(|| listener.accept_with(&b.qp, &Options::private(*b"from b")).unwrap());
            let at_a = connect::connect_with(addr, &a.qp, &Options::private(*b"from a")).unwrap();
            (at_a, accepting.join().unwrap())
        });
        let (peer_a, peer_b) = (at_a.peer(), at_b.peer());
        assert!(says(&peer_a.private_data, b"from b") && says(&peer_b.private_data, b"from a"));
        assert_eq!((peer_a.private_data.len(), peer_b.private_data.len()), (196, MAX_PRIVATE));
        assert_eq!(&peer_a.private_prefix::<6>(), b"from b");
        assert_eq!((peer_a.info.number, peer_b.info.number), (b.qp.number(), a.qp.number()));
        assert_eq!(peer_a.info.gid, b.context.gid(b.context.gid_index_of(ip).unwrap()).unwrap());
        assert_eq!(at_a.peer_addr().unwrap(), addr);
        assert_eq!(at_a.local_addr().unwrap(), at_b.peer_addr().unwrap());
        talk(&a, &b);
    }
}

#[test]
fn the_accepting_side_may_look_first_and_say_no() {
    let a = end();
    let (listener, addr) = listening();
    std::thread::scope(|scope| {
        let asking =
            scope.spawn(|| connect::connect_with(addr, &a.qp, &Options::private(*b"please")));
        let incoming = listener.accept().unwrap();
        assert!(says(&incoming.peer().private_data, b"please"));
        let first = &adverb::Device::list().unwrap()[0];
        assert_eq!(incoming.device(), first.name());
        assert!(incoming.from().ip().is_loopback());
        incoming.reject(b"full").unwrap();
        let e = asking.join().unwrap().unwrap_err();
        assert!(is_rejected(&e, RejectReason::CONSUMER_DEFINED, b"full"), "{e}");
        assert_eq!(e.errno(), 111);
        let asking = scope.spawn(|| connect::connect(addr, &a.qp));
        listener.accept().unwrap().reject_with(RejectReason::NO_RESOURCES, b"").unwrap();
        let e = asking.join().unwrap().unwrap_err();
        assert!(is_rejected(&e, RejectReason::NO_RESOURCES, b""), "{e}");
        // Dropping a request rejects it, too.
        let asking = scope.spawn(|| connect::connect(addr, &a.qp));
        drop(listener.accept().unwrap());
        let e = asking.join().unwrap().unwrap_err();
        assert!(matches!(why(&e), ConnectError::Rejected { .. }), "{e}");
    });
    assert_eq!(a.qp.state(), QpState::Init, "free for the next try");
    let b = end();
    let _both = meet(&listener, &a, &b);
    talk(&a, &b);
}

#[test]
fn types_that_do_not_match_fail_at_both_ends() {
    let (a, b) = (end(), Endpoint::new(|qp| qp.uc()).unwrap());
    let (listener, addr) = listening();
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| connect::connect(addr, &a.qp));
        let e = listener.accept_with(&b.qp, &Options::default()).unwrap_err();
        assert!(matches!(why(&e), ConnectError::Type { .. }), "{e}");
        let e = asking.join().unwrap().unwrap_err();
        assert!(is_rejected(&e, RejectReason::INVALID_TRANSPORT, b""), "{e}");
    });
}

/// Two connected ends with their connections.
fn connected() -> [(Endpoint, connect::Connection); 2] {
    let (a, b) = (end(), end());
    let [at_a, at_b] = meet(&listening().0, &a, &b);
    [(a, at_a), (b, at_b)]
}

#[test]
fn what_queue_pairs_are_made_with_is_agreed_on() {
    let a = Endpoint::new(|qp| qp.read_depth(3, 9).rnr_retry(2)).unwrap();
    let b = Endpoint::new(|qp| qp.read_depth(5, 7).rnr_retry(4).path_mtu(adverb::PathMtu::Mtu1024))
        .unwrap();
    let _both = meet(&listening().0, &a, &b);
    let (a, b) = (a.qp.attributes(), b.qp.attributes());
    assert_eq!((a.max_rd_atomic, a.max_dest_rd_atomic), (3, 5));
    assert_eq!((b.max_rd_atomic, b.max_dest_rd_atomic), (5, 3));
    assert_eq!((a.rnr_retry, b.rnr_retry), (4, 2), "each end retries as the other asks");
    assert_eq!((a.sq_psn, b.sq_psn), (b.rq_psn, a.rq_psn));
}

#[test]
fn an_end_that_leaves_is_noticed() {
    for by_drop in [false, true] {
        let [(a, at_a), (b, at_b)] = connected();
        assert!(!at_b.has_ended() && !at_b.wait_end(Duration::from_millis(10)));
        b.qp.recv(()).id(5).post().unwrap();
        if by_drop {
            drop(at_a);
        } else {
            at_a.disconnect().unwrap();
            assert_eq!(a.qp.state(), QpState::Err);
            assert!(at_b.wait_end(HANG_LIMIT));
            at_b.disconnect().unwrap();
            assert!(at_a.wait_end(HANG_LIMIT), "the peer has answered");
            at_a.disconnect().unwrap();
        }
        assert!(at_b.wait_end(HANG_LIMIT));
        assert!(at_b.has_ended());
        at_b.disconnect().unwrap();
        let flushed = b.cq.wait(HANG_LIMIT).unwrap();
        assert_eq!((flushed.wr_id(), flushed.status()), (5, adverb::WcStatus::WrFlushErr));
    }
}

#[tokio::test]
async fn futures_need_no_clock() {
    let (a, b) = (end(), end());
    let (listener, addr) = listening();
    let options = Options::default();
    let accept = async { listener.incoming().await.unwrap().accepting(&b.qp, &options).await };
    let connector = Connector::new();
    let (at_a, at_b) = tokio::join!(connector.connecting(addr, &a.qp), accept);
    let (at_a, at_b) = (at_a.unwrap(), at_b.unwrap());
    talk(&a, &b);
    drop(at_a);
    at_b.ended().await;
}

#[test]
fn a_port_has_one_listener_and_is_free_behind_it() {
    let (listener, addr) = listening();
    let e = Listener::bind(addr).unwrap_err();
    assert_eq!(e.errno(), 98, "{e}");
    let a = end();
    // A program can also connect from this port.
    let mine = end();
    let from: SocketAddr = "127.0.0.1:0".parse().unwrap();
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| Connector::new().source(from).connect(addr, &a.qp));
        let incoming = listener.accept().unwrap();
        let theirs = incoming.from();
        let _at_mine = incoming.accept_with(&mine.qp, &Options::default()).unwrap();
        assert_eq!(asking.join().unwrap().unwrap().local_addr().unwrap(), theirs);
    });
    assert!(listener.accept_timeout(Duration::from_millis(10)).unwrap().is_none());
    drop(listener);
    let e = connect::connect(addr, &end().qp).unwrap_err();
    assert!(is_rejected(&e, RejectReason::INVALID_SERVICE_ID, b""), "{e}");
    drop(Listener::bind(addr).unwrap());
}

#[test]
fn a_request_whose_sender_gave_up_cannot_be_accepted() {
    let (a, b) = (end(), end());
    let (listener, addr) = listening();
    let options = Options { timeout: Duration::from_millis(50), ..Options::default() };
    let e = connect::connect_with(addr, &a.qp, &options).unwrap_err();
    assert!(matches!(why(&e), ConnectError::TimedOut), "{e}");
    let e = listener.accept().unwrap().accept_with(&b.qp, &Options::default()).unwrap_err();
    assert!(matches!(why(&e), ConnectError::Closed | ConnectError::Rejected { .. }), "{e}");
}

#[test]
fn wrong_calls_are_named() {
    let a = end();
    let addr: SocketAddr = "127.0.0.1:7".parse().unwrap();
    let e = connect::connect_with(addr, &a.qp, &Options::private(vec![0; MAX_PRIVATE + 1]))
        .unwrap_err();
    assert!(
        matches!(why(&e), ConnectError::PrivateTooLong { len } if *len == MAX_PRIVATE + 1),
        "{e}"
    );
    let e = Listener::bind("192.0.2.1:0").unwrap_err();
    assert_eq!(e.errno(), 99, "{e}");
    let ud = Endpoint::new(|qp| qp.ud()).unwrap();
    let e = connect::connect(addr, &ud.qp).unwrap_err();
    assert!(matches!(why(&e), ConnectError::Type { .. }), "{e}");
    assert_eq!(a.qp.state(), QpState::Init);
}

#[tokio::test]
async fn tokio_meets_tokio() {
    let (a, b) = (end(), end());
    let listener = adverb::tokio::Listener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let (options_a, options_b) = (Options::private(*b"a"), Options::private(*b"b"));
    let accept = async { listener.accept().await.unwrap().accept_with(&b.qp, &options_b).await };
    let (at_a, at_b) = tokio::join!(adverb::tokio::connect_with(addr, &a.qp, &options_a), accept);
    let (at_a, at_b) = (at_a.unwrap(), at_b.unwrap());
    assert!(says(&at_a.peer().private_data, b"b") && says(&at_b.peer().private_data, b"a"));
    talk(&a, &b);
}

#[tokio::test]
async fn tokio_meets_blocking() {
    let (a, b) = (end(), end());
    let (listener, addr) = listening();
    let qp = b.qp.clone();
    let accepting =
        tokio::task::spawn_blocking(move || listener.accept_with(&qp, &Options::default()));
    let _at_a = adverb::tokio::connect(addr, &a.qp).await.unwrap();
    let _at_b = accepting.await.unwrap().unwrap();
    talk(&a, &b);
}

#[tokio::test]
async fn tokio_says_no_and_gives_up() {
    let a = end();
    let listener = adverb::tokio::Listener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let options = Options::default();
    let refuse = async { listener.accept().await.unwrap().reject(b"no").unwrap() };
    let (asked, ()) = tokio::join!(adverb::tokio::connect_with(addr, &a.qp, &options), refuse);
    let e = asked.unwrap_err();
    assert!(is_rejected(&e, RejectReason::CONSUMER_DEFINED, b"no"), "{e}");
    let options = Options { timeout: Duration::from_millis(50), ..Options::default() };
    let e = adverb::tokio::connect_with(addr, &a.qp, &options).await.unwrap_err();
    assert!(matches!(why(&e), ConnectError::TimedOut), "{e}");
}
