//! What a connector has of its connection: the handshake, the stream, the queue pair, what is pending.
use super::DisconnectEvent;
use super::endpoint::Endpoint;
use super::handshake::{Actions, Handshake, State};
use super::message::{Message, Offer, ReadLimits};
use super::stream::{Incoming, Stream};
use crate::object::{Completion, Hold};
use crate::qp::{PeerPath, Qp};
use crate::status::NtStatus;
use adverb_device::engine::QpState;
use adverb_device::interfaces::gid_of;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

/// First PSNs have 24 bits.
const PSN_MASK: u32 = 0x00ff_ffff;

/// The state of a connector, behind its lock.
pub(super) struct Link {
    pub(super) handshake: Handshake,
    pub(super) stream: Option<Stream>,
    pub(super) endpoint: Option<Arc<Endpoint>>,
    /// On the shared endpoint it is connecting over.
    pub(super) shared: Option<Hold>,
    pub(super) peer_address: Option<SocketAddr>,
    /// Held while connecting or connected.
    pub(super) qp: Option<(Qp, Hold)>,
    /// First PSN of this end.
    psn: u32,
    /// Private data for the request, while the call is made.
    pub(super) call_data: Vec<u8>,
    /// The request that completes later.
    pub(super) pending: Option<(Hold, Completion<()>)>,
    pub(super) on_disconnect: Option<DisconnectEvent>,
}

impl Link {
    pub(super) fn new(handshake: Handshake) -> Self {
        Link {
            handshake,
            stream: None,
            endpoint: None,
            shared: None,
            peer_address: None,
            qp: None,
            psn: getrandom::u32().unwrap_or_default() & PSN_MASK,
            call_data: Vec::new(),
            pending: None,
            on_disconnect: None,
        }
    }

    pub(super) fn token(&self) -> Option<u64> {
        self.stream.as_ref().map(Stream::token)
    }

    fn qp(&self) -> Option<&Qp> {
        self.qp.as_ref().map(|(qp, _)| qp)
    }

    pub(super) fn send(&mut self, message: &Message) {
        if let Some(stream) = &mut self.stream {
            stream.send(message);
        }
    }

    /// What this end tells the peer of itself.
    fn offer(&self, limits: ReadLimits, private_data: Vec<u8>) -> Option<Offer> {
        let (qp, endpoint) = (self.qp()?, self.endpoint.as_ref()?);
        Some(Offer {
            qpn: qp.device().number(),
            psn: self.psn,
            gid: gid_of(&endpoint.address().ip()),
            mtu: qp.device().context().limits().port_mtu,
            limits,
            private_data,
        })
    }

    /// The way to the peer, whose offer has come.
    fn path(&self, limits: ReadLimits) -> Option<PeerPath> {
        let (qp, endpoint, peer) = (self.qp()?, self.endpoint.as_ref()?, self.handshake.peer()?);
        // The adapter's limits, which cap these, fit a byte (`max_rd_atomic` of IBTA 12.6.5).
        let count = |n: u32| u8::try_from(n).unwrap_or(u8::MAX);
        Some(PeerPath {
            sgid_index: endpoint.gid_index(),
            dgid: peer.gid,
            dest_qpn: peer.qpn,
            rq_psn: peer.psn,
            sq_psn: self.psn,
            mtu: qp.device().context().limits().port_mtu.min(peer.mtu),
            inbound_reads: count(limits.inbound),
            outbound_reads: count(limits.outbound),
        })
    }

    /// Has the queue pair receive and sends the reply: the initiator may send as soon as it has that.
    pub(super) fn answer(
        &mut self,
        limits: ReadLimits,
        private_data: &[u8],
        out: &mut Actions,
    ) -> Result<(), NtStatus> {
        let missing = NtStatus::CONNECTION_INVALID;
        let path = self.path(limits).ok_or(missing)?;
        let reply = self.offer(limits, private_data.to_vec()).ok_or(missing)?;
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
        self.handshake.complete(out)
    }

