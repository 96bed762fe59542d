//! The state machine of a connection, without ids, queue pairs or clocks. Inputs are calls,
//! messages and the time. Outputs are actions.
//!
//! ```text
//! initiator                                    listener's side
//! Idle --connect--> Dialing --dialed-->             Incoming
//!   Requesting  ----------- REQUEST ---------->     Requested    (connect event)
//!   Replied     <---------- REPLY -------------     Accepted     (accept)
//!   Established ----------- READY ------------>     Established
//!
//! either, Established:
//!   Disconnecting --------- DISCONNECT ------->     PeerLeft     (disconnect event)
//!   Ended       <---------- DISCONNECTED ------        |
//!                                                   Ended        (disconnect of its own)
//! ```
//!
//! After a DISCONNECT of the peer, requests outstanding here are not flushed. The consumer's own
//! disconnect, flush or close flushes them. If the peer is lost, outstanding requests are flushed
//! at once, because the peer's queue pair cannot be expected to answer.
use super::message::{DisconnectReason, Message, Offer, ReadLimits, Reason};
use crate::status::NtStatus;
use std::time::{Duration, Instant};

/// How long an initiator waits for the connection and the peer's answer.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the accepting side waits for READY.
pub(crate) const ACCEPT_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the disconnecting side waits for DISCONNECTED.
pub(crate) const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The requests that complete later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// `NdkConnect`.
    Connect,
    /// `NdkAccept`.
    Accept,
    /// `NdkDisconnect`.
    Disconnect,
}

/// An action for the caller. Actions are performed in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Send the message.
    Send(Message),
    /// A connection is requested: call the listener's consumer.
    ConnectEvent,
    /// The peer receives, so the queue pair may send.
    ReadyToSend,
    /// Complete the pending request.
    Complete(Request, Result<(), NtStatus>),
    /// Tell the consumer that the peer left, with the reason.
    DisconnectEvent(DisconnectReason),
    /// Complete all outstanding requests of the queue pair as flushed.
    Flush,
    /// Release the id.
    Hangup,
}

