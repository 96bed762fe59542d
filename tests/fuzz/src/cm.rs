//! The communication manager: commands of a program and MADs of any peer, in any order.
use crate::input::Input;
use adverb_cm::mad::MadKind;
use adverb_cm::{
    Accept, Config, ConnectRequest, Data, Ece, Endpoint, Event, Id, MAD_LEN, Message, Path, QpKind,
    RejectReason, Route, SidrAnswer, SidrRequest, State, Time, Timing, answer_for_nobody, route,
};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

const SERVICE: u64 = 0x0106_1c06;
const MAX_CONNECTIONS: usize = 12;
const MAX_REQUESTS: usize = 4;
const PREFIX: u32 = 0x155;
const PREFIX_BITS: u8 = 10;

/// Events due to the program for an id.
#[derive(Clone, Copy, Debug, Default)]
struct Owed {
    /// The outcome of `connect`, `accept` or `sidr_request`.
    outcome: bool,
    /// `Disconnected`.
    end: bool,
    ended: bool,
}

struct Program {
    endpoint: Endpoint,
    owed: BTreeMap<Id, Owed>,
    now: Time,
}

fn address(n: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, n).into()
}

fn path(input: &mut Input<'_>) -> Path {
    Path { local: address(1), remote: address(2 + input.u8() % 2) }
}

impl Program {
    fn new() -> Program {
        let config = Config {
            prefix: PREFIX,
            prefix_bits: PREFIX_BITS,
            transaction: 7,
            max_connections: MAX_CONNECTIONS,
            max_requests: MAX_REQUESTS,
            max_answers: 3,
            ..Config::default()
        };
        let mut endpoint = Endpoint::new(config);
        endpoint.listen(SERVICE, None).expect("nobody listens yet");
        Program { endpoint, owed: BTreeMap::new(), now: Time(1) }
    }

    /// An id of the program, or any id.
    fn id(&self, input: &mut Input<'_>) -> Id {
        let n = input.u8();
        let known = self.owed.keys().nth(usize::from(n) % (self.owed.len() + 1)).copied();
        known.unwrap_or_else(|| Id(PREFIX << 22 | u32::from(n)))
    }

    /// A MAD of valid appearance, often with ids of the program.
    fn mad(&self, input: &mut Input<'_>) -> Vec<u8> {
        let kind = input.pick(MadKind::ALL);
        let (first, second) = (self.id(input), self.id(input));
        let remote = input.u8() % 3;
        let mut mad = vec![0; MAD_LEN];
        let body = input.take(MAD_LEN - 24);
        mad[24..24 + body.len()].copy_from_slice(body);
        mad[..4].copy_from_slice(&[1, 7, 2, 3]);
        mad[8..12].copy_from_slice(&7_u32.to_be_bytes());
        mad[12..16].copy_from_slice(&second.0.to_be_bytes());
        mad[16..18].copy_from_slice(&(kind as u16).to_be_bytes());
        match kind {
            MadKind::Req | MadKind::SidrReq => mad[32..40].copy_from_slice(&SERVICE.to_be_bytes()),
            MadKind::SidrRep => mad[24..28].copy_from_slice(&second.0.to_be_bytes()),
            _ => {
                let other = self.endpoint.remote(second).map_or(first.0, |r| r.remote_id);
                mad[24..28].copy_from_slice(&if remote == 0 { 1_u32 } else { other }.to_be_bytes());
                mad[28..32].copy_from_slice(&second.0.to_be_bytes());
            }
        }
        if let Some(known) = self.endpoint.remote(second)
            && kind == MadKind::Dreq
        {
            mad[32..35].copy_from_slice(&known.local_qpn.to_be_bytes()[1..]);
        }
        mad
    }

    fn begin(&mut self, id: Id) {
        let owed = Owed { outcome: true, ..Owed::default() };
        assert!(self.owed.insert(id, owed).is_none(), "{id:?} was given out twice");
        assert_eq!(id.0 >> (32 - u32::from(PREFIX_BITS)), PREFIX);
    }