    /// The initiator receives: the queue pair may send.
    pub(super) fn ready_to_send(&self) -> Result<(), NtStatus> {
        let qp = self.qp_in(QpState::Rtr)?;
        qp.to_rts(&self.path(self.handshake.limits()).ok_or(NtStatus::CONNECTION_INVALID)?)?;
        qp.connected(self.fault_notice())
    }

    /// The queue pair, unless a flush or a failure has ended it.
    fn qp_in(&self, state: QpState) -> Result<&Qp, NtStatus> {
        self.qp().filter(|qp| qp.device().state() == state).ok_or(NtStatus::CONNECTION_INVALID)
    }

    /// What the queue pair calls when it fails: has the thread of the sockets look after the connection.
    fn fault_notice(&self) -> impl FnOnce() + Send + 'static {
        let to = self.stream.as_ref().map(|s| (s.sockets().clone(), s.token()));
        move || {
            if let Some((sockets, token)) = to {
                sockets.poke(token);
            }
        }
    }

    /// Cancels what is outstanding.
    pub(super) fn flush(&self) {
        if let Some(qp) = self.qp() {
            qp.disconnected();
        }
    }

    /// What was deferred is not held back any longer.
    pub(super) fn hand_over(&self) {
        if let Some(qp) = self.qp() {
            qp.device().commit_sends();
        }
    }

    /// Closes the stream.
    pub(super) fn drop_stream(&mut self) {
        if let Some(stream) = self.stream.take() {
            stream.sockets().remove(stream.token());
        }
    }

    /// The socket can be read or written. Answers whether the stream is to be dropped.
    pub(super) fn serve(&mut self, out: &mut Actions) -> bool {
        if self.handshake.state() == State::Dialing && !self.dialed(out) {
            return false;
        }
        let Some(stream) = &mut self.stream else { return false };
        if stream.flush() {
            return true;
        }
        loop {
            match stream.receive() {
                Incoming::Nothing => return false,
                Incoming::Message(message) => match vetted(message, self.peer_address) {
                    Some(message) => self.handshake.message(message, out),
                    None => self.handshake.lost(NtStatus::CONNECTION_REFUSED, out),
                },
                Incoming::Malformed(malformed) => {
                    log::warn!("connection with {:?}: {malformed}", self.peer_address);
                    self.handshake.lost(NtStatus::CONNECTION_REFUSED, out);
                    return true;
                }
                // To somebody who has only asked, this is a refusal.
                Incoming::Closed => {
                    self.handshake.lost(NtStatus::CONNECTION_REFUSED, out);
                    return true;
                }
                Incoming::Failed(status) => {
                    self.handshake.lost(status, out);
                    return true;
                }
            }
            if matches!(self.handshake.state(), State::Ended(_)) {
                return false;
            }
        }
    }

    /// Answers whether the stream stands.
    fn dialed(&mut self, out: &mut Actions) -> bool {
        let Some(stream) = &mut self.stream else { return false };
        match stream.dialed() {
            Ok(false) => false,
            Ok(true) => {
                let data = std::mem::take(&mut self.call_data);
                if let Some(request) = self.offer(self.handshake.limits(), data) {
                    self.handshake.dialed(request, out);
                }
                true
            }
            Err(status) => {
                self.handshake.lost(status, out);
                false
            }
        }
    }
}

/// An offer must be of the host that makes it: packets to a third one would be its harm.
pub(super) fn vetted(message: Message, peer: Option<SocketAddr>) -> Option<Message> {
    if let Message::Request(offer) | Message::Reply(offer) = &message
        && peer.is_none_or(|p| gid_of(&p.ip()) != offer.gid)
    {
        log::warn!("{peer:?} offers a queue pair of another address, {}", offer.gid);
        return None;
    }
    Some(message)
}
