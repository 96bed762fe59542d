//! Completion channels and connection setup on tokio. Feature `tokio`.
//!
//! Futures and streams of the rest of the crate ([`CompChannel::event`],
//! [`Cq::completions`](crate::Cq::completions)) need no feature. They run on tokio as on any
//! executor, and the device's own thread wakes them. For a [`Channel`], tokio's reactor watches the
//! channel's descriptor. The connection setup here differs from the futures of [`mod@connect`] in
//! two points: it resolves names, and it uses tokio's clock for timeouts.
use crate::connect::{self, ConnectError, Connection, Options, Peer, RejectReason};
use crate::cq::{CompChannel, CqEvent};
use crate::error::{Error, Result};
use crate::qp::Qp;
use ::tokio::io::Interest;
use ::tokio::io::unix::AsyncFd;
use ::tokio::net::{ToSocketAddrs, lookup_host};
use std::net::SocketAddr;
use std::time::Duration;

/// A completion channel with its descriptor in tokio's reactor.
#[derive(Debug)]
pub struct Channel(AsyncFd<CompChannel>);

impl Channel {
    /// Registers the channel's descriptor with the reactor of the current runtime, and makes the
    /// descriptor non-blocking.
    ///
    /// # Errors
    /// The errno of `fcntl` or of the registration.
    ///
    /// # Panics
    /// Outside a runtime with I/O enabled, as `AsyncFd` does.
    #[allow(
        deprecated,
        reason = "its successor is unsafe; a channel keeps one open descriptor for its lifetime"
    )]
    pub fn new(channel: CompChannel) -> Result<Self> {
        channel.set_nonblocking(true)?;
        let registered = AsyncFd::with_interest(channel, Interest::READABLE);
        Ok(Channel(registered.map_err(|e| Error::from_wait(errno_of(&e)))?))
    }

    /// The channel.
    #[must_use]
    pub fn channel(&self) -> &CompChannel {
        self.0.get_ref()
    }

    /// Waits for an event. If the future is dropped before it is ready, it has taken no event.
    ///
    /// # Errors
    /// EIO in a child of `fork`.
    pub async fn event(&self) -> Result<CqEvent> {
        loop {
            let mut ready = self.0.readable().await.map_err(|e| Error::from_wait(errno_of(&e)))?;
            match self.channel().next_event() {
                Err(Error::WouldBlock) => ready.clear_ready(),
                other => return other,
            }
        }
    }
}

fn errno_of(e: &std::io::Error) -> adverb_device::Errno {
    e.raw_os_error().map_or(adverb_device::Errno::EIO, adverb_device::Errno::from_raw)
}

async fn within<T>(timeout: Duration, exchange: impl Future<Output = Result<T>>) -> Result<T> {
    match ::tokio::time::timeout(timeout, exchange).await {
        Ok(result) => result,
        Err(_) => Err(ConnectError::TimedOut.into()),
    }
}

/// Connects `qp` to the queue pair with which a listener at `addr` accepts. This is
/// [`connect`](crate::connect::connect()) without blocking.
///
/// # Errors
/// As [`connect::Connector::connect`].
pub async fn connect(addr: impl ToSocketAddrs, qp: &Qp) -> Result<Connection> {
    Connector::new().connect(addr, qp).await
}

/// As [`connect()`], with options.
///
/// # Errors
/// As [`connect::Connector::connect`].
pub async fn connect_with(
    addr: impl ToSocketAddrs,
    qp: &Qp,
    options: &Options,
) -> Result<Connection> {
    Connector::with(options.clone()).connect(addr, qp).await
}

/// [`connect::Connector`] on tokio.
#[derive(Clone, Debug, Default)]
pub struct Connector(connect::Connector);

impl Connector {
    /// A connector with the default options.
    #[must_use]
    pub fn new() -> Self {
        Connector::default()
    }

    /// A connector with these options.
    #[must_use]
    pub fn with(options: Options) -> Self {
        Connector(connect::Connector::with(options))
    }

    /// Sets the local address (by default the address that the route prefers) and port (0: any free
    /// port).
    #[must_use]
    pub fn source(self, source: SocketAddr) -> Self {
        Connector(self.0.source(source))
    }

