//! Receiving: asks the sockets for datagrams, and takes messages of other processes.

use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use adverb_local::message;
use adverb_local::{Arrived, MAD_QPN, MULTICAST_QPN, slot_of_qpn};
use adverb_os::sys::{self, Received};

use crate::address::AddressSocket;
use crate::buffers::RxBuffers;
use crate::datagram::Datagram;
use crate::origin::kind::Origin;
use crate::packet::{BTH_LEN, MAX_PACKET, Proof, RxPacket, Sink, dest_qpn};
use crate::stats::add;
use crate::types::RxFrom;
use crate::udp::{Sockets, UdpLink};

/// In a spin over all sockets, this many calls without a packet pass between looks at all sockets.
/// The other calls only look at the most recently busy socket.
const LOOK_EVERY: u32 = 4;
/// The same for calls with packets.
const LOOK_EVERY_BUSY: u32 = 64;

/// A datagram of so many bytes costs more than the system call that brings it.
const LARGE: usize = 32 * 1024;

/// The number of successive errors of a socket before another socket gets a turn.
const MOST_ERRORS: u32 = 16;

impl UdpLink {
    /// Receives without waiting, with one or a few system calls. Gives at most about `budget`
    /// packets to `sink` (a datagram of joined packets is never divided). Returns the number of
    /// packets. More packets may wait unless the call returns 0.
    ///
    /// The packets of each socket keep their order, except that an ACK at the end of a run of
    /// requests comes before the requests.
    ///
    /// Only one thread takes packets from a socket at a time. Meanwhile this call returns 0 for the
    /// socket in other threads. After a wake-up, ask for the socket named by `epoll`, or for
    /// [`RxFrom::Every`]. [`RxFrom::All`] is for spinning. `sink` may send, but must not add or
    /// remove addresses.
    ///
    /// An error of a socket is counted and logged, and does not stop the other sockets. A removed
    /// address gives no packets.
    pub fn recv(
        &self,
        from: RxFrom,
        buffers: &mut RxBuffers,
        budget: usize,
        sink: Sink<'_>,
    ) -> usize {
        let early = self.pending.drain(sink) + self.tap.release_delayed(sink);
        let sockets = self.sockets();
        let got = match from {
            RxFrom::All => self.recv_all(&sockets, buffers, budget, false, sink),
            RxFrom::Every => self.recv_all(&sockets, buffers, budget, true, sink),
            RxFrom::Addr(index) => match sockets.get(index) {
                Some(socket) => self.recv_address(socket, buffers, budget, sink),
                None => 0,
            },
            RxFrom::Processes => self.recv_processes(buffers, budget, sink),
        };
        if let Some(capture) = &self.tap.capture {
            capture.flush();
        }
        early + got
    }

    fn recv_all(
        &self,
        sockets: &Sockets,
        buffers: &mut RxBuffers,
        budget: usize,
        every: bool,
        sink: Sink<'_>,
    ) -> usize {
        let hot = self.hot.load(Relaxed);
        let mut got = 0;
        if let Some(Some(socket)) = sockets.addresses.get(hot) {
            got = self.recv_address(socket, buffers, budget, sink);
        }
        let calls = self.calls.fetch_add(1, Relaxed);
        if !every && !calls.is_multiple_of(if got == 0 { LOOK_EVERY } else { LOOK_EVERY_BUSY }) {
            return got;
        }
        // Poll 64 descriptors with each system call.
        let live: Vec<_> =
            sockets.addresses.iter().flatten().filter(|s| s.index.get() != hot).collect();
        for group in live.chunks(64) {
            let fds: Vec<_> = group.iter().map(|socket| socket.fd.raw()).collect();
            let ready = sys::poll(&fds, libc::POLLIN, Duration::ZERO).unwrap_or_else(|error| {
                self.local.errors().note("poll the UDP sockets", &error);
                0
            });
            for (i, socket) in group.iter().enumerate() {
                if ready >> i & 1 == 0 {
                    continue;
                }
                let n = self.recv_address(socket, buffers, budget, sink);
                if n != 0 {
                    self.hot.store(socket.index.get(), Relaxed);
                }
                got += n;
            }
        }
        got + self.recv_processes(buffers, budget, sink)
    }

