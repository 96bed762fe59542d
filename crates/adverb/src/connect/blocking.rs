//! The exchange on blocking sockets.
use super::{
    HEADER, Header, Message, Options, Peer, io, ready, replied, reply, request, requested, take_address,
};
use crate::connect::ConnectError;
use crate::error::{Error, Result};
use crate::qp::Qp;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// A socket and the time until which it may be used.
#[derive(Debug)]
struct Line {
    stream: TcpStream,
    until: Instant,
}

impl Line {
    fn new(stream: TcpStream, until: Instant) -> Result<Self> {
        io(stream.set_nodelay(true))?;
        Ok(Line { stream, until })
    }

    fn left(&self) -> Result<Option<Duration>, ConnectError> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(ConnectError::TimedOut) } else { Ok(Some(left)) }
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), ConnectError> {
        self.stream.set_write_timeout(self.left()?)?;
        Ok(self.stream.write_all(bytes)?)
    }

    /// Reads in pieces, so that a peer that sends byte by byte gains no time.
    fn fill(&mut self, mut bytes: &mut [u8]) -> Result<(), ConnectError> {
        while !bytes.is_empty() {
            self.stream.set_read_timeout(self.left()?)?;
            match self.stream.read(bytes) {
                Ok(0) => return Err(ConnectError::Closed),
                Ok(n) => bytes = &mut bytes[n..],
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    fn receive(&mut self) -> Result<Message> {
        let mut header = [0; HEADER];
        self.fill(&mut header)?;
        let header = Header::decode(header)?;
        let mut body = vec![0; header.body_len];
        self.fill(&mut body)?;
        Ok(Message::decode(header, &body)?)
    }
}

/// The time that is so far away; a time too long to add is a day.
fn deadline(timeout: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(timeout).unwrap_or(now + Duration::from_secs(86_400))
}

/// Connects `qp` to the queue pair that a [`Listener`] at `addr` accepts with.
///
/// # Errors
/// As [`connect_with`].
pub fn connect(addr: impl ToSocketAddrs, qp: &Qp) -> Result<Peer> {
    connect_with(addr, qp, &Options::default())
}

/// Connects `qp` to the queue pair that a [`Listener`] at `addr` accepts with. Its GID is that of the address that TCP
/// speaks from, if the device has it.
///
/// # Errors
/// [`Error::Connect`] with what went wrong between the two ends; what [`Qp::connect_to`] refuses.
pub fn connect_with(addr: impl ToSocketAddrs, qp: &Qp, options: &Options) -> Result<Peer> {
    let until = deadline(options.timeout);
    let mut line = Line::new(reach(addr, until)?, until)?;
    take_address(qp, io(line.stream.local_addr())?.ip())?;
    line.send(&request(qp, options)?)?;
    let answer = line.receive()?;
    let connected = replied(qp, answer);
    // If the queue pair refuses, the other end should not wait for it.
    let last = if connected.is_ok() { Message::Ready } else { Message::Reject(Vec::new()) };
    let told = line.send(&last.encode()?);
    let peer = connected?;
    told?;
    Ok(peer)
}

/// The first of the addresses that answers.
fn reach(addr: impl ToSocketAddrs, until: Instant) -> Result<TcpStream> {
    let mut last = ConnectError::Io(std::io::ErrorKind::AddrNotAvailable.into());
    for addr in io(addr.to_socket_addrs())? {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ConnectError::TimedOut.into());
        }
        match TcpStream::connect_timeout(&addr, left) {
            Ok(stream) => return Ok(stream),
            Err(e) => last = e.into(),
        }
    }
    Err(last.into())
}

/// Waits for ends that want to [`connect`].
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
}

impl Listener {
    /// Listens at a TCP address; port 0 is a free one.
    ///
    /// # Errors
    /// [`Error::Connect`]: the address cannot be had.
    pub fn bind(addr: impl ToSocketAddrs) -> Result<Self> {
        Ok(Listener { socket: io(TcpListener::bind(addr))? })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// The errno of the socket.
    pub fn local_addr(&self) -> Result<SocketAddr> {
        io(self.socket.local_addr())
    }

    /// Waits for an end that wants to connect, and for what it tells of itself; for that at most ten seconds.
    ///
    /// # Errors
    /// [`Error::Connect`]; the listener goes on.
    pub fn accept(&self) -> Result<Incoming> {
        let (stream, from) = io(self.socket.accept())?;
        let mut line = Line::new(stream, deadline(Options::default().timeout))?;
        let peer = requested(line.receive()?)?;
        Ok(Incoming { line, peer, from })
    }

    /// Accepts one connection with a queue pair made before: [`Listener::accept`] and [`Incoming::accept_with`] in one.
    ///
    /// # Errors
    /// As these two.
    pub fn accept_with(&self, qp: &Qp, options: &Options) -> Result<Peer> {
        self.accept()?.accept_with(qp, options)
    }
}

/// An end that wants to connect. Dropped, its connection is closed.
#[derive(Debug)]
#[must_use = "it waits for accept_with() or reject()"]
pub struct Incoming {
    line: Line,
    peer: Peer,
    from: SocketAddr,
}

impl Incoming {
    /// What it told.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Where its TCP connection comes from.
    #[must_use]
    pub fn from(&self) -> SocketAddr {
        self.from
    }

    /// Connects `qp` to it, and returns when both ends are connected.
    ///
    /// # Errors
    /// What [`Qp::connect_to`] refuses (the peer is told no then); [`Error::Connect`] if the peer goes away.
    pub fn accept_with(mut self, qp: &Qp, options: &Options) -> Result<Peer> {
        self.line.until = deadline(options.timeout);
        let prepare = || {
            take_address(qp, io(self.line.stream.local_addr())?.ip())?;
            let answer = reply(qp, options)?;
            qp.connect_to(&self.peer.info)?;
            Ok::<_, Error>(answer)
        };
        let answer = match prepare() {
            Ok(answer) => answer,
            Err(e) => {
                // What failed here matters more than whether the other end hears of it.
                let _ = self.reject(&[]);
                return Err(e);
            }
        };
        self.line.send(&answer)?;
        ready(self.line.receive()?)?;
        Ok(self.peer)
    }

    /// Says no, with a reason of the program's own form, at most [`MAX_PRIVATE`](super::MAX_PRIVATE) bytes.
    ///
    /// # Errors
    /// [`Error::Connect`] if the peer cannot be told.
    pub fn reject(mut self, reason: &[u8]) -> Result<()> {
        Ok(self.line.send(&Message::Reject(reason.to_vec()).encode()?)?)
    }
}
