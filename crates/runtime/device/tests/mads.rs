//! Queue pair 1 over real sockets. The tests cover connections of `adverb_cm` between processes of
//! this host, directly and over the network. Other tests cover MADs at the wrong process, exclusive
//! port bindings, and hostile MADs.
mod common;
use adverb_cm::{
    Accept, ConnectRequest, Data, Ece, Ending, Endpoint, Event, Id, QpKind, Timing,
    answer_for_nobody, ip,
};
use adverb_device::Errno;
use adverb_device::engine::Time;
use adverb_device::mad::{Arrival, Claim, MadHandler, MadInterface, Path};
use adverb_device::node::Node;
use adverb_link::{Route, TxBatch};
use adverb_wire::{Bth, Deth, Headers, MAX_HEADER_LEN, Opcode, Operation, Psn, Transport};
use common::party::{Party, listen, tell};
use common::{QpEnd, alone, child, until};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const PATH: Path = Path { local: HERE, remote: HERE };

/// A connection manager as a program has.
struct Manager {
    endpoint: Mutex<Endpoint>,
    mads: OnceLock<MadInterface>,
    events: Mutex<Vec<(Id, Event)>>,
}

impl Manager {
    fn start() -> Arc<Manager> {
        let manager = Arc::new(Manager {
            endpoint: Mutex::new(Endpoint::new(adverb_cm::Config::default())),
            mads: OnceLock::new(),
            events: Mutex::default(),
        });
        let mads = MadInterface::open(manager.clone()).unwrap();
        *manager.endpoint.lock().unwrap() = Endpoint::new(mads.config());
        assert!(manager.mads.set(mads).is_ok());
        manager
    }

    fn mads(&self) -> &MadInterface {
        self.mads.wait()
    }

    /// Calls `f` with the endpoint, then sends the MADs and collects the events that result.
    fn with<R>(&self, f: impl FnOnce(&mut Endpoint, Time) -> R) -> (R, Option<Time>) {
        let mut endpoint = self.endpoint.lock().unwrap();
        let result = f(&mut endpoint, self.mads().now());
        while let Some(transmit) = endpoint.poll_transmit() {
            self.mads().send(&transmit.path, &transmit.mad).unwrap();
        }
        while let Some(event) = endpoint.poll_event() {
            self.events.lock().unwrap().push(event);
        }
        (result, endpoint.poll_timeout())
    }

    fn command<R>(&self, f: impl FnOnce(&mut Endpoint, Time) -> R) -> R {
        let (result, next) = self.with(f);
        if let Some(next) = next {
            self.mads().wake_at(next);
        }
        result
    }

    fn next_event(&self) -> (Id, Event) {
        until("no event", || !self.events.lock().unwrap().is_empty());
        self.events.lock().unwrap().remove(0)
    }
}

impl MadHandler for Manager {
    fn mad(&self, _: Time, mad: &Arrival<'_>) -> Option<Time> {
        self.with(|endpoint, now| endpoint.handle_mad(now, mad.path, mad.mad)).1
    }
    fn timeout(&self, _: Time) -> Option<Time> {
        self.with(Endpoint::handle_timeout).1
    }
    fn peer_ended(&self, _: Time, prefix: u32) -> Option<Time> {
        self.with(|endpoint, now| {
            endpoint.peer_ended(now, prefix, |path| self.mads().is_local(path.remote))
        })
        .1
    }
}

fn request(service_id: u64) -> ConnectRequest {
    // Each connection has a separate queue pair number.
    static QPN: AtomicU32 = AtomicU32::new(0x1234);
    ConnectRequest {
        path: PATH,
        service_id,
        ca_guid: 1,
        qpn: QPN.fetch_add(1, Ordering::Relaxed),
        psn: 7,
        kind: QpKind::Rc,
        srq: false,
        responder_resources: 1,
        initiator_depth: 1,
        retry_count: 7,
        rnr_retry_count: 7,
        flow_control: true,
        mtu: 3,
        pkey: 0xffff,
        service_level: 0,
        traffic_class: 0,
        flow_label: 0,
        hop_limit: 64,
        ack_timeout: None,
        timing: Timing::LINUX,
        private_data: Data::EMPTY,
        ece: Ece::default(),
    }
}