    fn connect(&mut self, input: &mut Input<'_>) {
        let request = ConnectRequest {
            path: path(input),
            service_id: SERVICE,
            ca_guid: 1,
            qpn: u32::from(input.u8()) << input.below(20),
            psn: 0,
            kind: input.pick(&[QpKind::Rc, QpKind::Uc, QpKind::Xrc]),
            srq: false,
            responder_resources: 1,
            initiator_depth: 1,
            retry_count: input.u8() & 15,
            rnr_retry_count: 7,
            flow_control: false,
            mtu: 3,
            pkey: 0xffff,
            service_level: 0,
            traffic_class: 0,
            flow_label: 0,
            hop_limit: 64,
            ack_timeout: None,
            timing: Timing { max_retries: input.u8() & 3, ..Timing::LINUX },
            private_data: Data::EMPTY,
            ece: Ece::default(),
        };
        if let Ok(id) = self.endpoint.connect(self.now, &request) {
            self.begin(id);
        }
    }

    fn command(&mut self, input: &mut Input<'_>) {
        let now = self.now;
        match input.below(10) {
            0 => self.connect(input),
            1 => {
                let request = SidrRequest {
                    path: path(input),
                    service_id: SERVICE,
                    pkey: 0xffff,
                    timing: Timing::LINUX,
                    private_data: Data::EMPTY,
                };
                if let Ok(id) = self.endpoint.sidr_request(now, &request) {
                    self.begin(id);
                }
            }
            2 | 3 => {
                let id = self.id(input);
                let accept = Accept { qpn: u32::from(input.u8()), ..Accept::default() };
                if self.endpoint.accept(now, id, &accept).is_ok() {
                    self.of(id).outcome = true;
                }
            }
            4 => {
                let id = self.id(input);
                let info = input.take(3);
                if self.endpoint.reject(id, RejectReason::CONSUMER_DEFINED, info, info).is_ok() {
                    *self.of(id) = Owed { ended: true, ..Owed::default() };
                }
            }
            5 => {
                let id = self.id(input);
                if self.endpoint.drop_request(id).is_ok() {
                    self.owed.remove(&id);
                }
            }
            6 => {
                let id = self.id(input);
                let _ = self.endpoint.established(id);
            }
            7 => {
                let id = self.id(input);
                if self.endpoint.disconnect(now, id, input.take(2)).is_ok() {
                    let owed = *self.of(id);
                    assert!(owed.end || owed.ended, "{owed:?}");
                }
            }
            8 => {
                let id = self.id(input);
                let _ = self.endpoint.sidr_reply(id, &SidrAnswer::default());
            }
            _ => {
                let id = self.id(input);
                let known = self.owed.remove(&id).is_some();
                assert_eq!(self.endpoint.release(now, id).is_ok(), known);
                assert_eq!(self.endpoint.state(id), None);
            }
        }
    }

    fn of(&mut self, id: Id) -> &mut Owed {
        self.owed.get_mut(&id).expect("an id of the program")
    }

    fn on_event(&mut self, id: Id, event: &Event) {
        if let Event::Request { .. } | Event::SidrRequest { .. } = event {
            assert!(self.owed.insert(id, Owed::default()).is_none(), "{id:?} was given out twice");
            return;
        }
        let owed = self.of(id);
        match event {
            Event::Reply(_) | Event::Established => {
                assert!(owed.outcome && !owed.end && !owed.ended, "{event:?} {owed:?}");
                (owed.outcome, owed.end) = (false, true);
            }
            Event::Rejected(_) | Event::Unanswered { .. } | Event::SidrReply(_) => {
                assert!(!owed.end && !owed.ended, "{event:?} {owed:?}");
                (owed.outcome, owed.ended) = (false, true);
            }
            Event::Disconnected(_) => {
                assert!(owed.end || owed.outcome, "{event:?} {owed:?}");
                assert!(!owed.ended, "{event:?} {owed:?}");
                *owed = Owed { ended: true, ..Owed::default() };
            }
            Event::TimewaitExit => assert!(owed.ended, "{owed:?}"),
            Event::Delayed(_) | Event::Request { .. } | Event::SidrRequest { .. } => {}
        }
    }

