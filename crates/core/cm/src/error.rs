//! Errors of commands.
use crate::data::TooLong;
use crate::types::{Id, Listener, Path, State};
use thiserror::Error;

/// Why a command failed. A failed command changes nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum CommandError {
    /// No such id: it never existed, or it has been released.
    #[error("no connection has the id {:#x}", .0.0)]
    UnknownId(Id),
    /// The state of the id does not allow the command.
    #[error("{command} is not possible in the state {state:?}")]
    WrongState {
        /// The command.
        command: &'static str,
        /// The state of the id.
        state: State,
    },
    /// More private data or additional information than the message can hold.
    #[error(transparent)]
    TooLong(#[from] TooLong),
    /// The limit [`crate::Config::max_connections`] is reached.
    #[error("there are {0} connections, as many as are allowed; release some")]
    TooManyConnections(usize),
    /// There is already a listener for the service id and address.
    #[error("service id {0:#x} is listened on already")]
    ServiceInUse(u64),
    /// No such listener.
    #[error("there is no listener {}", .0.0)]
    UnknownListener(Listener),
    /// The addresses of the path are of different families.
    #[error("{} and {} are of different address families", .0.local, .0.remote)]
    MixedAddresses(Path),
    /// A value does not fit in its field.
    #[error("{field} is {value}, at most {max} fits")]
    OutOfRange {
        /// The name of the field.
        field: &'static str,
        /// The value.
        value: u64,
        /// The largest value that fits.
        max: u64,
    },
}
