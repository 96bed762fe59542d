//! The active side.
use super::connection::{
    Connection, deadline, failure, kind_of, line, link_of, offer, peer_of, take_place,
};
use super::wait::Line;
use super::{ConnectError, MAX_PRIVATE, Options, RejectReason};
use crate::error::{Error, Result};
use crate::qp::Qp;
use adverb_device::engine::QpType;
use adverb_ucma::ids::Event;
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

/// Connects `qp` to the queue pair with which a [`Listener`](super::Listener) at `addr` accepts.
///
/// # Errors
/// As [`Connector::connect`].
pub fn connect(addr: impl ToSocketAddrs, qp: &Qp) -> Result<Connection> {
    Connector::new().connect(addr, qp)
}

/// As [`connect`], with options.
///
/// # Errors
/// As [`Connector::connect`].
pub fn connect_with(addr: impl ToSocketAddrs, qp: &Qp, options: &Options) -> Result<Connection> {
    Connector::with(options.clone()).connect(addr, qp)
}

/// Requests connections.
#[derive(Clone, Debug, Default)]
pub struct Connector {
    source: Option<SocketAddr>,
    options: Options,
}

impl Connector {
    /// A connector with the default options.
    #[must_use]
    pub fn new() -> Self {
        Connector::default()
    }

    /// A connector with these options.
    #[must_use]
    pub fn with(options: Options) -> Self {
        Connector { source: None, options }
    }

    /// Sets the local address (by default the address that the route prefers) and port (0: any free
    /// port).
    #[must_use]
    pub fn source(mut self, source: SocketAddr) -> Self {
        self.source = Some(source);
        self
    }

    /// Sets how long the peer may take to answer (10 s).
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.options.timeout = timeout;
        self
    }

    /// Sets the private data for the peer, at most [`MAX_PRIVATE`] bytes (none).
    #[must_use]
    pub fn private_data(mut self, data: impl Into<Vec<u8>>) -> Self {
        self.options.private_data = data.into();
        self
    }

    /// Connects `qp` to the queue pair with which a listener at `addr` accepts, and returns when
    /// `qp` is connected. If `addr` resolves to several addresses, the call tries one after the
    /// other. It goes on to the next address if a request cannot be sent, or if no listener has the
    /// port.
    ///
    /// # Errors
    /// [`Error::Connect`] if the setup fails. [`ConnectError::Device`] if the route to `addr` uses
    /// another device than the queue pair. The errors of [`Qp::connect_to`].
    pub fn connect(&self, addr: impl ToSocketAddrs, qp: &Qp) -> Result<Connection> {
        let mut last = nowhere();
        for addr in addr.to_socket_addrs().map_err(ConnectError::from)? {
            let asked = match self.ask(addr, qp) {
                Ok(asked) => asked,
                Err(e) => {
                    last = e;
                    continue;
                }
            };
            let event =
                asked.next_by(deadline(self.options.timeout)).ok_or(ConnectError::TimedOut)?;
            match answered(asked, qp, event) {
                Err(e) if is_nobody(&e) => last = e,
                other => return other,
            }
        }
        Err(last)
    }

    /// As [`Connector::connect`], without blocking and without a timeout.
    ///
    /// # Errors
    /// As [`Connector::connect`].
    pub async fn connecting(&self, addr: SocketAddr, qp: &Qp) -> Result<Connection> {
        let asked = self.ask(addr, qp)?;
        let event = asked.next().await;
        answered(asked, qp, event)
    }

    /// How long the peer may take to answer.
    #[cfg(feature = "tokio")]
    pub(crate) fn patience(&self) -> Duration {
        self.options.timeout
    }

    /// Sends the request.
    fn ask(&self, addr: SocketAddr, qp: &Qp) -> Result<Line> {
        let private = &self.options.private_data;
        if private.len() > MAX_PRIVATE {
            return Err(ConnectError::PrivateTooLong { len: private.len() }.into());
        }
        let line = line(kind_of(qp)?)?;
        line.id.resolve(self.source, addr).map_err(ConnectError::from)?;
        take_place(qp, &line.id)?;
        line.id.connect(&offer(qp, private)?).map_err(ConnectError::from)?;
        Ok(line)
    }
}

/// The error for an empty list of addresses.
pub(crate) fn nowhere() -> Error {
    ConnectError::Io(std::io::ErrorKind::AddrNotAvailable.into()).into()
}

/// Whether no listener has the port at the address.
pub(crate) fn is_nobody(e: &Error) -> bool {
    let Error::Connect(why) = e else { return false };
    matches!(&**why, ConnectError::Rejected { reason: RejectReason::INVALID_SERVICE_ID, .. })
}

/// Completes the setup after the peer's answer. After an error the id is dropped, and the peer gets
/// a rejection.
fn answered(line: Line, qp: &Qp, event: Event) -> Result<Connection> {
    let Event::Reply(reply) = event else { return Err(failure(event)) };
    let link = link_of(&line.id)?;
    let qp_type = match qp.qp_type() {
        QpType::XrcSend => QpType::XrcRecv,
        QpType::XrcRecv => QpType::XrcSend,
        other => other,
    };
    let peer = peer_of(&link, qp_type, reply.private_data);
    qp.connect_as(link.sq_psn, &peer.info, link.retry_count, link.rnr_retry_count)?;
    line.id.establish().map_err(|_| ConnectError::Closed)?;
    Ok(Connection::new(line, qp.clone(), peer))
}
