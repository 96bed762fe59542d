//! Setting up connections: two ends tell each other what they must know, over TCP.
//!
//! A RoCEv2 connection between two queue pairs needs numbers and addresses of both at both. [`Listener`] and [`connect`] tell
//! them over a TCP connection, which ends once both queue pairs are connected; with the feature `tokio` there are the same
//! two in `adverb::tokio`. Up to [`MAX_PRIVATE`] bytes of the program's own travel along each way: the keys of buffers
//! that the peer is to write, for instance.
//!
//! ```text
//!  connect                                   Listener
//!    │  REQUEST  (QpInfo, private data) ───────▶ │  accept: the program looks at it
//!    │                                           │  accept_with: its queue pair → RTS
//!    │ ◀─────── REPLY (QpInfo, private data)     │          (or reject: REJECT, reason)
//!    │  queue pair → RTS                         │
//!    │  READY ─────────────────────────────────▶ │  both return: either side may send
//! ```
//!
//! A program with a connection of its own tells [`Qp::info`] and calls [`Qp::connect_to`] itself.
use crate::error::{Error, Result};
use crate::qp::{Qp, QpInfo};
use adverb_device::Errno;
use adverb_device::engine::QpType;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

mod blocking;
mod message;

pub use blocking::{Incoming, Listener, connect, connect_with};
pub use message::MAX_PRIVATE;
pub(crate) use message::{HEADER, Header, Message};

/// How a connection is set up.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long the whole exchange may take (10 s).
    pub timeout: Duration,
    /// What the peer is told besides, at most [`MAX_PRIVATE`] bytes (nothing).
    pub private_data: Vec<u8>,
}

impl Default for Options {
    fn default() -> Self {
        Options { timeout: Duration::from_secs(10), private_data: Vec::new() }
    }
}

impl Options {
    /// The defaults with private data.
    #[must_use]
    pub fn private(data: impl Into<Vec<u8>>) -> Self {
        Options { private_data: data.into(), ..Options::default() }
    }
}

/// What the other end told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its queue pair.
    pub info: QpInfo,
    /// What it told besides.
    pub private_data: Vec<u8>,
}

/// Why a connection could not be set up.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConnectError {
    /// TCP failed.
    Io(std::io::Error),
    /// The exchange took longer than it may.
    TimedOut,
    /// The peer closed the connection in the middle of the exchange.
    Closed,
    /// The peer says no, with what it says besides.
    Rejected(Vec<u8>),
    /// What the peer sent is not what this exchange looks like.
    Protocol(ProtocolError),
    /// Queue pairs of these types do not connect to each other.
    Type {
        /// Ours.
        own: QpType,
        /// The peer's.
        peer: QpType,
    },
    /// More private data than [`MAX_PRIVATE`].
    PrivateTooLong {
        /// Bytes given.
        len: usize,
    },
}

/// How a message breaks the form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProtocolError {
    /// It does not begin as ours do: something else speaks at that port.
    Magic,
    /// It is of another version.
    Version(u8),
    /// No message has this code.
    Kind(u8),
    /// A message of this kind does not come here.
    Unexpected(u8),
    /// A length that its kind cannot have.
    Length(usize),
    /// Its queue pair data are wrong.
    Info(crate::qp::InfoError),
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProtocolError::Magic => write!(f, "the other end does not speak Adverb's connection protocol"),
            ProtocolError::Version(v) => {
                write!(f, "the other end speaks version {v} of the connection protocol")
            }
            ProtocolError::Kind(kind) => write!(f, "message of unknown kind {kind}"),
            ProtocolError::Unexpected(kind) => write!(f, "message of kind {kind} at the wrong time"),
            ProtocolError::Length(len) => write!(f, "message with a body of {len} bytes"),
            ProtocolError::Info(e) => write!(f, "{e}"),
        }
    }
}

