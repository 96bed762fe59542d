//! The states of one connection, without ids, queue pairs or clocks: calls, messages and the time
//! go in, actions come out.
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
//! A peer that leaves with DISCONNECT does not flush what is outstanding here; the consumer's own
//! disconnect, flush or close does. A peer that is lost flushes at once: its queue pair cannot be
//! expected to answer.
use super::message::{DisconnectReason, Message, Offer, ReadLimits, Reason};
use crate::status::NtStatus;
use std::time::{Duration, Instant};

/// How long an initiator waits for the connection and the peer's answer.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// How long an accepting side waits for READY.
pub(crate) const ACCEPT_TIMEOUT: Duration = Duration::from_secs(30);
/// How long DISCONNECTED is waited for.
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

/// What is to be done, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Send it.
    Send(Message),
    /// A connection is asked for: the listener's consumer is to be called.
    ConnectEvent,
    /// The peer receives: the queue pair may send.
    ReadyToSend,
    /// Complete the pending request.
    Complete(Request, Result<(), NtStatus>),
    /// Tell the consumer that the peer left, and why.
    DisconnectEvent(DisconnectReason),
    /// Complete what is outstanding on the queue pair as flushed.
    Flush,
    /// Let the id go.
    Hangup,
}

/// Actions in the order they were found.
pub(crate) type Actions = Vec<Action>;

/// Where a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Nothing was asked for yet.
    Idle,
    /// The way to the peer is found.
    Dialing,
    /// REQUEST was sent.
    Requesting,
    /// REPLY came; the consumer is to complete the connection.
    Replied,
    /// An id came; its REQUEST has not been looked at.
    Incoming,
    /// REQUEST came; the consumer is to accept or reject.
    Requested,
    /// REPLY was sent.
    Accepted,
    /// Both queue pairs are connected.
    Established,
    /// DISCONNECT was sent.
    Disconnecting,
    /// The peer has left, by DISCONNECT or by a failure of the queue pair; the consumer knows.
    PeerLeft,
    /// Over.
    Ended(End),
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It was not made, by the initiator's view. It may try again.
    NotMade,
    /// The peer, or the time, ended it before it was complete.
    Aborted,
    /// Refused by this side.
    Refused,
    /// After it was complete.
    Disconnected,
    /// Its object is closed.
    Closed,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Handshake {
    state: State,
    /// What the adapter allows, and later what both sides do.
    limits: ReadLimits,
    peer: Option<Offer>,
    /// What came with a refusal.
    refusal: Option<Vec<u8>>,
    deadline: Option<Instant>,
}

/// The smaller of what one side takes and the other makes, in both directions.
pub(crate) fn negotiate(own: ReadLimits, peer: ReadLimits) -> ReadLimits {
    ReadLimits { inbound: own.inbound.min(peer.outbound), outbound: own.outbound.min(peer.inbound) }
}

impl Handshake {
    /// A connector's, whose adapter allows `limits`.
    pub(crate) fn new(limits: ReadLimits) -> Self {
        Handshake { state: State::Idle, limits, peer: None, refusal: None, deadline: None }
    }

    /// That of an id a listener took.
    pub(crate) fn incoming(limits: ReadLimits) -> Self {
        Handshake { state: State::Incoming, ..Handshake::new(limits) }
    }

    pub(crate) fn state(&self) -> State {
        self.state
    }
    /// When [`Handshake::timeout`] is due.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }
    /// The read limits of this side's queue pair.
    pub(crate) fn limits(&self) -> ReadLimits {
        self.limits
    }

    /// The effective read limits and the peer's private data, of its request, its reply or its
    /// refusal.
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

    /// May it connect?
    ///
    /// # Errors
    /// `CONNECTION_ACTIVE` unless the connector is new or its last attempt failed.
    pub(crate) fn check_idle(&self) -> Result<(), NtStatus> {
        match self.state {
            State::Idle | State::Ended(End::NotMade) => Ok(()),
            State::Ended(End::Closed) => Err(NtStatus::DELETE_PENDING),
            _ => Err(NtStatus::CONNECTION_ACTIVE),
        }
    }

