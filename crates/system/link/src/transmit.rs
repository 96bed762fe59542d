//! Sending: packets of equal size to one destination leave as one GSO run.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use adverb_local::{Slot, slot_of_qpn};
use adverb_os::sys::{self, Fd, RawAddr, SendOptions};

use crate::address::AddressSocket;
use crate::capture::{Capture, Flow};
use crate::icrc::{ICRC_LEN, Sums};
use crate::packet::dest_qpn;
use crate::stats::{Counters, add};
use crate::types::Route;
use crate::udp::UdpLink;

/// The largest UDP payload over IPv4.
const MAX_UDP: usize = 65507;
/// The longest run. With its headers of Ethernet, VLAN, IPv6 and UDP (66 bytes) a run stays below
/// 64 KiB, the kernel's `gso_max_size`. The kernel cuts a longer run in software before the
/// interface. Over a cable this halves the bandwidth.
const MAX_RUN: usize = (1 << 16) - 1 - 66;
/// The kernel's limit of segments in a run (`UDP_MAX_SEGMENTS` before Linux 6.9; later 128).
const MAX_SEGMENTS: usize = 64;
/// How long a sender waits for a full socket. Then the packets are dropped, as in a network.
const FULL_WAIT: Duration = Duration::from_millis(20);

/// A reusable staging buffer of 64 KiB for one sending thread, always used with the same link.
///
/// [`TxBatch::push`] stages packets. The batch sends them when a packet does not fit the run, or by
/// [`TxBatch::flush`]. Dropping the batch discards staged packets.
pub struct TxBatch {
    buffer: Vec<u8>,
    /// Bytes staged.
    used: usize,
    /// Packets staged.
    count: usize,
    /// The size of every packet of the run except the last, which may be shorter.
    stride: usize,
    /// The largest number of packets in this run.
    most: usize,
    /// The slot of the run's DestQPs. On one host a run arrives as one datagram, steered to one
    /// process.
    slot: Option<Slot>,
    run: Option<(Route, Arc<AddressSocket>)>,
    /// The ICRCs of the run.
    sums: Sums,
}

impl Default for TxBatch {
    fn default() -> Self {
        TxBatch {
            buffer: vec![0; sys::DATAGRAM],
            used: 0,
            count: 0,
            stride: 0,
            most: 0,
            slot: None,
            run: None,
            sums: Sums::default(),
        }
    }
}

impl TxBatch {
    /// Whether no packet is staged.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Stages one packet: `headers` beginning with the BTH, `payload_len` bytes written by `fill`,
    /// `pad` zero bytes, and the ICRC. Sends the run staged before if the packet cannot join it.
    ///
    /// Stages nothing if `fill` returns `false`, because the payload was not available.
    ///
    /// A packet that cannot be sent (too large, no such local address) is counted as dropped.
    #[allow(clippy::too_many_arguments)]
    pub fn push(
        &mut self,
        link: &UdpLink,
        route: &Route,
        headers: &[u8],
        payload_len: usize,
        pad: u8,
        fill: impl FnOnce(&mut [u8]) -> bool,
    ) {
        let body = headers.len() + payload_len;
        let covered = body + pad as usize;
        let total = covered + ICRC_LEN;
        if total > MAX_UDP {
            return add(&link.counters.tx_drop_too_big, 1);
        }
        let slot = (headers.len() >= 8).then(|| slot_of_qpn(dest_qpn(headers))).flatten();
        if slot != self.slot || !self.joins(route, total) {
            self.flush(link);
            let Some(socket) = link.socket(route.local) else {
                return add(&link.counters.tx_drop_other, 1);
            };
            self.most = if socket.no_gso.load(Relaxed) {
                1
            } else {
                link.config.max_segments.min(MAX_SEGMENTS)
            };
            self.stride = total;
            self.slot = slot;
            self.run = Some((*route, socket));
            self.sums = Sums::default();
        }
        let Some((_, socket)) = &self.run else { return };
        let packet = &mut self.buffer[self.used..self.used + total];
        packet[..headers.len()].copy_from_slice(headers);
        if !fill(&mut packet[headers.len()..body]) {
            return;
        }
        packet[body..covered].fill(0);
        // Software segmentation counts the IPv4 identification from 0 in each run.
        let (_, from) = socket.sender(route.source);
        let icrc = self.sums.compute(from, &route.dst, self.count as u16, &packet[..covered]);
        packet[covered..].copy_from_slice(&icrc);
        self.used += total;
        self.count += 1;
    }

    /// Whether a packet of `total` bytes may join the staged run.
    fn joins(&self, route: &Route, total: usize) -> bool {
        let whole = self.used == self.count * self.stride;
        self.count != 0
            && self.count < self.most
            && whole
            && total <= self.stride
            && self.used + total <= MAX_RUN
            && self.run.as_ref().is_some_and(|(of, _)| of == route)
    }

    /// Sends the staged packets. Packets not accepted by the socket within about 20 ms are dropped
    /// and counted.
    pub fn flush(&mut self, link: &UdpLink) {
        // A dropped packet is counted; the sender's protocol sends the packet again.
        let _counted = self.try_flush(link);
    }

    /// As [`TxBatch::flush`], for a sender without retransmission.
    ///
    /// # Errors
    /// The kernel's error for the last dropped packet of the run. The drop has been counted.
    pub fn try_flush(&mut self, link: &UdpLink) -> io::Result<()> {
        let Some((route, socket)) = self.run.take() else { return Ok(()) };
        let sent = if self.count == 0 { Ok(()) } else { self.send(link, &route, &socket) };
        self.used = 0;
        self.count = 0;
        sent
    }