impl ConnectError {
    /// The errno that says it best.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            ConnectError::Io(e) => e.raw_os_error().unwrap_or(Errno::EIO as i32),
            ConnectError::TimedOut => Errno::ETIMEDOUT as i32,
            ConnectError::Closed => Errno::ECONNRESET as i32,
            ConnectError::Rejected(_) => Errno::ECONNREFUSED as i32,
            ConnectError::Protocol(_) => Errno::EPROTO as i32,
            ConnectError::Type { .. } | ConnectError::PrivateTooLong { .. } => Errno::EINVAL as i32,
        }
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectError::Io(e) => write!(f, "{e}"),
            ConnectError::TimedOut => write!(f, "the other end did not answer in time"),
            ConnectError::Closed => write!(f, "the other end closed the connection"),
            ConnectError::Rejected(_) => write!(f, "the other end rejects it"),
            ConnectError::Protocol(e) => write!(f, "{e}"),
            ConnectError::Type { own, peer } => {
                write!(f, "a queue pair of type {own:?} does not connect to one of type {peer:?}")
            }
            ConnectError::PrivateTooLong { len } => {
                write!(f, "{len} bytes of private data, at most {MAX_PRIVATE} are possible")
            }
        }
    }
}

impl std::error::Error for ConnectError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ConnectError::Io(e) => Some(e),
            _ => None,
        }
    }
}

impl From<std::io::Error> for ConnectError {
    fn from(e: std::io::Error) -> Self {
        use std::io::ErrorKind::{TimedOut, UnexpectedEof, WouldBlock};
        match e.kind() {
            // What a socket answers whose time is up.
            WouldBlock | TimedOut => ConnectError::TimedOut,
            UnexpectedEof => ConnectError::Closed,
            _ => ConnectError::Io(e),
        }
    }
}

/// What a socket's call gave. (No `From` for [`Error`]: a program's own I/O errors are none of connecting.)
pub(crate) fn io<T>(result: std::io::Result<T>) -> Result<T> {
    Ok(result.map_err(ConnectError::from)?)
}

impl From<ProtocolError> for Error {
    fn from(e: ProtocolError) -> Self {
        ConnectError::Protocol(e).into()
    }
}

/// The queue pair speaks from the address that TCP uses, if the device has it.
pub(crate) fn take_address(qp: &Qp, local: IpAddr) -> Result<()> {
    let local = local.to_canonical();
    qp.context().gid_index_of(local).map_or(Ok(()), |index| qp.set_gid_index(index))
}

/// The first message.
pub(crate) fn request(qp: &Qp, options: &Options) -> Result<Vec<u8>> {
    Ok(Message::Request(own(qp, &options.private_data)?).encode()?)
}

/// The answer that says yes.
pub(crate) fn reply(qp: &Qp, options: &Options) -> Result<Vec<u8>> {
    Ok(Message::Reply(own(qp, &options.private_data)?).encode()?)
}

fn own(qp: &Qp, private_data: &[u8]) -> Result<Peer> {
    Ok(Peer { info: qp.info()?, private_data: private_data.to_vec() })
}

/// What a listener makes of the first message.
pub(crate) fn requested(message: Message) -> Result<Peer> {
    match message {
        Message::Request(peer) => Ok(peer),
        other => Err(ProtocolError::Unexpected(other.kind()).into()),
    }
}

/// What the asking end makes of the answer: its queue pair is connected.
pub(crate) fn replied(qp: &Qp, message: Message) -> Result<Peer> {
    match message {
        Message::Reply(peer) => qp.connect_to(&peer.info).map(|()| peer),
        Message::Reject(private_data) => Err(ConnectError::Rejected(private_data).into()),
        other => Err(ProtocolError::Unexpected(other.kind()).into()),
    }
}

/// What a listener makes of the last message.
pub(crate) fn ready(message: Message) -> Result<()> {
    match message {
        Message::Ready => Ok(()),
        Message::Reject(private_data) => Err(ConnectError::Rejected(private_data).into()),
        other => Err(ProtocolError::Unexpected(other.kind()).into()),
    }
}
