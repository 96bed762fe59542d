//! Setting up connections over TCP, blocking and on tokio.
use adverb::connect::{self, ConnectError, Incoming, Listener, MAX_PRIVATE, Options, ProtocolError};
use adverb::testing::End;
use adverb::{Error, QpState, Result};
use std::io::Write;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

fn end() -> End {
    End::new(|qp| qp).unwrap()
}

/// Sends a message each way.
fn talk(a: &End, b: &End) {
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

/// What the accepting side answers to what `speak` does at the other end.
fn accept(listener: &Listener, speak: impl FnOnce(SocketAddr) + Send) -> Result<Incoming> {
    let addr = listener.local_addr().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || speak(addr));
        listener.accept()
    })
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
        assert_eq!((&at_a.private_data[..], &at_b.private_data[..]), (&b"from b"[..], &b"from a"[..]));
        assert_eq!((at_a.info.number, at_b.info.number), (b.qp.number(), a.qp.number()));
        assert_eq!(at_a.info.gid, b.context.gid(b.context.gid_index_of(ip).unwrap()).unwrap());
        talk(&a, &b);
    }
}

#[test]
fn the_accepting_side_may_look_first_and_say_no() {
    let a = end();
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| connect::connect_with(addr, &a.qp, &Options::private(*b"please")));
        let incoming = listener.accept().unwrap();
        assert_eq!(incoming.peer().private_data, b"please");
        assert!(incoming.from().ip().is_loopback());
        incoming.reject(b"full").unwrap();
        let e = asking.join().unwrap().unwrap_err();
        assert!(matches!(why(&e), ConnectError::Rejected(reason) if reason == b"full"), "{e}");
        assert_eq!(e.errno(), 111);
    });
    assert_eq!(a.qp.state(), QpState::Init, "free for the next try");
}

#[test]
fn types_that_do_not_match_fail_at_both_ends() {
    let (a, b) = (end(), End::new(|qp| qp.uc()).unwrap());
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| connect::connect(addr, &a.qp));
        let e = listener.accept_with(&b.qp, &Options::default()).unwrap_err();
        assert!(matches!(why(&e), ConnectError::Type { .. }), "{e}");
        let e = asking.join().unwrap().unwrap_err();
        assert!(matches!(why(&e), ConnectError::Rejected(_)), "{e}");
    });
}

#[test]
fn what_is_not_ours_is_turned_away_and_the_listener_goes_on() {
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    let say = |bytes: &'static [u8]| {
        accept(&listener, move |addr| {
            let mut stream = TcpStream::connect(addr).unwrap();
            stream.write_all(bytes).unwrap();
        })
        .map(drop)
        .unwrap_err()
    };
    let e = say(b"GET / HTTP/1.1\r\n\r\n");
    assert!(matches!(why(&e), ConnectError::Protocol(ProtocolError::Magic)), "{e}");
    let e = say(b"ADVC\x01\x04\0\0");
    assert!(matches!(why(&e), ConnectError::Protocol(ProtocolError::Unexpected(4))), "{e}");
    let e = say(b"ADVC\x01\x01\0\x24 too short");
    assert!(matches!(why(&e), ConnectError::Closed), "{e}");
    let e = say(b"");
    assert!(matches!(why(&e), ConnectError::Closed), "{e}");
    let (a, b) = (end(), end());
    let addr = listener.local_addr().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| connect::connect(addr, &a.qp).unwrap());
        listener.accept_with(&b.qp, &Options::default()).unwrap();
    });
    talk(&a, &b);
}

#[test]
fn nobody_waits_for_ever() {
    let a = end();
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let options = Options { timeout: Duration::from_millis(50), ..Options::default() };
    let e = connect::connect_with(silent.local_addr().unwrap(), &a.qp, &options).unwrap_err();
    assert!(matches!(why(&e), ConnectError::TimedOut), "{e}");
    let closed = silent.local_addr().unwrap();
    drop(silent);
    let e = connect::connect(closed, &a.qp).unwrap_err();
    assert!(matches!(why(&e), ConnectError::Io(_)) && e.errno() == 111, "{e}");
    let e = connect::connect_with(closed, &a.qp, &Options::private(vec![0; MAX_PRIVATE + 1])).unwrap_err();
    assert!(matches!(why(&e), ConnectError::Io(_) | ConnectError::PrivateTooLong { .. }), "{e}");
}

#[tokio::test]
async fn tokio_meets_tokio() {
    let (a, b) = (end(), end());
    let listener = adverb::tokio::Listener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let (options_a, options_b) = (Options::private(*b"a"), Options::private(*b"b"));
    let accept = async { listener.accept().await.unwrap().accept_with(&b.qp, &options_b).await };
    let (at_a, at_b) = tokio::join!(adverb::tokio::connect(addr, &a.qp, &options_a), accept);
    assert_eq!((&at_a.unwrap().private_data[..], &at_b.unwrap().private_data[..]), (&b"b"[..], &b"a"[..]));
    talk(&a, &b);
}

#[tokio::test]
async fn tokio_meets_blocking() {
    let (a, b) = (end(), end());
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let qp = b.qp.clone();
    let accepting = tokio::task::spawn_blocking(move || listener.accept_with(&qp, &Options::default()));
    adverb::tokio::connect(addr, &a.qp, &Options::default()).await.unwrap();
    accepting.await.unwrap().unwrap();
    talk(&a, &b);
}

#[tokio::test]
async fn tokio_says_no_and_gives_up() {
    let a = end();
    let listener = adverb::tokio::Listener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let options = Options::default();
    let refuse = async { listener.accept().await.unwrap().reject(b"no").await.unwrap() };
    let (asked, ()) = tokio::join!(adverb::tokio::connect(addr, &a.qp, &options), refuse);
    let e = asked.unwrap_err();
    assert!(matches!(why(&e), ConnectError::Rejected(reason) if reason == b"no"), "{e}");
    let options = Options { timeout: Duration::from_millis(50), ..Options::default() };
    let e = adverb::tokio::connect(addr, &a.qp, &options).await.unwrap_err();
    assert!(matches!(why(&e), ConnectError::TimedOut), "{e}");
}
