//! Which command does what.
use crate::abi::{Command, ConnParam, Input, Output, QP_ATTR, qp_type};
use crate::address::Address;
use crate::door::{Door, Memory, Tokens};
use crate::event::{Event, EventKind, Param};
use crate::id::CmId;
use crate::world::{FileId, World};
use adverb_cm::Ece;
use adverb_cm::ip::{PS_IB, PS_IPOIB, PS_TCP, PS_UDP};
use nix::errno::Errno;
use std::time::Duration;

/// Bytes of the addresses of the older commands: `struct sockaddr_in6`.
const OLD: usize = 28;

/// An address whose length stands beside it.
fn sized(input: &Input, at: usize, size: u16) -> Result<Address, Errno> {
    let address = Address::read(input.bytes(at, crate::abi::STORAGE)).ok_or(Errno::EINVAL)?;
    if address.size() == size { Ok(address) } else { Err(Errno::EINVAL) }
}

/// An address of an older command.
fn old(input: &Input, at: usize) -> Result<Address, Errno> {
    Address::read(input.bytes(at, OLD)).ok_or(Errno::EINVAL)
}

fn ece(input: &Input, at: usize) -> Ece {
    Ece { vendor_id: input.u32(at), attr_mod: input.u32(at + 4) }
}

/// A time that a program gives. A negative one would be weeks.
fn millis(value: u32) -> Duration {
    Duration::from_millis(value.min(i32::MAX as u32).into())
}

/// The kind of queue pair of a new id.
fn kind_of(port_space: u16, asked: u8) -> Result<u8, Errno> {
    match port_space {
        PS_TCP => Ok(qp_type::RC),
        PS_UDP | PS_IPOIB => Ok(qp_type::UD),
        PS_IB => Ok(asked),
        _ => Err(Errno::EINVAL),
    }
}

impl<D: Door, T: Tokens> World<D, T> {
    pub(crate) fn perform(
        &mut self,
        file: u64,
        input: &Input,
        memory: &dyn Memory,
        file_of: &dyn Fn(i32) -> Option<FileId>,
    ) -> Result<(), Errno> {
        match input.command {
            Command::CreateId => self.create_id(file, input, memory),
            Command::DestroyId => self.destroy_id(file, input, memory),
            Command::BindIp => {
                let address = old(input, 8)?;
                self.bind(file, input.u32(36), address)
            }
            Command::Bind => {
                if input.u16(6) != 0 {
                    return Err(Errno::EINVAL);
                }
                let address = sized(input, 8, input.u16(4))?;
                self.bind(file, input.u32(0), address)
            }
            Command::ResolveIp => {
                let unnamed = input.u16(0) == 0;
                let source = if unnamed { None } else { Some(old(input, 0)?) };
                let patience = Some(millis(input.u32(60)));
                self.resolve_addr(file, input.u32(56), source, old(input, OLD)?, patience)
            }
            Command::ResolveAddr => {
                if input.u32(12) != 0 {
                    return Err(Errno::EINVAL);
                }
                let source = match input.u16(8) {
                    0 => None,
                    size => Some(sized(input, 16, size)?),
                };
                let destination = sized(input, 144, input.u16(10))?;
                self.resolve_addr(file, input.u32(0), source, destination, Some(millis(input.u32(4))))
            }
            Command::ResolveRoute => self.resolve_route(file, input.u32(0)),
            Command::ResolveIbService => self.resolve_ib_service(file, input),
            Command::QueryRoute => self.query_route(file, input, memory),
            Command::Query => self.query(file, input, memory),
            Command::Connect => {
                let param = ConnParam::read(input, 0);
                self.connect(file, input.u32(272), param, ece(input, 280))
            }
            Command::Listen => self.listen(file, input.u32(0), input.u32(4)),
            Command::Accept => {
                let param = ConnParam::read(input, 8);
                self.accept(file, input.u32(280), input.u64(0), param, ece(input, 288))
            }
            Command::Reject => {
                let len = usize::from(input.u8(4));
                self.reject(file, input.u32(0), input.u8(5), input.bytes(8, len))
            }
            Command::Disconnect => self.disconnect(file, input.u32(0)),
            Command::InitQpAttr => {
                input.room(QP_ATTR)?;
                let attr = self.init_qp_attr(file, input.u32(8), input.u32(12))?;
                memory.write(input.u64(0), &attr)
            }
            Command::GetEvent => self.get_event(file, input, memory),
            Command::GetOption => self.get_option(file, input, memory),
            Command::SetOption => self.set_option(file, input, memory),
            Command::Notify => self.notify(file, input.u32(0), input.u32(4)),
            Command::JoinIpMcast => {
                let group = old(input, 16)?;
                self.join(file, input.u32(44), input.u64(8), group, input, memory)
            }
            Command::JoinMcast => {
                // Full member, or one that only sends.
                if input.u16(22) > 1 {
                    return Err(Errno::EINVAL);
                }
                let group = sized(input, 24, input.u16(20))?;
                self.join(file, input.u32(16), input.u64(8), group, input, memory)
            }
            Command::LeaveMcast => self.leave(file, input, memory),
            Command::MigrateId => {
                let from = i32::try_from(input.u32(12)).ok().and_then(file_of).ok_or(Errno::ENOENT)?;
                self.migrate(file, from.0, input, memory)
            }
            Command::WriteCmEvent => self.write_event(file, input),
        }
    }

