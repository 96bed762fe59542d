//! The least that a RoCEv2 device over UDP sockets must do, for a stream of WRITE packets.
//!
//! The sender copies each payload into a packet, sums the packet's ICRC and sends runs of packets
//! by GSO. The receiver takes the runs by GRO, checks each ICRC, copies the payload into place and
//! acknowledges each run. At most 1 MiB is outstanding. There are no queues, no memory regions, no
//! retries and no threads besides the two ends.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::time::{Duration, Instant};

use adverb_wire::ICRC_LEN;
use adverb_wire::icrc::{IpMeta, UdpMeta, icrc};
use nix::sys::socket::{getsockopt, setsockopt, sockopt};

use crate::Result;
use crate::pair::{self, Cpus};

/// First argument of the child that receives. The sender's address, the child's own address and the
/// payload of a packet follow.
pub const RECEIVER: &str = "lean";
/// Payload of a packet, at the largest path MTU and at the path MTU of an Ethernet of 1500 bytes.
pub const PAYLOADS: [usize; 2] = [4096, 1024];
/// Base transport header.
const HEADER: usize = 12;
/// Bytes of an IPv4 datagram.
const DATAGRAM: usize = 65507;
/// The kernel's limit of segments in a run.
const SEGMENTS: usize = 64;
/// Source and destination of the payload, used again and again as perftest does.
const MEMORY: usize = 1 << 20;
/// Payload outstanding at most.
const WINDOW: usize = 1 << 20;
/// Opcode of a middle packet of an RC WRITE.
const WRITE_MIDDLE: u8 = 0x07;
/// Position of the PSN in the header.
const PSN: std::ops::Range<usize> = 9..12;
/// Bytes of an acknowledgement: BTH, AETH and ICRC. The first 8 bytes count the received packets.
const ACK: usize = 20;
/// Size of both socket buffers where a program may exceed the system's limit.
const BUFFER: usize = 8 << 20;
/// After this silence the outstanding packets are lost.
const LOST: Duration = Duration::from_millis(50);
/// After this silence the receiver takes the sender for gone.
const SILENCE: Duration = Duration::from_millis(300);

/// The packets of one sender: their size, and the headers that the ICRC covers besides the packet.
struct Flow {
    payload: usize,
    ip: IpMeta,
    udp: UdpMeta,
}

impl Flow {
    /// The kernel chooses the IPv4 identification, so both ends agree on 0.
    fn new(from: SocketAddrV4, to: SocketAddrV4, payload: usize) -> Self {
        let (src, dst) = (from.ip().octets(), to.ip().octets());
        let ip = IpMeta::V4 { src, dst, id: 0, dont_fragment: true };
        let len = (8 + HEADER + payload + ICRC_LEN) as u16;
        Self { payload, ip, udp: UdpMeta { src_port: from.port(), dst_port: to.port(), len } }
    }

    /// Bytes of a packet.
    fn packet(&self) -> usize {
        HEADER + self.payload + ICRC_LEN
    }

    /// Packets of a run.
    fn run(&self) -> usize {
        (DATAGRAM / self.packet()).min(SEGMENTS)
    }

    fn icrc(&self, covered: &[u8]) -> [u8; ICRC_LEN] {
        icrc(&self.ip, &self.udp, covered).to_le_bytes()
    }

    /// Fills the packets of a run with the memory from `from` on; `first` is the PSN of the first
    /// packet.
    fn stage(&self, run: &mut [u8], memory: &[u8], from: usize, first: usize) {
        for (n, packet) in run.chunks_exact_mut(self.packet()).enumerate() {
            let at = (from + n * self.payload) % MEMORY;
            packet[0] = WRITE_MIDDLE;
            packet[PSN].copy_from_slice(&((first + n) as u32).to_be_bytes()[1..]);
            packet[HEADER..HEADER + self.payload].copy_from_slice(&memory[at..at + self.payload]);
            let (covered, icrc) = packet.split_at_mut(HEADER + self.payload);
            icrc.copy_from_slice(&self.icrc(covered));
        }
    }

