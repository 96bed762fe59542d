//! The passive side.
use super::connection::{
    Connection, address, asked_for, deadline, failure, line, link_of, offer, peer_of, take_place,
};
use super::connector::nowhere;
use super::wait::{Alarm, Line};
use super::{ConnectError, Options, Peer, RejectReason};
use crate::error::{Error, Result};
use crate::qp::Qp;
use adverb_device::engine::QpType;
use adverb_ucma::ids::{Event, QpKind, REPLY_DATA, Request};
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The most requests that wait to be accepted. Further peers repeat their requests.
const BACKLOG: u32 = 1024;

/// Waits for connection requests.
#[derive(Debug)]
pub struct Listener {
    line: Line,
}

impl Listener {
    /// Listens at an address of this machine, or at all addresses (`0.0.0.0`, `::`). Port 0 means
    /// any free port. Ports belong to rdma_cm's port space TCP. Each port has one listener among
    /// all programs of the user.
    ///
    /// # Errors
    /// [`Error::Connect`] if the address or the port is not available.
    pub fn bind(addr: impl ToSocketAddrs) -> Result<Self> {
        let mut last = nowhere();
        for addr in addr.to_socket_addrs().map_err(ConnectError::from)? {
            let line = line(QpKind::Rc)?;
            match line.id.bind(addr).and_then(|()| line.id.listen(BACKLOG)) {
                Ok(()) => return Ok(Listener { line }),
                Err(e) => last = ConnectError::from(e).into(),
            }
        }
        Err(last)
    }

    /// The address and port of the listener.
    ///
    /// # Errors
    /// ENOTCONN if the device was removed.
    pub fn local_addr(&self) -> Result<SocketAddr> {
        address(self.line.id.local_addr())
    }

    /// Waits for a connection request.
    ///
    /// # Errors
    /// [`Error::Connect`] if the device with the listener's address was removed.
    pub fn accept(&self) -> Result<Incoming> {
        Ok(self.accept_by(None)?.ok_or(ConnectError::Closed)?)
    }

    /// Waits for a connection request, for at most `timeout`; `None` if no request arrived.
    ///
    /// # Errors
    /// As [`Listener::accept`].
    pub fn accept_timeout(&self, timeout: Duration) -> Result<Option<Incoming>> {
        self.accept_by(deadline(timeout))
    }

    fn accept_by(&self, until: Option<Instant>) -> Result<Option<Incoming>> {
        while let Some(event) = self.line.next_by(until) {
            if let Some(incoming) = self.incoming_of(event)? {
                return Ok(Some(incoming));
            }
        }
        Ok(None)
    }

    /// The next connection request, as a future for any executor. If the future is dropped before
    /// it is ready, it has taken no request.
    ///
    /// # Errors
    /// As [`Listener::accept`].
    pub async fn incoming(&self) -> Result<Incoming> {
        loop {
            let event = self.line.next().await;
            if let Some(incoming) = self.incoming_of(event)? {
                return Ok(incoming);
            }
        }
    }

    /// Accepts one connection with an existing queue pair: [`Listener::accept`] and
    /// [`Incoming::accept_with`] in one call.
    ///
    /// # Errors
    /// As [`Listener::accept`] and [`Incoming::accept_with`].
    pub fn accept_with(&self, qp: &Qp, options: &Options) -> Result<Connection> {
        self.accept()?.accept_with(qp, options)
    }

    fn incoming_of(&self, event: Event) -> Result<Option<Incoming>> {
        match event {
            Event::Request(request) => Ok(self.take(request)),
            Event::DeviceRemoved => Err(ConnectError::Closed.into()),
            _ => Ok(None),
        }
    }

    /// Moves the request to its own id; `None` if the peer has given up.
    fn take(&self, request: Request) -> Option<Incoming> {
        let alarm = Arc::new(Alarm::default());
        let id = self.line.id.take(&request, alarm.clone()).ok()?;
        let link = id.link()?;
        let from = id.peer_addr()?;
        let qp_type = match asked_for(id.kind()) {
            QpType::XrcRecv => QpType::XrcSend,
            other => other,
        };
        let peer = peer_of(&link, qp_type, request.offer.private_data);
        Some(Incoming { line: Line::new(id, alarm), peer, from })
    }
}

