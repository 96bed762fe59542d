//! A program with an open file, as librdmacm would use it.
use super::{Machine, Network};
use crate::address::Address;
use crate::door::{Memory, Tokens};
use crate::event::EventKind;
use crate::world::{FileId, World};
use crate::{Command, abi};
use adverb_cm::ip::{PS_TCP, PS_UDP};
use adverb_cm::{Config, Path};
use nix::errno::Errno;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

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

/// Where responses go.
const RESPONSE: u64 = 0x1000;
/// Where option values lie.
const VALUE: u64 = 0x2000;

#[derive(Default)]
pub struct Ram {
    response: RefCell<Vec<u8>>,
    value: RefCell<Vec<u8>>,
    /// Memory is gone: every access faults.
    pub gone: Cell<bool>,
}

impl Memory for Ram {
    fn read(&self, address: u64, to: &mut [u8]) -> Result<(), Errno> {
        if address != VALUE || self.gone.get() {
            return Err(Errno::EFAULT);
        }
        to.copy_from_slice(&self.value.borrow()[..to.len()]);
        Ok(())
    }
    fn write(&self, address: u64, from: &[u8]) -> Result<(), Errno> {
        if self.gone.get() {
            return Err(Errno::EFAULT);
        }
        match address {
            RESPONSE => *self.response.borrow_mut() = from.to_vec(),
            VALUE => *self.value.borrow_mut() = from.to_vec(),
            _ => return Err(Errno::EFAULT),
        }
        Ok(())
    }
}

/// An event as it was read.
#[derive(Clone, Debug)]
pub struct Seen {
    pub uid: u64,
    pub id: u32,
    pub kind: u32,
    pub status: i32,
    pub bytes: Vec<u8>,
}

impl Seen {
    pub fn is(&self, kind: EventKind) -> bool {
        self.kind == kind as u32
    }
    pub fn u32(&self, at: usize) -> u32 {
        u32::from_ne_bytes(self.bytes[at..at + 4].try_into().unwrap())
    }
    /// Private data of a connection event.
    pub fn data(&self) -> &[u8] {
        let len = usize::from(self.bytes[20 + 264]);
        &self.bytes[28..28 + len]
    }
    /// Private data of a datagram event.
    pub fn datagram_data(&self) -> &[u8] {
        let len = usize::from(self.bytes[20 + 296]);
        &self.bytes[60..60 + len]
    }
    /// Byte `n` behind the private data of a connection event.
    pub fn conn_byte(&self, n: usize) -> u8 {
        self.bytes[20 + 264 + n]
    }
}

pub struct Program {
    pub world: World<Machine, Rc<Count>>,
    pub file: FileId,
    pub count: Rc<Count>,
    pub ram: Ram,
    pub process: u32,
}

/// What a CONNECT or ACCEPT says.
#[derive(Clone)]
pub struct Param<'a> {
    pub qpn: u32,
    pub data: &'a [u8],
    pub responder_resources: u8,
    pub initiator_depth: u8,
    pub retry_count: u8,
    pub rnr_retry_count: u8,
    pub qkey: u32,
    pub valid: bool,
}

pub const PARAM: Param<'_> = Param {
    qpn: 0x123,
    data: b"",
    responder_resources: 4,
    initiator_depth: 2,
    retry_count: 6,
    rnr_retry_count: 5,
    qkey: 0,
    valid: true,
};

impl Program {
    /// A process of the host with these addresses, with an open file.
    pub fn new(network: &Rc<Network>, process: u32, addresses: &[&str]) -> Program {
        let addresses = addresses.iter().map(|a| a.parse().unwrap()).collect();
        let door = Machine { network: network.clone(), process, addresses };
        let config = Config {
            prefix: process,
            prefix_bits: super::machine::PREFIX_BITS,
            transaction: process,
            ..Config::default()
        };
        let mut world = World::new(door, config);
        let count = Rc::new(Count::default());
        let file = world.open(count.clone());
        Program { world, file, count, ram: Ram::default(), process }
    }

    pub fn open_another(&mut self) -> FileId {
        self.world.open(self.count.clone())
    }

    /// Writes a command with room for `out` bytes of response.
    pub fn write(&mut self, command: Command, body: &[u8], out: u16) -> Result<Vec<u8>, Errno> {
        let file = self.file;
        self.write_to(file, command, body, out)
    }

    pub fn write_to(
        &mut self,
        file: FileId,
        command: Command,
        body: &[u8],
        out: u16,
    ) -> Result<Vec<u8>, Errno> {
        let mut all = (command as u32).to_ne_bytes().to_vec();
        all.extend((body.len() as u16).to_ne_bytes());
        all.extend(out.to_ne_bytes());
        all.extend(body);
        self.ram.response.borrow_mut().clear();
        let taken = self.world.write(file, &all, &self.ram, &|fd| Some(FileId(fd as u64)))?;
        assert_eq!(taken, all.len());
        let response = self.ram.response.borrow().clone();
        assert!(response.len() <= out.into());
        Ok(response)
    }

