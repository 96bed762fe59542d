//! Connections, and the steps to one that both sides share.
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

/// A connection of a queue pair that stands: the `rdma_cm_id` of this end. Dropped, it disconnects.
///
/// The queue pair stays connected when the peer leaves, as rdma_cm has it;
/// [`Connection::disconnect`] has what is outstanding completed with `WrFlushErr`. The peer of a
/// process that dies hears of it: at once on the same machine, and over the network if somebody of
/// the same user survives there.
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

    /// What the other end told.
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
    /// ENOTCONN if its device is gone.
    pub fn local_addr(&self) -> Result<SocketAddr> {
        address(self.line.id.local_addr())
    }

    /// The address and port of the other end.
    ///
    /// # Errors
    /// ENOTCONN if the device is gone.
    pub fn peer_addr(&self) -> Result<SocketAddr> {
        address(self.line.id.peer_addr())
    }

    /// Ends it: the queue pair moves to the error state, so that what is outstanding is flushed,
    /// and the peer is told. Done again, or after the peer has left, it only flushes.
    ///
    /// # Errors
    /// EIO in a child of `fork`.
    pub fn disconnect(&self) -> Result<()> {
        self.qp.disconnect()?;
        match self.line.id.disconnect(&[]) {
            // It has ended already.
            Ok(()) | Err(adverb_device::Errno::EINVAL) => Ok(()),
            Err(e) => Err(ConnectError::from(e).into()),
        }
    }

    /// Waits until it has ended, by either side or because the peer is gone, at most so long.
    /// Answers whether it has.
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

    /// Has it ended?
    #[must_use]
    pub fn has_ended(&self) -> bool {
        while let Some(event) = self.line.id.next_event() {
            self.note(&event);
        }
        self.over.load(Ordering::SeqCst)
    }

    /// Is ready when it has ended, by either side or because the peer is gone.
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
                | Event::Gone
        ) {
            self.over.store(true, Ordering::SeqCst);
            // Others that wait for the same look again.
            self.line.stir();
        }
    }
}

pub(super) fn address(found: Option<SocketAddr>) -> Result<SocketAddr> {
    Ok(found.ok_or(ConnectError::from(adverb_device::Errno::ENOTCONN))?)
}

/// An id that tells an alarm of its own.
pub(super) fn line(kind: QpKind) -> Result<Line> {
    let alarm = Arc::new(Alarm::default());
    Ok(Line::new(Id::new(kind, alarm.clone())?, alarm))
}

/// The transport of a queue pair as requests say it.
pub(super) fn kind_of(qp: &Qp) -> Result<QpKind, ConnectError> {
    match qp.qp_type() {
        QpType::Rc => Ok(QpKind::Rc),
        QpType::Uc => Ok(QpKind::Uc),
        QpType::XrcSend | QpType::XrcRecv => Ok(QpKind::Xrc),
        own @ (QpType::Ud | QpType::RawPacket) => Err(ConnectError::Type { own, peer: own }),
    }
}

/// The type of the queue pair that a request is for.
pub(super) fn asked_for(kind: Option<QpKind>) -> QpType {
    match kind {
        Some(QpKind::Uc) => QpType::Uc,
        Some(QpKind::Xrc) => QpType::XrcRecv,
        _ => QpType::Rc,
    }
}

/// The queue pair speaks from the address of the id, which its device must have.
pub(super) fn take_place(qp: &Qp, id: &Id) -> Result<()> {
    let needed = id.device().unwrap_or_default();
    let own = qp.context().device();
    if own.name() != needed {
        return Err(ConnectError::Device { own: own.name().to_owned(), needed }.into());
    }
    match id.place() {
        Some((_, index)) => qp.set_gid_index(index),
        None => Ok(()),
    }
}

/// What this end says of its queue pair.
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

/// The other end, as the connection manager tells of it.
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

/// The link of an id, which it has once the peer has spoken.
pub(super) fn link_of(id: &Id) -> Result<Link> {
    Ok(id.link().ok_or(ConnectError::Closed)?)
}

/// What became of an attempt that did not succeed.
pub(super) fn failure(event: Event) -> Error {
    match event {
        Event::Rejected(reason, private_data) => ConnectError::Rejected { reason, private_data },
        Event::Unanswered => ConnectError::TimedOut,
        Event::NotSent(errno) => ConnectError::from(errno),
        _ => ConnectError::Closed,
    }
    .into()
}

/// The time that is so far away; a time too long to add is for ever.
pub(super) fn deadline(timeout: Duration) -> Option<Instant> {
    Instant::now().checked_add(timeout)
}