/// Actions in the order in which they must be performed.
pub(crate) type Actions = Vec<Action>;

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// No request was made yet.
    Idle,
    /// The route to the peer is being resolved.
    Dialing,
    /// REQUEST was sent.
    Requesting,
    /// REPLY has arrived. The consumer must complete the connection.
    Replied,
    /// An id has arrived. Its REQUEST is not processed yet.
    Incoming,
    /// REQUEST has arrived. The consumer must accept or reject.
    Requested,
    /// REPLY was sent.
    Accepted,
    /// Both queue pairs are connected.
    Established,
    /// DISCONNECT was sent.
    Disconnecting,
    /// The peer has left, by DISCONNECT or by a failure of the queue pair. The consumer knows this.
    PeerLeft,
    /// The connection has ended.
    Ended(ConnectionEnd),
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionEnd {
    /// The initiator's attempt failed. The initiator may try again.
    NotMade,
    /// The peer or a timeout ended the connection before it was complete.
    Aborted,
    /// Refused by this side.
    Refused,
    /// Disconnected after the connection was complete.
    Disconnected,
    /// The connector is closed.
    Closed,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Handshake {
    state: State,
    /// The limits of the adapter at first. After the negotiation, the limits of both sides.
    limits: ReadLimits,
    peer: Option<Offer>,
    /// The private data of a refusal.
    refusal: Option<Vec<u8>>,
    deadline: Option<Instant>,
}

/// The negotiated limits. In each direction, the smaller of the number that one side accepts and
/// the number that the other side makes.
pub(crate) fn negotiate(own: ReadLimits, peer: ReadLimits) -> ReadLimits {
    ReadLimits { inbound: own.inbound.min(peer.outbound), outbound: own.outbound.min(peer.inbound) }
}

impl Handshake {
    /// The state machine of a connector. Its adapter allows `limits`.
    pub(crate) fn new(limits: ReadLimits) -> Self {
        Handshake { state: State::Idle, limits, peer: None, refusal: None, deadline: None }
    }

    /// The state machine of an id that a listener accepted.
    pub(crate) fn incoming(limits: ReadLimits) -> Self {
        Handshake { state: State::Incoming, ..Handshake::new(limits) }
    }

    pub(crate) fn state(&self) -> State {
        self.state
    }
    /// The time at which [`Handshake::timeout`] is due.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }
    /// The read limits of this side's queue pair.
    pub(crate) fn limits(&self) -> ReadLimits {
        self.limits
    }

    /// The effective read limits, and the private data of the peer's request, reply or refusal.
    pub(crate) fn connection_data(&self) -> Option<(ReadLimits, &[u8])> {
        match (&self.refusal, &self.peer) {
            (Some(data), _) => Some((ReadLimits::default(), data)),
            (None, Some(offer)) => Some((self.limits, &offer.private_data)),
            (None, None) => None,
        }
    }

    fn enter(&mut self, state: State, deadline: Option<Instant>) {
        self.state = state;
        self.deadline = deadline;
    }

    /// Checks that the connector may connect.
    ///
    /// # Errors
    /// `CONNECTION_ACTIVE` unless the connector is new or its last attempt failed.
    pub(crate) fn check_idle(&self) -> Result<(), NtStatus> {
        match self.state {
            State::Idle | State::Ended(ConnectionEnd::NotMade) => Ok(()),
            State::Ended(ConnectionEnd::Closed) => Err(NtStatus::DELETE_PENDING),
            _ => Err(NtStatus::CONNECTION_ACTIVE),
        }
    }

    /// Begins to connect. The caller has capped the read limits to the adapter's.
    ///
    /// # Errors
    /// As [`Handshake::check_idle`].
    pub(crate) fn connect(&mut self, limits: ReadLimits, now: Instant) -> Result<(), NtStatus> {
        self.check_idle()?;
        *self = Handshake::new(limits);
        self.enter(State::Dialing, Some(now + CONNECT_TIMEOUT));
        Ok(())
    }

    /// The route is resolved: sends the request.
    pub(crate) fn dialed(&mut self, request: Offer, out: &mut Actions) {
        if self.state == State::Dialing {
            self.enter(State::Requesting, self.deadline);
            out.push(Action::Send(Message::Request(request)));
        }
    }

    /// The read limits that result from accepting with `wanted`.
    pub(crate) fn accept_limits(&self, wanted: ReadLimits) -> ReadLimits {
        ReadLimits {
            inbound: wanted.inbound.min(self.limits.inbound),
            outbound: wanted.outbound.min(self.limits.outbound),
        }
    }

    /// Checks that there is a request to answer.
    ///
    /// # Errors
    /// `CONNECTION_ABORTED` if the initiator has given up, `CONNECTION_INVALID` if there is no
    /// request to answer.
    pub(crate) fn check_requested(&self) -> Result<(), NtStatus> {
        match self.state {
            State::Requested => Ok(()),
            State::Ended(ConnectionEnd::Aborted) => Err(NtStatus::CONNECTION_ABORTED),
            _ => Err(NtStatus::CONNECTION_INVALID),
        }
    }

    /// Accepts with a reply. Its limits come from [`Handshake::accept_limits`].
    ///
    /// # Errors
    /// As [`Handshake::check_requested`].
    pub(crate) fn accept(
        &mut self,
        reply: Offer,
        now: Instant,
        out: &mut Actions,
    ) -> Result<(), NtStatus> {
        self.check_requested()?;
        self.limits = reply.limits;
        self.enter(State::Accepted, Some(now + ACCEPT_TIMEOUT));
        out.push(Action::Send(Message::Reply(reply)));
        Ok(())
    }

    /// Refuses a request (on the listener's side) or a reply (on the initiator's side).
    ///
    /// # Errors
    /// `CONNECTION_ABORTED` if the peer has given up, `CONNECTION_INVALID` if there is nothing to
    /// refuse.
    pub(crate) fn reject(
        &mut self,
        reason: Reason,
        data: Vec<u8>,
        out: &mut Actions,
    ) -> Result<(), NtStatus> {
        match self.state {
            State::Incoming | State::Requested | State::Replied => {}
            State::Ended(ConnectionEnd::Aborted) => return Err(NtStatus::CONNECTION_ABORTED),
            _ => return Err(NtStatus::CONNECTION_INVALID),
        }
        out.push(Action::Send(Message::Reject(reason, data)));
        self.end(ConnectionEnd::Refused, out);
        Ok(())
    }

    /// Checks that the initiator may complete the connection.
    ///
    /// # Errors
    /// `CONNECTION_ABORTED` if the accepting side has given up, `CONNECTION_INVALID` if the queue
    /// pair is not connecting.
    pub(crate) fn check_replied(&self) -> Result<(), NtStatus> {
        match self.state {
            State::Replied => Ok(()),
            State::Ended(ConnectionEnd::Aborted) => Err(NtStatus::CONNECTION_ABORTED),
            _ => Err(NtStatus::CONNECTION_INVALID),
        }
    }

    /// Completes the connection. The queue pair is ready to send and to receive.
    ///
    /// # Errors
    /// As [`Handshake::check_replied`].
    pub(crate) fn complete(&mut self, out: &mut Actions) -> Result<(), NtStatus> {
        self.check_replied()?;
        self.enter(State::Established, None);
        out.push(Action::Send(Message::Ready));
        Ok(())
    }

    /// Disconnects. Returns `true` if the disconnect is already complete, because the peer has
    /// left.
    ///
    /// # Errors
    /// `CONNECTION_INVALID` if there is no connection.
    pub(crate) fn disconnect(&mut self, now: Instant, out: &mut Actions) -> Result<bool, NtStatus> {
        match self.state {
            State::Established => {
                self.enter(State::Disconnecting, Some(now + DISCONNECT_TIMEOUT));
                out.push(Action::Send(Message::Disconnect));
                Ok(false)
            }
            State::PeerLeft => {
                out.push(Action::Flush);
                self.end(ConnectionEnd::Disconnected, out);
                Ok(true)
            }
            _ => Err(NtStatus::CONNECTION_INVALID),
        }
    }

    /// The connector is closed: pending requests end, and the peer sees this end as lost.
    pub(crate) fn close(&mut self, out: &mut Actions) {
        let pending = match self.state {
            State::Dialing | State::Requesting => Some(Request::Connect),
            State::Accepted => Some(Request::Accept),
            State::Disconnecting => Some(Request::Disconnect),
            _ => None,
        };
        let connected =
            [State::Accepted, State::Established, State::Disconnecting, State::PeerLeft];
        if connected.contains(&self.state) {
            out.push(Action::Flush);
        }
        self.end(ConnectionEnd::Closed, out);
        if let Some(request) = pending {
            complete(request, Err(NtStatus::CANCELLED), out);
        }
    }

    /// Handles a message of the peer.
    pub(crate) fn message(&mut self, message: Message, out: &mut Actions) {
        match (self.state, message) {
            (State::Incoming, Message::Request(offer)) => {
                self.limits = negotiate(self.limits, offer.limits);
                self.peer = Some(offer);
                self.enter(State::Requested, None);
                out.push(Action::ConnectEvent);
            }
            (State::Requesting, Message::Reply(offer)) => {
                self.limits = negotiate(self.limits, offer.limits);
                self.peer = Some(offer);
                self.enter(State::Replied, None);
                complete(Request::Connect, Ok(()), out);
            }
            (State::Requesting, Message::Reject(reason, data)) => {
                log::debug!("the peer refuses the connection: {reason:?}");
                self.refusal = Some(data);
                self.fail_connect(NtStatus::CONNECTION_REFUSED, out);
            }
            (State::Accepted, Message::Ready) => {
                self.enter(State::Established, None);
                out.push(Action::ReadyToSend);
                complete(Request::Accept, Ok(()), out);
            }
            (State::Accepted, Message::Reject(_, data)) => {
                self.refusal = Some(data);
                self.lost(NtStatus::CONNECTION_ABORTED, out);
            }
            (State::Established, Message::Disconnect) => {
                self.enter(State::PeerLeft, None);
                out.push(Action::Send(Message::Disconnected));
                out.push(Action::DisconnectEvent(DisconnectReason::PeerDisconnected));
            }
            (State::Disconnecting, Message::Disconnected) => self.disconnected(Ok(()), out),
            // Both sides disconnected at the same time.
            (State::Disconnecting, Message::Disconnect) => {
                out.push(Action::Send(Message::Disconnected));
                self.disconnected(Ok(()), out);
            }
            (State::Ended(_), _) => {}
            (state, message) => {
                log::warn!(
                    "a peer sent {message:?} in state {state:?}: the connection is given up"
                );
                self.lost(NtStatus::CONNECTION_ABORTED, out);
            }
        }
    }

    /// The peer is lost, or has given up.
    pub(crate) fn lost(&mut self, status: NtStatus, out: &mut Actions) {
        match self.state {
            State::Dialing | State::Requesting => self.fail_connect(status, out),
            State::Incoming | State::Requested | State::Replied => {
                self.end(ConnectionEnd::Aborted, out)
            }
            State::Accepted => self.fail_accept(NtStatus::CONNECTION_ABORTED, out),
            State::Established => self.broken(DisconnectReason::PeerLost, out),
            State::Disconnecting => self.disconnected(Ok(()), out),
            // The consumer's disconnect is still to come, but the id is no longer needed.
            State::PeerLeft => out.push(Action::Hangup),
            State::Idle | State::Ended(_) => {}
        }
    }

    /// The queue pair failed. The connection is over for both sides.
    pub(crate) fn failed(&mut self, out: &mut Actions) {
        if self.state == State::Established {
            self.broken(DisconnectReason::QpFailed, out);
        }
    }

    /// Ends the connection without a message to the peer.
    fn broken(&mut self, reason: DisconnectReason, out: &mut Actions) {
        self.enter(State::PeerLeft, None);
        out.push(Action::Flush);
        out.push(Action::DisconnectEvent(reason));
        out.push(Action::Hangup);
    }

    /// Ends the connection because this side cannot continue.
    pub(crate) fn abort(&mut self, out: &mut Actions) {
        out.push(Action::Flush);
        self.end(ConnectionEnd::Aborted, out);
    }

    /// Handles the deadline, if it has passed.
    pub(crate) fn timeout(&mut self, now: Instant, out: &mut Actions) {
        if self.deadline.is_none_or(|at| now < at) {
            return;
        }
        self.deadline = None;
        match self.state {
            State::Dialing | State::Requesting => self.fail_connect(NtStatus::IO_TIMEOUT, out),
            State::Accepted => self.fail_accept(NtStatus::IO_TIMEOUT, out),
            State::Disconnecting => self.disconnected(Err(NtStatus::IO_TIMEOUT), out),
            _ => self.end(ConnectionEnd::Aborted, out),
        }
    }

    fn fail_connect(&mut self, status: NtStatus, out: &mut Actions) {
        self.end(ConnectionEnd::NotMade, out);
        complete(Request::Connect, Err(status), out);
    }

    /// Flushes the queue pair. It is already connected to this peer, so it cannot be used for
    /// another connection.
    fn fail_accept(&mut self, status: NtStatus, out: &mut Actions) {
        out.push(Action::Flush);
        self.end(ConnectionEnd::Aborted, out);
        complete(Request::Accept, Err(status), out);
    }

    fn disconnected(&mut self, result: Result<(), NtStatus>, out: &mut Actions) {
        out.push(Action::Flush);
        self.end(ConnectionEnd::Disconnected, out);
        complete(Request::Disconnect, result, out);
    }

    /// Ends the connection and releases the id. Callers complete requests after this, because the
    /// consumer may use the same addresses at once.
    fn end(&mut self, end: ConnectionEnd, out: &mut Actions) {
        self.enter(State::Ended(end), None);
        out.push(Action::Hangup);
    }
}

fn complete(request: Request, result: Result<(), NtStatus>, out: &mut Actions) {
    out.push(Action::Complete(request, result));
}

#[cfg(test)]
mod tests;
