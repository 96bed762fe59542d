//! Drives a connector: performs the actions that follow from calls and events of its connection.
use super::ConnectorInner;
use crate::connect::handshake::{Action, Actions, Request, State};
use crate::connect::link::Link;
use crate::connect::message::DisconnectReason;
use crate::connect::worker::Source;
use crate::object::Hold;
use std::any::Any;
use std::time::Instant;

/// Values that must not be dropped under a lock. They may be the consumer's, or the last handle of
/// an object.
type Waste = Vec<Box<dyn Any + Send>>;

impl ConnectorInner {
    /// Runs a step of the state machine and performs the resulting actions.
    pub(super) fn drive<R>(&self, step: impl FnOnce(&mut Link, &mut Actions) -> R) -> R {
        let mut waste = Waste::new();
        let mut link = self.link.lock();
        let mut actions = Actions::new();
        let answer = step(&mut link, &mut actions);
        while !actions.is_empty() {
            actions = self.perform(&mut link, actions, &mut waste);
        }
        if let Some(conn_id) = &link.conn_id {
            conn_id.worker.schedule(conn_id.token, link.handshake.deadline());
        }
        drop(link);
        drop(waste);
        answer
    }

    /// Performs actions. Returns further actions that result from them.
    fn perform(&self, link: &mut Link, actions: Actions, waste: &mut Waste) -> Actions {
        let mut more = Actions::new();
        let mut failure = None;
        for action in actions {
            match action {
                Action::Send(message) => {
                    if let Err(status) = link.send(&message) {
                        link.handshake.lost(status, &mut more);
                    }
                }
                Action::ReadyToSend => failure = link.ready_to_send().err(),
                Action::Complete(request, result) => {
                    let result = failure.map_or(result, Err);
                    if request == Request::Connect && result.is_err() {
                        self.let_endpoint_go(link, waste);
                    }
                    if let Some((hold, completion)) = link.pending.take() {
                        hold.complete_later(result, completion);
                    }
                    if failure.is_some() {
                        link.handshake.abort(&mut more);
                    }
                }
                Action::DisconnectEvent(reason) => self.tell(link, reason),
                Action::Flush => link.flush(),
                Action::Hangup => self.hang_up(link, waste),
                // The listener delivers the connect event.
                Action::ConnectEvent => {}
            }
        }
        more
    }

    /// Calls the consumer's disconnect event, unless a close has begun.
    fn tell(&self, link: &mut Link, reason: DisconnectReason) {
        let Some(event) = link.on_disconnect.take() else { return };
        match self.lifecycle.hold() {
            Ok(hold) => self.adapter.0.dispatcher.run(move || {
                event(reason);
                drop(hold);
            }),
            // The event is dropped with the connector.
            Err(_) => link.on_disconnect = Some(event),
        }
    }

    /// Releases the address after a failed attempt, also for other connectors. This must happen
    /// before the consumer hears of the failure.
    fn let_endpoint_go(&self, link: &mut Link, waste: &mut Waste) {
        link.endpoint = None;
        link.peer_address = None;
        if let Some(shared) = link.shared.take() {
            self.outlive(shared, waste);
        }
    }

    /// Releases an antecedent: at once, or if a close has begun, when the close is complete.
    fn outlive(&self, hold: Hold, waste: &mut Waste) {
        if self.lifecycle.is_closing() {
            self.lifecycle.take_over(hold);
        } else {
            waste.push(Box::new(hold));
        }
    }

    fn hang_up(&self, link: &mut Link, waste: &mut Waste) {
        let state = link.handshake.state();
        link.drop_line();
        if matches!(state, State::Ended(_))
            && let Some((qp, hold)) = link.qp.take()
        {
            waste.push(Box::new(qp));
            self.outlive(hold, waste);
        }
    }

    pub(super) fn abort(&self) {
        self.drive(|link, out| link.handshake.close(out));
    }

    pub(super) fn teardown(&self) {
        self.abort();
        let mut waste = Waste::new();
        let mut link = self.link.lock();
        waste.push(Box::new(link.endpoint.take()));
        waste.push(Box::new(link.on_disconnect.take()));
        if let Some(shared) = link.shared.take() {
            self.lifecycle.take_over(shared);
        }
        drop(link);
    }
}

impl Source for ConnectorInner {
    fn ready(&self, token: u64) {
        let mut more = true;
        while more {
            self.drive(|link, out| {
                more = link.token() == Some(token) && link.serve(out);
            });
        }
    }

    fn due(&self, token: u64, now: Instant) {
        self.drive(|link, out| {
            if link.token() == Some(token) {
                link.handshake.timeout(now, out);
            }
        });
    }

    /// The queue pair has failed.
    fn poked(&self, token: u64) {
        self.drive(|link, out| {
            if link.token() == Some(token) {
                link.handshake.failed(out);
            }
        });
    }
}
