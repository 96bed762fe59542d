//! Why commands are refused.
use crate::data::TooLong;
use crate::types::{Id, Listener, Path, State};
use core::fmt;

/// Why a command was not taken. Nothing has changed then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CommandError {
    /// No such id: it never was, or has been released.
    UnknownId(Id),
    /// The state does not allow it.
    WrongState {
        /// What was asked for.
        command: &'static str,
        /// Where the id stands.
        state: State,
    },
    /// More private data or additional information than the message has room for.
    TooLong(TooLong),
    /// As many connections as [`crate::Config::max_connections`] allows.
    TooManyConnections(usize),
    /// Somebody listens on that service id and address already.
    ServiceInUse(u64),
    /// No such listener.
    UnknownListener(Listener),
    /// The addresses of the path are of different families.
    MixedAddresses(Path),
    /// A value does not fit its field.
    OutOfRange {
        /// Which one.
        field: &'static str,
        /// The value.
        value: u64,
        /// The largest that fits.
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
