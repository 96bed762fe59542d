//! SET_OPTION and GET_OPTION.
use crate::event::{Event, EventKind};
use crate::host::{Host, Tokens};
use crate::id::{Route, Standing};
use crate::param::qp_type;
use crate::request::{Caller, OptionName, OptionValue, Reply};
use crate::world::World;
use nix::errno::Errno;

impl<D: Host, T: Tokens> World<D, T> {
    pub(crate) fn set_option(
        &mut self,
        file: u64,
        number: u32,
        caller: &mut dyn Caller,
    ) -> Result<(), Errno> {
        let id = self.id(file, number)?;
        match caller.option()? {
            OptionValue::Tos(tos) => id.tos = tos,
            OptionValue::ReuseAddr(reuse) => {
                if id.standing != Standing::Idle && !(id.reuse && reuse) {
                    return Err(Errno::EINVAL);
                }
                id.reuse = reuse;
            }
            OptionValue::FamilyOnly(only) => {
                if !matches!(id.standing, Standing::Idle | Standing::AddrBound) {
                    return Err(Errno::EINVAL);
                }
                id.family_only = Some(only);
                if let Some((space, port)) = id.held {
                    self.ports.set_family_only(space, port, number, only);
                }
            }
            OptionValue::AckTimeout(timeout) => {
                if !matches!(id.qp_type, qp_type::RC | qp_type::XRC_INI) || timeout > 31 {
                    return Err(Errno::EINVAL);
                }
                id.ack_timeout = Some(timeout);
            }
            OptionValue::Path(route) => return self.set_route(file, number, route),
        }
        Ok(())
    }

    /// Sets a route resolved by the program itself.
    fn set_route(&mut self, file: u64, number: u32, route: Route) -> Result<(), Errno> {
        let id = self.id(file, number)?;
        if id.standing != Standing::AddrResolved {
            return Err(Errno::EINVAL);
        }
        id.route = Some(route);
        id.standing = Standing::RouteResolved;
        self.event(number, Event::new(EventKind::RouteResolved, 0));
        Ok(())
    }

    /// Returns the values as the program set them. Linux reserves this command number and supports
    /// no option.
    pub(crate) fn get_option(
        &mut self,
        file: u64,
        number: u32,
        name: OptionName,
        caller: &mut dyn Caller,
    ) -> Result<(), Errno> {
        let id = self.id(file, number)?;
        caller.reply(&match name {
            OptionName::Tos => Reply::Byte(id.tos),
            OptionName::ReuseAddr => Reply::Flag(id.reuse),
            OptionName::FamilyOnly => Reply::Flag(id.family_only.unwrap_or(false)),
            OptionName::AckTimeout => Reply::Byte(id.ack_timeout.unwrap_or(0)),
            OptionName::Unknown => return Err(Errno::ENOSYS),
        })
    }
}
