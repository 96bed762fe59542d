//! A program with an open file, as librdmacm would use it.
use super::{Machine, Network};
use crate::address::Address;
use crate::event::{Event, EventKind, Param as Said};
use crate::host::Tokens;
use crate::param::{ConnParam, qp_type};
use crate::request::{
    Addresses, Caller, FileId, OptionName, OptionValue, Path as IdPath, QpAttr, Question, Reply,
    Request,
};
use crate::world::World;
use adverb_cm::ip::{PS_TCP, PS_UDP};
use adverb_cm::{Config, Ece, Path};
use nix::errno::Errno;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

/// Counts tokens.
#[derive(Default)]
pub struct Count(pub Cell<i64>);

impl Tokens for Rc<Count> {
    fn give(&self) {
        self.0.set(self.0.get() + 1);
    }
    fn take(&self) {
        self.0.set(self.0.get() - 1);
    }
}

/// A reply, owned by the program.
#[derive(Debug)]
pub enum Got {
    Number(u32),
    Addresses(Addresses),
    Path(IdPath),
    Route(Addresses, IdPath),
    NoServices,
    Attr(QpAttr),
    Event(Seen),
    Byte(u8),
    Flag(bool),
}

/// The caller of a request: keeps the reply and the option value.
#[derive(Default)]
pub struct Hand {
    got: Option<Got>,
    option: Option<OptionValue>,
    /// The error that every reply gets.
    pub refuses: Option<Errno>,
}

impl Caller for Hand {
    fn option(&mut self) -> Result<OptionValue, Errno> {
        self.option.ok_or(Errno::EFAULT)
    }
    fn reply(&mut self, reply: &Reply<'_>) -> Result<(), Errno> {
        if let Some(errno) = self.refuses {
            return Err(errno);
        }
        self.got = Some(match *reply {
            Reply::Id(number) | Reply::EventsReported(number) => Got::Number(number),
            Reply::Addresses(addresses) => Got::Addresses(addresses),
            Reply::Path(path) => Got::Path(path),
            Reply::Route(addresses, path) => Got::Route(addresses, path),
            Reply::NoServices => Got::NoServices,
            Reply::QpAttr(attr) => Got::Attr(attr),
            Reply::Event { uid, about, event } => {
                let Event { kind, status, .. } = *event;
                Got::Event(Seen { uid, id: about, kind, status, event: event.clone() })
            }
            Reply::Byte(byte) => Got::Byte(byte),
            Reply::Flag(flag) => Got::Flag(flag),
        });
        Ok(())
    }
}

/// An event that the program has read.
#[derive(Clone, Debug)]
pub struct Seen {
    pub uid: u64,
    pub id: u32,
    pub kind: EventKind,
    pub status: i32,
    pub event: Event,
}

impl Seen {
    pub fn is(&self, kind: EventKind) -> bool {
        self.kind == kind
    }
    /// The connection parameters of the peer.
    pub fn param(&self) -> &ConnParam<Vec<u8>> {
        let Said::Conn(param) = &self.event.param else { panic!("{self:?}") };
        param
    }
    /// Queue pair number and Q_Key, GID and LID of a datagram event.
    pub fn datagram(&self) -> (u32, u32, Option<([u8; 16], u16)>) {
        let Said::Datagram { qpn, qkey, ah, .. } = &self.event.param else { panic!("{self:?}") };
        (*qpn, *qkey, ah.map(|ah| (ah.dgid.octets(), ah.dlid)))
    }
    /// Private data.
    pub fn data(&self) -> &[u8] {
        match &self.event.param {
            Said::Conn(param) => &param.private_data,
            Said::Datagram { private_data, .. } => private_data,
            _ => &[],
        }
    }
    pub fn ece(&self) -> (u32, u32) {
        (self.event.ece.vendor_id, self.event.ece.attr_mod)
    }
}

pub struct Program {
    pub world: World<Machine, Rc<Count>>,
    pub file: FileId,
    pub count: Rc<Count>,
    pub hand: Hand,
    pub process: u32,
}

/// Parameters of a CONNECT or ACCEPT.
pub type Param<'a> = ConnParam<&'a [u8]>;

pub const PARAM: Param<'_> = Param {
    qpn: 0x123,
    qkey: 0,
    private_data: b"",
    srq: false,
    responder_resources: 4,
    initiator_depth: 2,
    flow_control: true,
    retry_count: 6,
    rnr_retry_count: 5,
    valid: true,
};

impl Program {
    /// A process with an open file, on the host with these addresses.
    pub fn new(network: &Rc<Network>, process: u32, addresses: &[&str]) -> Program {
        let addresses = addresses.iter().map(|a| a.parse().unwrap()).collect();
        let host = Machine { network: network.clone(), process, addresses };
        let config = Config {
            prefix: process,
            prefix_bits: super::machine::PREFIX_BITS,
            transaction: process,
            ..Config::default()
        };
        let mut world = World::new(host, config);
        let count = Rc::new(Count::default());
        let file = world.open(count.clone());
        Program { world, file, count, hand: Hand::default(), process }
    }

