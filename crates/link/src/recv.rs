//! Receiving: GRO datagrams are split, each packet's ICRC is checked, and what another process owns is handed on.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use adverb_wire::icrc::Solver;

use crate::address::AddressSocket;
use crate::hello::Greeting;
use crate::icrc::{self, ICRC_LEN};
use crate::slot::{self, Envelope, Message, PROBE_QPN, Slot, SlotClaim, slot_of_qpn};
use crate::stats::add;
use crate::sys::{self, Received, RecvVec};
use crate::types::{RxFrom, RxPacket, dest_qpn};
use crate::udp::{Sockets, UdpLink};

/// Length of a BTH, the least a packet has before its ICRC.
const BTH_LEN: usize = 12;
/// Bytes of the longest packet before its ICRC: all that any queue pair takes, headers and the largest path MTU. Nothing longer
/// is summed up, kept or handed on.
pub(crate) const MAX_PACKET: usize = adverb_wire::MAX_HEADER_LEN + 4096;
/// In a spin over all sockets, every how many empty calls those that were not busy last are looked at.
const LOOK_EVERY: u32 = 4;
/// The same for calls that found something.
const LOOK_EVERY_BUSY: u32 = 64;

/// Buffers to receive into: one set for each receiving thread.
pub struct RxBuffers {
    vec: RecvVec,
    /// How many datagrams to ask for next.
    next: usize,
    /// Packets of the datagram in hand that go to another process, as a message without its header.
    foreign: Vec<u8>,
    solver: Solver,
}

impl RxBuffers {
    /// Room for that many GRO datagrams of 64 KiB in one system call, 1 to 16.
    pub fn new(datagrams: usize) -> Self {
        RxBuffers { vec: RecvVec::new(datagrams), next: 1, foreign: Vec::new(), solver: Solver::new() }
    }

    pub(crate) fn parts(&mut self) -> (&mut Solver, &mut Vec<u8>) {
        (&mut self.solver, &mut self.foreign)
    }
}

impl Default for RxBuffers {
    fn default() -> Self {
        Self::new(8)
    }
}

/// A packet kept until somebody receives.
pub(crate) struct OwnedPacket {
    envelope: Envelope,
    local: Option<crate::AddrIndex>,
    handed_on: bool,
    bytes: Vec<u8>,
}

impl OwnedPacket {
    pub(crate) fn keep(packet: &RxPacket<'_>) -> Self {
        OwnedPacket {
            envelope: Envelope::of(packet),
            local: packet.local,
            handed_on: packet.handed_on,
            bytes: packet.bytes.to_vec(),
        }
    }

    pub(crate) fn packet(&self) -> RxPacket<'_> {
        RxPacket {
            src: self.envelope.src,
            dst: self.envelope.dst,
            local: self.local,
            traffic_class: self.envelope.traffic_class,
            hop_limit: self.envelope.hop_limit,
            handed_on: self.handed_on,
            bytes: &self.bytes,
        }
    }
}

