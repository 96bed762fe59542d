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
    /// An address, port or route cannot be had, or the machine lacks something.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// The peer did not answer in time. What is known about it is in the log.
    #[error("the other end did not answer in time")]
    TimedOut,
    /// The peer went away, or the connection ended, before it stood.
    #[error("the other end went away")]
    Closed,
    /// The peer says no.
    #[error("{reason}")]
    Rejected {
        /// Why; its `Display` is a sentence.
        reason: RejectReason,
        /// What the peer's program says besides: 148 bytes, zero where it put nothing.
        private_data: Vec<u8>,
    },
    /// Queue pairs of these types do not connect to each other.
    #[error("a queue pair of type {own:?} does not connect to one of type {peer:?}")]
    Type {
        /// Ours.
        own: QpType,
        /// The peer's.
        peer: QpType,
    },
    /// The queue pair is of another device than the one that the address is reached through.
    #[error("the address is reached through {needed}, the queue pair is one of {own}: make it there")]
    Device {
        /// The queue pair's.
        own: String,
        /// The one with the address.
        needed: String,
    },
    /// More private data than [`MAX_PRIVATE`].
    #[error("{len} bytes of private data, at most {MAX_PRIVATE} are possible")]
    PrivateTooLong {
        /// Bytes given.
        len: usize,
    },
}

impl ConnectError {
    /// The errno that says it best.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            ConnectError::Io(e) => e.raw_os_error().unwrap_or(Errno::EIO as i32),
            ConnectError::TimedOut => Errno::ETIMEDOUT as i32,
            ConnectError::Closed => Errno::ECONNRESET as i32,
            ConnectError::Rejected { .. } => Errno::ECONNREFUSED as i32,
            ConnectError::Type { .. } | ConnectError::Device { .. } | ConnectError::PrivateTooLong { .. } => {
                Errno::EINVAL as i32
            }
        }
    }
}

impl From<Errno> for ConnectError {
    fn from(e: Errno) -> Self {
        ConnectError::Io(e.into())
    }
}
