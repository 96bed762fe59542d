//! A stream of messages: the socket of one connection.
use super::endpoint::remote_failure;
use super::message::{MAX_MESSAGE, Malformed, Message};
use super::sockets::{Interest, Sockets};
use crate::status::NtStatus;
use adverb_device::Errno;
use nix::libc::linger;
use nix::sys::socket::{SockaddrStorage, connect, setsockopt, sockopt};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

/// A silent peer is probed after this time, in seconds, then every [`PROBE_INTERVAL`] seconds; [`PROBES`] probes without
/// an answer mean that it is lost. What is sent may stay unanswered for as long altogether.
const IDLE: u32 = 5;
const PROBE_INTERVAL: u32 = 2;
const PROBES: u32 = 5;

/// A message socket that the thread of the sockets watches.
#[derive(Debug)]
pub(crate) struct Stream {
    sockets: Arc<Sockets>,
    token: u64,
    socket: TcpStream,
    /// Bytes of a message whose rest has not come.
    inbox: Vec<u8>,
    /// Bytes that the socket did not take.
    outbox: Vec<u8>,
    interest: Interest,
    /// To be closed when the outbox is empty.
    closing: bool,
}

/// What reading a stream brought.
#[derive(Debug)]
pub(crate) enum Incoming {
    /// A message.
    Message(Message),
    /// Nothing more for now.
    Nothing,
    /// Bytes that are no message.
    Malformed(Malformed),
    /// The peer closed the stream.
    Closed,
    /// It failed.
    Failed(NtStatus),
}

impl Stream {
    /// A stream that a listener took.
    ///
    /// # Errors
    /// `INSUFFICIENT_RESOURCES` and the like when it cannot be watched; it is closed then.
    pub(crate) fn accepted(sockets: &Arc<Sockets>, token: u64, socket: TcpStream) -> Result<Self, NtStatus> {
        socket.set_nonblocking(true).map_err(|e| status_of(&e))?;
        Stream::new(sockets, token, socket, Interest::Read)
    }

    /// Calls `peer` from a bound socket. When the thread finds the socket ready, [`Stream::dialed`] says how it went.
    ///
    /// # Errors
    /// What [`remote_failure`] names.
    pub(crate) fn dial(
        sockets: &Arc<Sockets>,
        token: u64,
        socket: OwnedFd,
        peer: &SocketAddr,
    ) -> Result<Self, NtStatus> {
        match connect(socket.as_raw_fd(), &SockaddrStorage::from(*peer)) {
            Ok(()) | Err(Errno::EINPROGRESS) => {}
            Err(e) => return Err(remote_failure(e)),
        }
        Stream::new(sockets, token, TcpStream::from(socket), Interest::Write)
    }

    fn new(
        sockets: &Arc<Sockets>,
        token: u64,
        socket: TcpStream,
        interest: Interest,
    ) -> Result<Self, NtStatus> {
        tune(&socket).and_then(|()| sockets.watch(token, &socket, interest)).map_err(remote_failure)?;
        let sockets = sockets.clone();
        let (inbox, outbox) = (Vec::new(), Vec::new());
        Ok(Stream { sockets, token, socket, inbox, outbox, interest, closing: false })
    }

    /// By which the thread knows it.
    pub(crate) fn token(&self) -> u64 {
        self.token
    }
    /// Those it is watched among.
    pub(crate) fn sockets(&self) -> &Arc<Sockets> {
        &self.sockets
    }

    /// How the call went, once the thread found the socket ready: `Ok(false)` means not yet.
    ///
    /// # Errors
    /// What [`remote_failure`] names.
    pub(crate) fn dialed(&mut self) -> Result<bool, NtStatus> {
        if let Some(e) = self.socket.take_error().map_err(|e| status_of(&e))? {
            return Err(status_of(&e));
        }
        if self.socket.peer_addr().is_err() {
            return Ok(false);
        }
        self.watch(Interest::Read);
        Ok(true)
    }

    fn watch(&mut self, interest: Interest) {
        if std::mem::replace(&mut self.interest, interest) != interest {
            self.sockets.rewatch(self.token, &self.socket, interest);
        }
    }

    /// Sends a message, at once as far as the socket takes it. A socket that has failed is found so by reading.
    pub(crate) fn send(&mut self, message: &Message) {
        message.write(&mut self.outbox);
        self.flush();
    }

    /// Sends what is left. Answers whether the stream may go now.
    pub(crate) fn flush(&mut self) -> bool {
        while !self.outbox.is_empty() {
            match self.socket.write(&self.outbox) {
                Ok(n) => drop(self.outbox.drain(..n)),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(_) => self.outbox.clear(),
            }
        }
        self.watch(if self.outbox.is_empty() { Interest::Read } else { Interest::ReadWrite });
        self.closing && self.outbox.is_empty()
    }

    /// It is to be closed when all is sent. Answers whether that is now.
    pub(crate) fn finish(&mut self) -> bool {
        self.closing = true;
        self.flush()
    }

    /// Nothing that was sent matters any more: closed without lingering, the socket is gone at once, and the consumer can
    /// call the same peer from the same endpoint again even if the peer has not closed its end yet.
    pub(crate) fn forget(&mut self) {
        self.outbox.clear();
        // Closing does without, if this fails.
        let _ = setsockopt(&self.socket, sockopt::Linger, &linger { l_onoff: 1, l_linger: 0 });
    }

    /// The next message.
    pub(crate) fn receive(&mut self) -> Incoming {
        loop {
            match Message::parse(&self.inbox) {
                Ok(Some((message, length))) => {
                    self.inbox.drain(..length);
                    return Incoming::Message(message);
                }
                Ok(None) => {}
                Err(malformed) => return Incoming::Malformed(malformed),
            }
            // The parser asks for more only below the length of the longest message, so the inbox stays small.
            let mut bytes = [0; MAX_MESSAGE];
            match self.socket.read(&mut bytes) {
                Ok(0) => return Incoming::Closed,
                Ok(n) => self.inbox.extend_from_slice(&bytes[..n]),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Incoming::Nothing,
                Err(e) => return Incoming::Failed(status_of(&e)),
            }
        }
    }
}

/// Small messages leave at once; a peer that vanishes without a word is noticed.
fn tune(socket: &TcpStream) -> nix::Result<()> {
    setsockopt(socket, sockopt::TcpNoDelay, &true)?;
    setsockopt(socket, sockopt::KeepAlive, &true)?;
    setsockopt(socket, sockopt::TcpKeepIdle, &IDLE)?;
    setsockopt(socket, sockopt::TcpKeepInterval, &PROBE_INTERVAL)?;
    setsockopt(socket, sockopt::TcpKeepCount, &PROBES)?;
    setsockopt(socket, sockopt::TcpUserTimeout, &((IDLE + PROBE_INTERVAL * PROBES) * 1000))
}

fn status_of(error: &std::io::Error) -> NtStatus {
    remote_failure(error.raw_os_error().map_or(Errno::EIO, Errno::from_raw))
}