/// A port number that no other run of these tests uses.
fn port(n: u16) -> u64 {
    ip::service_id(ip::PS_TCP, 20000 + (std::process::id() % 4000) as u16 * 8 + n)
}

/// Runs a test of this file in a separate process.
fn by(path: &str, name: &str) {
    let _alone = alone();
    child::run(name, &[("ADVERB_PATH", path)]);
}

/// MAD-1, MAD-2, MAD-4
#[test]
fn a_connection() {
    by("local", "connection");
    by("wire", "connection");
}

/// Receives at the same address, and therefore gets MADs for other processes.
#[test]
#[ignore = "run by another test"]
fn bystander() {
    let _end = QpEnd::datagrams();
    tell("ready");
    listen();
}

/// A manager that listens on a service, at one address or at all.
fn listening(service: u64, at: Option<IpAddr>) -> (Arc<Manager>, Claim) {
    let manager = Manager::start();
    manager.command(|endpoint, _| endpoint.listen(service, None)).unwrap();
    let claim = manager.mads().claim(service, at, false).unwrap();
    claim.listen().unwrap();
    (manager, claim)
}

/// Accepts all requests for the service.
#[test]
#[ignore = "run by another test"]
fn server() {
    let service = std::env::var("SERVICE").unwrap().parse().unwrap();
    let (manager, _claim) = listening(service, None);
    tell("ready");
    for qpn in 0..3 {
        let (id, event) = manager.next_event();
        assert!(matches!(event, Event::Request { .. }), "{event:?}");
        let accept = Accept { qpn: 0x4321 + qpn, psn: 9, rnr_retry_count: 7, ..Accept::default() };
        manager.command(|endpoint, now| endpoint.accept(now, id, &accept)).unwrap();
        let (_, event) = manager.next_event();
        assert_eq!(event, Event::Established);
        tell("established");
    }
    listen();
}

/// A request that is not retransmitted before [`Manager::next_event`] gives up. The first
/// retransmission comes after 34 seconds.
fn request_once(service_id: u64) -> ConnectRequest {
    let timing = Timing { remote_response: 23, ..Timing::LINUX };
    ConnectRequest { timing, ..request(service_id) }
}

/// Asks for a connection, and returns the answer.
fn ask(manager: &Manager, service: u64) -> (Id, Event) {
    let connect = |endpoint: &mut Endpoint, now| endpoint.connect(now, &request_once(service));
    let id = manager.command(connect).unwrap();
    let (of, event) = manager.next_event();
    assert_eq!(of, id, "{event:?}");
    (id, event)
}

fn connect(manager: &Manager, service: u64) -> Id {
    let (id, event) = ask(manager, service);
    assert!(matches!(event, Event::Reply(_)), "{event:?}");
    manager.command(|endpoint, _| endpoint.established(id)).unwrap();
    let remote = manager.command(|endpoint, _| endpoint.remote(id)).unwrap();
    assert!(manager.mads().watch_peer(remote.remote_id));
    id
}

#[test]
#[ignore = "run by another test"]
fn connection() {
    let service = port(0);
    let number = service.to_string();
    let mut bystanders: Vec<Party> = (0..3).map(|_| Party::start("bystander", &[])).collect();
    bystanders.iter_mut().for_each(|party| assert_eq!(party.hear(), "ready"));
    let mut server = Party::start("server", &[("SERVICE", &number)]);
    assert_eq!(server.hear(), "ready");
    let manager = Manager::start();
    let ids: Vec<Id> = (0..3).map(|_| connect(&manager, service)).collect();
    (0..3).for_each(|_| assert_eq!(server.hear(), "established"));
    // The server is killed without a DREQ. The exit of the peer alone ends the connections.
    drop(server);
    for _ in &ids {
        let (id, event) = manager.next_event();
        assert!(ids.contains(&id));
        assert_eq!(event, Event::Disconnected(Ending::PeerEnded));
    }
    // No process listens on this service now. The request reaches one of the other processes, which
    // rejects it.
    let (_, event) = ask(&manager, service);
    let Event::Rejected(why) = event else { panic!("{event:?}") };
    assert_eq!(why.reason, adverb_cm::RejectReason::INVALID_SERVICE_ID);
}