    fn number(response: Vec<u8>) -> u32 {
        u32::from_ne_bytes(response.try_into().unwrap())
    }

    pub fn create(&mut self, uid: u64, space: u16) -> u32 {
        let mut body = [uid.to_ne_bytes(), RESPONSE.to_ne_bytes()].concat();
        body.extend(space.to_ne_bytes());
        body.extend([abi::qp_type::RC, 0, 0, 0, 0, 0]);
        Program::number(self.write(Command::CreateId, &body, 4).unwrap())
    }
    pub fn tcp(&mut self, uid: u64) -> u32 {
        self.create(uid, PS_TCP)
    }
    pub fn udp(&mut self, uid: u64) -> u32 {
        self.create(uid, PS_UDP)
    }

    fn to_id(id: u32, last: u32) -> Vec<u8> {
        [&RESPONSE.to_ne_bytes()[..], &id.to_ne_bytes(), &last.to_ne_bytes()].concat()
    }

    pub fn destroy(&mut self, id: u32) -> Result<u32, Errno> {
        self.write(Command::DestroyId, &Program::to_id(id, 0), 4).map(Program::number)
    }
    pub fn leave(&mut self, group: u32) -> Result<u32, Errno> {
        self.write(Command::LeaveMcast, &Program::to_id(group, 0), 4).map(Program::number)
    }
    pub fn migrate(&mut self, to: FileId, id: u32, from: FileId) -> Result<u32, Errno> {
        let body = Program::to_id(id, from.0 as u32);
        self.write_to(to, Command::MigrateId, &body, 4).map(Program::number)
    }

    pub fn bind(&mut self, id: u32, address: &str) -> Result<(), Errno> {
        self.bind_to(id, Address::Ip(address.parse().unwrap()))
    }
    pub fn bind_to(&mut self, id: u32, address: Address) -> Result<(), Errno> {
        let head = [&id.to_ne_bytes()[..], &address.size().to_ne_bytes(), &[0, 0]].concat();
        let body = [&head[..], &address.write()].concat();
        self.write(Command::Bind, &body, 0).map(drop)
    }
    pub fn bind_old(&mut self, id: u32, address: &str) -> Result<(), Errno> {
        let address = Address::Ip(address.parse().unwrap()).write();
        let body = [&[0; 8][..], &address[..28], &id.to_ne_bytes()].concat();
        self.write(Command::BindIp, &body, 0).map(drop)
    }
    pub fn resolve_addr(&mut self, id: u32, to: &str) -> Result<(), Errno> {
        self.resolve_for(id, to, 2000)
    }
    pub fn resolve_for(&mut self, id: u32, to: &str, millis: u32) -> Result<(), Errno> {
        let to = Address::Ip(to.parse().unwrap());
        let head = [id.to_ne_bytes(), millis.to_ne_bytes()].concat();
        let sizes = [&[0, 0][..], &to.size().to_ne_bytes(), &[0; 4]].concat();
        let body = [&head[..], &sizes, &[0; 128], &to.write()].concat();
        self.write(Command::ResolveAddr, &body, 0).map(drop)
    }
    pub fn resolve_old(&mut self, id: u32, to: &str) -> Result<(), Errno> {
        let to = Address::Ip(to.parse().unwrap()).write();
        let body = [&[0; 28][..], &to[..28], &id.to_ne_bytes(), &2000_u32.to_ne_bytes()].concat();
        self.write(Command::ResolveIp, &body, 0).map(drop)
    }
    pub fn resolve_route(&mut self, id: u32) -> Result<(), Errno> {
        self.write(Command::ResolveRoute, &[id.to_ne_bytes(), [0; 4]].concat(), 0).map(drop)
    }
    pub fn listen(&mut self, id: u32, backlog: u32) -> Result<(), Errno> {
        self.write(Command::Listen, &[id.to_ne_bytes(), backlog.to_ne_bytes()].concat(), 0).map(drop)
    }

    fn param(p: &Param<'_>) -> Vec<u8> {
        let mut data = p.data.to_vec();
        data.resize(256, 0);
        let rest = [
            p.data.len() as u8,
            0,
            p.responder_resources,
            p.initiator_depth,
            1,
            p.retry_count,
            p.rnr_retry_count,
            p.valid.into(),
        ];
        [&p.qpn.to_ne_bytes()[..], &p.qkey.to_ne_bytes(), &data, &rest].concat()
    }

