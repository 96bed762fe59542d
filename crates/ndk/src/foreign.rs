//! A door for fuzzing: bytes of a peer and calls of a consumer, without a socket.
use crate::connect::ReadLimits;
use crate::connect::handshake::{Action, Actions, Handshake, Request};
use crate::connect::message::{MAX_MESSAGE, Message, Offer, Reason};
use adverb_engine::{Gid, PathMtu};
use std::time::{Duration, Instant};

/// What happens to a [`Connection`].
#[derive(Clone, Copy, Debug)]
pub enum Step<'a> {
    /// Bytes come from the peer.
    Bytes(&'a [u8]),
    /// The consumer calls.
    Call(u8),
    /// Time passes.
    Pass(Duration),
    /// The stream fails.
    Lost,
}

/// One end of a connection with what its stream keeps.
#[derive(Debug)]
pub struct Connection {
    handshake: Handshake,
    now: Instant,
    inbox: Vec<u8>,
    /// The stream is being closed; nothing more is read.
    hung_up: bool,
    pending: Option<Request>,
}

const LIMITS: ReadLimits = ReadLimits { inbound: 16, outbound: 16 };

fn offer() -> Offer {
    let (gid, mtu) = (Gid::from_ipv4([127, 0, 0, 1]), PathMtu::Mtu1024);
    Offer { qpn: 0x4321, psn: 7, gid, mtu, limits: LIMITS, private_data: b"offer".to_vec() }
}

impl Connection {
    /// The listener's side, or the initiator's with its call made.
    #[must_use]
    pub fn new(incoming: bool) -> Self {
        let now = Instant::now();
        let handshake = if incoming { Handshake::incoming(LIMITS, now) } else { Handshake::new(LIMITS) };
        Connection { handshake, now, inbox: Vec::new(), hung_up: false, pending: None }
    }

    /// Makes a step and checks what follows from it.
    ///
    /// # Panics
    /// When a rule is broken.
    pub fn step(&mut self, step: Step<'_>) {
        let mut out = Vec::new();
        match step {
            Step::Bytes(bytes) => self.bytes(bytes, &mut out),
            Step::Call(call) => self.call(call, &mut out),
            Step::Pass(by) => {
                self.now += by;
                self.handshake.timeout(self.now, &mut out);
            }
            Step::Lost => self.handshake.lost(crate::NtStatus::CONNECTION_ABORTED, &mut out),
        }
        self.check(&out);
    }

    /// As `Stream::receive` does it: message after message, in pieces no longer than the longest one.
    fn bytes(&mut self, bytes: &[u8], out: &mut Actions) {
        for piece in bytes.chunks(MAX_MESSAGE) {
            self.inbox.extend_from_slice(piece);
            while !self.hung_up {
                match Message::parse(&self.inbox) {
                    Ok(Some((message, length))) => {
                        let mut written = Vec::new();
                        message.write(&mut written);
                        assert_eq!(written, self.inbox[..length], "{message:?}");
                        self.inbox.drain(..length);
                        self.handshake.message(message, out);
                    }
                    Ok(None) => break,
                    Err(_) => {
                        self.handshake.lost(crate::NtStatus::CONNECTION_ABORTED, out);
                        self.hung_up = true;
                    }
                }
                self.hung_up |= out.contains(&Action::Hangup);
            }
            assert!(self.hung_up || self.inbox.len() < MAX_MESSAGE, "{} bytes wait", self.inbox.len());
            if self.hung_up {
                self.inbox.clear();
            }
        }
    }

    fn call(&mut self, call: u8, out: &mut Actions) {
        let (handshake, now) = (&mut self.handshake, self.now);
        match call % 8 {
            0 => {
                if handshake.connect(LIMITS, now).is_ok() {
                    assert_eq!(self.pending.replace(Request::Connect), None);
                    self.hung_up = false;
                    self.inbox.clear();
                }
            }
            1 => handshake.dialed(offer(), out),
            2 => {
                if handshake.accept(offer(), now, out).is_ok() {
                    assert_eq!(self.pending.replace(Request::Accept), None);
                }
            }
            3 => drop(handshake.complete(out)),
            4 => drop(handshake.reject(Reason::Consumer, vec![1], out)),
            5 => {
                if let Ok(false) = handshake.disconnect(now, out) {
                    assert_eq!(self.pending.replace(Request::Disconnect), None);
                }
            }
            6 => handshake.close(out),
            _ => handshake.failed(out),
        }
    }

    /// A pending request completes once, and nothing is sent behind a hang-up.
    fn check(&mut self, out: &[Action]) {
        for action in out {
            match action {
                Action::Complete(request, _) => assert_eq!(self.pending.take(), Some(*request)),
                Action::Hangup => self.hung_up = true,
                Action::Send(message) => {
                    let mut written = Vec::new();
                    message.write(&mut written);
                    assert!(written.len() <= MAX_MESSAGE);
                }
                _ => {}
            }
        }
        if let Some((limits, _)) = self.handshake.connection_data() {
            assert!(limits.inbound <= LIMITS.inbound && limits.outbound <= LIMITS.outbound, "{limits:?}");
        }
    }

    /// Closes it: nothing is left pending.
    ///
    /// # Panics
    /// When something is.
    pub fn close(mut self) {
        self.step(Step::Call(6));
        assert_eq!(self.pending, None);
        assert_eq!(self.handshake.deadline(), None);
    }
}
