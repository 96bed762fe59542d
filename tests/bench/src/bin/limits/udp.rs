//! UDP over loopback: ping-pong of small packets, and a one-way stream at full speed.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

use nix::sys::epoll::{Epoll, EpollTimeout};
use nix::sys::socket::{setsockopt, sockopt};

use adverb_bench::Result;
use adverb_bench::pair::{self, Cpus, Trips};

/// Longest ping.
const PING: usize = 64;
/// A packet of this length ends a run.
const STOP: usize = 1;
/// Size of both buffers of a socket, as far as the kernel allows.
const BUFFER: usize = 8 << 20;
/// Longest GSO run: the payload of an IPv4 packet.
const RUN: usize = 65000;
/// After this silence a receiver takes the sender for gone.
const SILENCE: Duration = Duration::from_millis(300);

pub fn bound() -> Result<(UdpSocket, u16)> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|e| format!("bind: {e}"))?;
    setsockopt(&socket, sockopt::RcvBuf, &BUFFER).map_err(|e| format!("SO_RCVBUF: {e}"))?;
    setsockopt(&socket, sockopt::SndBuf, &BUFFER).map_err(|e| format!("SO_SNDBUF: {e}"))?;
    let port = socket.local_addr().map_err(|e| e.to_string())?.port();
    Ok((socket, port))
}

pub fn connect(socket: &UdpSocket, port: u16) -> Result<()> {
    socket.connect((Ipv4Addr::LOCALHOST, port)).map_err(|e| format!("connect: {e}"))
}

/// A connected socket to a child of the given kind.
pub fn connected(cpus: Cpus, kind: &str, more: &[&str]) -> Result<(UdpSocket, pair::Other)> {
    let (socket, port) = bound()?;
    let mut args = vec![kind.to_string(), port.to_string()];
    args.extend(more.iter().map(|s| s.to_string()));
    let mut child = pair::start(cpus.there, &args)?;
    let line = child.line()?;
    connect(
        &socket,
        line.parse().map_err(|e| format!("port {line:?} of the other process: {e}"))?,
    )?;
    Ok((socket, child))
}

/// How an end waits for the next packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Polls without a pause.
    Spin,
    /// Sleeps in `recv`.
    Block,
    /// Sleeps in `epoll_wait`.
    Epoll,
}

impl Wait {
    fn name(self) -> &'static str {
        match self {
            Wait::Spin => "spin",
            Wait::Block => "block",
            Wait::Epoll => "epoll",
        }
    }

    fn named(name: &str) -> Result<Self> {
        let all = [Wait::Spin, Wait::Block, Wait::Epoll];
        all.into_iter()
            .find(|w| w.name() == name)
            .ok_or_else(|| format!("no way to wait: {name:?}"))
    }
}

/// A socket, with the epoll to sleep on, if any.
struct WaitingSocket {
    socket: UdpSocket,
    epoll: Option<Epoll>,
}

impl WaitingSocket {
    fn new(socket: UdpSocket, wait: Wait) -> Result<Self> {
        match wait {
            Wait::Block => socket.set_read_timeout(Some(SILENCE)),
            Wait::Spin | Wait::Epoll => socket.set_nonblocking(true),
        }
        .map_err(|e| format!("socket: {e}"))?;
        let epoll = if wait == Wait::Epoll { Some(pair::epoll_of(&[&socket])?) } else { None };
        Ok(Self { socket, epoll })
    }

    /// Receives a packet; `None` after a silence.
    fn receive(&self, buf: &mut [u8]) -> Result<Option<usize>> {
        if let Some(epoll) = &self.epoll {
            let limit = EpollTimeout::try_from(4 * SILENCE).unwrap_or(EpollTimeout::ZERO);
            if !pair::sleep(epoll, limit)? {
                return Ok(None);
            }
        }
        receive(&self.socket, buf)
    }
}

/// Receives a packet. A non-blocking socket is polled. `None` after a silence.
fn receive(socket: &UdpSocket, buf: &mut [u8]) -> Result<Option<usize>> {
    let mut since = None;
    for turn in 1u32.. {
        match socket.recv(buf) {
            Ok(n) => return Ok(Some(n)),
            // A blocking socket returns the same error at its time limit.
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            Err(e) => return Err(format!("recv: {e}")),
        }
        if turn.is_multiple_of(1024)
            && since.get_or_insert_with(Instant::now).elapsed() > 4 * SILENCE
        {
            break;
        }
    }
    Ok(None)
}

