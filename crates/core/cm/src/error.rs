//! Errors of commands.
use crate::data::TooLong;
use crate::types::{Id, Listener, Path, State};
use core::fmt;

/// Why a command failed. A failed command changes nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CommandError {
    /// No such id: it never existed, or it has been released.
    UnknownId(Id),
    /// The state of the id does not allow the command.
    WrongState {
        /// The command.
        command: &'static str,
        /// The state of the id.
        state: State,
    },
    /// More private data or additional information than the message can hold.
    TooLong(TooLong),
    /// The limit [`crate::Config::max_connections`] is reached.
    TooManyConnections(usize),
    /// There is already a listener for the service id and address.
    ServiceInUse(u64),
    /// No such listener.
    UnknownListener(Listener),
    /// The addresses of the path are of different families.
    MixedAddresses(Path),
    /// A value does not fit in its field.
    OutOfRange {
        /// The name of the field.
        field: &'static str,
        /// The value.
        value: u64,
        /// The largest value that fits.
        max: u64,
    },
}

impl From<TooLong> for CommandError {
    fn from(e: TooLong) -> Self {
        CommandError::TooLong(e)
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            CommandError::UnknownId(Id(id)) => write!(f, "no connection has the id {id:#x}"),
            CommandError::WrongState { command, state } => {
                write!(f, "{command} is not possible in the state {state:?}")
            }
            CommandError::TooLong(e) => e.fmt(f),
            CommandError::TooManyConnections(max) => {
                write!(f, "there are {max} connections, as many as are allowed; release some")
            }
            CommandError::ServiceInUse(service) => {
                write!(f, "service id {service:#x} is listened on already")
            }
            CommandError::UnknownListener(Listener(n)) => write!(f, "there is no listener {n}"),
            CommandError::MixedAddresses(Path { local, remote }) => {
                write!(f, "{local} and {remote} are of different address families")
            }
            CommandError::OutOfRange { field, value, max } => {
                write!(f, "{field} is {value}, at most {max} fits")
            }
        }
    }
}

impl core::error::Error for CommandError {}
