//! Connections between ends.
#![allow(dead_code, reason = "each test file uses its part")]
use crate::common::{DEADLINE, QpEnd, closed, wait};
use adverb_ndk::connect::{
    ConnectionData, Connector, DisconnectEvent, DisconnectReason, Listener, ReadLimits,
};
use adverb_ndk::object::Completion;
use adverb_ndk::{NtStatus, RequestOutcome};
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, channel};

pub const fn reads(inbound: u32, outbound: u32) -> ReadLimits {
    ReadLimits { inbound, outbound }
}

/// Maximum sizes of the private data in each message, in bytes.
pub const CALL: usize = 56;
pub const ANSWER: usize = 196;
pub const REFUSAL: usize = 148;

/// The data of the peer's message, with private data padded to `room` bytes.
pub fn said(reads: ReadLimits, text: &[u8], room: usize) -> ConnectionData {
    let mut private_data = text.to_vec();
    private_data.resize(room, 0);
    ConnectionData { reads, private_data }
}

/// Any port of the loopback address.
pub fn any() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// A pending request. The test can wait for its result.
pub struct Pending(Receiver<Result<(), NtStatus>>);

impl Pending {
    pub fn start(
        request: impl FnOnce(Completion<()>) -> Result<RequestOutcome, NtStatus>,
    ) -> Result<Self, NtStatus> {
        let (tx, rx) = channel();
        assert_eq!(request(Box::new(move |result| _ = tx.send(result)))?, RequestOutcome::Pending);
        Ok(Pending(rx))
    }

    pub fn result(&self) -> Result<(), NtStatus> {
        self.0.recv_timeout(DEADLINE).expect("the completion is called")
    }

    pub fn assert_pending(&self) {
        assert!(self.0.try_recv().is_err(), "completed");
    }
}

/// A disconnect event, and the receiver of its reason.
pub fn event() -> (Option<DisconnectEvent>, Receiver<DisconnectReason>) {
    let (tx, rx) = channel();
    (Some(Box::new(move |reason| _ = tx.send(reason))), rx)
}

/// A listener and the connectors of its events.
pub struct Listening {
    pub listener: Listener,
    pub address: SocketAddr,
    events: Receiver<Connector>,
}

impl Listening {
    pub fn at(end: &QpEnd, address: SocketAddr) -> Self {
        let (tx, events) = channel();
        let listener = wait(|c| end.adapter.create_listener(move |c| _ = tx.send(c), c)).unwrap();
        wait(|c| listener.listen(address, c)).unwrap();
        let address = listener.get_local_address().unwrap();
        Listening { listener, address, events }
    }

    pub fn new(end: &QpEnd) -> Self {
        Listening::at(end, any())
    }

    pub fn next(&self) -> Connector {
        self.events.recv_timeout(DEADLINE).expect("a connect event comes")
    }

    pub fn assert_no_event(&self) {
        assert!(self.events.try_recv().is_err(), "a connect event came");
    }

    pub fn close(self) {
        closed(|c| self.listener.close(c));
    }
}

pub fn connector(end: &QpEnd) -> Connector {
    wait(|c| end.adapter.create_connector(c)).unwrap()
}

/// Connects from `end` to `to`, with the private data `call`.
pub fn call(end: &QpEnd, to: SocketAddr) -> (Connector, Pending) {
    let connector = connector(end);
    let from = SocketAddr::new(to.ip(), 0);
    let call =
        Pending::start(|c| connector.connect(&end.qp, from, to, reads(16, 8), b"call", c)).unwrap();
    (connector, call)
}

/// The result of a connect, in line or not.
pub fn call_result(end: &QpEnd, to: SocketAddr) -> Result<(), NtStatus> {
    let connector = connector(end);
    let from = SocketAddr::new(to.ip(), 0);
    let result = wait(|c| connector.connect(&end.qp, from, to, reads(1, 1), b"", c));
    closed(|c| connector.close(c));
    result
}

/// A connection: its connectors, and the receivers of their disconnect events.
pub struct Connection {
    pub active: Connector,
    pub passive: Connector,
    pub active_told: Receiver<DisconnectReason>,
    pub passive_told: Receiver<DisconnectReason>,
}

/// Connects `a` to the listener of `b`.
pub fn connect_to(a: &QpEnd, b: &QpEnd, listening: &Listening) -> Connection {
    let (active, called) = call(a, listening.address);
    let passive = listening.next();
    let (on_disconnect, passive_told) = event();
    let accepted =
        Pending::start(|c| passive.accept(&b.qp, reads(4, 12), b"answer", on_disconnect, c))
            .unwrap();
    called.result().unwrap();
    accepted.assert_pending();
    let (on_disconnect, active_told) = event();
    wait(|c| active.complete_connect(on_disconnect, c)).unwrap();
    accepted.result().unwrap();
    Connection { active, passive, active_told, passive_told }
}

/// Connects two ends. Closes the listener, which stays pending until the connection is closed.
pub fn connect(a: &QpEnd, b: &QpEnd) -> Connection {
    let listening = Listening::new(b);
    let connection = connect_to(a, b, &listening);
    assert_eq!(listening.listener.close(|| ()), Ok(RequestOutcome::Pending));
    connection
}

impl Connection {
    pub fn close(&self) {
        closed(|c| self.active.close(c));
        closed(|c| self.passive.close(c));
    }
}

pub fn told(event: &Receiver<DisconnectReason>) -> DisconnectReason {
    event.recv_timeout(DEADLINE).expect("the disconnect event comes")
}

/// Checks that the disconnect event has not come (again).
pub fn not_told(event: &Receiver<DisconnectReason>) {
    assert!(event.try_recv().is_err(), "the disconnect event came");
}
