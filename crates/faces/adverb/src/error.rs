//! Errors: what failed, with the values that explain it.
use crate::connect::ConnectError;
use adverb_device::engine::{Cause, QpState, WcOpcode, WcStatus};
use adverb_device::{Errno, Why};
use std::fmt;
use std::sync::Arc;

const NEEDS_DESTINATION: &str = "a request on a UD queue pair needs a destination: .to(..)";
const TAKES_NO_DESTINATION: &str = "only a request on a UD queue pair takes a destination";

/// The result of this crate's calls.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A call that failed. [`Error::errno`] is the errno of the C ABI; [`Error::cause`] is the device's
/// typed reason, if there is a typed reason.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device refused the call: an errno and a reason.
    #[error("{0}")]
    Device(#[source] adverb_device::Error),
    /// The queue pair's state does not allow the request. Usually the queue pair is not connected
    /// yet (IBTA 10.3.1).
    #[error("{op} needs a connected queue pair, but this queue pair is in state {state:?}")]
    NotConnected {
        /// The operation.
        op: &'static str,
        /// The state of the queue pair.
        state: QpState,
    },
    /// The queue is full. Poll completions and post again (`ENOMEM` in C).
    #[error("{queue} is full ({depth} work requests)")]
    QueueFull {
        /// Which queue.
        queue: &'static str,
        /// How many requests the queue holds.
        depth: u32,
    },
    /// A range leaves the memory that it refers to.
    #[error("bytes {start}..{end} are not inside of {len} bytes")]
    OutOfRange {
        /// The first byte.
        start: u64,
        /// The byte behind the last byte.
        end: u64,
        /// The length of the memory in bytes.
        len: u64,
    },
    /// A one-sided operation is longer than the remote memory that it names.
    #[error("the operation covers {needed} bytes, the remote memory has {len}")]
    RemoteTooShort {
        /// The length of the operation in bytes.
        needed: u64,
        /// The length of the remote memory in bytes.
        len: u64,
    },
    /// An atomic access at an address that is not a multiple of 8.
    #[error("atomic access at offset {offset}: not aligned to 8 bytes")]
    Misaligned {
        /// The offset in bytes.
        offset: u64,
    },
    /// A UD request lacks an address handle, or a request of another transport has one.
    #[error("{}", if *needed { NEEDS_DESTINATION } else { TAKES_NO_DESTINATION })]
    Destination {
        /// Whether this transport needs an address handle.
        needed: bool,
    },
    /// No device has this name.
    #[error("there is no device {name:?}; there are {}", available.join(", "))]
    NoSuchDevice {
        /// The name that the program asked for.
        name: String,
        /// The names of the devices that exist.
        available: Vec<String>,
    },
    /// The device has no address, or none of the wanted family.
    #[error("the device has no such address")]
    NoAddress,
    /// Other handles or objects still use the object. The object ends with the last of them.
    #[error("{what} is still used by {users} other handle(s) or object(s)")]
    Busy {
        /// The object.
        what: &'static str,
        /// How many users are left.
        users: usize,
    },
    /// A work request completed unsuccessfully ([`Completion::ok`](crate::Completion::ok)).
    #[error(transparent)]
    Failed(Box<Failure>),
    /// Completions were lost because the completion queue was full. The queue is in error and takes
    /// no more completions. The completions in it can still be polled.
    #[error("completions were lost: the completion queue of {depth} entries overflowed")]
    CqOverflow {
        /// The capacity of the queue.
        depth: u32,
    },
    /// No event or completion arrived in time.
    #[error("nothing came in time")]
    TimedOut,
    /// No event waits, and the descriptor is non-blocking.
    #[error("no event is waiting")]
    WouldBlock,
    /// A signal interrupted the wait, or the program interrupted the channel.
    #[error("interrupted")]
    Interrupted,
    /// The events of this queue go to its channel. Wait on the channel instead.
    #[error("the events of this completion queue go to its channel")]
    HasChannel,
    /// Setting up a connection failed.
    #[error("connecting: {0}")]
    Connect(#[source] Arc<ConnectError>),
}

/// A work request that failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The id that the program gave the request.
    pub wr_id: u64,
    /// The queue pair number.
    pub qp_number: u32,
    /// The operation. For a failed request verbs leaves this field undefined; this device always
    /// sets it.
    pub opcode: WcOpcode,
    /// The outcome (IBTA 11.6.2).
    pub status: WcStatus,
    /// The reason, if the device has a typed reason.
    pub cause: Option<Arc<Cause>>,
}

impl Error {
    /// The errno that the C ABI reports for this error.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            Error::Device(e) => e.errno(),
            Error::QueueFull { .. } => Errno::ENOMEM as i32,
            Error::NoSuchDevice { .. } => Errno::ENODEV as i32,
            Error::NoAddress => Errno::EADDRNOTAVAIL as i32,
            Error::Busy { .. } => Errno::EBUSY as i32,
            Error::Failed(_) => Errno::EIO as i32,
            Error::CqOverflow { .. } => Errno::EOVERFLOW as i32,
            Error::TimedOut => Errno::ETIMEDOUT as i32,
            Error::WouldBlock => Errno::EAGAIN as i32,
            Error::Interrupted => Errno::EINTR as i32,
            Error::Connect(e) => e.errno(),
            Error::NotConnected { .. }
            | Error::OutOfRange { .. }
            | Error::RemoteTooShort { .. }
            | Error::Misaligned { .. }
            | Error::Destination { .. }
            | Error::HasChannel => Errno::EINVAL as i32,
        }
    }

    /// The device's reason, if there is a typed reason.
    #[must_use]
    pub fn cause(&self) -> Option<&Cause> {
        match self {
            Error::Device(e) => match e.why() {
                Why::Cause(cause) => Some(cause),
                Why::Attr(_) | Why::Text(_) => None,
            },
            Error::Failed(failure) => failure.cause.as_deref(),
            _ => None,
        }
    }

    /// Translates the errno of the device's get-event calls.
    pub(crate) fn from_wait(errno: Errno) -> Self {
        match errno {
            Errno::EAGAIN => Error::WouldBlock,
            Errno::EINTR => Error::Interrupted,
            Errno::ETIMEDOUT => Error::TimedOut,
            other => Error::Device(other.into()),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "queue pair {:#08x}: {:?} completed with {:?} (wr_id {:#x})",
            self.qp_number, self.opcode, self.status, self.wr_id
        )?;
        match &self.cause {
            Some(cause) => write!(f, ": {cause}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Failure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause.as_deref().map(|c| c as _)
    }
}

impl From<adverb_device::Error> for Error {
    fn from(e: adverb_device::Error) -> Self {
        match e.why() {
            Why::Cause(Cause::WrongState { op, state }) => {
                Error::NotConnected { op, state: *state }
            }
            Why::Cause(Cause::QueueFull { queue, depth }) => {
                Error::QueueFull { queue, depth: *depth }
            }
            _ => Error::Device(e),
        }
    }
}

impl From<Cause> for Error {
    fn from(cause: Cause) -> Self {
        match cause {
            Cause::CqOverflow { depth } => Error::CqOverflow { depth },
            other => adverb_device::Error::from(other).into(),
        }
    }
}

impl From<ConnectError> for Error {
    fn from(e: ConnectError) -> Self {
        Error::Connect(Arc::new(e))
    }
}

impl From<Error> for std::io::Error {
    fn from(e: Error) -> Self {
        let kind = std::io::Error::from_raw_os_error(e.errno()).kind();
        std::io::Error::new(kind, e)
    }
}
