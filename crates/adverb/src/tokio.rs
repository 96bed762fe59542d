//! On tokio's reactor: channels by their descriptors, and setting up connections. Feature `tokio`.
//!
//! Futures and streams of the rest of the crate ([`CompChannel::event`], [`Cq::completions`](crate::Cq::completions)) need
//! no feature and run on tokio as on any executor: the device's own thread wakes them. [`Channel`] differs in who waits:
//! here tokio's reactor watches the channel's descriptor.
use crate::channel::{CompChannel, CqEvent};
use crate::connect::{
    ConnectError, HEADER, Header, Message, Options, Peer, io, ready, replied, reply, request, requested,
    take_address,
};
use crate::error::{Error, Result};
use crate::qp::Qp;
use ::tokio::io::unix::AsyncFd;
use ::tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use ::tokio::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::net::SocketAddr;
use std::time::Duration;

/// A completion channel whose descriptor tokio's reactor watches.
#[derive(Debug)]
pub struct Channel(AsyncFd<CompChannel>);

impl Channel {
    /// Hands the channel's descriptor to the reactor of the current runtime and makes it non-blocking.
    ///
    /// # Errors
    /// The errno of `fcntl` or of registering with the reactor.
    ///
    /// # Panics
    /// Outside of a runtime with I/O enabled, as `AsyncFd` does.
    #[allow(
        deprecated,
        reason = "its successor is unsafe; a channel keeps one open descriptor for its lifetime"
    )]
    pub fn new(channel: CompChannel) -> Result<Self> {
        channel.set_nonblocking(true)?;
        let registered = AsyncFd::with_interest(channel, Interest::READABLE);
        Ok(Channel(registered.map_err(|e| Error::from_wait(errno_of(&e)))?))
    }

    /// The channel.
    #[must_use]
    pub fn channel(&self) -> &CompChannel {
        self.0.get_ref()
    }

    /// Waits for an event. Dropped before it is ready, it has taken nothing.
    ///
    /// # Errors
    /// EIO in a child of `fork`.
    pub async fn event(&self) -> Result<CqEvent> {
        loop {
            let mut ready = self.0.readable().await.map_err(|e| Error::from_wait(errno_of(&e)))?;
            match self.channel().next_event() {
                Err(Error::WouldBlock) => ready.clear_ready(),
                other => return other,
            }
        }
    }
}

fn errno_of(e: &std::io::Error) -> adverb_device::Errno {
    e.raw_os_error().map_or(adverb_device::Errno::EIO, adverb_device::Errno::from_raw)
}

async fn within<T>(timeout: Duration, exchange: impl Future<Output = Result<T>>) -> Result<T> {
    match ::tokio::time::timeout(timeout, exchange).await {
        Ok(result) => result,
        Err(_) => Err(ConnectError::TimedOut.into()),
    }
}

async fn receive(stream: &mut TcpStream) -> Result<Message> {
    let mut header = [0; HEADER];
    io(stream.read_exact(&mut header).await)?;
    let header = Header::decode(header)?;
    let mut body = vec![0; header.body_len];
    io(stream.read_exact(&mut body).await)?;
    Ok(Message::decode(header, &body)?)
}

async fn send(stream: &mut TcpStream, bytes: &[u8]) -> Result<()> {
    io(stream.write_all(bytes).await)
}

/// Connects `qp` to the queue pair that a listener at `addr` accepts with: [`connect_with`](crate::connect::connect_with)
/// without blocking. The listener may be of either kind.
///
/// # Errors
/// [`Error::Connect`] with what went wrong between the two ends; what [`Qp::connect_to`] refuses.
pub async fn connect(addr: impl ToSocketAddrs, qp: &Qp, options: &Options) -> Result<Peer> {
    within(options.timeout, async {
        let mut stream = io(TcpStream::connect(addr).await)?;
        io(stream.set_nodelay(true))?;
        take_address(qp, io(stream.local_addr())?.ip())?;
        send(&mut stream, &request(qp, options)?).await?;
        let answer = receive(&mut stream).await?;
        let connected = replied(qp, answer);
        // If the queue pair refuses, the other end should not wait for it.
        let last = if connected.is_ok() { Message::Ready } else { Message::Reject(Vec::new()) };
        let told = send(&mut stream, &last.encode()?).await;
        let peer = connected?;
        told?;
        Ok(peer)
    })
    .await
}

/// [`connect::Listener`](crate::connect::Listener) without blocking.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
}

impl Listener {
    /// Listens at a TCP address; port 0 is a free one.
    ///
    /// # Errors
    /// [`Error::Connect`]: the address cannot be had.
    pub async fn bind(addr: impl ToSocketAddrs) -> Result<Self> {
        Ok(Listener { socket: io(TcpListener::bind(addr).await)? })
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
    pub async fn accept(&self) -> Result<Incoming> {
        let (mut stream, from) = io(self.socket.accept().await)?;
        io(stream.set_nodelay(true))?;
        let first = within(Options::default().timeout, receive(&mut stream)).await?;
        Ok(Incoming { peer: requested(first)?, stream, from })
    }
}

/// An end that wants to connect. Dropped, its connection is closed.
#[derive(Debug)]
#[must_use = "it waits for accept_with() or reject()"]
pub struct Incoming {
    stream: TcpStream,
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

    /// Connects `qp` to it, and is ready when both ends are connected.
    ///
    /// # Errors
    /// What [`Qp::connect_to`] refuses (the peer is told no then); [`Error::Connect`] if the peer goes away.
    pub async fn accept_with(mut self, qp: &Qp, options: &Options) -> Result<Peer> {
        let prepare = || {
            take_address(qp, io(self.stream.local_addr())?.ip())?;
            let answer = reply(qp, options)?;
            qp.connect_to(&self.peer.info)?;
            Ok::<_, Error>(answer)
        };
        let answer = match prepare() {
            Ok(answer) => answer,
            Err(e) => {
                // What failed here matters more than whether the other end hears of it.
                let _ = self.reject(&[]).await;
                return Err(e);
            }
        };
        within(options.timeout, async {
            send(&mut self.stream, &answer).await?;
            ready(receive(&mut self.stream).await?)
        })
        .await?;
        Ok(self.peer)
    }

    /// Says no, with a reason of the program's own form, at most [`MAX_PRIVATE`](crate::connect::MAX_PRIVATE) bytes.
    ///
    /// # Errors
    /// [`Error::Connect`] if the peer cannot be told.
    pub async fn reject(mut self, reason: &[u8]) -> Result<()> {
        send(&mut self.stream, &Message::Reject(reason.to_vec()).encode()?).await
    }
}