    pub fn open_another(&mut self) -> FileId {
        self.world.open(self.count.clone())
    }

    pub fn ask(&mut self, request: Request<'_>) -> Result<Option<Got>, Errno> {
        let file = self.file;
        self.ask_of(file, request)
    }

    pub fn ask_of(&mut self, file: FileId, request: Request<'_>) -> Result<Option<Got>, Errno> {
        self.hand.got = None;
        self.world.perform(file, &request, &mut self.hand)?;
        Ok(self.hand.got.take())
    }

    /// Makes a request that has no reply.
    fn tell(&mut self, request: Request<'_>) -> Result<(), Errno> {
        self.ask(request).map(|got| assert!(got.is_none(), "{got:?}"))
    }

    fn number(got: Option<Got>) -> u32 {
        let Some(Got::Number(number)) = got else { panic!("{got:?}") };
        number
    }

    pub fn create(&mut self, uid: u64, space: u16) -> u32 {
        self.try_create(uid, space).unwrap()
    }
    pub fn try_create(&mut self, uid: u64, port_space: u16) -> Result<u32, Errno> {
        self.ask(Request::CreateId { uid, port_space, qp_type: qp_type::RC }).map(Program::number)
    }
    pub fn tcp(&mut self, uid: u64) -> u32 {
        self.create(uid, PS_TCP)
    }
    pub fn udp(&mut self, uid: u64) -> u32 {
        self.create(uid, PS_UDP)
    }

    pub fn destroy(&mut self, id: u32) -> Result<u32, Errno> {
        self.ask(Request::DestroyId { id }).map(Program::number)
    }
    pub fn leave(&mut self, group: u32) -> Result<u32, Errno> {
        self.ask(Request::Leave { group }).map(Program::number)
    }
    pub fn migrate(&mut self, to: FileId, id: u32, from: FileId) -> Result<u32, Errno> {
        self.ask_of(to, Request::Migrate { id, from }).map(Program::number)
    }

    pub fn bind(&mut self, id: u32, address: &str) -> Result<(), Errno> {
        self.bind_to(id, Address::Ip(address.parse().unwrap()))
    }
    pub fn bind_to(&mut self, id: u32, address: Address) -> Result<(), Errno> {
        self.tell(Request::Bind { id, address })
    }
    pub fn resolve_addr(&mut self, id: u32, to: &str) -> Result<(), Errno> {
        self.resolve_for(id, to, 2000)
    }
    pub fn resolve_for(&mut self, id: u32, to: &str, millis: u64) -> Result<(), Errno> {
        let (destination, patience) =
            (Address::Ip(to.parse().unwrap()), Duration::from_millis(millis));
        self.tell(Request::ResolveAddr { id, source: None, destination, patience })
    }
    pub fn resolve_route(&mut self, id: u32) -> Result<(), Errno> {
        self.tell(Request::ResolveRoute { id })
    }
    pub fn listen(&mut self, id: u32, backlog: u32) -> Result<(), Errno> {
        self.tell(Request::Listen { id, backlog })
    }

    pub fn connect(&mut self, id: u32, p: &Param<'_>) -> Result<(), Errno> {
        let ece = Ece { vendor_id: 7, attr_mod: 9 };
        self.tell(Request::Connect { id, param: *p, ece })
    }
    pub fn accept(&mut self, id: u32, uid: u64, p: &Param<'_>) -> Result<(), Errno> {
        let ece = Ece { vendor_id: 7, attr_mod: 10 };
        self.tell(Request::Accept { id, uid, param: *p, ece })
    }
    /// ACCEPT without parameters, as `rdma_establish` sends it.
    pub fn establish(&mut self, id: u32) -> Result<(), Errno> {
        self.accept(id, 0, &Param { valid: false, ..PARAM })
    }
    pub fn reject(&mut self, id: u32, reason: u8, private_data: &[u8]) -> Result<(), Errno> {
        self.tell(Request::Reject { id, reason, private_data })
    }
    pub fn disconnect(&mut self, id: u32) -> Result<(), Errno> {
        self.tell(Request::Disconnect { id })
    }
    pub fn notify(&mut self, id: u32, event: u32) -> Result<(), Errno> {
        self.tell(Request::Notify { id, event })
    }
    pub fn attr(&mut self, id: u32, state: u32) -> Result<QpAttr, Errno> {
        self.ask(Request::InitQpAttr { id, state }).map(|got| match got {
            Some(Got::Attr(attr)) => attr,
            other => panic!("{other:?}"),
        })
    }
    pub fn query(&mut self, id: u32, question: Question) -> Result<Got, Errno> {
        self.ask(Request::Query { id, question }).map(Option::unwrap)
    }
    pub fn addresses(&mut self, id: u32) -> Addresses {
        let Got::Addresses(addresses) = self.query(id, Question::Addresses).unwrap() else {
            panic!()
        };
        addresses
    }
    pub fn path(&mut self, id: u32) -> IdPath {
        let Got::Path(path) = self.query(id, Question::Path).unwrap() else { panic!() };
        path
    }
    pub fn query_route(&mut self, id: u32) -> (Addresses, IdPath) {
        let Ok(Some(Got::Route(addresses, path))) = self.ask(Request::QueryRoute { id }) else {
            panic!()
        };
        (addresses, path)
    }
    pub fn join(&mut self, id: u32, uid: u64, group: &str) -> Result<u32, Errno> {
        let group = Address::Ip(group.parse().unwrap());
        self.ask(Request::Join { id, uid, group }).map(Program::number)
    }
    pub fn set_option(&mut self, id: u32, value: OptionValue) -> Result<(), Errno> {
        self.hand.option = Some(value);
        self.tell(Request::SetOption { id })
    }
    pub fn get_option(&mut self, id: u32, name: OptionName) -> Result<Got, Errno> {
        self.ask(Request::GetOption { id, name }).map(Option::unwrap)
    }

