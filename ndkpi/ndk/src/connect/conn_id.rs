//! The rdma_cm id of a connection. Sends and receives its messages.
use super::endpoint::{Endpoint, remote_failure};
use super::message::{Message, Offer, ReadLimits};
use super::worker::Worker;
use crate::status::NtStatus;
use adverb_device::Errno;
use adverb_ucma::Tokens;
use adverb_ucma::ids::{self, DisconnectReason, Event, Id};
use std::net::SocketAddr;
use std::sync::Arc;

/// First byte of the private data of a DREQ: the connector was closed, or its queue pair failed. A
/// peer that does not know this byte sees an ordinary disconnect.
const GIVEN_UP: u8 = 1;
/// Number of retries that the peer is asked to make, of the transport and after an RNR NAK. 7 after
/// an RNR NAK means unlimited.
const RETRIES: u8 = 7;

/// Makes the worker serve the source with this token when an event comes.
pub(super) struct Waker {
    pub(super) worker: Arc<Worker>,
    pub(super) token: u64,
}

impl Tokens for Waker {
    fn give(&self) {
        self.worker.ring(self.token);
    }
    fn take(&self) {}
}

/// A pair of addresses. Only a single connection can have the pair. Dropping the value frees the
/// pair.
#[derive(Debug)]
pub(super) struct Pair {
    endpoint: Arc<Endpoint>,
    peer: SocketAddr,
}

impl Pair {
    /// # Errors
    /// `ADDRESS_ALREADY_EXISTS`.
    pub(super) fn take(endpoint: &Arc<Endpoint>, peer: SocketAddr) -> Result<Self, NtStatus> {
        if endpoint.peers().lock().insert(peer) {
            Ok(Pair { endpoint: endpoint.clone(), peer })
        } else {
            Err(NtStatus::ADDRESS_ALREADY_EXISTS)
        }
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        self.endpoint.peers().lock().remove(&self.peer);
    }
}

/// The id of a connection. Dropping the id ends an existing connection. The peer then sees this end
/// as lost, unless the connection was ended before.
#[derive(Debug)]
pub(super) struct ConnId {
    pub(super) worker: Arc<Worker>,
    pub(super) token: u64,
    pub(super) id: Id,
    /// Set on the initiator's side only.
    pub(super) _pair: Option<Pair>,
}

/// Properties of this end's queue pair, for a request or a reply.
pub(super) struct Own {
    pub(super) qpn: u32,
    pub(super) srq: bool,
}

/// An input for the handshake.
#[derive(Debug)]
pub(super) enum Incoming {
    Message(Message),
    /// The peer is lost, or has given up.
    Lost(NtStatus),
}

impl ConnId {
    /// Sends a message. Nothing is sent if the connection manager sends the message by itself, or
    /// [`ConnId::establish`] has sent it.
    ///
    /// # Errors
    /// `CONNECTION_ABORTED` if the peer has given up, or a status of [`remote_failure`].
    pub(super) fn send(&self, message: &Message, own: Option<Own>) -> Result<(), NtStatus> {
        let done = match (message, own) {
            (Message::Request(offer), Some(own)) => self.id.connect(&values(offer, &own)),
            (Message::Reply(offer), Some(own)) => self.id.accept(&values(offer, &own)),
            (Message::Reject(reason, data), _) => self.id.reject(*reason, data),
            (Message::Disconnect, _) => self.id.disconnect(&[]),
            // The provider confirms, as a consumer need not disconnect by itself. The peer may have
            // ended the connection meanwhile.
            (Message::Disconnected, _) => self.id.disconnect(&[]).or(Ok(())),
            _ => Ok(()),
        };
        done.map_err(|e| match e {
            Errno::EINVAL => NtStatus::CONNECTION_ABORTED,
            other => remote_failure(other),
        })
    }

    /// Tells the peer that this end receives.
    ///
    /// # Errors
    /// `CONNECTION_ABORTED` if the peer has given up.
    pub(super) fn establish(&self) -> Result<(), NtStatus> {
        self.id.establish().map_err(|_| NtStatus::CONNECTION_ABORTED)
    }

    /// Receives the next input. `asking`: the request is not answered yet. `standing`: the
    /// connection is established.
    pub(super) fn receive(&self, asking: bool, standing: bool) -> Option<Incoming> {
        let lost = || Incoming::Lost(NtStatus::CONNECTION_ABORTED);
        Some(match self.id.next_event()? {
            Event::Reply(offer) => Incoming::Message(Message::Reply(offer_of(offer))),
            Event::Established => Incoming::Message(Message::Ready),
            // On the side that sent the request, the reject is the answer. On the other side, it
            // ends the connection.
            Event::Rejected(reason, data) if asking => {
                Incoming::Message(Message::Reject(reason, data))
            }
            Event::Rejected(reason, data)
                if reason == ids::RejectReason::CONSUMER_DEFINED && !standing =>
            {
                Incoming::Message(Message::Reject(reason, data))
            }
            Event::Unanswered if asking => Incoming::Lost(NtStatus::IO_TIMEOUT),
            Event::NotSent(errno) if asking => Incoming::Lost(remote_failure(errno)),
            Event::Disconnected(DisconnectReason::Peer, data)
                if standing && data.first() != Some(&GIVEN_UP) =>
            {
                Incoming::Message(Message::Disconnect)
            }
            Event::Disconnected(DisconnectReason::Confirmed, _) => {
                Incoming::Message(Message::Disconnected)
            }
            Event::Request(_)
            | Event::Rejected(..)
            | Event::Unanswered
            | Event::NotSent(_)
            | Event::Disconnected(..)
            | Event::DeviceRemoved => lost(),
        })
    }
}

impl Drop for ConnId {
    fn drop(&mut self) {
        // If the connection is still established. After an orderly end, this call does nothing.
        let _ = self.id.disconnect(&[GIVEN_UP]);
    }
}

fn count(n: u32) -> u8 {
    // The adapter's limits cap these values, so they fit a byte (`max_rd_atomic` of IBTA 12.6.5).
    u8::try_from(n).unwrap_or(u8::MAX)
}

fn values(offer: &Offer, own: &Own) -> ids::Offer {
    ids::Offer {
        qpn: own.qpn,
        srq: own.srq,
        responder_resources: count(offer.limits.inbound),
        initiator_depth: count(offer.limits.outbound),
        retry_count: RETRIES,
        rnr_retry_count: RETRIES,
        private_data: offer.private_data.clone(),
    }
}

/// Converts an offer of the peer. The depths in an event are seen from this end: this end answers
/// the reads that the peer sends.
pub(super) fn offer_of(offer: ids::Offer) -> Offer {
    let limits = ReadLimits {
        inbound: offer.initiator_depth.into(),
        outbound: offer.responder_resources.into(),
    };
    Offer { limits, private_data: offer.private_data }
}