    /// Begins to connect, with read limits that the caller has capped to the adapter's.
    ///
    /// # Errors
    /// As [`Handshake::check_idle`].
    pub(crate) fn connect(&mut self, limits: ReadLimits, now: Instant) -> Result<(), NtStatus> {
        self.check_idle()?;
        *self = Handshake::new(limits);
        self.enter(State::Dialing, Some(now + CONNECT_TIMEOUT));
        Ok(())
    }

    /// The request can leave.
    pub(crate) fn dialed(&mut self, request: Offer, out: &mut Actions) {
        if self.state == State::Dialing {
            self.enter(State::Requesting, self.deadline);
            out.push(Action::Send(Message::Request(request)));
        }
    }

    /// The read limits that accepting with these would give.
    pub(crate) fn accept_limits(&self, wanted: ReadLimits) -> ReadLimits {
        ReadLimits {
            inbound: wanted.inbound.min(self.limits.inbound),
            outbound: wanted.outbound.min(self.limits.outbound),
        }
    }

    /// May the request be answered?
    ///
    /// # Errors
    /// `CONNECTION_ABORTED` if the initiator has given up, `CONNECTION_INVALID` if there is no
    /// request to answer.
    pub(crate) fn check_requested(&self) -> Result<(), NtStatus> {
        match self.state {
            State::Requested => Ok(()),
            State::Ended(End::Aborted) => Err(NtStatus::CONNECTION_ABORTED),
            _ => Err(NtStatus::CONNECTION_INVALID),
        }
    }

    /// Accepts with a reply whose limits are of [`Handshake::accept_limits`].
    ///
    /// # Errors
    /// As [`Handshake::check_requested`].
    pub(crate) fn accept(&mut self, reply: Offer, now: Instant, out: &mut Actions) -> Result<(), NtStatus> {
        self.check_requested()?;
        self.limits = reply.limits;
        self.enter(State::Accepted, Some(now + ACCEPT_TIMEOUT));
        out.push(Action::Send(Message::Reply(reply)));
        Ok(())
    }