pub type Sink<'a> = &'a mut dyn FnMut(RxPacket<'_>);

impl UdpLink {
    /// Receives without waiting what a system call or a few give, and hands about `budget` packets at most (a datagram
    /// of joined packets is never split) to `sink`, in the order of each socket. Gives back how many. More may be
    /// left unless it gives back 0.
    ///
    /// Only one thread at a time takes from a socket: while another one does, this gives back 0 for it. After a
    /// wake-up ask for the socket that `epoll` named or for [`RxFrom::Every`]: [`RxFrom::All`] is for spinning.
    /// `sink` may send, but must not add or remove addresses.
    ///
    /// # Errors
    /// What the kernel says when a socket is broken (closed after a fork, the address index unknown). Errors that
    /// concern a single packet are skipped.
    pub fn recv(
        &self,
        from: RxFrom,
        buffers: &mut RxBuffers,
        budget: usize,
        sink: &mut dyn FnMut(RxPacket<'_>),
    ) -> io::Result<usize> {
        let early = self.drain_pending(sink) + self.release_held(sink);
        let sockets = self.sockets();
        let got = match from {
            RxFrom::All => self.recv_all(&sockets, buffers, budget, false, sink)?,
            RxFrom::Every => self.recv_all(&sockets, buffers, budget, true, sink)?,
            RxFrom::Addr(index) => {
                let socket = sockets.get(index).ok_or(io::ErrorKind::NotFound)?;
                self.recv_address(&sockets, socket, buffers, budget, sink)?
            }
            RxFrom::HandOver => self.recv_handover(&sockets, buffers, budget, sink)?,
        };
        if let Some(capture) = &self.capture {
            capture.flush();
        }
        Ok(early + got)
    }

    fn drain_pending(&self, sink: Sink<'_>) -> usize {
        if self.pending_len.load(Relaxed) == 0 {
            return 0;
        }
        let kept = {
            let mut pending = self.pending.lock();
            self.pending_len.store(0, Relaxed);
            std::mem::take(&mut *pending)
        };
        kept.iter().for_each(|packet| sink(packet.packet()));
        kept.len()
    }

    fn recv_all(
        &self,
        sockets: &Sockets,
        buffers: &mut RxBuffers,
        budget: usize,
        every: bool,
        sink: Sink<'_>,
    ) -> io::Result<usize> {
        let hot = self.hot.load(Relaxed);
        let mut got = 0;
        if let Some(Some(socket)) = sockets.addresses.get(hot) {
            got = self.recv_address(sockets, socket, buffers, budget, sink)?;
        }
        let calls = self.calls.fetch_add(1, Relaxed);
        if !every && !calls.is_multiple_of(if got == 0 { LOOK_EVERY } else { LOOK_EVERY_BUSY }) {
            return Ok(got);
        }
        // Sixty-four descriptors a system call.
        let live: Vec<_> = sockets.addresses.iter().flatten().filter(|s| s.index.get() != hot).collect();
        for group in live.chunks(64) {
            let fds: Vec<_> = group.iter().map(|socket| socket.fd.raw()).collect();
            let ready = sys::poll(&fds, libc::POLLIN, Duration::ZERO)?;
            for (i, socket) in group.iter().enumerate() {
                if ready >> i & 1 == 0 {
                    continue;
                }
                let n = self.recv_address(sockets, socket, buffers, budget, sink)?;
                if n != 0 {
                    self.hot.store(socket.index.get(), Relaxed);
                }
                got += n;
            }
        }
        Ok(got + self.recv_handover(sockets, buffers, budget, sink)?)
    }

    /// Takes from one UDP socket.
    pub(crate) fn recv_address(
        &self,
        sockets: &Sockets,
        socket: &AddressSocket,
        buffers: &mut RxBuffers,
        budget: usize,
        sink: Sink<'_>,
    ) -> io::Result<usize> {
        let Some(_order) = socket.receiving.try_lock() else { return Ok(0) };
        let RxBuffers { vec, next, foreign, solver } = buffers;
        let mut metas = [None; sys::MAX_DATAGRAMS];
        let mut done = 0;
        let mut errors = 0;
        while done < budget {
            add(&self.counters.rx_syscalls, 1);
            let most = (*next).min(budget - done);
            let (got, asked) = match vec.recv(&socket.fd, most, &mut metas) {
                Ok(result) => result,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    *next = 1;
                    break;
                }
                Err(error) if errors == 16 || error.raw_os_error() == Some(libc::EBADF) => return Err(error),
                // A pending ICMP error or a signal: the next call is a new try.
                Err(_) => {
                    errors += 1;
                    continue;
                }
            };
            add(&self.counters.rx_datagrams, got as u64);
            for (i, meta) in metas[..got].iter().enumerate() {
                if let Some(meta) = meta {
                    let bytes = vec.datagram(i, meta.len);
                    done += self.take_datagram(sockets, socket, meta, bytes, solver, foreign, sink);
                }
            }
            // One at a time while little comes, more at a time while much does.
            *next = if got < asked { got } else { (2 * asked).min(sys::MAX_DATAGRAMS) };
            if got < asked || asked == 1 {
                break;
            }
        }
        Ok(done)
    }

    #[allow(clippy::too_many_arguments)]
    /// Splits one datagram; gives back how many packets went to the sink.
    pub(crate) fn take_datagram(
        &self,
        sockets: &Sockets,
        socket: &AddressSocket,
        meta: &Received,
        bytes: &[u8],
        solver: &mut Solver,
        foreign: &mut Vec<u8>,
        sink: Sink<'_>,
    ) -> usize {
        let (mut packets, mut volume) = (0, 0);
        let mut owner: Option<Slot> = None;
        let mut head = RxPacket {
            src: meta.src,
            dst: socket.local.ip(),
            local: Some(socket.index),
            traffic_class: meta.traffic_class,
            hop_limit: meta.hop_limit,
            handed_on: false,
            bytes: &[],
        };
        if bytes.is_empty() {
            add(&self.counters.rx_drop_runt, 1);
        }
        let mut hint = 0;
        for packet in bytes.chunks(meta.stride) {
            if packet.len() < BTH_LEN + ICRC_LEN || meta.truncated {
                add(&self.counters.rx_drop_runt, 1);
                continue;
            }
            if packet.len() > MAX_PACKET + ICRC_LEN {
                add(&self.counters.rx_drop_oversize, 1);
                continue;
            }
            let Some(id) = icrc::verify(solver, &meta.src, &socket.local, hint, packet) else {
                add(&self.counters.rx_drop_icrc, 1);
                if let Some(capture) = &self.capture {
                    capture.received_raw(&self.flow_of(&head), hint, packet, "received; ICRC wrong, dropped");
                }
                continue;
            };
            // 0, 1, 2 … from a socket like ours; a counter from rxe.
            hint = id.wrapping_add(1);
            head.bytes = &packet[..packet.len() - ICRC_LEN];
            let qpn = dest_qpn(head.bytes);
            match slot_of_qpn(qpn) {
                None if qpn == PROBE_QPN => {
                    if !self.answer_probe(sockets, &head) {
                        add(&self.counters.rx_drop_probe, 1);
                    }
                }
                Some(slot) if !self.owns(slot) => {
                    if owner.is_some_and(|of| of != slot)
                        || foreign.len() + packet.len() > slot::MESSAGE - 128
                    {
                        self.hand_on_run(sockets, socket, owner, &head, foreign);
                    }
                    owner = Some(slot);
                    foreign.extend_from_slice(&(head.bytes.len() as u16).to_le_bytes());
                    foreign.extend_from_slice(head.bytes);
                }
                _ => {
                    let given = self.admit(head, id, sink);
                    packets += given;
                    volume += given * head.bytes.len();
                }
            }
        }
        self.hand_on_run(sockets, socket, owner, &head, foreign);
        add(&self.counters.rx_packets, packets as u64);
        add(&self.counters.rx_bytes, volume as u64);
        packets
    }

    fn hand_on_run(
        &self,
        sockets: &Sockets,
        socket: &AddressSocket,
        owner: Option<Slot>,
        head: &RxPacket<'_>,
        foreign: &mut Vec<u8>,
    ) {
        if let Some(slot) = owner
            && !foreign.is_empty()
            && self.hand_on_message(sockets, slot, &Envelope::of(head), foreign)
        {
            // The owner lives, so the kernel steered wrong. A dead owner is no reason to measure.
            self.want_steering(socket);
        }
        foreign.clear();
    }

    /// Takes what other processes handed on.
    fn recv_handover(
        &self,
        sockets: &Sockets,
        buffers: &mut RxBuffers,
        budget: usize,
        sink: Sink<'_>,
    ) -> io::Result<usize> {
        let mut done = 0;
        for claim in &sockets.claims {
            let Some(_order) = claim.receiving.try_lock() else { continue };
            while done < budget {
                let buffer = buffers.vec.scratch();
                let local = match sys::recv_local(&claim.fd, buffer) {
                    Ok(got) => got,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) => return Err(error),
                };
                if local.uid != Some(self.uid) {
                    add(&self.counters.handover_drop_foreign, 1);
                    continue;
                }
                let bytes = &buffers.vec.datagram(0, local.len)[..local.len];
                done += self.take_message(sockets, claim, bytes, local.pid, local.fds, sink);
            }
        }
        Ok(done)
    }

    pub(crate) fn take_message(
        &self,
        sockets: &Sockets,
        claim: &SlotClaim,
        bytes: &[u8],
        pid: i32,
        fds: Vec<OwnedFd>,
        sink: Sink<'_>,
    ) -> usize {
        let (envelope, packets) = match slot::parse(bytes) {
            Some(Message::Packets { envelope, packets }) => (envelope, packets),
            Some(Message::Nudge { ip }) => {
                sockets
                    .addresses
                    .iter()
                    .flatten()
                    .filter(|s| s.local.ip() == ip)
                    .for_each(|s| self.want_steering(s));
                return 0;
            }
            Some(Message::Hello(hello)) => {
                self.keep_greeting(Greeting { hello, pid, fds });
                return 0;
            }
            Some(Message::Answer { .. }) | None => {
                add(&self.counters.handover_drop_malformed, 1);
                return 0;
            }
        };
        let local =
            sockets.addresses.iter().flatten().find(|s| s.local.ip() == envelope.dst).map(|s| s.index);
        let (mut done, mut handed_on) = (0, 0);
        for packet in slot::packets(packets) {
            let Some(bytes) = packet
                .ok()
                .filter(|bytes| (BTH_LEN..=MAX_PACKET).contains(&bytes.len()))
                .filter(|bytes| slot_of_qpn(dest_qpn(bytes)) == Some(claim.slot()))
            else {
                // Never handed on again: a packet must not travel in circles.
                add(&self.counters.handover_drop_malformed, 1);
                continue;
            };
            handed_on += 1;
            let packet = RxPacket {
                src: envelope.src,
                dst: envelope.dst,
                local,
                traffic_class: envelope.traffic_class,
                hop_limit: envelope.hop_limit,
                handed_on: true,
                bytes,
            };
            let given = self.admit(packet, 0, sink);
            done += given;
            add(&self.counters.rx_bytes, (given * bytes.len()) as u64);
        }
        add(&self.counters.rx_packets, done as u64);
        add(&self.counters.handed_on_in, handed_on);
        done
    }

    /// Answers a steering probe of another process of this user on this host; `false` if it is none, or if the prober
    /// is gone.
    fn answer_probe(&self, sockets: &Sockets, packet: &RxPacket<'_>) -> bool {
        let probe = crate::steer::Probe::parse(packet.bytes)
            .filter(|probe| probe.uid == self.uid && same_host(&packet.src, &packet.dst));
        let (Some(claim), Some(probe)) = (sockets.claims.first(), probe) else { return false };
        let slots: Vec<Slot> = sockets.claims.iter().map(|claim| claim.slot()).collect();
        let answer = slot::answer(probe.nonce, probe.index, &slots);
        let told = sys::send_local(&claim.fd, &probe.reply_name(), &[&answer], &[]).is_ok();
        if told {
            add(&self.counters.probes_answered, 1);
        }
        told
    }
}

/// A probe comes from the address it goes to.
fn same_host(src: &SocketAddr, dst: &IpAddr) -> bool {
    src.ip() == *dst
}
