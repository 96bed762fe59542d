//! Two endpoints; the test carries the MADs between them.
use crate::mad::{MadKind, Rej};
use crate::{
    Accept, Config, ConnectRequest, Data, Ece, Endpoint, Event, Id, MAD_LEN, Message, Path, QpKind,
    RejectReason, SidrRequest, Time, Timing,
};
use core::net::{IpAddr, Ipv4Addr};
use core::time::Duration;
use std::vec::Vec;

pub(super) const SERVICE: u64 = 0x0106_1c06;

/// A plain request.
pub(super) fn request(path: Path) -> ConnectRequest {
    ConnectRequest {
        path,
        service_id: SERVICE,
        ca_guid: 1,
        qpn: 11,
        psn: 0,
        kind: QpKind::Rc,
        srq: false,
        responder_resources: 1,
        initiator_depth: 1,
        retry_count: 7,
        rnr_retry_count: 7,
        flow_control: false,
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

pub(super) fn lookup(path: Path) -> SidrRequest {
    SidrRequest {
        path,
        service_id: SERVICE,
        pkey: 0xffff,
        timing: Timing::LINUX,
        private_data: Data::EMPTY,
    }
}

pub(super) fn accept() -> Accept {
    Accept { qpn: 22, psn: 5, ca_guid: 2, ..Accept::default() }
}

pub(super) fn ip(n: u8) -> IpAddr {
    Ipv4Addr::new(10, 77, 0, n).into()
}

/// The path from the active side to the passive side.
pub(super) fn path() -> Path {
    Path { local: ip(3), remote: ip(2) }
}

pub(super) const START: Time = Time(1_000_000_000);

/// An active side and a passive side.
pub(super) struct Pair {
    pub a: Endpoint,
    pub b: Endpoint,
    pub now: Time,
}

impl Pair {
    pub fn new() -> Pair {
        Pair::with(Config::default())
    }

    pub fn with(config: Config) -> Pair {
        let a = Endpoint::new(Config { first: 0x100, transaction: 1, ..config });
        let mut b = Endpoint::new(Config { first: 0x200, transaction: 2, ..config });
        b.listen(SERVICE, None).unwrap();
        Pair { a, b, now: START }
    }

    pub fn sent_by_a(&mut self) -> Vec<[u8; MAD_LEN]> {
        core::iter::from_fn(|| self.a.poll_transmit()).map(|t| t.mad).collect()
    }

    pub fn sent_by_b(&mut self) -> Vec<[u8; MAD_LEN]> {
        core::iter::from_fn(|| self.b.poll_transmit()).map(|t| t.mad).collect()
    }

    pub fn give_a(&mut self, mad: &[u8; MAD_LEN]) {
        self.a.handle_mad(self.now, path(), mad).unwrap();
    }

    pub fn give_b(&mut self, mad: &[u8; MAD_LEN]) {
        self.b.handle_mad(self.now, path().reversed(), mad).unwrap();
    }

    /// Carries MADs until none is left.
    pub fn carry(&mut self) {
        loop {
            let (from_a, from_b) = (self.sent_by_a(), self.sent_by_b());
            if from_a.is_empty() && from_b.is_empty() {
                return;
            }
            from_a.iter().for_each(|mad| self.give_b(mad));
            from_b.iter().for_each(|mad| self.give_a(mad));
        }
    }

    /// Runs a connection up to the request at the passive side.
    pub fn requested(&mut self, request: &ConnectRequest) -> (Id, Id) {
        let a = self.a.connect(self.now, request).unwrap();
        self.carry();
        let Some((b, Event::Request { .. })) = self.b.poll_event() else { panic!("no request") };
        (a, b)
    }

    /// Runs a connection up to the reply at the active side.
    pub fn replied(&mut self) -> (Id, Id) {
        let (a, b) = self.requested(&request(path()));
        self.b.accept(self.now, b, &accept()).unwrap();
        self.carry();
        let Some((got, Event::Reply(_))) = self.a.poll_event() else { panic!("no reply") };
        assert_eq!(got, a);
        (a, b)
    }

    pub fn established(&mut self) -> (Id, Id) {
        let (a, b) = self.replied();
        self.a.established(a).unwrap();
        self.carry();
        assert_eq!(self.b.poll_event(), Some((b, Event::Established)));
        (a, b)
    }

    pub fn wait(&mut self, time: Duration) {
        self.now = self.now + time;
        self.a.handle_timeout(self.now);
        self.b.handle_timeout(self.now);
    }

    /// Lets all timers expire without delivering a MAD.
    pub fn wait_out(&mut self) -> (usize, usize) {
        let mut sent = (0, 0);
        while let Some(at) =
            [self.a.poll_timeout(), self.b.poll_timeout()].into_iter().flatten().min()
        {
            self.now = at;
            self.a.handle_timeout(at);
            self.b.handle_timeout(at);
            sent.0 += self.sent_by_a().len();
            sent.1 += self.sent_by_b().len();
        }
        sent
    }
}

/// Id and reason of the next event, which is a rejection.
pub(super) fn rejected(endpoint: &mut Endpoint) -> (Id, RejectReason) {
    match endpoint.poll_event() {
        Some((id, Event::Rejected(rejection))) => (id, rejection.reason),
        other => panic!("not rejected: {other:?}"),
    }
}

/// Another process, after the death of the process at one end.
pub(super) fn reborn() -> Endpoint {
    Endpoint::new(Config { first: 0x900, transaction: 9, ..Config::default() })
}

pub(super) fn message(mad: &[u8; MAD_LEN]) -> Message {
    Message::parse(mad).unwrap().1
}

pub(super) fn kinds(mads: &[[u8; MAD_LEN]]) -> Vec<MadKind> {
    mads.iter().map(|mad| message(mad).kind()).collect()
}

pub(super) fn rej(mad: &[u8; MAD_LEN]) -> Rej {
    let Message::Rej(rej) = message(mad) else { panic!("no REJ: {:?}", message(mad)) };
    *rej
}

impl Endpoint {
    /// Numbers of connections, indexed requests, indexed queue pairs, timers, and waiting requests.
    pub(crate) fn leftovers(&self) -> (usize, usize, usize, usize, usize) {
        let timers = self.running_timers();
        (self.conns.len(), self.by_remote.len(), self.by_qp.len(), timers, self.requests)
    }
}