    /// GET_EVENT. The token count beforehand must agree with whether there is an event.
    pub fn event(&mut self) -> Option<Seen> {
        let file = self.file;
        self.event_of(file)
    }
    pub fn event_of(&mut self, file: FileId) -> Option<Seen> {
        let before = self.count.0.get();
        match self.ask_of(file, Request::GetEvent) {
            Ok(Some(Got::Event(seen))) => {
                assert_eq!(self.count.0.get(), before - 1, "one token for each event");
                Some(seen)
            }
            Ok(other) => panic!("GET_EVENT: {other:?}"),
            Err(Errno::EAGAIN) => None,
            Err(e) => panic!("GET_EVENT: {e}"),
        }
    }
    /// The next event; its kind must be `kind`.
    pub fn expect(&mut self, kind: EventKind) -> Seen {
        let seen = self.event().unwrap_or_else(|| panic!("no event, {kind:?} expected"));
        assert!(seen.is(kind), "{kind:?} expected, got {seen:?}");
        seen
    }

    /// An id that is ready to connect.
    pub fn ready(&mut self, uid: u64, space: u16, to: &str) -> u32 {
        let id = self.create(uid, space);
        self.resolve_addr(id, to).unwrap();
        assert_eq!(self.expect(EventKind::AddrResolved).status, 0);
        self.resolve_route(id).unwrap();
        assert_eq!(self.expect(EventKind::RouteResolved).status, 0);
        id
    }

    /// An id that has asked for a connection.
    pub fn asks(&mut self, uid: u64, space: u16, to: &str) -> u32 {
        let id = self.ready(uid, space, to);
        self.connect(id, &PARAM).unwrap();
        id
    }

    /// An id that listens.
    pub fn listener(&mut self, uid: u64, space: u16, at: &str, backlog: u32) -> u32 {
        let id = self.create(uid, space);
        self.bind(id, at).unwrap();
        self.listen(id, backlog).unwrap();
        id
    }

    /// Closes the file.
    pub fn close(&mut self) {
        assert!(self.world.close(self.file).is_some());
    }
}

/// Delivers the MADs that have arrived and runs timers, until nothing is left to do at this time.
pub fn deliver(network: &Rc<Network>, programs: &mut [&mut Program]) {
    loop {
        let now = network.now.get();
        let next = {
            let mut flying = network.flying.borrow_mut();
            let n = flying.iter().position(|f| f.at <= now);
            n.and_then(|n| flying.remove(n))
        };
        let Some(next) = next else { return };
        let Path { local, remote } = next.path.reversed();
        let path = Path { local, remote };
        let owners = network.owners(&next);
        let mut taken = false;
        for program in programs.iter_mut() {
            let dead = network.dead.borrow().contains(&program.process);
            if owners.contains(&program.process)
                && !dead
                && program.world.host.addresses.contains(&local)
            {
                taken = true;
                program.world.mad(now, path, 7, &next.mad);
            }
        }
        if !taken {
            network.answer(&next);
        }
    }
}

/// Lets time pass, from one due MAD or timer to the next.
pub fn pass(network: &Rc<Network>, programs: &mut [&mut Program], millis: u64) {
    let end = network.now.get() + std::time::Duration::from_millis(millis);
    loop {
        deliver(network, programs);
        let now = network.now.get();
        let flying = network.flying.borrow().iter().map(|f| f.at).min();
        let timers = programs.iter().filter_map(|p| p.world.next_timeout()).min();
        let Some(next) = flying.into_iter().chain(timers).min().filter(|&at| at <= end) else {
            break;
        };
        network.now.set(next.max(now));
        let now = network.now.get();
        for program in programs.iter_mut() {
            if program.world.next_timeout().is_some_and(|at| at <= now) {
                program.world.timeout(now);
            }
        }
    }
    network.now.set(end);
    deliver(network, programs);
}