/// Half of the median round trip of a packet in seconds. Both ends wait in the same way.
pub fn ping_pong(cpus: Cpus, wait: Wait, bytes: usize, time: Duration) -> Result<f64> {
    let (socket, child) = connected(cpus, "echo", &[wait.name()])?;
    pair::pin(cpus.here)?;
    let end = WaitingSocket::new(socket, wait)?;
    let mut buf = [0; PING];
    let mut trips = Trips::new(time);
    while trips.more() {
        end.socket.send(&buf[..bytes]).map_err(|e| format!("send: {e}"))?;
        end.receive(&mut buf)?.ok_or("no answer")?;
        trips.done();
    }
    end.socket.send(&[0; STOP]).map_err(|e| format!("send: {e}"))?;
    child.end()?;
    Ok(trips.half_median())
}

/// The child of [`ping_pong`].
pub fn echo(port: u16, wait: &str) -> Result<()> {
    let (socket, own) = bound()?;
    connect(&socket, port)?;
    let end = WaitingSocket::new(socket, Wait::named(wait)?)?;
    println!("{own}");
    let mut buf = [0; PING];
    loop {
        match end.receive(&mut buf)? {
            None => return Err("nothing came".to_string()),
            Some(STOP) => return Ok(()),
            Some(bytes) => end.socket.send(&buf[..bytes]).map_err(|e| format!("send: {e}"))?,
        };
    }
}

/// How a one-way stream is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// One segment per call, without flow control.
    Plain,
    /// GSO runs, without flow control: packets beyond the receiver's speed are lost.
    Gso,
    /// GSO runs with at most [`WINDOW`] bytes outstanding, so nothing is lost.
    GsoWindow,
}

/// Limit of outstanding bytes, well below the smallest default size of a socket buffer.
const WINDOW: usize = 1 << 20;
/// The receiver sends a report after each further number of bytes of this size.
const CREDIT: usize = WINDOW / 4;

/// Arriving bytes per second of a stream of equal segments, received with GRO.
pub fn one_way(cpus: Cpus, segment: u16, flow: Flow, time: Duration) -> Result<f64> {
    let (socket, mut child) =
        connected(cpus, "sink", &[if flow == Flow::GsoWindow { "credit" } else { "quiet" }])?;
    pair::pin(cpus.here)?;
    let size = usize::from(segment);
    let run = if flow == Flow::Plain { size } else { RUN / size * size };
    if flow != Flow::Plain {
        setsockopt(&socket, sockopt::UdpGsoSegment, &i32::from(segment))
            .map_err(|e| format!("UDP_SEGMENT: {e}"))?;
    }
    socket.set_read_timeout(Some(SILENCE / 4)).map_err(|e| format!("socket: {e}"))?;
    let (data, start) = (vec![5; run], Instant::now());
    let (mut sent, mut received, mut lost) = (0, 0, 0);
    while start.elapsed() < time {
        socket.send(&data).map_err(|e| format!("send: {e}"))?;
        sent += run;
        while flow == Flow::GsoWindow && sent - received - lost > WINDOW {
            let mut credit = [0; 8];
            match socket.recv(&mut credit) {
                Ok(_) => received = usize::from_ne_bytes(credit).min(sent - lost),
                // A loss would leave the window full forever.
                Err(_) => lost = sent - received,
            }
        }
    }
    let line = child.line()?;
    let rate = line.parse().map_err(|e| format!("rate {line:?} of the receiver: {e}"))?;
    child.end()?;
    Ok(rate)
}

/// The child of [`one_way`]: counts the arriving bytes until a silence.
pub fn sink(port: u16, credit: bool) -> Result<()> {
    let (socket, own) = bound()?;
    connect(&socket, port)?;
    setsockopt(&socket, sockopt::UdpGroSegment, &true).map_err(|e| format!("UDP_GRO: {e}"))?;
    println!("{own}");
    let mut buf = vec![0; 1 << 17];
    // The first packet only starts the clock, because the sender may have started later.
    let first = socket.recv(&mut buf).map_err(|e| format!("recv: {e}"))?;
    let start = Instant::now();
    let (mut bytes, mut reported, mut last) = (first, 0, start);
    socket.set_read_timeout(Some(SILENCE)).map_err(|e| format!("socket: {e}"))?;
    loop {
        match socket.recv(&mut buf) {
            Ok(n) => {
                bytes += n;
                last = Instant::now();
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => break,
            Err(e) => return Err(format!("recv: {e}")),
        }
        if credit && bytes - reported >= CREDIT {
            reported = bytes;
            // The sender may have ended already.
            let _ = socket.send(&bytes.to_ne_bytes());
        }
    }
    println!("{:e}", (bytes - first) as f64 / (last - start).as_secs_f64());
    Ok(())
}