/// MAD-3
#[test]
fn a_port_is_bound_by_one() {
    let _alone = alone();
    let manager = Manager::start();
    let mads = manager.mads();
    assert!(MadInterface::open(manager.clone()).is_err_and(|e| e.errno() == Errno::EBUSY as i32));
    let taken = |service, at, shared| {
        let e = mads.claim(service, at, shared).map(|claim| format!("{claim:?}")).unwrap_err();
        assert_eq!(e.errno(), Errno::EADDRINUSE as i32, "{e}");
    };
    let service = port(1);
    let at_all = mads.claim(service, None, false).unwrap();
    taken(service, None, false);
    taken(service, Some(HERE), false);
    taken(service, Some(HERE), true);
    mads.claim(port(2), None, false).unwrap();
    drop(at_all);
    let here = mads.claim(service, Some(HERE), false).unwrap();
    taken(service, None, false);
    drop(here);
    // Shared claims on a port can coexist, but only a single claim can listen.
    let (a, b) =
        (mads.claim(service, None, true).unwrap(), mads.claim(service, None, true).unwrap());
    taken(service, None, false);
    a.listen().unwrap();
    a.listen().unwrap();
    assert_eq!(b.listen().unwrap_err().errno(), Errno::EADDRINUSE as i32);
    drop(a);
    b.listen().unwrap();
    let e = mads.claim(service + 1, Some([203, 0, 113, 9].into()), false).unwrap_err();
    assert_eq!(e.errno(), Errno::EADDRNOTAVAIL as i32, "{e}");
}

/// MAD-1: MADs from this process to itself take the same path.
#[test]
fn a_connection_with_itself() {
    by("wire", "with_itself");
    by("local", "with_itself");
}

#[test]
#[ignore = "run by another test"]
fn with_itself() {
    let service = port(3);
    let (manager, claim) = listening(service, Some(HERE));
    let id = manager.command(|endpoint, now| endpoint.connect(now, &request(service))).unwrap();
    let (passive, event) = manager.next_event();
    assert!(matches!(event, Event::Request { .. }), "{event:?}");
    let accept = Accept { qpn: 0x4321, ..Accept::default() };
    manager.command(|endpoint, now| endpoint.accept(now, passive, &accept)).unwrap();
    let (active, event) = manager.next_event();
    assert!(active == id && matches!(event, Event::Reply(_)), "{event:?}");
    manager.command(|endpoint, _| endpoint.established(id)).unwrap();
    assert_eq!(manager.next_event(), (passive, Event::Established));
    manager.command(|endpoint, now| endpoint.disconnect(now, id, &[])).unwrap();
    for end in [passive, id] {
        let (told, event) = manager.next_event();
        assert!(told == end && matches!(event, Event::Disconnected(_)), "{event:?}");
        // The first end's answer is the other end's event.
        manager.command(|endpoint, now| endpoint.disconnect(now, end, &[])).unwrap();
    }
    drop(claim);
    // The endpoint has a deadline, at which time-wait ends.
    let timeout = manager.endpoint.lock().unwrap().poll_timeout();
    assert!(timeout.is_some());
}

/// MAD-5: a packet other than a MAD of a connection manager changes nothing. A MAD for no process
/// draws at most one MAD.
#[test]
fn hostile_mads_change_nothing() {
    by("wire", "hostile");
}

/// Sends from the device's own port to the same port. The receiver can tell these packets from
/// valid packets only by the contents.
struct Sender {
    node: Arc<Node>,
    route: Route,
    batch: TxBatch,
    sent: u64,
}

impl Sender {
    fn new() -> Sender {
        let node = Node::get().unwrap();
        // No other process of these tests receives at this address.
        let alone = IpAddr::from([127, 77, 0, 1]);
        let local = node.link().udp().unwrap().add_address(alone, 0).unwrap();
        let route = Route::new(local, SocketAddr::new(alone, adverb_wire::ROCE_PORT));
        Sender { node, route, batch: TxBatch::default(), sent: 0 }
    }