    /// Refuses: the listener's side a request, the initiator a reply.
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
            State::Ended(End::Aborted) => return Err(NtStatus::CONNECTION_ABORTED),
            _ => return Err(NtStatus::CONNECTION_INVALID),
        }
        out.push(Action::Send(Message::Reject(reason, data)));
        self.end(End::Refused, out);
        Ok(())
    }

    /// May the initiator complete the connection?
    ///
    /// # Errors
    /// `CONNECTION_ABORTED` if the accepting side has given up, `CONNECTION_INVALID` if the queue
    /// pair is not connecting.
    pub(crate) fn check_replied(&self) -> Result<(), NtStatus> {
        match self.state {
            State::Replied => Ok(()),
            State::Ended(End::Aborted) => Err(NtStatus::CONNECTION_ABORTED),
            _ => Err(NtStatus::CONNECTION_INVALID),
        }
    }

    /// Completes the connection; the queue pair is ready to send and to receive.
    ///
    /// # Errors
    /// As [`Handshake::check_replied`].
    pub(crate) fn complete(&mut self, out: &mut Actions) -> Result<(), NtStatus> {
        self.check_replied()?;
        self.enter(State::Established, None);
        out.push(Action::Send(Message::Ready));
        Ok(())
    }

    /// Disconnects. Answers whether it is done at once: the peer has left already.
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
                self.end(End::Disconnected, out);
                Ok(true)
            }
            _ => Err(NtStatus::CONNECTION_INVALID),
        }
    }

    /// The object is closed: what is pending ends, the peer finds this end lost.
    pub(crate) fn close(&mut self, out: &mut Actions) {
        let pending = match self.state {
            State::Dialing | State::Requesting => Some(Request::Connect),
            State::Accepted => Some(Request::Accept),
            State::Disconnecting => Some(Request::Disconnect),
            _ => None,
        };
        let connected = [State::Accepted, State::Established, State::Disconnecting, State::PeerLeft];
        if connected.contains(&self.state) {
            out.push(Action::Flush);
        }
        self.end(End::Closed, out);
        if let Some(request) = pending {
            complete(request, Err(NtStatus::CANCELLED), out);
        }
    }

    /// A message came.
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
            // Both sides left at the same time.
            (State::Disconnecting, Message::Disconnect) => {
                out.push(Action::Send(Message::Disconnected));
                self.disconnected(Ok(()), out);
            }
            (State::Ended(_), _) => {}
            (state, message) => {
                log::warn!("a peer sent {message:?} in state {state:?}: the connection is given up");
                self.lost(NtStatus::CONNECTION_ABORTED, out);
            }
        }
    }

    /// The peer is lost, or has given up.
    pub(crate) fn lost(&mut self, status: NtStatus, out: &mut Actions) {
        match self.state {
            State::Dialing | State::Requesting => self.fail_connect(status, out),
            State::Incoming | State::Requested | State::Replied => self.end(End::Aborted, out),
            State::Accepted => self.fail_accept(NtStatus::CONNECTION_ABORTED, out),
            State::Established => self.broken(DisconnectReason::PeerLost, out),
            State::Disconnecting => self.disconnected(Ok(()), out),
            // The consumer's disconnect is still to come; the id has served.
            State::PeerLeft => out.push(Action::Hangup),
            State::Idle | State::Ended(_) => {}
        }
    }

    /// The queue pair failed: the connection is over for both.
    pub(crate) fn failed(&mut self, out: &mut Actions) {
        if self.state == State::Established {
            self.broken(DisconnectReason::QpFailed, out);
        }
    }

    /// The connection is over without a word.
    fn broken(&mut self, reason: DisconnectReason, out: &mut Actions) {
        self.enter(State::PeerLeft, None);
        out.push(Action::Flush);
        out.push(Action::DisconnectEvent(reason));
        out.push(Action::Hangup);
    }

    /// This side cannot go on.
    pub(crate) fn abort(&mut self, out: &mut Actions) {
        out.push(Action::Flush);
        self.end(End::Aborted, out);
    }

    /// The deadline may have passed.
    pub(crate) fn timeout(&mut self, now: Instant, out: &mut Actions) {
        if self.deadline.is_none_or(|at| now < at) {
            return;
        }
        self.deadline = None;
        match self.state {
            State::Dialing | State::Requesting => self.fail_connect(NtStatus::IO_TIMEOUT, out),
            State::Accepted => self.fail_accept(NtStatus::IO_TIMEOUT, out),
            State::Disconnecting => self.disconnected(Err(NtStatus::IO_TIMEOUT), out),
            _ => self.end(End::Aborted, out),
        }
    }

    fn fail_connect(&mut self, status: NtStatus, out: &mut Actions) {
        self.end(End::NotMade, out);
        complete(Request::Connect, Err(status), out);
    }

    /// The queue pair has learnt its peer already, so it cannot be used for another.
    fn fail_accept(&mut self, status: NtStatus, out: &mut Actions) {
        out.push(Action::Flush);
        self.end(End::Aborted, out);
        complete(Request::Accept, Err(status), out);
    }

    fn disconnected(&mut self, result: Result<(), NtStatus>, out: &mut Actions) {
        out.push(Action::Flush);
        self.end(End::Disconnected, out);
        complete(Request::Disconnect, result, out);
    }

    /// Requests are completed behind it: the consumer may use the same addresses at once.
    fn end(&mut self, end: End, out: &mut Actions) {
        self.enter(State::Ended(end), None);
        out.push(Action::Hangup);
    }
}

fn complete(request: Request, result: Result<(), NtStatus>, out: &mut Actions) {
    out.push(Action::Complete(request, result));
}

#[cfg(test)]
mod tests;
