//! Peers that do not speak the protocol, or lie: each is refused, and nobody else notices.
mod common;
mod connect_common;
use adverb_ndk::NtStatus;
use common::{DEADLINE, End, closed, wait};
use connect_common::*;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::{Duration, Instant};

const REQUEST: u8 = 1;
const REPLY: u8 = 2;
const READY: u8 = 3;
const REJECT: u8 = 4;

fn message(version: u8, kind: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = b"NDcm".to_vec();
    bytes.extend_from_slice(&[version, kind]);
    bytes.extend_from_slice(&(body.len() as u16).to_be_bytes());
    bytes.extend_from_slice(body);
    bytes
}

/// A queue pair at an IPv4 address: number, PSN, GID, read limits, path MTU.
fn offer(ip: [u8; 4]) -> Vec<u8> {
    let mut body = vec![0, 0x12, 0x34, 0x56, 0, 0, 0, 1];
    body.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]);
    body.extend_from_slice(&ip);
    body.extend_from_slice(&[0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 3]);
    body
}

/// Sends `bytes` to the listener and reads until the stream ends. An end by reset is an end.
fn answer_to(listening: &Listening, bytes: &[u8], then: Option<Shutdown>) -> Vec<u8> {
    let mut stream = TcpStream::connect(listening.address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream.write_all(bytes).unwrap();
    if let Some(how) = then {
        stream.shutdown(how).unwrap();
    }
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Ok(_) => {}
        Err(e) => assert_eq!(e.kind(), std::io::ErrorKind::ConnectionReset, "{e}"),
    }
    answer
}

#[test]
fn callers_that_make_no_sense_are_refused() {
    let (a, b) = (End::new(), End::new());
    let listening = Listening::new(&b);
    let malformed = message(1, REJECT, &[4]);
    let here = [127, 0, 0, 1];
    let mut short = message(1, REQUEST, &offer(here));
    short.pop();
    assert_eq!(answer_to(&listening, b"GET / HTTP/1.1\r\n\r\n", None), malformed);
    assert_eq!(answer_to(&listening, &message(1, READY, &[]), None), malformed);
    assert_eq!(answer_to(&listening, &message(2, REQUEST, &offer(here)), None), message(1, REJECT, &[3]));
    // Packets to a third host would be its harm.
    assert_eq!(answer_to(&listening, &message(1, REQUEST, &offer([192, 0, 2, 1])), None), malformed);
    assert_eq!(answer_to(&listening, &message(1, REQUEST, &[0xff; 37]), None), malformed);
    assert_eq!(answer_to(&listening, &short, Some(Shutdown::Write)), b"");
    listening.assert_no_event();
    // The next one is served.
    connect_to(&a, &b, &listening).close();
    listening.close();
}

#[test]
fn a_caller_that_says_nothing_is_not_waited_for_long() {
    let b = End::new();
    let listening = Listening::new(&b);
    let began = Instant::now();
    assert_eq!(answer_to(&listening, b"NDcm", None), b"");
    assert!(began.elapsed() > Duration::from_secs(1), "slow callers have some time");
    listening.close();
}

/// A caller in good form is an event; what it says then counts.
#[test]
fn a_caller_that_goes_on_out_of_turn_is_aborted() {
    let b = End::new();
    let listening = Listening::new(&b);
    let mut stream = TcpStream::connect(listening.address).unwrap();
    stream.write_all(&message(1, REQUEST, &offer([127, 0, 0, 1]))).unwrap();
    let passive = listening.next();
    assert_eq!(passive.get_connection_data().unwrap().reads, reads(1, 1));
    stream.write_all(&message(1, READY, &[])).unwrap();
    common::eventually("the connection is given up", || {
        let result = wait(|c| passive.complete_connect(None, c));
        result == Err(NtStatus::CONNECTION_ABORTED)
    });
    assert_eq!(passive.reject(b""), Err(NtStatus::CONNECTION_ABORTED));
    closed(|c| passive.close(c));
    listening.close();
}

/// Listeners of other programs.
#[test]
fn answers_that_make_no_sense_refuse() {
    let a = End::new();
    let answers = [
        b"SSH-2.0-nobody\r\n".to_vec(),
        message(1, REPLY, &offer([192, 0, 2, 1])),
        message(7, REPLY, &offer([127, 0, 0, 1])),
        message(1, REJECT, &[99]),
        Vec::new(),
    ];
    for answer in answers {
        let listener = TcpListener::bind(any()).unwrap();
        let address = listener.local_addr().unwrap();
        let serve = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 44];
            stream.read_exact(&mut request).unwrap();
            assert_eq!(request[..8], *b"NDcm\x01\x01\x00\x24");
            stream.write_all(&answer).unwrap();
        });
        assert_eq!(call_result(&a, address), Err(NtStatus::CONNECTION_REFUSED));
        serve.join().unwrap();
    }
    // A program that is none of ours has the port.
    let listener = TcpListener::bind(any()).unwrap();
    let other = wait(|c| a.adapter.create_listener(|_| (), c)).unwrap();
    let taken = wait(|c| other.listen(listener.local_addr().unwrap(), c));
    assert_eq!(taken, Err(NtStatus::SHARING_VIOLATION));
    closed(|c| other.close(c));
}

/// A peer that dies after the accept.
#[test]
fn a_caller_that_vanishes_aborts_the_accept() {
    let b = End::new();
    let listening = Listening::new(&b);
    let mut stream = TcpStream::connect(listening.address).unwrap();
    stream.write_all(&message(1, REQUEST, &offer([127, 0, 0, 1]))).unwrap();
    let passive = listening.next();
    let accepted = Pending::start(|c| passive.accept(&b.qp, reads(1, 1), b"data", None, c)).unwrap();
    let mut reply = [0; 48];
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream.read_exact(&mut reply).unwrap();
    assert_eq!((&reply[..8], &reply[44..]), (&b"NDcm\x01\x02\x00\x28"[..], &b"data"[..]));
    accepted.assert_pending();
    drop(stream);
    assert_eq!(accepted.result(), Err(NtStatus::CONNECTION_ABORTED));
    closed(|c| passive.close(c));
    listening.close();
}