    fn create_id(&mut self, file: u64, input: &Input, memory: &dyn Memory) -> Result<(), Errno> {
        input.room(4)?;
        let port_space = input.u16(16);
        let qp_type = kind_of(port_space, input.u8(18))?;
        let psn = self.door.random();
        let number = self.add(CmId::new(file, input.u64(0), port_space, qp_type, psn));
        let answered = memory.write(input.u64(8), &number.to_ne_bytes());
        if answered.is_err() {
            self.destroy(number);
        }
        answered
    }

    fn destroy_id(&mut self, file: u64, input: &Input, memory: &dyn Memory) -> Result<(), Errno> {
        input.room(4)?;
        let number = input.u32(8);
        match self.id(file, number) {
            // One whose device has gone can be destroyed all the same.
            Ok(_) | Err(Errno::EIO) => {}
            Err(e) => return Err(e),
        }
        let reported = self.destroy(number);
        memory.write(input.u64(0), &reported.to_ne_bytes())
    }

    /// MIGRATE_ID: `to` takes over an id of the file `from`, with the events that wait.
    fn migrate(&mut self, to: u64, from: u64, input: &Input, memory: &dyn Memory) -> Result<(), Errno> {
        input.room(4)?;
        let number = input.u32(8);
        let id = self.id(from, number)?;
        id.file = to;
        let reported = id.events_reported;
        let moved = self.files.get_mut(&from).map(|queue| queue.take(|e| e.owner == number));
        for event in moved.into_iter().flatten() {
            if let Some(request) = event.request.and_then(|request| self.ids.get_mut(&request)) {
                request.file = to;
            }
            if let Some(queue) = self.files.get_mut(&to) {
                queue.push(event);
            }
        }
        memory.write(input.u64(0), &reported.to_ne_bytes())
    }

    /// WRITE_CM_EVENT: the program's own events.
    fn write_event(&mut self, file: u64, input: &Input) -> Result<(), Errno> {
        let kind = match input.u32(8) {
            n if n == EventKind::User as u32 => EventKind::User,
            n if n == EventKind::Internal as u32 => EventKind::Internal,
            _ => return Err(Errno::EINVAL),
        };
        let number = input.u32(0);
        self.id(file, number)?;
        let event = Event::new(kind, input.u32(12) as i32);
        self.event(number, Event { param: Param::Arg(input.array(16)), ..event });
        Ok(())
    }

    /// QUERY: the newer questions.
    fn query(&mut self, file: u64, input: &Input, memory: &dyn Memory) -> Result<(), Errno> {
        const ADDR: u32 = 0;
        const PATH: u32 = 1;
        const GID: u32 = 2;
        const IB_SERVICE: u32 = 3;
        let id = self.id(file, input.u32(8))?;
        match input.u32(12) {
            ADDR => {
                input.room(crate::query::ADDR_LEAST)?;
                memory.write(input.u64(0), crate::query::addresses(id).up_to(input.out))
            }
            PATH => {
                input.room(8)?;
                memory.write(input.u64(0), &crate::query::paths(id, input.out))
            }
            GID => {
                input.room(crate::query::ADDR_LEAST)?;
                memory.write(input.u64(0), crate::query::gids(id).up_to(input.out))
            }
            // No records: there is no subnet administrator on Ethernet.
            IB_SERVICE => {
                input.room(8)?;
                memory.write(input.u64(0), &[0; 8])
            }
            _ => Err(Errno::ENOSYS),
        }
    }

    /// QUERY_ROUTE: the older question.
    fn query_route(&mut self, file: u64, input: &Input, memory: &dyn Memory) -> Result<(), Errno> {
        input.room(crate::query::ROUTE_LEAST)?;
        let id = self.id(file, input.u32(8))?;
        memory.write(input.u64(0), crate::query::route(id).up_to(input.out))
    }
}

impl<const N: usize> Output<N> {
    /// As much as the program has room for.
    pub fn up_to(&self, room: usize) -> &[u8] {
        &self.0[..N.min(room)]
    }
}
