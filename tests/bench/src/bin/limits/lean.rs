//! The least that a RoCEv2 device over UDP sockets must do, for a stream of WRITE packets.
//!
//! The sender copies each 4 KiB of payload into a packet, sums the packet's ICRC and sends runs of
//! packets by GSO. The receiver takes the runs by GRO, checks each ICRC, copies the payload into
//! place and acknowledges each run. At most 1 MiB is outstanding. There are no queues, no memory
//! regions, no retries and no threads besides the two ends.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use adverb_bench::Result;
use adverb_bench::pair::{self, Cpus};
use adverb_wire::ICRC_LEN;
use adverb_wire::icrc::{IcrcState, IpMeta, UdpMeta};
use nix::sys::socket::{getsockopt, setsockopt, sockopt};

use super::udp::{bound, connected};

/// Payload of a packet: the largest path MTU.
const PAYLOAD: usize = 4096;
/// Base transport header.
const HEADER: usize = 12;
const PACKET: usize = HEADER + PAYLOAD + ICRC_LEN;
/// Packets of a run: as many as an IPv4 datagram holds.
const RUN: usize = 65507 / PACKET;
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

/// The headers that the ICRC covers besides the packet.
struct Flow {
    ip: IpMeta,
    udp: UdpMeta,
}

impl Flow {
    /// The flow between two ports of the loopback interface. The kernel chooses the IPv4
    /// identification, so both ends agree on 0.
    fn new(from: u16, to: u16) -> Self {
        let localhost = Ipv4Addr::LOCALHOST.octets();
        let ip = IpMeta::V4 { src: localhost, dst: localhost, id: 0, dont_fragment: true };
        Self { ip, udp: UdpMeta { src_port: from, dst_port: to, len: (8 + PACKET) as u16 } }
    }

    fn icrc(&self, covered: &[u8]) -> [u8; ICRC_LEN] {
        IcrcState::new(&self.ip, &self.udp, covered).finish()
    }
}

fn port(address: std::io::Result<SocketAddr>) -> Result<u16> {
    address.map(|a| a.port()).map_err(|e| format!("address: {e}"))
}

/// Widens the socket's buffers beyond the system's limit, where this process may.
fn widen(socket: &UdpSocket) {
    let _ = setsockopt(socket, sockopt::RcvBufForce, &BUFFER);
    let _ = setsockopt(socket, sockopt::SndBufForce, &BUFFER);
}

/// Fills the packets of a run with the memory from `from` on; `first` is the PSN of the first
/// packet.
fn stage(run: &mut [u8], memory: &[u8], from: usize, first: usize, flow: &Flow) {
    for (n, packet) in run.chunks_exact_mut(PACKET).enumerate() {
        let at = (from + n * PAYLOAD) % MEMORY;
        packet[0] = WRITE_MIDDLE;
        packet[PSN].copy_from_slice(&((first + n) as u32).to_be_bytes()[1..]);
        packet[HEADER..HEADER + PAYLOAD].copy_from_slice(&memory[at..at + PAYLOAD]);
        let (covered, icrc) = packet.split_at_mut(HEADER + PAYLOAD);
        icrc.copy_from_slice(&flow.icrc(covered));
    }
}

/// Checks the packets of a run and places their payload; returns the number of the good packets.
fn place(run: &[u8], memory: &mut [u8], flow: &Flow) -> usize {
    let mut good = 0;
    for packet in run.chunks_exact(PACKET) {
        let (covered, icrc) = packet.split_at(HEADER + PAYLOAD);
        if flow.icrc(covered) != *icrc {
            continue;
        }
        let [a, b, c] = [covered[PSN.start], covered[PSN.start + 1], covered[PSN.start + 2]];
        let at = u32::from_be_bytes([0, a, b, c]) as usize * PAYLOAD % MEMORY;
        memory[at..at + PAYLOAD].copy_from_slice(&covered[HEADER..]);
        good += 1;
    }
    good
}

/// Acknowledged payload bytes per second.
pub fn stream(cpus: Cpus, time: Duration) -> Result<f64> {
    let (socket, mut child) = connected(cpus, "lean", &[])?;
    pair::pin(cpus.here)?;
    widen(&socket);
    socket.set_nonblocking(true).map_err(|e| format!("socket: {e}"))?;
    setsockopt(&socket, sockopt::UdpGsoSegment, &(PACKET as i32))
        .map_err(|e| format!("UDP_SEGMENT: {e}"))?;
    // The receiver's buffer has the same size. The kernel counts its own bytes in it, too.
    let buffer = getsockopt(&socket, sockopt::RcvBuf).map_err(|e| format!("SO_RCVBUF: {e}"))?;
    let window = (WINDOW.min(buffer / 2) / PAYLOAD).max(RUN);
    let flow = Flow::new(port(socket.local_addr())?, port(socket.peer_addr())?);
    let memory: Vec<u8> = (0..MEMORY).map(|n| (n * 7) as u8).collect();
    let (mut run, mut ack) = (vec![0; RUN * PACKET], [0; ACK]);
    let (mut sent, mut acked, mut lost) = (0, 0, 0);
    let (start, mut heard) = (Instant::now(), Instant::now());
    while start.elapsed() < time {
        while sent + RUN - acked - lost <= window {
            stage(&mut run, &memory, sent * PAYLOAD, sent, &flow);
            match socket.send(&run) {
                Ok(_) => sent += RUN,
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
    let rate = (acked * PAYLOAD) as f64 / start.elapsed().as_secs_f64();
    let bad = child.line()?;
    child.end()?;
    if bad == "0" { Ok(rate) } else { Err(format!("{bad} packets arrived with a wrong ICRC")) }
}

/// The child of [`stream`]. After a silence it prints the number of bad packets.
pub fn receiver(to: u16) -> Result<()> {
    let (socket, own) = bound()?;
    super::udp::connect(&socket, to)?;
    widen(&socket);
    socket.set_nonblocking(true).map_err(|e| format!("socket: {e}"))?;
    setsockopt(&socket, sockopt::UdpGroSegment, &true).map_err(|e| format!("UDP_GRO: {e}"))?;
    println!("{own}");
    let flow = Flow::new(to, own);
    let (mut run, mut memory) = (vec![0; 1 << 16], vec![0; MEMORY]);
    let (mut good, mut bad, mut ack) = (0, 0, [0; ACK]);
    let mut heard = Instant::now();
    loop {
        match socket.recv(&mut run) {
            Ok(n) => {
                let placed = place(&run[..n], &mut memory, &flow);
                good += placed;
                bad += n / PACKET - placed;
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
        let flow = Flow::new(1, 2);
        let memory: Vec<u8> = (0..MEMORY).map(|n| (n * 7) as u8).collect();
        let (mut run, mut there) = (vec![0; RUN * PACKET], vec![0; MEMORY]);
        let first = MEMORY / PAYLOAD - 1;
        stage(&mut run, &memory, first * PAYLOAD, first, &flow);
        assert_eq!(place(&run, &mut there, &flow), RUN);
        // The run begins with the last 4 KiB of the memory and goes on at its start.
        assert_eq!(there[first * PAYLOAD..], memory[first * PAYLOAD..]);
        assert_eq!(there[..(RUN - 1) * PAYLOAD], memory[..(RUN - 1) * PAYLOAD]);
        run[HEADER] ^= 1;
        assert_eq!(place(&run, &mut there, &flow), RUN - 1);
    }
}
