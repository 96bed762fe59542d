//! The least that a carrier of RDMA messages over a TCP stream must do.
//!
//! The sender writes a header of 32 bytes and the payload straight from the user's memory. The
//! receiver reads the payload straight into place and acknowledges each message. There is no ICRC:
//! only TCP's checksum of 16 bits covers the payload, and the kernel skips that on loopback and
//! veth. There are no queues, no memory regions and no threads besides the two ends, which never
//! sleep. The host's congestion control applies.

use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use adverb_bench::Result;
use adverb_bench::pair::{self, Cpus, Trips};

/// Opcode, number of the message, place of the payload and its length.
const HEADER: usize = 32;
/// Opcode of an RC WRITE that is one packet.
const WRITE_ONLY: u8 = 0x0a;
/// An acknowledgement. The first 8 bytes count the received messages.
const ACK: usize = 16;
/// Source and destination of the payload, used again and again as perftest does.
const MEMORY: usize = 1 << 20;
/// Messages outstanding at most, of 1 MiB each. With only one, the ends would wait in turn.
const WINDOW: u64 = 4;
/// Payload of a ping.
const PING: usize = 8;

/// A message on its way out.
struct Outbound {
    header: [u8; HEADER],
    len: usize,
    done: usize,
}

impl Outbound {
    /// The message with this number: the first `len` bytes of the memory.
    fn new(number: u64, len: usize) -> Self {
        let mut header = [0; HEADER];
        header[0] = WRITE_ONLY;
        header[8..16].copy_from_slice(&number.to_be_bytes());
        header[24..32].copy_from_slice(&(len as u64).to_be_bytes());
        Self { header, len, done: 0 }
    }

    /// Writes what the stream takes; `true` once the whole message is written.
    fn push(&mut self, to: &mut impl Write, memory: &[u8]) -> Result<bool> {
        let (header, payload) = (self.done.min(HEADER), self.done.saturating_sub(HEADER));
        let parts =
            [IoSlice::new(&self.header[header..]), IoSlice::new(&memory[payload..self.len])];
        self.done += ready(to.write_vectored(&parts))?.unwrap_or(0);
        Ok(self.done == HEADER + self.len)
    }
}

/// The receiving side of a stream.
struct Inbound {
    memory: Vec<u8>,
    header: [u8; HEADER],
    /// Bytes that have come of the next header.
    known: usize,
    /// Place and length of the payload that is still to come.
    at: usize,
    left: usize,
    /// Whole messages.
    messages: u64,
}

impl Inbound {
    fn new() -> Self {
        Self { memory: vec![0; MEMORY], header: [0; HEADER], known: 0, at: 0, left: 0, messages: 0 }
    }

    /// Reads once: the rest of a payload into place, and what is there of the next header. `false`
    /// at the end of the stream.
    fn pull(&mut self, from: &mut impl Read) -> Result<bool> {
        let place = self.memory.get_mut(self.at..self.at + self.left).ok_or("no such place")?;
        let mut parts = [IoSliceMut::new(place), IoSliceMut::new(&mut self.header[self.known..])];
        let Some(n) = ready(from.read_vectored(&mut parts))? else { return Ok(true) };
        let payload = n.min(self.left);
        self.at += payload;
        self.left -= payload;
        self.messages += u64::from(payload > 0 && self.left == 0);
        self.known += n - payload;
        if self.known == HEADER {
            let number =
                |at| self.header[at..].first_chunk().map(|b| u64::from_be_bytes(*b) as usize);
            (self.at, self.left) = (number(16).unwrap_or(0), number(24).unwrap_or(0));
            self.known = 0;
        }
        Ok(n > 0)
    }
}

/// The result of a call on a stream; `None` if the call would block.
fn ready(result: std::io::Result<usize>) -> Result<Option<usize>> {
    match result {
        Ok(n) => Ok(Some(n)),
        Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(e) => Err(wrong(e)),
    }
}

fn wrong(e: std::io::Error) -> String {
    format!("stream: {e}")
}

fn polled(stream: TcpStream) -> Result<TcpStream> {
    stream.set_nodelay(true).and_then(|()| stream.set_nonblocking(true)).map_err(wrong)?;
    Ok(stream)
}

/// A stream to a child of the given kind.
fn connected(cpus: Cpus, kind: &str) -> Result<(TcpStream, pair::Other)> {
    let mut child = pair::start(cpus.there, &[kind.to_string()])?;
    let line = child.line()?;
    let port: u16 = line.parse().map_err(|e| format!("port {line:?} of the other process: {e}"))?;
    pair::pin(cpus.here)?;
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).map_err(wrong)?;
    Ok((polled(stream)?, child))
}