    /// Sets how long the peer may take to answer (10 s).
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Connector(self.0.timeout(timeout))
    }

    /// Sets the private data for the peer, at most [`MAX_PRIVATE`](crate::connect::MAX_PRIVATE)
    /// bytes (none).
    #[must_use]
    pub fn private_data(self, data: impl Into<Vec<u8>>) -> Self {
        Connector(self.0.private_data(data))
    }

    /// Connects `qp` to the queue pair with which a listener at `addr` accepts.
    ///
    /// # Errors
    /// As [`connect::Connector::connect`].
    pub async fn connect(&self, addr: impl ToSocketAddrs, qp: &Qp) -> Result<Connection> {
        within(self.0.patience(), async {
            let mut last = connect::nowhere();
            for addr in lookup_host(addr).await.map_err(ConnectError::from)? {
                match self.0.connecting(addr, qp).await {
                    Err(e) if connect::is_nobody(&e) => last = e,
                    other => return other,
                }
            }
            Err(last)
        })
        .await
    }
}

/// [`connect::Listener`] on tokio.
#[derive(Debug)]
pub struct Listener(connect::Listener);

impl Listener {
    /// As [`connect::Listener::bind`](crate::connect::Listener::bind).
    ///
    /// # Errors
    /// [`Error::Connect`] if the address or the port is not available.
    pub async fn bind(addr: impl ToSocketAddrs) -> Result<Self> {
        let all: Vec<SocketAddr> = lookup_host(addr).await.map_err(ConnectError::from)?.collect();
        Ok(Listener(connect::Listener::bind(&all[..])?))
    }

    /// The address and port of the listener.
    ///
    /// # Errors
    /// ENOTCONN if the device was removed.
    pub fn local_addr(&self) -> Result<SocketAddr> {
        self.0.local_addr()
    }

    /// Waits for a connection request.
    ///
    /// # Errors
    /// [`Error::Connect`] if the device with the listener's address was removed.
    pub async fn accept(&self) -> Result<Incoming> {
        Ok(Incoming(self.0.incoming().await?))
    }

    /// Waits for a connection request, for at most `timeout`; `None` if no request arrived.
    ///
    /// # Errors
    /// As [`Listener::accept`].
    pub async fn accept_timeout(&self, timeout: Duration) -> Result<Option<Incoming>> {
        match ::tokio::time::timeout(timeout, self.accept()).await {
            Ok(accepted) => accepted.map(Some),
            Err(_) => Ok(None),
        }
    }

    /// Accepts one connection with an existing queue pair: [`Listener::accept`] and
    /// [`Incoming::accept_with`] in one call.
    ///
    /// # Errors
    /// As [`Listener::accept`] and [`Incoming::accept_with`].
    pub async fn accept_with(&self, qp: &Qp, options: &Options) -> Result<Connection> {
        self.accept().await?.accept_with(qp, options).await
    }
}

/// A connection request. Dropping it rejects the request.
#[derive(Debug)]
#[must_use = "it waits for accept_with() or reject()"]
pub struct Incoming(connect::Incoming);

impl Incoming {
    /// What the other end told this end.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        self.0.peer()
    }

    /// The address and port of the other end.
    #[must_use]
    pub fn from(&self) -> SocketAddr {
        self.0.from()
    }

    /// The name of the device that the connection uses. The queue pair must belong to this device.
    #[must_use]
    pub fn device(&self) -> String {
        self.0.device()
    }

    /// Accepts the request with `qp`. The future is ready when both ends are connected.
    ///
    /// # Errors
    /// As [`connect::Incoming::accept_with`](crate::connect::Incoming::accept_with).
    pub async fn accept_with(self, qp: &Qp, options: &Options) -> Result<Connection> {
        within(options.timeout, self.0.accepting(qp, options)).await
    }

    /// Rejects the request. The private data of at most 148 bytes is up to the program.
    ///
    /// # Errors
    /// [`Error::Connect`] if the peer has given up, or if there are too many bytes.
    pub fn reject(self, private_data: &[u8]) -> Result<()> {
        self.0.reject(private_data)
    }

    /// Rejects the request with a reason of the specification.
    ///
    /// # Errors
    /// As [`Incoming::reject`].
    pub fn reject_with(self, reason: RejectReason, private_data: &[u8]) -> Result<()> {
        self.0.reject_with(reason, private_data)
    }
}