    /// Takes all output of the endpoint: at most `most` MADs.
    fn settle(&mut self, most: usize) {
        let mut sent = 0;
        while let Some(transmit) = self.endpoint.poll_transmit() {
            sent += 1;
            assert!(sent <= most, "more than {most} MADs");
            assert_eq!(transmit.path.local, address(1));
            Message::parse(&transmit.mad).expect("what is sent can be read");
        }
        while let Some((id, event)) = self.endpoint.poll_event() {
            self.on_event(id, &event);
        }
        while let Some(id) = self.endpoint.poll_forgotten() {
            assert!(!self.owed.contains_key(&id), "{id:?} is the program's and is forgotten");
            assert!(self.endpoint.remote(id).is_none());
        }
        assert!(self.endpoint.len() <= MAX_CONNECTIONS);
        let waits = |id: &&Id| {
            matches!(self.endpoint.state(**id), Some(State::ReqReceived | State::SidrReqReceived))
        };
        assert!(self.owed.keys().filter(waits).count() <= MAX_REQUESTS);
    }

    fn pass_time(&mut self, by: Duration) {
        self.now = self.now + by;
        self.endpoint.handle_timeout(self.now);
        assert!(
            self.endpoint.poll_timeout().is_none_or(|at| at > self.now),
            "a timer does not move"
        );
        self.settle(2 * MAX_CONNECTIONS);
    }
}

/// A program and its peers.
///
/// # Panics
/// A command has two outcomes or none, an id is given out twice, limits are exceeded, or something
/// is left.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let mut program = Program::new();
    let mut steps = 0;
    while !input.is_empty() && steps < 300 {
        steps += 1;
        match input.below(8) {
            0..=2 => {
                program.command(&mut input);
                program.settle(2);
            }
            3 => program.pass_time(Duration::from_millis(u64::from(input.u16()))),
            4 => {
                let mad = input.take(MAD_LEN);
                let parsed = Message::parse(mad).map(|_| ());
                assert_eq!(route(mad).map(|_| ()), parsed);
                assert!(parsed.is_ok() || answer_for_nobody(mad).is_none());
                assert_eq!(program.endpoint.handle_mad(program.now, path(&mut input), mad), parsed);
                program.settle(3);
            }
            5 if input.flag() => {
                let prefix = u32::from(input.u8());
                program.endpoint.peer_ended(program.now, prefix, |path| path.remote == address(2));
                program.settle(0);
            }
            _ => {
                let mad = program.mad(&mut input);
                if let Route::Id(id) = route(&mad).expect("a MAD") {
                    assert!(id.0 >> (32 - u32::from(PREFIX_BITS)) == PREFIX || id.0 < 256);
                }
                program.endpoint.handle_mad(program.now, path(&mut input), &mad).expect("a MAD");
                program.settle(3);
            }
        }
    }
    // No peer answers: each command must still have its outcome, and nothing may be left.
    while let Some(at) = program.endpoint.poll_timeout() {
        program.pass_time(at.since(program.now));
    }
    for (id, owed) in core::mem::take(&mut program.owed) {
        let waiting = owed.outcome && program.endpoint.state(id) != Some(State::Idle);
        assert!(!waiting, "{id:?} has no outcome: {owed:?}");
        program.endpoint.release(program.now, id).expect("an id of the program");
    }
    while let Some(at) = program.endpoint.poll_timeout() {
        program.pass_time(at.since(program.now));
    }
    assert!(program.endpoint.is_empty(), "something is left");
}