fn accepted() -> Result<TcpStream> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(wrong)?;
    println!("{}", listener.local_addr().map_err(wrong)?.port());
    polled(listener.accept().map_err(wrong)?.0)
}

fn pattern() -> Vec<u8> {
    (0..MEMORY).map(|n| (n * 7) as u8).collect()
}

/// Acknowledged payload bytes per second, in messages of 1 MiB.
pub fn stream(cpus: Cpus, time: Duration) -> Result<f64> {
    let (mut stream, mut child) = connected(cpus, "stream")?;
    let (memory, mut ack, mut known) = (pattern(), [0; ACK], 0);
    let (mut sent, mut acked, start) = (0, 0, Instant::now());
    let mut message = Outbound::new(0, MEMORY);
    while start.elapsed() < time || message.done > 0 {
        if sent - acked < WINDOW && message.push(&mut stream, &memory)? {
            sent += 1;
            message = Outbound::new(sent, MEMORY);
        }
        known += ready(stream.read(&mut ack[known..]))?.unwrap_or(0);
        if known == ACK {
            acked = ack.first_chunk().map_or(0, |count| u64::from_ne_bytes(*count));
            known = 0;
        }
    }
    let rate = (acked * MEMORY as u64) as f64 / start.elapsed().as_secs_f64();
    stream.shutdown(std::net::Shutdown::Write).map_err(wrong)?;
    let bad = child.line()?;
    child.end()?;
    if bad == "0" { Ok(rate) } else { Err(format!("{bad} bytes arrived changed")) }
}

/// Receives until the end of the stream. Each message is answered with its number.
fn serve(answer: impl Fn(&mut TcpStream, u64) -> Result<()>) -> Result<Inbound> {
    let (mut stream, mut inbound, mut answered) = (accepted()?, Inbound::new(), 0);
    while inbound.pull(&mut stream)? {
        if inbound.messages > answered {
            answered = inbound.messages;
            answer(&mut stream, answered)?;
        }
    }
    Ok(inbound)
}

/// The child of [`stream`]. At the end of the stream it prints the number of wrong bytes.
pub fn receiver() -> Result<()> {
    let inbound = serve(|stream, count| {
        let mut ack = [0; ACK];
        ack[..8].copy_from_slice(&count.to_ne_bytes());
        stream.write_all(&ack).map_err(wrong)
    })?;
    println!("{}", inbound.memory.iter().zip(pattern()).filter(|(a, b)| **a != *b).count());
    Ok(())
}

/// Half of the median round trip of a message of 8 bytes in seconds.
pub fn ping_pong(cpus: Cpus, time: Duration) -> Result<f64> {
    let (mut stream, child) = connected(cpus, "stream_echo")?;
    let (mut inbound, mut trips) = (Inbound::new(), Trips::new(time));
    for number in 1.. {
        ping(&mut stream, number)?;
        while inbound.messages < number && inbound.pull(&mut stream)? {}
        trips.done();
        if !trips.more() {
            break;
        }
    }
    drop(stream);
    child.end()?;
    Ok(trips.half_median())
}

/// The child of [`ping_pong`].
pub fn echo() -> Result<()> {
    serve(ping).map(|_| ())
}

fn ping(stream: &mut TcpStream, number: u64) -> Result<()> {
    let mut message = Outbound::new(number, PING);
    while !message.push(stream, &[7; PING])? {}
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The buffers of the socket are smaller than a message, so they cut it.
    #[test]
    fn messages_arrive_whole_however_the_stream_cuts_them() {
        let (mut here, mut there) = std::os::unix::net::UnixStream::pair().unwrap();
        here.set_nonblocking(true).and(there.set_nonblocking(true)).unwrap();
        let (memory, mut inbound) = (pattern(), Inbound::new());
        for (number, len) in [(0, PING), (1, MEMORY), (2, 5000)] {
            let mut message = Outbound::new(number, len);
            while !message.push(&mut here, &memory).unwrap() {
                assert!(inbound.pull(&mut there).unwrap());
            }
        }
        drop(here);
        while inbound.pull(&mut there).unwrap() {}
        assert_eq!((inbound.messages, inbound.left, inbound.known), (3, 0, 0));
        assert_eq!(inbound.memory, memory);
    }
}
