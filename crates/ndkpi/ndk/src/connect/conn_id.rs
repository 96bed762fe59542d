//! The rdma_cm id of a connection, and what it says and hears.
use super::endpoint::{Endpoint, remote_failure};
use super::message::{Message, Offer, ReadLimits};
use super::worker::Worker;
use crate::status::NtStatus;
use adverb_device::Errno;
use adverb_ucma::Tokens;
use adverb_ucma::ids::{self, End, Event, Id};
use std::net::SocketAddr;
use std::sync::Arc;

/// First byte of the private data of a DREQ: the connector was closed, or its queue pair failed.
/// Whoever does not know it sees a disconnect.
const GIVEN_UP: u8 = 1;
/// Retries of the transport and after RNR that the peer is asked for; 7 is for ever.
const RETRIES: u8 = 7;

/// Has the worker look after the source with a token when an event comes.
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

/// No two connections join the same two addresses; dropped, another may.
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

/// The id of a connection. Dropped, it ends what stands: the peer finds this end lost unless it was
/// told otherwise.
#[derive(Debug)]
pub(super) struct ConnId {
    pub(super) worker: Arc<Worker>,
    pub(super) token: u64,
    pub(super) id: Id,
    /// Of calls only.
    pub(super) _pair: Option<Pair>,
}

/// What the queue pair of this end is, for a request or a reply.
pub(super) struct Own {
    pub(super) qpn: u32,
    pub(super) srq: bool,
}

/// What came.
#[derive(Debug)]
pub(super) enum Incoming {
    Message(Message),
    /// The peer is lost, or has given up.
    Lost(NtStatus),
}

impl ConnId {
    /// Says it. What the connection manager answers by itself, or what [`ConnId::establish`] has
    /// said, is said already.
    ///
    /// # Errors
    /// `CONNECTION_ABORTED` if the peer has given up; what [`remote_failure`] names.
    pub(super) fn send(&self, message: &Message, own: Option<Own>) -> Result<(), NtStatus> {
        let done = match (message, own) {
            (Message::Request(offer), Some(own)) => self.id.connect(&values(offer, &own)),
            (Message::Reply(offer), Some(own)) => self.id.accept(&values(offer, &own)),
            (Message::Reject(reason, data), _) => self.id.reject(*reason, data),
            (Message::Disconnect, _) => self.id.disconnect(&[]),
            _ => Ok(()),
        };
        done.map_err(|e| match e {
            Errno::EINVAL => NtStatus::CONNECTION_ABORTED,
            other => remote_failure(other),
        })
    }

    /// Says that this end receives.
    ///
    /// # Errors
    /// `CONNECTION_ABORTED` if the peer has given up.
    pub(super) fn establish(&self) -> Result<(), NtStatus> {
        self.id.establish().map_err(|_| NtStatus::CONNECTION_ABORTED)
    }

    /// What came next. `asking`: nothing came yet; `standing`: the connection stood.
    pub(super) fn receive(&self, asking: bool, standing: bool) -> Option<Incoming> {
        let lost = || Incoming::Lost(NtStatus::CONNECTION_ABORTED);
        Some(match self.id.next_event()? {
            Event::Reply(offer) => Incoming::Message(Message::Reply(offer_of(offer))),
            Event::Established => Incoming::Message(Message::Ready),
            // To somebody who has asked it is the answer, to somebody else the end.
            Event::Rejected(reason, data) if asking => Incoming::Message(Message::Reject(reason, data)),
            Event::Rejected(reason, data) if reason == ids::RejectReason::CONSUMER_DEFINED && !standing => {
                Incoming::Message(Message::Reject(reason, data))
            }
            Event::Unanswered if asking => Incoming::Lost(NtStatus::IO_TIMEOUT),
            Event::NotSent(errno) if asking => Incoming::Lost(remote_failure(errno)),
            Event::Disconnected(End::Peer, data) if standing && data.first() != Some(&GIVEN_UP) => {
                Incoming::Message(Message::Disconnect)
            }
            Event::Disconnected(End::Confirmed, _) => Incoming::Message(Message::Disconnected),
            Event::Request(_)
            | Event::Rejected(..)
            | Event::Unanswered
            | Event::NotSent(_)
            | Event::Disconnected(..)
            | Event::Gone => lost(),
        })
    }
}

impl Drop for ConnId {
    fn drop(&mut self) {
        // If it stands: one that was ended in order knows so already.
        let _ = self.id.disconnect(&[GIVEN_UP]);
    }
}

fn count(n: u32) -> u8 {
    // The adapter's limits, which cap these, fit a byte (`max_rd_atomic` of IBTA 12.6.5).
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

/// An offer of the peer. (Depths of an event are those of this end: what the peer sends, this end
/// answers.)
pub(super) fn offer_of(offer: ids::Offer) -> Offer {
    let limits =
        ReadLimits { inbound: offer.initiator_depth.into(), outbound: offer.responder_resources.into() };
    Offer { limits, private_data: offer.private_data }
}
