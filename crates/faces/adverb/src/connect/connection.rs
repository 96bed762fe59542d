//! Connections, and the setup steps that both sides share.
use super::wait::{Alarm, Line};
use super::{ConnectError, Peer};
use crate::error::{Error, Result};
use crate::qp::{Qp, QpInfo};
use adverb_device::engine::{PathMtu, QpType};
use adverb_device::interfaces::gid_of;
use adverb_ucma::ids::{Event, Id, Link, Offer, QpKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// An established connection of a queue pair: the `rdma_cm_id` of this end. Dropping the connection
/// disconnects.
///
/// When the peer leaves, the queue pair stays connected, as with rdma_cm.
/// [`Connection::disconnect`] completes outstanding requests with `WrFlushErr`. If a process dies,
/// a peer on the same host learns of the end at once. A peer on another host is told by the process
/// that `adverb run` leaves behind; without `adverb run` nothing tells that peer.
#[derive(Debug)]
#[must_use = "dropped, it disconnects"]
pub struct Connection {
    line: Line,
    qp: Qp,
    peer: Peer,
    over: AtomicBool,
}

impl Connection {
    pub(super) fn new(line: Line, qp: Qp, peer: Peer) -> Connection {
        Connection { line, qp, peer, over: AtomicBool::new(false) }
    }

    /// What the other end told this end.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// The queue pair of this end.
    #[must_use]
    pub fn qp(&self) -> &Qp {
        &self.qp
    }

    /// The address and port of this end.
    ///
    /// # Errors
    /// ENOTCONN if the device was removed.
    pub fn local_addr(&self) -> Result<SocketAddr> {
        address(self.line.id.local_addr())
    }

    /// The address and port of the other end.
    ///
    /// # Errors
    /// ENOTCONN if the device was removed.
    pub fn peer_addr(&self) -> Result<SocketAddr> {
        address(self.line.id.peer_addr())
    }

    /// Ends the connection. The queue pair moves to the error state, so outstanding requests are
    /// flushed, and the peer is told. After the peer's end this call is the answer, for which the
    /// peer waits in [`Connection::wait_end`]. Dropping the connection is an answer, too. A second
    /// call only flushes.
    ///
    /// # Errors
    /// EIO in a child of `fork`.
    pub fn disconnect(&self) -> Result<()> {
        self.qp.disconnect()?;
        match self.line.id.disconnect(&[]) {
            // The connection has ended already.
            Ok(()) | Err(adverb_device::Errno::EINVAL) => Ok(()),
            Err(e) => Err(ConnectError::from(e).into()),
        }
    }

    /// Waits until the connection has ended, for at most `timeout`. Either side may end it, or the
    /// peer has ended. If this side has disconnected, the connection ends with the peer's answer.
    /// Returns whether the connection has ended.
    #[must_use]
    pub fn wait_end(&self, timeout: Duration) -> bool {
        let until = Instant::now().checked_add(timeout);
        while !self.has_ended() {
            match self.line.next_by(until) {
                Some(event) => self.note(&event),
                None => return self.has_ended(),
            }
        }
        true
    }

    /// Whether the connection has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        while let Some(event) = self.line.id.next_event() {
            self.note(&event);
        }
        self.over.load(Ordering::SeqCst)
    }

    /// Waits until the connection has ended. Either side may end it, or the peer has ended.
    pub async fn ended(&self) {
        while !self.has_ended() {
            let event = self.line.next().await;
            self.note(&event);
        }
    }

    fn note(&self, event: &Event) {
        if matches!(
            event,
            Event::Disconnected(..)
                | Event::Rejected(..)
                | Event::Unanswered
                | Event::NotSent(_)
                | Event::DeviceRemoved
        ) {
            self.over.store(true, Ordering::SeqCst);
            // Other threads and tasks that wait for the end must look again.
            self.line.stir();
        }
    }
}

pub(super) fn address(found: Option<SocketAddr>) -> Result<SocketAddr> {
    Ok(found.ok_or(ConnectError::from(adverb_device::Errno::ENOTCONN))?)
}

/// A new id with its own alarm.
pub(super) fn line(kind: QpKind) -> Result<Line> {
    let alarm = Arc::new(Alarm::default());
    Ok(Line::new(Id::new(kind, alarm.clone())?, alarm))
}

/// The transport of a queue pair, as connection requests name it.
pub(super) fn kind_of(qp: &Qp) -> Result<QpKind, ConnectError> {
    match qp.qp_type() {
        QpType::Rc => Ok(QpKind::Rc),
        QpType::Uc => Ok(QpKind::Uc),
        QpType::XrcSend | QpType::XrcRecv => Ok(QpKind::Xrc),
        own @ (QpType::Ud | QpType::RawPacket) => Err(ConnectError::Type { own, peer: own }),
    }
}

/// The type of queue pair that a request needs.
pub(super) fn asked_for(kind: Option<QpKind>) -> QpType {
    match kind {
        Some(QpKind::Uc) => QpType::Uc,
        Some(QpKind::Xrc) => QpType::XrcRecv,
        _ => QpType::Rc,
    }
}

/// Makes the queue pair send from the address of the id. The queue pair's device must have this
/// address.
pub(super) fn take_place(qp: &Qp, id: &Id) -> Result<()> {
    let Some((address, _)) = id.binding() else { return Ok(()) };
    match qp.context().gid_index_of(address) {
        Some(index) => qp.set_gid_index(index),
        None => {
            let own = qp.context().device().name().to_owned();
            let needed = id.device().unwrap_or_default();
            Err(ConnectError::Device { own, needed }.into())
        }
    }
}

/// The parameters of this end's queue pair that the peer is told.
pub(super) fn offer(qp: &Qp, private_data: &[u8]) -> Result<Offer> {
    let info = qp.info()?;
    let (retry_count, rnr_retry_count) = qp.retries();
    Ok(Offer {
        qpn: info.number,
        srq: qp.srq().is_some(),
        responder_resources: info.reads_in,
        initiator_depth: info.reads_out,
        retry_count,
        rnr_retry_count,
        private_data: private_data.to_vec(),
    })
}

/// The other end, from the values of the connection manager.
pub(super) fn peer_of(link: &Link, qp_type: QpType, private_data: Vec<u8>) -> Peer {
    let info = QpInfo {
        qp_type,
        number: link.remote_qpn,
        first_psn: link.rq_psn,
        gid: gid_of(&link.path.remote),
        path_mtu: PathMtu::from_code(link.mtu.into()).unwrap_or(PathMtu::Mtu1024),
        reads_out: link.responder_resources,
        reads_in: link.initiator_depth,
        qkey: 0,
    };
    Peer { info, private_data }
}

/// The link of an id. An id has a link after the first message of the peer.
pub(super) fn link_of(id: &Id) -> Result<Link> {
    Ok(id.link().ok_or(ConnectError::Closed)?)
}

/// The error of an attempt that failed.
pub(super) fn failure(event: Event) -> Error {
    match event {
        Event::Rejected(reason, private_data) => ConnectError::Rejected { reason, private_data },
        Event::Unanswered => ConnectError::TimedOut,
        Event::NotSent(errno) => ConnectError::from(errno),
        _ => ConnectError::Closed,
    }
    .into()
}

/// The deadline after `timeout`. A deadline beyond the range of the clock means no deadline.
pub(super) fn deadline(timeout: Duration) -> Option<Instant> {
    Instant::now().checked_add(timeout)
}