    /// Checks the packets of a run and places their payload; returns the number of the good
    /// packets.
    fn place(&self, run: &[u8], memory: &mut [u8]) -> usize {
        let mut good = 0;
        for packet in run.chunks_exact(self.packet()) {
            let (covered, icrc) = packet.split_at(HEADER + self.payload);
            if self.icrc(covered) != *icrc {
                continue;
            }
            let [a, b, c] = [covered[PSN.start], covered[PSN.start + 1], covered[PSN.start + 2]];
            let at = u32::from_be_bytes([0, a, b, c]) as usize * self.payload % MEMORY;
            memory[at..at + self.payload].copy_from_slice(&covered[HEADER..]);
            good += 1;
        }
        good
    }
}

/// A socket at an address, with buffers beyond the system's limit where this process may have them.
fn bound(own: Ipv4Addr) -> Result<(UdpSocket, SocketAddrV4)> {
    let socket = UdpSocket::bind((own, 0)).map_err(|e| format!("bind: {e}"))?;
    let _ = setsockopt(&socket, sockopt::RcvBuf, &BUFFER);
    let _ = setsockopt(&socket, sockopt::SndBuf, &BUFFER);
    let _ = setsockopt(&socket, sockopt::RcvBufForce, &BUFFER);
    let _ = setsockopt(&socket, sockopt::SndBufForce, &BUFFER);
    socket.set_nonblocking(true).map_err(|e| format!("socket: {e}"))?;
    let port = socket.local_addr().map_err(|e| format!("address: {e}"))?.port();
    Ok((socket, SocketAddrV4::new(own, port)))
}

fn connect(socket: &UdpSocket, to: SocketAddrV4) -> Result<()> {
    socket.connect(to).map_err(|e| format!("connect: {e}"))
}

/// The two ends of a stream: their addresses, and the command that starts the receiver's program in
/// another namespace, if any.
#[derive(Clone, Copy, Debug)]
pub struct LeanPath<'a> {
    /// The sender's address.
    pub here: Ipv4Addr,
    /// The receiver's address.
    pub there: Ipv4Addr,
    /// The start of the receiver's command line.
    pub before: &'a [String],
}

impl LeanPath<'_> {
    /// Both ends on the loopback interface.
    pub const LOOPBACK: LeanPath<'static> =
        LeanPath { here: Ipv4Addr::LOCALHOST, there: Ipv4Addr::LOCALHOST, before: &[] };
}

