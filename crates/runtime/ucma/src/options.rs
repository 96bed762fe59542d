//! SET_OPTION and GET_OPTION.
use crate::abi::{Input, qp_type};
use crate::door::{Door, Memory, Tokens};
use crate::event::{Event, EventKind};
use crate::id::Standing;
use crate::query::{PATH_DATA, PATH_FLAGS, read_record};
use crate::world::World;
use nix::errno::Errno;

/// Levels.
const ID: u32 = 0;
const IB: u32 = 1;
/// Options of an id.
const TOS: u32 = 0;
const REUSEADDR: u32 = 1;
const AFONLY: u32 = 2;
const ACK_TIMEOUT: u32 = 3;
/// Option of the InfiniBand level.
const IB_PATH: u32 = 1;
/// Paths that a program may give at most, more than any resolver has.
const MAX_PATHS: usize = 64;

/// The value of an option that is one byte.
fn byte(value: &[u8]) -> Result<u8, Errno> {
    <[u8; 1]>::try_from(value).map(|[byte]| byte).map_err(|_| Errno::EINVAL)
}

/// The value of an option that is an `int`.
fn flag(value: &[u8]) -> Result<bool, Errno> {
    <[u8; 4]>::try_from(value).map(|bytes| i32::from_ne_bytes(bytes) != 0).map_err(|_| Errno::EINVAL)
}

impl<D: Door, T: Tokens> World<D, T> {
    pub(crate) fn set_option(&mut self, file: u64, input: &Input, memory: &dyn Memory) -> Result<(), Errno> {
        let (number, level, name) = (input.u32(8), input.u32(12), input.u32(16));
        let len = input.u32(20) as usize;
        self.id(file, number)?;
        if len > MAX_PATHS * PATH_DATA {
            return Err(Errno::EINVAL);
        }
        let mut value = vec![0; len];
        memory.read(input.u64(0), &mut value)?;
        match (level, name) {
            (ID, TOS) => self.id(file, number)?.tos = byte(&value)?,
            (ID, REUSEADDR) => {
                let reuse = flag(&value)?;
                let id = self.id(file, number)?;
                if id.standing != Standing::Idle && !(id.reuse && reuse) {
                    return Err(Errno::EINVAL);
                }
                id.reuse = reuse;
            }
            (ID, AFONLY) => {
                let only = flag(&value)?;
                let id = self.id(file, number)?;
                if !matches!(id.standing, Standing::Idle | Standing::AddrBound) {
                    return Err(Errno::EINVAL);
                }
                id.family_only = Some(only);
                if let Some((space, port)) = id.held {
                    self.ports.set_family_only(space, port, number, only);
                }
            }
            (ID, ACK_TIMEOUT) => {
                let timeout = byte(&value)?;
                let id = self.id(file, number)?;
                if !matches!(id.qp_type, qp_type::RC | qp_type::XRC_INI) || timeout > 31 {
                    return Err(Errno::EINVAL);
                }
                id.ack_timeout = Some(timeout);
            }
            (IB, IB_PATH) => return self.set_path(file, number, &value),
            _ => return Err(Errno::ENOSYS),
        }
        Ok(())
    }

    /// The program has resolved the route itself.
    fn set_path(&mut self, file: u64, number: u32, value: &[u8]) -> Result<(), Errno> {
        let (records, rest) = value.as_chunks::<PATH_DATA>();
        if !rest.is_empty() {
            return Err(Errno::EINVAL);
        }
        let usable = |r: &&[u8; PATH_DATA]| u32::from_ne_bytes([r[0], r[1], r[2], r[3]]) == PATH_FLAGS;
        let record = records.iter().find(usable).ok_or(Errno::EINVAL)?;
        let route = read_record(&record[8..]).ok_or(Errno::EINVAL)?;
        let id = self.id(file, number)?;
        if id.standing != Standing::AddrResolved {
            return Err(Errno::EINVAL);
        }
        id.route = Some(route);
        id.standing = Standing::RouteResolved;
        self.event(number, Event::new(EventKind::RouteResolved, 0));
        Ok(())
    }

    /// The values come back as they were set. Linux reserves the number and knows no option to get.
    pub(crate) fn get_option(&mut self, file: u64, input: &Input, memory: &dyn Memory) -> Result<(), Errno> {
        let (number, level, name) = (input.u32(8), input.u32(12), input.u32(16));
        let id = self.id(file, number)?;
        let int = |value: bool| i32::from(value).to_ne_bytes().to_vec();
        let value = match (level, name) {
            (ID, TOS) => vec![id.tos],
            (ID, REUSEADDR) => int(id.reuse),
            (ID, AFONLY) => int(id.family_only.unwrap_or(false)),
            (ID, ACK_TIMEOUT) => vec![id.ack_timeout.unwrap_or(0)],
            _ => return Err(Errno::ENOSYS),
        };
        if input.u32(20) as usize != value.len() {
            return Err(Errno::EINVAL);
        }
        memory.write(input.u64(0), &value)
    }
}