    /// Receives from one UDP socket.
    pub(crate) fn recv_address(
        &self,
        socket: &AddressSocket,
        buffers: &mut RxBuffers,
        budget: usize,
        sink: Sink<'_>,
    ) -> usize {
        let Some(mut last) = socket.receiving.try_lock() else { return 0 };
        // An address may have been added since the caller looked, and its packets count from then
        // on.
        let sockets = &*self.sockets();
        let RxBuffers { vec, next, misdirected, solver } = buffers;
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
                // A pending ICMP error or a signal: try again.
                Err(error) => {
                    self.local.errors().note("receive from a UDP socket", &error);
                    if errors == MOST_ERRORS || error.raw_os_error() == Some(libc::EBADF) {
                        break;
                    }
                    errors += 1;
                    continue;
                }
            };
            add(&self.counters.rx_datagrams, got as u64);
            for (i, meta) in metas[..got].iter().enumerate() {
                if let Some(meta) = meta {
                    let bytes = vec.datagram(i, meta.len);
                    let origin = self.origin(sockets, &mut last, meta.src);
                    let datagram = Datagram { link: self, socket, meta, origin, bytes };
                    done += datagram.take(solver, misdirected, sink);
                }
            }
            // One datagram at a time under low load, more at a time under high load. Large ones
            // come one at a time: each uses the same buffer, which stays in the processor's cache.
            let is_large = |meta: &Received| meta.len >= LARGE;
            *next = match got {
                _ if metas[..got].iter().flatten().any(is_large) => 1,
                _ if got < asked => got,
                _ => (2 * asked).min(sys::MAX_DATAGRAMS),
            };
            if got < asked || asked == 1 {
                break;
            }
        }
        done
    }

    /// Receives messages of this user's other processes.
    fn recv_processes(&self, buffers: &mut RxBuffers, budget: usize, sink: Sink<'_>) -> usize {
        self.local.receive(buffers.vec.scratch(), budget, &mut |arrived| {
            // The sender may know of an address that was added after this call began.
            self.take_arrived(&self.sockets(), arrived, sink)
        })
    }

    pub(crate) fn take_arrived(
        &self,
        sockets: &Sockets,
        arrived: Arrived<'_>,
        sink: Sink<'_>,
    ) -> usize {
        let (envelope, from_sender, packets) = match arrived {
            Arrived::Packets { envelope, from_sender, packets } => (envelope, from_sender, packets),
            Arrived::Refresh { ip } => {
                sockets.at(ip).for_each(|socket| self.want_steering(socket));
                return 0;
            }
        };
        let local = sockets.at(envelope.dst).next().map(|socket| socket.index);
        let proof = match from_sender {
            true => Proof::Process,
            false if self.origin_of(sockets, envelope.src) == Origin::Good => Proof::Relayed,
            false => Proof::RelayedUnproven,
        };
        let is_mad = |packet: &[u8]| packet.len() >= BTH_LEN && dest_qpn(packet) == MAD_QPN;
        if proof.is_missing() && !message::packets(packets).flatten().all(is_mad) {
            // Neither the receiving process nor this process has a socket at the source address.
            self.drop_local(envelope.src, message::packets(packets).count() as u64);
            return 0;
        }
        let (mut done, mut forwarded) = (0, 0);
        for packet in message::packets(packets) {
            let Some(bytes) = packet
                .ok()
                .filter(|bytes| (BTH_LEN..=MAX_PACKET).contains(&bytes.len()))
                .filter(|bytes| match dest_qpn(bytes) {
                    MAD_QPN => true,
                    MULTICAST_QPN => from_sender && envelope.dst.is_multicast(),
                    qpn => slot_of_qpn(qpn).is_some_and(|slot| self.local.owns(slot)),
                })
            else {
                // Never forwarded again, so that no packet travels in circles.
                self.local.note_malformed();
                continue;
            };
            forwarded += 1;
            let packet = RxPacket::of(&envelope, local, proof, bytes);
            let given = self.tap.admit(packet, 0, sink);
            done += given;
            add(&self.counters.rx_bytes, (given * bytes.len()) as u64);
        }
        add(&self.counters.rx_packets, done as u64);
        add(&self.counters.forwarded_in, forwarded);
        done
    }

    /// Answers a steering test of another process of this user on this host. Returns `false` if
    /// the packet is no such steering test, or if the testing process has ended.
    pub(crate) fn answer_steering_test(&self, packet: &RxPacket<'_>) -> bool {
        let test = crate::steer::SteeringTest::parse(packet.bytes)
            // Its source address is its destination address.
            .filter(|test| test.uid == self.local.uid() && packet.src.ip() == packet.dst);
        let Some(test) = test else { return false };
        let told = self.local.answer_steering_test(&test.reply_name(), test.nonce, test.index);
        if told {
            add(&self.counters.steering_tests_answered, 1);
        }
        told
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, UdpSocket};

    use super::*;
    use crate::types::Config;
    use adverb_local::Local;

    /// An error of a socket is counted, and the same call receives from another socket.
    #[test]
    fn sys_8_a_socket_that_fails_is_counted_and_stops_no_other() {
        let free = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let link = UdpLink::new(
            Config { port: free, steer: false, ..Config::default() },
            Local::new(1).unwrap(),
        );
        let [broken, whole] = [1, 2].map(|n| IpAddr::from([127, 0, 0, n]));
        let index = link.add_address(broken, 0).unwrap();
        link.add_address(whole, 0).unwrap();
        // A socket without a connection, from which receiving fails.
        let other = AddressSocket::open(
            link.local.descriptors(),
            index,
            broken,
            0,
            &Config { port: 0, ..link.config.clone() },
        );
        let other = AddressSocket {
            fd: adverb_os::sys::message_socket(link.local.descriptors()).unwrap(),
            ..other.unwrap()
        };
        link.replace_socket(index, other);

        // Too short for a packet: counted by the working socket.
        let sender = UdpSocket::bind((whole, 0)).unwrap();
        sender.send_to(b"short", (whole, free)).unwrap();
        let mut buffers = RxBuffers::new(1);
        for _ in 0..1000 {
            link.recv(RxFrom::Every, &mut buffers, 8, &mut |_| {});
            if link.stats().rx_datagrams > 0 {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let stats = link.stats();
        assert_eq!(stats.rx_datagrams, 1, "{stats:?}");
        assert!(stats.local.socket_errors > 0, "{stats:?}");
        assert_eq!(link.local.errors().kinds(), 1, "one kind");
    }
}
