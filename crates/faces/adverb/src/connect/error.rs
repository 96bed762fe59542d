//! Why a connection could not be set up.
use super::MAX_PRIVATE;
use adverb_device::Errno;
use adverb_device::engine::QpType;
use adverb_ucma::ids::RejectReason;
use thiserror::Error;

/// Why a connection could not be set up.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// An address, a port or a route is not available, or the machine lacks a resource.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// The peer did not answer in time. The log has more details.
    #[error("the other end did not answer in time")]
    TimedOut,
    /// The peer went away, or the connection ended, before it was established.
    #[error("the other end went away")]
    Closed,
    /// The peer rejects the request.
    #[error("{reason}")]
    Rejected {
        /// The reason. Its `Display` is a sentence.
        reason: RejectReason,
        /// The private data of the peer: 148 bytes, zeros behind the data.
        private_data: Vec<u8>,
    },
    /// Queue pairs of these types do not connect to each other.
    #[error("a queue pair of type {own:?} does not connect to a queue pair of type {peer:?}")]
    Type {
        /// The type of the local queue pair.
        own: QpType,
        /// The type of the peer's queue pair.
        peer: QpType,
    },
    /// The route to the address uses another device than the queue pair.
    #[error(
        "the address is reached through {needed}, but the queue pair is of {own}: make the queue \
         pair on {needed}"
    )]
    Device {
        /// The device of the queue pair.
        own: String,
        /// The device of the route.
        needed: String,
    },
    /// There is more private data than the message can carry.
    #[error("{len} bytes of private data, at most {MAX_PRIVATE} are possible")]
    PrivateTooLong {
        /// The number of bytes that the program gave.
        len: usize,
    },
}

impl ConnectError {
    /// The errno that fits best.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            ConnectError::Io(e) => e.raw_os_error().unwrap_or(Errno::EIO as i32),
            ConnectError::TimedOut => Errno::ETIMEDOUT as i32,
            ConnectError::Closed => Errno::ECONNRESET as i32,
            ConnectError::Rejected { .. } => Errno::ECONNREFUSED as i32,
            ConnectError::Type { .. }
            | ConnectError::Device { .. }
            | ConnectError::PrivateTooLong { .. } => Errno::EINVAL as i32,
        }
    }
}

impl From<Errno> for ConnectError {
    fn from(e: Errno) -> Self {
        ConnectError::Io(e.into())
    }
}