/// A connection request. Dropping it rejects the request.
#[derive(Debug)]
#[must_use = "it waits for accept_with() or reject()"]
pub struct Incoming {
    line: Line,
    peer: Peer,
    from: SocketAddr,
}

impl Incoming {
    /// What the other end told this end.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// The address and port of the other end.
    #[must_use]
    pub fn from(&self) -> SocketAddr {
        self.from
    }

    /// The name of the device that the connection uses. The queue pair must belong to this device.
    #[must_use]
    pub fn device(&self) -> String {
        self.line.id.device().unwrap_or_default()
    }

    /// Accepts the request with `qp`, and returns when both ends are connected.
    ///
    /// # Errors
    /// [`ConnectError::Type`], [`ConnectError::Device`], and the errors of [`Qp::connect_to`]; in
    /// these cases the request is rejected. [`Error::Connect`] if the peer goes away or does not
    /// confirm in time.
    pub fn accept_with(self, qp: &Qp, options: &Options) -> Result<Connection> {
        self.agree(qp, options)?;
        let event = self.line.next_by(deadline(options.timeout)).ok_or(ConnectError::TimedOut)?;
        self.confirmed(qp, event)
    }

    /// As [`Incoming::accept_with`], without blocking and without a timeout.
    ///
    /// # Errors
    /// As [`Incoming::accept_with`].
    pub async fn accepting(self, qp: &Qp, options: &Options) -> Result<Connection> {
        self.agree(qp, options)?;
        let event = self.line.next().await;
        self.confirmed(qp, event)
    }

    /// Rejects the request. The private data of at most 148 bytes is up to the program.
    ///
    /// # Errors
    /// [`Error::Connect`] if the peer has given up, or if there are too many bytes.
    pub fn reject(self, private_data: &[u8]) -> Result<()> {
        self.reject_with(RejectReason::CONSUMER_DEFINED, private_data)
    }

    /// Rejects the request with a reason of the specification.
    ///
    /// # Errors
    /// As [`Incoming::reject`].
    pub fn reject_with(self, reason: RejectReason, private_data: &[u8]) -> Result<()> {
        Ok(self.line.id.reject(reason, private_data).map_err(ConnectError::from)?)
    }

    /// Brings the queue pair to RTS and sends the reply.
    fn agree(&self, qp: &Qp, options: &Options) -> Result<()> {
        let prepared = self.prepare(qp, options);
        if let Err(e) = &prepared {
            let reason = match e {
                Error::Connect(why) if matches!(**why, ConnectError::Type { .. }) => {
                    RejectReason::INVALID_TRANSPORT
                }
                _ => RejectReason::NO_QP,
            };
            // The caller gets the first error; whether the rejection reaches the peer matters less.
            let _ = self.line.id.reject(reason, &[]);
        }
        prepared
    }

    fn prepare(&self, qp: &Qp, options: &Options) -> Result<()> {
        let len = options.private_data.len();
        if len > REPLY_DATA {
            return Err(ConnectError::PrivateTooLong { len }.into());
        }
        if qp.qp_type() != asked_for(self.line.id.kind()) {
            return Err(
                ConnectError::Type { own: qp.qp_type(), peer: self.peer.info.qp_type }.into()
            );
        }
        take_place(qp, &self.line.id)?;
        let link = link_of(&self.line.id)?;
        let mut offer = offer(qp, &options.private_data)?;
        offer.responder_resources = offer.responder_resources.min(link.responder_resources);
        offer.initiator_depth = offer.initiator_depth.min(link.initiator_depth);
        qp.connect_as(link.sq_psn, &self.peer.info, link.retry_count, link.rnr_retry_count)?;
        Ok(self.line.id.accept(&offer).map_err(|_| ConnectError::Closed)?)
    }

    fn confirmed(self, qp: &Qp, event: Event) -> Result<Connection> {
        match event {
            Event::Established => Ok(Connection::new(self.line, qp.clone(), self.peer)),
            other => Err(failure(other)),
        }
    }
}
