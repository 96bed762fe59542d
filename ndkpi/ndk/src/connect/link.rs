//! The connection of a connector: the handshake, the id, the queue pair, and the pending request.
use super::DisconnectEvent;
use super::conn_id::{ConnId, Incoming, Own};
use super::endpoint::Endpoint;
use super::handshake::{Actions, Handshake, State};
use super::message::{Message, Offer, ReadLimits};
use crate::object::{Completion, Hold};
use crate::qp::{PeerPath, Qp};
use crate::status::NtStatus;
use adverb_device::engine::{PathMtu, QpState};
use adverb_device::interfaces::gid_of;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

/// The state of a connector, protected by the connector's lock.
pub(super) struct Link {
    pub(super) handshake: Handshake,
    pub(super) conn_id: Option<ConnId>,
    pub(super) endpoint: Option<Arc<Endpoint>>,
    /// A hold on the shared endpoint of the connection.
    pub(super) shared: Option<Hold>,
    pub(super) peer_address: Option<SocketAddr>,
    /// Held while connecting or connected.
    pub(super) qp: Option<(Qp, Hold)>,
    /// The pending request, which completes later.
    pub(super) pending: Option<(Hold, Completion<()>)>,
    pub(super) on_disconnect: Option<DisconnectEvent>,
}

impl Link {
    pub(super) fn new(handshake: Handshake) -> Self {
        Link {
            handshake,
            conn_id: None,
            endpoint: None,
            shared: None,
            peer_address: None,
            qp: None,
            pending: None,
            on_disconnect: None,
        }
    }

    pub(super) fn token(&self) -> Option<u64> {
        self.conn_id.as_ref().map(|conn_id| conn_id.token)
    }

    fn qp(&self) -> Option<&Qp> {
        self.qp.as_ref().map(|(qp, _)| qp)
    }

    /// # Errors
    /// As [`ConnId::send`].
    pub(super) fn send(&self, message: &Message) -> Result<(), NtStatus> {
        let own = self.qp().map(|qp| Own { qpn: qp.device().number(), srq: qp.has_srq() });
        self.conn_id.as_ref().map_or(Ok(()), |conn_id| conn_id.send(message, own))
    }

    /// The path to the peer, after its offer has arrived.
    fn path(&self, limits: ReadLimits) -> Option<PeerPath> {
        let (qp, link) = (self.qp()?, self.conn_id.as_ref()?.id.link()?);
        // The adapter's limits cap these values, so they fit a byte (`max_rd_atomic` of IBTA
        // 12.6.5).
        let count = |n: u32| u8::try_from(n).unwrap_or(u8::MAX);
        let mtu = qp.device().context().port_mtu();
        Some(PeerPath {
            sgid_index: link.sgid_index,
            dgid: gid_of(&link.path.remote),
            dest_qpn: link.remote_qpn,
            rq_psn: link.rq_psn,
            sq_psn: link.sq_psn,
            mtu: PathMtu::from_code(link.mtu.into()).map_or(mtu, |agreed| agreed.min(mtu)),
            inbound_reads: count(limits.inbound),
            outbound_reads: count(limits.outbound),
        })
    }

    /// Makes the queue pair ready to receive, then sends the reply. The order matters, because the
    /// initiator may send as soon as it has the reply.
    pub(super) fn answer(
        &mut self,
        limits: ReadLimits,
        private_data: &[u8],
        out: &mut Actions,
    ) -> Result<(), NtStatus> {
        let missing = NtStatus::CONNECTION_INVALID;
        let path = self.path(limits).ok_or(missing)?;
        let reply = Offer { limits, private_data: private_data.to_vec() };
        self.qp().ok_or(missing)?.to_rtr(&path)?;
        self.handshake.accept(reply, Instant::now(), out)
    }

    /// Connects the initiator's queue pair and tells the peer.
    pub(super) fn establish(&mut self, out: &mut Actions) -> Result<(), NtStatus> {
        self.handshake.check_replied()?;
        let qp = self.qp_in(QpState::Init)?;
        let path = self.path(self.handshake.limits()).ok_or(NtStatus::CONNECTION_INVALID)?;
        qp.to_rtr(&path)?;
        qp.to_rts(&path)?;
        qp.connected(self.fault_notice())?;
        if let Some(Err(aborted)) = self.conn_id.as_ref().map(ConnId::establish) {
            self.handshake.abort(out);
            return Err(aborted);
        }
        self.handshake.complete(out)
    }

    /// The initiator receives now, so this queue pair may send.
    pub(super) fn ready_to_send(&self) -> Result<(), NtStatus> {
        let qp = self.qp_in(QpState::Rtr)?;
        qp.to_rts(&self.path(self.handshake.limits()).ok_or(NtStatus::CONNECTION_INVALID)?)?;
        qp.connected(self.fault_notice())
    }

    /// The queue pair, unless a flush or a failure has ended it.
    fn qp_in(&self, state: QpState) -> Result<&Qp, NtStatus> {
        self.qp().filter(|qp| qp.device().state() == state).ok_or(NtStatus::CONNECTION_INVALID)
    }

    /// The callback for a failure of the queue pair. It makes the worker check the connection.
    fn fault_notice(&self) -> impl FnOnce() + Send + 'static {
        let to = self.conn_id.as_ref().map(|conn_id| (conn_id.worker.clone(), conn_id.token));
        move || {
            if let Some((worker, token)) = to {
                worker.poke(token);
            }
        }
    }

    /// Cancels all outstanding requests.
    pub(super) fn flush(&self) {
        if let Some(qp) = self.qp() {
            qp.disconnected();
        }
    }

    /// Commits deferred requests.
    pub(super) fn commit(&self) {
        if let Some(qp) = self.qp() {
            qp.device().commit_sends();
        }
    }

    /// Releases the id.
    pub(super) fn drop_line(&mut self) {
        if let Some(conn_id) = self.conn_id.take() {
            conn_id.worker.remove(conn_id.token);
        }
    }

    /// Handles the next event of the id. Returns `false` if there is none.
    pub(super) fn serve(&mut self, out: &mut Actions) -> bool {
        let state = self.handshake.state();
        let standing = matches!(state, State::Established | State::Disconnecting | State::PeerLeft);
        let Some(conn_id) = &self.conn_id else { return false };
        match conn_id.receive(state == State::Requesting, standing) {
            None => return false,
            Some(Incoming::Message(message)) => self.handshake.message(message, out),
            // When a connection fails, the peer also disconnects. So if the local queue pair is in
            // the error state, report the failure and not the disconnect.
            Some(Incoming::Lost(_))
                if state == State::Established && self.qp_in(QpState::Err).is_ok() =>
            {
                self.handshake.failed(out);
            }
            Some(Incoming::Lost(status)) => self.handshake.lost(status, out),
        }
        true
    }
}
