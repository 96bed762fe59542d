//! Connection setup by address and port, as `rdma_cm(7)` does it.
//!
//! To connect two queue pairs, each end needs numbers and addresses of both. The connection manager
//! of InfiniBand (IBTA volume 1, chapter 12) exchanges them. Its messages travel between the queue
//! pairs 1 of both machines, so no other socket is necessary. A [`Listener`] binds a port of
//! rdma_cm's port space TCP, which is not the port space of TCP sockets. A [`Connector`] requests a
//! connection to this port. Both sides get a [`Connection`]. The peer can be a program of this
//! crate, a program of librdmacm or the Linux kernel, over any RoCEv2 device.
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
//! Each waiting call exists twice. One variant blocks the thread, the other is a future for any
//! executor ([`Listener::accept`], [`Listener::incoming`]; [`Connector::connect`],
//! [`Connector::connecting`]; [`Incoming::accept_with`], [`Incoming::accepting`];
//! [`Connection::wait_end`], [`Connection::ended`]). The futures have no timeout. With the feature
//! `tokio`, the futures in `adverb::tokio` end after [`Options::timeout`].
//!
//! **Private data** of the program travels with each message: 56 bytes with a request, 196 with a
//! reply, 148 with a rejection. The message has no length field for private data. So the receiver
//! always gets the full size, with zeros behind the data of the peer. [`Peer::private_prefix`]
//! returns the first bytes. **Depths** of reads and atomics, the path MTU, first PSNs and RNR
//! retries are the values that the connection manager negotiated.
//!
//! ```
//! use adverb::connect::{Connector, Listener, Options, RejectReason, ConnectError};
//! use adverb::testing::Endpoint;
//!
//! # fn main() -> adverb::Result<()> {
//! let listener = Listener::bind("127.0.0.1:0")?;
//! let address = listener.local_addr()?;
//! let server = std::thread::spawn(move || -> adverb::Result<()> {
//!     listener.accept()?.reject(b"first come")?;
//!     let end = Endpoint::new(|qp| qp)?;
//!     let connection = listener.accept()?.accept_with(&end.qp, &Options::private(*b"welcome"))?;
//!     // The peer leaves.
//!     assert!(connection.wait_end(adverb::testing::HANG_LIMIT));
//!     Ok(())
//! });
//! let end = Endpoint::new(|qp| qp)?;
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
//! A program with its own exchange of messages sends [`Qp::info`](crate::Qp::info) and calls
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

/// Bytes of private data that each message can carry. A reply carries up to 196, a rejection 148.
pub const MAX_PRIVATE: usize = adverb_ucma::ids::REQUEST_DATA;

/// The options of a connection setup.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long the peer may take to answer (10 s). The connection manager itself gives up after 77
    /// s.
    pub timeout: Duration,
    /// Private data for the peer (none): at most 56 bytes with a request, 196 with a reply.
    pub private_data: Vec<u8>,
}

impl Default for Options {
    fn default() -> Self {
        Options { timeout: Duration::from_secs(10), private_data: Vec::new() }
    }
}

impl Options {
    /// The default options with private data.
    #[must_use]
    pub fn private(data: impl Into<Vec<u8>>) -> Self {
        Options { private_data: data.into(), ..Options::default() }
    }
}

/// What the other end told this end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The queue pair of the other end. The Q_Key is not transmitted and is zero.
    pub info: QpInfo,
    /// The private data of the other end: 56 bytes with a request, 196 with a reply, zeros behind
    /// the data.
    pub private_data: Vec<u8>,
}

impl Peer {
    /// The first bytes of the private data.
    ///
    /// # Panics
    /// If `N` is greater than [`MAX_PRIVATE`].
    #[must_use]
    pub fn private_prefix<const N: usize>(&self) -> [u8; N] {
        std::array::from_fn(|i| self.private_data[i])
    }
}