    fn send(&mut self, link: &UdpLink, route: &Route, socket: &AddressSocket) -> io::Result<()> {
        let to = RawAddr::inet(&route.dst);
        let (fd, from) = socket.sender(route.source);
        let mut options = SendOptions {
            segment: if self.count > 1 { self.stride as u16 } else { 0 },
            traffic_class: route.traffic_class,
            hop_limit: route.hop_limit,
        };
        let counters = &link.counters;
        let bytes = &mut self.buffer[..self.used];
        let record = Record::of(link, route, from);
        record.about_to_send(bytes, self.stride, "sent");
        let refused = match send_waiting(fd, socket.v6, &to, bytes, options, counters) {
            Ok(()) => {
                add(&counters.tx_packets, self.count as u64);
                add(&counters.tx_bytes, self.used as u64);
                add(&counters.tx_runs, u64::from(self.count > 1));
                return Ok(());
            }
            Err(error) if self.count > 1 && gso_refused(&error) => error,
            Err(error) => {
                record.not_sent(bytes, self.stride, &error);
                count_drop(link, &error, self.count as u64);
                return Err(error);
            }
        };
        record.not_sent(bytes, self.stride, &refused);
        // Packet by packet: each packet is then a separate datagram with identification 0.
        options.segment = 0;
        let (mut sent, mut result) = (0, Ok(()));
        for packet in bytes.chunks_mut(self.stride) {
            let covered = packet.len() - ICRC_LEN;
            let icrc = self.sums.compute(from, &route.dst, 0, &packet[..covered]);
            packet[covered..].copy_from_slice(&icrc);
            record.about_to_send(packet, packet.len(), "sent");
            match send_waiting(fd, socket.v6, &to, packet, options, counters) {
                Ok(()) => {
                    sent += 1;
                    add(&counters.tx_packets, 1);
                    add(&counters.tx_bytes, packet.len() as u64);
                }
                Err(error) => {
                    record.not_sent(packet, packet.len(), &error);
                    count_drop(link, &error, 1);
                    result = Err(error);
                }
            }
        }
        // A run refused because its packets exceed the MTU says nothing about GSO: single packets
        // fail, too.
        if sent > 0 && !socket.no_gso.swap(true, Relaxed) {
            log::warn!(
                "{}: the kernel refuses GSO runs ({refused}); sending packet by packet",
                socket.local
            );
        }
        result
    }
}

/// The capture, if there is one, and the flow of a run.
struct Record<'a>(Option<(&'a Capture, Flow)>);

impl<'a> Record<'a> {
    fn of(link: &'a UdpLink, route: &Route, from: &SocketAddr) -> Self {
        Record(link.tap.capture.as_deref().map(|capture| {
            let Route { dst, traffic_class, hop_limit, .. } = *route;
            (capture, Flow { src: *from, dst, traffic_class, hop_limit })
        }))
    }

    /// Called before the send, so that no answer is recorded earlier.
    fn about_to_send(&self, bytes: &[u8], stride: usize, comment: &str) {
        if let Some((capture, flow)) = &self.0 {
            capture.sent(flow, bytes, stride, comment);
            capture.flush();
        }
    }

    fn not_sent(&self, bytes: &[u8], stride: usize, error: &io::Error) {
        let comment = format!("the packet of this PSN recorded before was not sent: {error}");
        self.about_to_send(bytes, stride, &comment);
    }
}

/// Whether the kernel or the driver refuses this run but may accept its packets singly.
fn gso_refused(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EIO | libc::EINVAL | libc::EMSGSIZE | libc::EOPNOTSUPP)
    )
}

fn count_drop(link: &UdpLink, error: &io::Error, packets: u64) {
    let counters = &link.counters;
    let counter = match error.raw_os_error() {
        Some(libc::EAGAIN | libc::ENOBUFS) => &counters.tx_drop_full,
        Some(libc::EMSGSIZE) => &counters.tx_drop_too_big,
        Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::ENETDOWN | libc::EHOSTDOWN) => {
            &counters.tx_drop_unreachable
        }
        _ => &counters.tx_drop_other,
    };
    add(counter, packets);
    // A full socket is not logged as an error.
    if !matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ENOBUFS)) {
        link.local.errors().note("send packets", error);
    }
}

/// Sends. Waits a bounded time while the socket is full.
fn send_waiting(
    fd: &Fd,
    v6: bool,
    to: &RawAddr,
    bytes: &[u8],
    options: SendOptions,
    counters: &Counters,
) -> io::Result<()> {
    let mut until = None;
    loop {
        add(&counters.tx_syscalls, 1);
        let error = match sys::send(fd, v6, to, bytes, options) {
            Ok(_) => return Ok(()),
            Err(error) => error,
        };
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::EAGAIN | libc::ENOBUFS) => {
                let until = *until.get_or_insert_with(|| Instant::now() + FULL_WAIT);
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(error);
                }
                if error.raw_os_error() == Some(libc::ENOBUFS) {
                    // The device's queue is full, although the socket polls as writable.
                    std::thread::sleep(Duration::from_micros(50).min(left));
                } else {
                    let _ =
                        sys::poll(&[fd.raw()], libc::POLLOUT, left.max(Duration::from_millis(1)));
                }
            }
            _ => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests;