/// Acknowledged payload bytes per second, in packets with this payload.
///
/// # Errors
/// An end cannot be started, or a packet arrived with a wrong ICRC.
pub fn stream(way: LeanPath<'_>, cpus: Cpus, payload: usize, time: Duration) -> Result<f64> {
    let (socket, own) = bound(way.here)?;
    let args = [RECEIVER.into(), own.to_string(), way.there.to_string(), payload.to_string()];
    let mut child = pair::start_with(way.before, cpus.there, &args)?;
    let line = child.line()?;
    let port = line.parse().map_err(|e| format!("port {line:?} of the other process: {e}"))?;
    let to = SocketAddrV4::new(way.there, port);
    connect(&socket, to)?;
    pair::pin(cpus.here)?;
    let flow = Flow::new(own, to, payload);
    let packets = flow.run();
    setsockopt(&socket, sockopt::UdpGsoSegment, &(flow.packet() as i32))
        .map_err(|e| format!("UDP_SEGMENT: {e}"))?;
    // The receiver's buffer has the same size. The kernel counts its own bytes in it, too.
    let buffer = getsockopt(&socket, sockopt::RcvBuf).map_err(|e| format!("SO_RCVBUF: {e}"))?;
    let window = (WINDOW.min(buffer / 2) / payload).max(packets);
    let memory: Vec<u8> = (0..MEMORY).map(|n| (n * 7) as u8).collect();
    let (mut run, mut ack) = (vec![0; packets * flow.packet()], [0; ACK]);
    let (mut sent, mut acked, mut lost) = (0, 0, 0);
    let (start, mut heard) = (Instant::now(), Instant::now());
    while start.elapsed() < time {
        while sent + packets - acked - lost <= window {
            flow.stage(&mut run, &memory, sent * payload, sent);
            match socket.send(&run) {
                Ok(_) => sent += packets,
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) => return Err(format!("send: {e}")),
            }
        }
        match socket.recv(&mut ack) {
            Ok(_) => {
                let [a, b, c, d, e, f, g, h, ..] = ack;
                acked = usize::from_ne_bytes([a, b, c, d, e, f, g, h]).min(sent - lost);
                heard = Instant::now();
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock && heard.elapsed() > LOST => {
                lost = sent - acked;
                heard = Instant::now();
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            Err(e) => return Err(format!("recv: {e}")),
        }
    }
    let rate = (acked * payload) as f64 / start.elapsed().as_secs_f64();
    let bad = child.line()?;
    child.end()?;
    if bad == "0" { Ok(rate) } else { Err(format!("{bad} packets arrived with a wrong ICRC")) }
}

/// The child of [`stream`], with the arguments behind [`RECEIVER`]. After a silence it prints the
/// number of bad packets.
///
/// # Errors
/// An argument is wrong, or a socket fails.
pub fn receiver(args: &[String]) -> Result<()> {
    let [from, own, payload] = args else {
        return Err(format!("addresses and a payload, not {args:?}"));
    };
    let from = from.parse().map_err(|e| format!("{from}: {e}"))?;
    let payload = payload.parse().map_err(|e| format!("{payload}: {e}"))?;
    let (socket, own) = bound(own.parse().map_err(|e| format!("{own}: {e}"))?)?;
    connect(&socket, from)?;
    setsockopt(&socket, sockopt::UdpGroSegment, &true).map_err(|e| format!("UDP_GRO: {e}"))?;
    println!("{}", own.port());
    let flow = Flow::new(from, own, payload);
    let (mut run, mut memory) = (vec![0; 1 << 16], vec![0; MEMORY]);
    let (mut good, mut bad, mut ack) = (0, 0, [0; ACK]);
    let mut heard = Instant::now();
    loop {
        match socket.recv(&mut run) {
            Ok(n) => {
                let placed = flow.place(&run[..n], &mut memory);
                good += placed;
                bad += n / flow.packet() - placed;
                ack[..8].copy_from_slice(&good.to_ne_bytes());
                // The sender may have ended already.
                let _ = socket.send(&ack);
                heard = Instant::now();
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                if heard.elapsed() > SILENCE {
                    break;
                }
            }
            Err(e) => return Err(format!("recv: {e}")),
        }
    }
    println!("{bad}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_arrives_whole_and_a_changed_byte_is_found() {
        for payload in PAYLOADS {
            let at = |port| SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
            let flow = Flow::new(at(1), at(2), payload);
            let packets = flow.run();
            let memory: Vec<u8> = (0..MEMORY).map(|n| (n * 7) as u8).collect();
            let (mut run, mut there) = (vec![0; packets * flow.packet()], vec![0; MEMORY]);
            let first = MEMORY / payload - 1;
            flow.stage(&mut run, &memory, first * payload, first);
            assert_eq!(flow.place(&run, &mut there), packets);
            // The run begins with the last payload of the memory and goes on at its start.
            assert_eq!(there[first * payload..], memory[first * payload..]);
            let rest = (packets - 1) * payload;
            assert_eq!(there[..rest], memory[..rest]);
            run[HEADER] ^= 1;
            assert_eq!(flow.place(&run, &mut there), packets - 1);
        }
    }
}
