//! Setting up connections by address and port, as `rdma_cm(7)` does.
//!
//! A connection of two queue pairs needs numbers and addresses of both at both. The connection
//! manager of InfiniBand (IBTA volume 1, chapter 12) tells them: its messages travel between the
//! queue pairs 1 of both machines, so there is no socket beside the device. A [`Listener`] binds a
//! port (of rdma_cm's port space TCP, which is not that of TCP sockets), a [`Connector`] asks for a
//! connection there, and both get a [`Connection`]. Peers may be programs of librdmacm or the Linux
//! kernel, over any RoCEv2 device, as well as programs of this crate.
//!
//! ```text
//!  connect                                   Listener
//!    │  REQ  (queue pair, private data) ───────▶ │  accept: the program looks at it
//!    │                                           │  accept_with: its queue pair → RTS
//!    │ ◀──────── REP (queue pair, private data)  │          (or reject: REJ, reason)
//!    │  queue pair → RTS                         │
//!    │  RTU ───────────────────────────────────▶ │  both return: either side may send
//! ```
//!
//! Each waiting call is there twice: one blocks the thread, its twin is a future for any executor
//! ([`Listener::accept`], [`Listener::incoming`]; [`Connector::connect`],
//! [`Connector::connecting`]; [`Incoming::accept_with`], [`Incoming::accepting`];
//! [`Connection::wait_end`], [`Connection::ended`]). The futures know no clock; with the feature
//! `tokio` those in `adverb::tokio` end with [`Options::timeout`].
//!
//! **Private data** of the program's own travels with each message: 56 bytes with a request, 196
//! with a consent, 148 with a refusal. The message has no length for it: what comes is as long as
//! there is room, zero where the peer put nothing ([`Peer::private_prefix`] takes the first bytes).
//! **Depths** of reads and atomics, the path MTU, first packet numbers and RNR retries are what the
//! connection manager has agreed on.
//!
//! ```
//! use adverb::connect::{Connector, Listener, Options, RejectReason, ConnectError};
//! use adverb::testing::End;
//!
//! # fn main() -> adverb::Result<()> {
//! let listener = Listener::bind("127.0.0.1:0")?;
//! let address = listener.local_addr()?;
//! let server = std::thread::spawn(move || -> adverb::Result<()> {
//!     listener.accept()?.reject(b"first come")?;
//!     let end = End::new(|qp| qp)?;
//!     let connection = listener.accept()?.accept_with(&end.qp, &Options::private(*b"welcome"))?;
//!     // The peer leaves.
//!     assert!(connection.wait_end(adverb::testing::HANG_LIMIT));
//!     Ok(())
//! });
//! let end = End::new(|qp| qp)?;
//! let refused = Connector::new().connect(address, &end.qp).unwrap_err();
//! let adverb::Error::Connect(why) = &refused else { panic!("{refused}") };
//! assert!(matches!(&**why, ConnectError::Rejected { reason: RejectReason::CONSUMER_DEFINED, .. }));
//! let connection = Connector::new().private_data(*b"again").connect(address, &end.qp)?;
//! assert!(connection.peer().private_data.starts_with(b"welcome"));
//! drop(connection);
//! server.join().expect("the server did not panic")
//! # }
//! ```
//!
//! A program with a connection of its own tells [`Qp::info`](crate::Qp::info) and calls
//! [`Qp::connect_to`](crate::Qp::connect_to) itself.
use crate::qp::QpInfo;
use std::time::Duration;

mod connection;
mod connector;
mod error;
mod listener;
mod wait;

pub use adverb_ucma::ids::RejectReason;
pub use connection::Connection;
pub use connector::{Connector, connect, connect_with};
#[cfg(feature = "tokio")]
pub(crate) use connector::{is_nobody, nowhere};
pub use error::ConnectError;
pub use listener::{Incoming, Listener};

/// Bytes of private data that any message carries; a consent carries 196, a refusal 148.
pub const MAX_PRIVATE: usize = adverb_ucma::ids::REQUEST_DATA;

/// How a connection is set up.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long the peer may take to answer (10 s). The connection manager itself gives up after 77
    /// s.
    pub timeout: Duration,
    /// What the peer is told besides (nothing): at most 56 bytes with a request, 196 with a
    /// consent.
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
    /// Its queue pair. The Q_Key is not told and zero.
    pub info: QpInfo,
    /// What it told besides: 56 bytes with a request, 196 with a consent; zero where it put
    /// nothing.
    pub private_data: Vec<u8>,
}

impl Peer {
    /// The first bytes of the private data.
    ///
    /// # Panics
    /// For more bytes than [`MAX_PRIVATE`].
    #[must_use]
    pub fn private_prefix<const N: usize>(&self) -> [u8; N] {
        std::array::from_fn(|i| self.private_data[i])
    }
}
