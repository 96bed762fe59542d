//! The entry point for fuzzing: messages of a peer and calls of a consumer, without an id.
use crate::connect::ReadLimits;
use crate::connect::handshake::{Action, Actions, Handshake, Request};
use crate::connect::message::{Message, Offer, Reason};
use std::time::{Duration, Instant};

/// An input of a [`Connection`].
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// A message of the peer.
    Message(u8),
    /// A call of the consumer.
    Call(u8),
    /// Time passes.
    Pass(Duration),
    /// The peer is lost.
    Lost,
}

/// One end of a connection.
#[derive(Debug)]
pub struct Connection {
    handshake: Handshake,
    now: Instant,
    /// The id is released. No more input comes.
    hung_up: bool,
    pending: Option<Request>,
}

const LIMITS: ReadLimits = ReadLimits { inbound: 16, outbound: 16 };

fn offer() -> Offer {
    Offer { limits: LIMITS, private_data: b"offer".to_vec() }
}

impl Connection {
    /// A connection on the listener's side, or on the initiator's side.
    #[must_use]
    pub fn new(incoming: bool) -> Self {
        let now = Instant::now();
        let handshake = if incoming { Handshake::incoming(LIMITS) } else { Handshake::new(LIMITS) };
        Connection { handshake, now, hung_up: false, pending: None }
    }

    /// Performs a step and checks the resulting actions.
    ///
    /// # Panics
    /// If a rule is broken.
    pub fn step(&mut self, step: Step) {
        let mut out = Vec::new();
        match step {
            Step::Message(kind) => self.message(kind, &mut out),
            Step::Call(call) => self.call(call, &mut out),
            Step::Pass(by) => {
                self.now += by;
                self.handshake.timeout(self.now, &mut out);
            }
            Step::Lost => self.handshake.lost(crate::NtStatus::CONNECTION_ABORTED, &mut out),
        }
        self.check(&out);
    }

    fn message(&mut self, kind: u8, out: &mut Actions) {
        if self.hung_up {
            return;
        }
        let limits = ReadLimits { inbound: u32::from(kind >> 3), outbound: u32::from(kind >> 2) };
        let offer = Offer { limits, private_data: vec![kind] };
        self.handshake.message(
            match kind % 6 {
                0 => Message::Request(offer),
                1 => Message::Reply(offer),
                2 => Message::Ready,
                3 => Message::Reject(Reason(kind.into()), vec![kind]),
                4 => Message::Disconnect,
                _ => Message::Disconnected,
            },
            out,
        );
    }

    fn call(&mut self, call: u8, out: &mut Actions) {
        let (handshake, now) = (&mut self.handshake, self.now);
        match call % 8 {
            0 => {
                if handshake.connect(LIMITS, now).is_ok() {
                    assert_eq!(self.pending.replace(Request::Connect), None);
                    self.hung_up = false;
                }
            }
            1 => handshake.dialed(offer(), out),
            2 => {
                if handshake.accept(offer(), now, out).is_ok() {
                    assert_eq!(self.pending.replace(Request::Accept), None);
                }
            }
            3 => drop(handshake.complete(out)),
            4 => drop(handshake.reject(Reason::CONSUMER_DEFINED, vec![1], out)),
            5 => {
                if let Ok(false) = handshake.disconnect(now, out) {
                    assert_eq!(self.pending.replace(Request::Disconnect), None);
                }
            }
            6 => handshake.close(out),
            _ => handshake.failed(out),
        }
    }

    /// Checks that a pending request completes once, and that nothing is sent after a hang-up.
    fn check(&mut self, out: &[Action]) {
        for action in out {
            match action {
                Action::Complete(request, _) => assert_eq!(self.pending.take(), Some(*request)),
                Action::Hangup => self.hung_up = true,
                _ => {}
            }
        }
        if let Some((limits, _)) = self.handshake.connection_data() {
            assert!(
                limits.inbound <= LIMITS.inbound && limits.outbound <= LIMITS.outbound,
                "{limits:?}"
            );
        }
    }

    /// Closes the connection. Checks that no request is left pending.
    ///
    /// # Panics
    /// If a request is left pending.
    pub fn close(mut self) {
        self.step(Step::Call(6));
        assert_eq!(self.pending, None);
        assert_eq!(self.handshake.deadline(), None);
    }
}
