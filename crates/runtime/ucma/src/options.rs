//! SET_OPTION and GET_OPTION.
use crate::host::{Host, Tokens};
use crate::id::Standing;
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
                if let Some((space, port)) = id.held
                    && let Some(holder) = self.ports.holder_mut(space, port, number)
                {
                    holder.family_only = only;
                }
            }
            OptionValue::AckTimeout(timeout) => {
                if !matches!(id.qp_type, qp_type::RC | qp_type::XRC_INI) || timeout > 31 {
                    return Err(Errno::EINVAL);
                }
                id.ack_timeout = Some(timeout);
            }
            OptionValue::Path(route) => return self.resolve_route(file, number, Some(route)),
        }
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