    pub fn connect(&mut self, id: u32, p: &Param<'_>) -> Result<(), Errno> {
        let ece = [7_u32.to_ne_bytes(), 9_u32.to_ne_bytes()].concat();
        let body = [&Program::param(p)[..], &id.to_ne_bytes(), &[0; 4], &ece].concat();
        self.write(Command::Connect, &body, 0).map(drop)
    }
    pub fn accept(&mut self, id: u32, uid: u64, p: &Param<'_>) -> Result<(), Errno> {
        let ece = [7_u32.to_ne_bytes(), 10_u32.to_ne_bytes()].concat();
        let body = [&uid.to_ne_bytes()[..], &Program::param(p), &id.to_ne_bytes(), &[0; 4], &ece].concat();
        self.write(Command::Accept, &body, 0).map(drop)
    }
    /// What rdma_establish does: ACCEPT without parameters.
    pub fn establish(&mut self, id: u32) -> Result<(), Errno> {
        self.accept(id, 0, &Param { valid: false, ..PARAM })
    }
    pub fn reject(&mut self, id: u32, reason: u8, data: &[u8]) -> Result<(), Errno> {
        let mut padded = data.to_vec();
        padded.resize(256, 0);
        let body = [&id.to_ne_bytes()[..], &[data.len() as u8, reason, 0, 0], &padded].concat();
        self.write(Command::Reject, &body, 0).map(drop)
    }
    pub fn disconnect(&mut self, id: u32) -> Result<(), Errno> {
        self.write(Command::Disconnect, &id.to_ne_bytes(), 0).map(drop)
    }
    pub fn notify(&mut self, id: u32, event: u32) -> Result<(), Errno> {
        self.write(Command::Notify, &[id.to_ne_bytes(), event.to_ne_bytes()].concat(), 0).map(drop)
    }
    pub fn attr(&mut self, id: u32, state: u32) -> Result<Vec<u8>, Errno> {
        self.write(Command::InitQpAttr, &Program::to_id(id, state), 144)
    }
    pub fn query(&mut self, id: u32, option: u32, out: u16) -> Result<Vec<u8>, Errno> {
        self.write(Command::Query, &Program::to_id(id, option), out)
    }
    pub fn query_route(&mut self, id: u32) -> Result<Vec<u8>, Errno> {
        self.write(Command::QueryRoute, &Program::to_id(id, 0), 208)
    }
    pub fn join(&mut self, id: u32, uid: u64, group: &str) -> Result<u32, Errno> {
        let group = Address::Ip(group.parse().unwrap());
        let head = [&RESPONSE.to_ne_bytes()[..], &uid.to_ne_bytes(), &id.to_ne_bytes()].concat();
        let body = [&head[..], &group.size().to_ne_bytes(), &[0; 2], &group.write()].concat();
        self.write(Command::JoinMcast, &body, 4).map(Program::number)
    }
    fn option(id: u32, level: u32, name: u32, len: usize) -> Vec<u8> {
        let words = [id, level, name, len as u32].map(u32::to_ne_bytes).concat();
        [&VALUE.to_ne_bytes()[..], &words].concat()
    }
    pub fn set_option(&mut self, id: u32, level: u32, name: u32, value: &[u8]) -> Result<(), Errno> {
        *self.ram.value.borrow_mut() = value.to_vec();
        self.write(Command::SetOption, &Program::option(id, level, name, value.len()), 0).map(drop)
    }
    pub fn get_option(&mut self, id: u32, name: u32, len: usize) -> Result<Vec<u8>, Errno> {
        self.write(Command::GetOption, &Program::option(id, 0, name, len), 0)?;
        Ok(self.ram.value.borrow().clone())
    }

    /// GET_EVENT; the tokens tell before whether it finds one.
    pub fn event(&mut self) -> Option<Seen> {
        let file = self.file;
        self.event_of(file)
    }
    pub fn event_of(&mut self, file: FileId) -> Option<Seen> {
        let before = self.count.0.get();
        match self.write_to(file, Command::GetEvent, &RESPONSE.to_ne_bytes(), abi::EVENT as u16) {
            Ok(bytes) => {
                assert_eq!(self.count.0.get(), before - 1, "one token for each event");
                let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
                let uid = u64::from_ne_bytes(bytes[..8].try_into().unwrap());
                Some(Seen { uid, id: word(8), kind: word(12), status: word(16) as i32, bytes })
            }
            Err(Errno::EAGAIN) => None,
            Err(e) => panic!("GET_EVENT: {e}"),
        }
    }
    /// The next event, which must be of this kind.
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

    /// Closes the file.
    pub fn close(&mut self) {
        assert!(self.world.close(self.file).is_some());
    }
}

/// Delivers what has arrived by `now` and runs timers, until nothing moves.
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
            if owners.contains(&program.process) && !dead && program.world.door.addresses.contains(&local) {
                taken = true;
                program.world.mad(now, path, 7, &next.mad);
            }
        }
        if !taken {
            network.answer(&next);
        }
    }
}

/// Lets time pass, in steps at which something happens.
pub fn pass(network: &Rc<Network>, programs: &mut [&mut Program], millis: u64) {
    let end = network.now.get() + std::time::Duration::from_millis(millis);
    loop {
        deliver(network, programs);
        let now = network.now.get();
        let flying = network.flying.borrow().iter().map(|f| f.at).min();
        let timers = programs.iter().filter_map(|p| p.world.next_timeout()).min();
        let Some(next) = flying.into_iter().chain(timers).min().filter(|&at| at <= end) else { break };
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