    fn send(&mut self, operation: Operation, pkey: u16, deth: Deth, payload: &[u8]) {
        let opcode = Opcode::new(Transport::Ud, operation).unwrap();
        let mut headers = Headers::new(Bth { pkey, ..Bth::new(opcode, 1, Psn::new(0)) });
        headers.deth = Some(deth);
        if operation == Operation::SendOnlyImm {
            headers.imm = Some(adverb_wire::ImmDt(0));
        }
        let mut out = [0; MAX_HEADER_LEN];
        let n = headers.emit(&mut out);
        let fill = |to: &mut [u8]| {
            to.copy_from_slice(payload);
            true
        };
        let link = self.node.link().udp().unwrap();
        self.batch.push(link, &self.route, &out[..n], payload.len(), 0, fill);
        self.batch.flush(link);
        self.sent += 1;
    }

    fn counted(&self, name: &str) -> u64 {
        self.node.named_counters().into_iter().find(|(of, _)| *of == name).map(|(_, n)| n).unwrap()
    }

    /// Waits until the counter `name` satisfies `wanted`, and returns the value of the counter.
    fn until(&self, name: &str, wanted: impl Fn(u64) -> bool) -> u64 {
        until(&format!("{name} after {} MADs", self.sent), || {
            self.node.progress();
            wanted(self.counted(name))
        });
        self.counted(name)
    }
}

#[test]
#[ignore = "run by another test"]
fn hostile() {
    const GOOD: Deth = Deth { qkey: 0x8001_0000, src_qpn: 1 };
    let service = port(4);
    let (manager, _claim) = listening(service, None);
    let mut sender = Sender::new();
    let req = {
        let mut endpoint = Endpoint::new(adverb_cm::Config::default());
        endpoint.connect(Time::ZERO, &request(service)).unwrap();
        endpoint.poll_transmit().unwrap().mad
    };
    let mut other_class = req;
    other_class[1] = 4;
    let mut response = req;
    response[3] = 0x83;
    let bad: [(Operation, u16, Deth, &[u8]); 8] = [
        (Operation::SendOnly, 0xffff, Deth { qkey: 0x1111, ..GOOD }, &req),
        (Operation::SendOnly, 0xffff, Deth { src_qpn: 77, ..GOOD }, &req),
        (Operation::SendOnly, 0x1234, GOOD, &req),
        (Operation::SendOnlyImm, 0xffff, GOOD, &req),
        (Operation::SendOnly, 0xffff, GOOD, &req[..252]),
        (Operation::SendOnly, 0xffff, GOOD, &[0; 512]),
        (Operation::SendOnly, 0xffff, GOOD, &other_class),
        (Operation::SendOnly, 0xffff, GOOD, &response),
    ];
    for round in 1..=50 {
        for (operation, pkey, deth, payload) in bad {
            sender.send(operation, pkey, deth, payload);
        }
        sender.until("mad_refused", |n| n == round * bad.len() as u64);
    }
    assert_eq!(sender.counted("mad_for_nobody"), 0);
    assert!(
        manager.events.lock().unwrap().is_empty() && manager.endpoint.lock().unwrap().is_empty()
    );
    // Random bytes behind a valid header. The MADs name connections and services that no process
    // here has.
    let mut x = 0x1234_5678_u32;
    let mut owed = 0;
    for _ in 0..2000 {
        let mut mad = req;
        for byte in &mut mad[24..] {
            x ^= x << 13;
            x ^= x >> 17;
            x ^= x << 5;
            *byte = x as u8;
        }
        mad[17] = 0x10 + (x >> 8) as u8 % 12;
        // Do not count MADs for connections of this process, because the endpoint of this process
        // answers them.
        let of_us = mad[28..30] == ((manager.mads().config().prefix << 6) as u16).to_be_bytes();
        owed += u64::from(answer_for_nobody(&mad).is_some() && !of_us);
        sender.send(Operation::SendOnly, 0xffff, GOOD, &mad);
        if owed % 16 == 0 {
            sender.until("mad_for_nobody", |n| n + 32 >= owed);
        }
    }
    let answered = sender.until("mad_for_nobody", |n| n + 32 >= owed);
    assert!(
        answered > 500 && answered <= sender.sent,
        "{answered} answers to {} MADs",
        sender.sent
    );
    assert!(
        manager.events.lock().unwrap().is_empty() && manager.endpoint.lock().unwrap().is_empty()
    );
    // The MAD handler still works.
    let id = manager.command(|endpoint, now| endpoint.connect(now, &request(service))).unwrap();
    let (passive, event) = manager.next_event();
    assert!(passive != id && matches!(event, Event::Request { .. }), "{event:?}");
}
